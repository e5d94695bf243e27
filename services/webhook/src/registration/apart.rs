//! Webhooks of single policies: of those that have `matchConditions`, which the API server asks before it
//! calls. Pure.
//!
//! All stand in the object that the others are in, which the API server takes whole or not at all. So what it
//! does not take of one policy is left out ([`Refusals`]), and so is what there is no room for.

use std::collections::BTreeMap;

use anteroom_model::ObjectKey;
use anteroom_policy::{MatchCondition, Phase, Policy};
use k8s_openapi::api::admissionregistration::v1::{self, MutatingWebhook};

use super::refused::Refusals;
use crate::phase;

/// Between the path that policies share and the one policy that a webhook is of.
pub(crate) const OF_POLICY: &str = "/policy/";

/// Bytes of the conditions of all policies, in one configuration: an object of the API server has room for
/// about 1.5 MB. Policies beyond that, in order of their names, are not called for.
pub(super) const CONDITIONS_BYTES_MAX: usize = 256 * 1024;

/// Bytes around a condition's own, as an object's fields and in the record of who manages them.
pub(super) const AROUND_BYTES: usize = 100;

/// Webhooks of single policies in one configuration. Those beyond are not called for either.
pub(super) const APART_MAX: usize = 200;

/// Those of the policies of one namespace, so that it takes no room from others.
pub(super) const OF_NAMESPACE_MAX: usize = 20;

/// Bytes of their conditions.
pub(super) const OF_NAMESPACE_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a webhook's name, as the API server has it.
const NAME_BYTES_MAX: usize = 253;

/// Webhooks of single policies, as they come to a configuration.
#[derive(Debug)]
pub(super) struct Apart<'r> {
    refusals: &'r Refusals,
    /// In all, under the empty namespace, and by namespace.
    rooms: BTreeMap<String, Room>,
    /// What is in: each with its policy.
    pub(super) webhooks: Vec<(ObjectKey, MutatingWebhook)>,
    /// What is not, and why.
    pub(super) left_out: BTreeMap<ObjectKey, String>,
}

/// What is taken.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    count: usize,
    bytes: usize,
}

impl<'r> Apart<'r> {
    pub(super) fn new(refusals: &'r Refusals) -> Self {
        Self {
            refusals,
            rooms: BTreeMap::new(),
            webhooks: Vec::new(),
            left_out: BTreeMap::new(),
        }
    }

    /// Takes a policy's webhook in, or says why not.
    pub(super) fn add(&mut self, key: &ObjectKey, policy: &Policy, webhook: MutatingWebhook) {
        let conditions = policy.match_conditions();
        let webhook = MutatingWebhook {
            match_conditions: Some(conditions.iter().map(condition).collect()),
            ..webhook
        };
        if let Some(words) = self.refusals.of(key, &webhook) {
            self.left_out.insert(key.clone(), words.to_owned());
            return;
        }
        let sizes = conditions.iter();
        let bytes = sizes.map(|one| one.name.len() + one.expression.len() + AROUND_BYTES);
        let bytes = bytes.sum::<usize>();
        let namespace = &*key.namespace;
        let own = (namespace, OF_NAMESPACE_MAX, OF_NAMESPACE_BYTES_MAX);
        let all = ("", APART_MAX, CONDITIONS_BYTES_MAX);
        let rooms = [Some(all), Some(own).filter(|_| !namespace.is_empty())];
        let rooms: Vec<_> = rooms.into_iter().flatten().collect();
        let full = rooms.iter().find(|(of, count_max, bytes_max)| {
            let room = self.rooms.get(*of).copied().unwrap_or_default();
            room.count >= *count_max || room.bytes + bytes > *bytes_max
        });
        if let Some((of, count_max, bytes_max)) = full {
            let of = match *of {
                "" => String::new(),
                namespace => format!(" of namespace `{namespace}`"),
            };
            let words = format!(
                "there is no room for it: the webhook configuration holds {count_max} policies{of} with \
                 matchConditions, and {bytes_max} bytes of these"
            );
            self.left_out.insert(key.clone(), words);
            return;
        }
        for (of, ..) in rooms {
            let room = self.rooms.entry(of.to_owned()).or_default();
            room.count += 1;
            room.bytes += bytes;
        }
        self.webhooks.push((key.clone(), webhook));
    }
}

impl Apart<'_> {
    /// What may be passed over first, as in Kyverno; else by the policies' names.
    pub(super) fn order(&mut self) {
        self.webhooks.sort_by_cached_key(|(key, webhook)| {
            let may_be_passed_over = webhook.failure_policy.as_deref() == Some("Ignore");
            (!may_be_passed_over, key.clone())
        });
    }
}

fn condition(of: &MatchCondition) -> v1::MatchCondition {
    v1::MatchCondition {
        name: of.name.clone(),
        expression: of.expression.clone(),
    }
}

/// What follows the path that it shares with others of its failure policy.
pub(super) fn path(key: &ObjectKey) -> String {
    format!("{OF_POLICY}{key}")
}

/// The webhook's name: valid, the same for ever, and no other policy's, be that of a namespace or not.
pub(super) fn name(phase: Phase, key: &ObjectKey) -> String {
    let verb = phase::verb(phase);
    let own = match &*key.namespace {
        "" => format!("{}.clusterpolicy", key.name),
        namespace => format!("{}.{namespace}.policy", key.name),
    };
    let tail = format!("{verb}.anteroom.svc");
    let name = format!("{own}.{tail}");
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    // In the place of what is cut off. No name that is whole has such an end.
    let digest = xxhash_rust::xxh3::xxh3_128(own.as_bytes());
    let tail = format!("{digest:032x}.cut.{tail}");
    let room = NAME_BYTES_MAX - tail.len() - 1;
    let mut end = room.min(own.len());
    while !own.is_char_boundary(end) {
        end -= 1;
    }
    let own = own[..end].trim_end_matches(['.', '-']);
    format!("{own}.{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_each_policys_own() {
        let (long, longer) = ("x".repeat(253), format!("{}y", "x".repeat(252)));
        // Of one of them a dash is the last that there is room for.
        let (dashed, other) = (
            format!("{}a", "a-".repeat(126)),
            format!("aa{}", "-a".repeat(125)),
        );
        let keys = [
            ("", "p"),
            ("", "p.ns"),
            ("ns", "p"),
            ("p", "ns"),
            ("", &*long),
            ("", &*longer),
            ("ns", &*long),
            ("ns", &*longer),
            ("", &*dashed),
            ("", &*other),
        ];
        let mut names: Vec<_> = Phase::ALL
            .into_iter()
            .flat_map(|phase| {
                keys.map(|(namespace, own)| name(phase, &ObjectKey::new(namespace, own)))
            })
            .collect();
        assert_eq!(names[0], "p.clusterpolicy.mutate.anteroom.svc");
        assert_eq!(names[2], "p.ns.policy.mutate.anteroom.svc");
        for name in &names {
            assert!(name.len() <= 253, "{name}");
            assert!(name.split('.').count() >= 3, "{name}");
            assert!(!name.contains("-.") && !name.contains(".."), "{name}");
        }
        // Its end is one that no whole name has.
        assert!(
            names[4].ends_with(".cut.mutate.anteroom.svc"),
            "{}",
            names[4]
        );
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
