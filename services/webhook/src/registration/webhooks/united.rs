//! The webhooks that namespaces share: those of the same rules, and those with united rules beyond a limit. Pure.

use std::collections::BTreeMap;

use anteroom_engine::policies::WebhookClass;

use super::{
    ObjectWebhook, Operations, Webhooks, add,
    versions::{Convertible, Versions},
};

/// Webhooks with united rules for each failure policy. Each has the namespaces whose policies name the same versions of
/// resources that are served in several; further ones share the last.
const UNITED_WEBHOOKS_MAX: usize = 8;

/// Bytes of the united rules of namespaces that share a webhook, as JSON.
const SHARED_RULES_BYTES_MAX: usize = 64 * 1024;

/// Merges webhooks that are called for the same objects, and all webhooks beyond `max`.
pub(super) fn shared(
    mut webhooks: Webhooks<(bool, &str, Versions)>,
    max: usize,
    convertible: &Convertible,
) -> impl Iterator<Item = ObjectWebhook> + use<> {
    let mut alike: BTreeMap<(WebhookClass, Operations), ObjectWebhook> = BTreeMap::new();
    for webhook in std::mem::take(&mut webhooks.listed).into_values() {
        let key = (webhook.class, webhook.operations.clone());
        add(&mut alike, key, webhook);
    }
    let mut kept: Vec<_> = alike.into_values().collect();
    let mut beyond = Webhooks {
        listed: BTreeMap::new(),
        of_all_resources: webhooks.of_all_resources,
    };
    if kept.len() + beyond.of_all_resources.len() > max {
        let united_max = (max / 16).clamp(1, UNITED_WEBHOOKS_MAX);
        // Webhooks with few resources stay separate.
        kept.sort_by_key(|webhook| webhook.operations.len());
        let remaining = kept.split_off(max.saturating_sub(2 * (united_max + 1)));
        unite_by_version(&mut beyond, remaining, united_max, convertible);
    }
    kept.extend(beyond.into_values());
    kept.sort_by_cached_key(|webhook| (webhook.class.ignore, webhook.name()));
    kept.into_iter()
}

/// Unites webhooks that name the same versions of resources, in at most `max` webhooks for each failure policy.
fn unite_by_version(
    united: &mut Webhooks<(bool, Operations)>,
    webhooks: Vec<ObjectWebhook>,
    max: usize,
    convertible: &Convertible,
) {
    for webhook in webhooks {
        let ignore = webhook.class.ignore;
        let mut by_version = webhook.operations.clone();
        by_version.retain(|name, _| convertible.is_named(name));
        let mut key = (ignore, by_version);
        let mut of_same_action = united.listed.keys().filter(|key| key.0 == ignore);
        if !united.listed.contains_key(&key) && of_same_action.clone().count() == max {
            key = of_same_action.next_back().cloned().unwrap_or(key);
        }
        united.add(key, webhook, SHARED_RULES_BYTES_MAX, convertible);
    }
}
