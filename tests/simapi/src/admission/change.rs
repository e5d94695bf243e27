//! The webhooks that change an object.

use serde_json::Value;

use super::{Review, admitted, ask, namespace_labels, registered, rules::Webhook};
use crate::{metadata::Identity, status::Failure, store::Store};

pub(crate) const CONFIGURATIONS: &str =
    "mutatingwebhookconfigurations.admissionregistration.k8s.io";

/// Asks every mutating webhook that wants to be asked, in order of configuration, each about what those
/// before it made of the object; and once more those that want to know what was changed after them. The
/// object as they leave it and the warnings of all, or the first denial.
pub(crate) async fn change(
    store: &Store,
    review: &Review<'_>,
    identity: &Identity,
) -> Result<(Option<Value>, Vec<String>), Failure> {
    let mut object = review.object.cloned();
    let mut warnings = Vec::new();
    if review.resource.group == "admissionregistration.k8s.io" {
        return Ok((object, warnings));
    }
    let webhooks = registered(store, CONFIGURATIONS)?;
    let namespace_labels = namespace_labels(store, review);
    // The object that each webhook left, for webhooks that were called.
    let mut seen: Vec<Option<Option<Value>>> = vec![None; webhooks.len()];
    for is_again in [false, true] {
        for (webhook, seen) in webhooks.iter().zip(&mut seen) {
            let now = Review {
                object: object.as_ref(),
                ..*review
            };
            let is_changed = seen.as_ref().is_some_and(|seen| *seen != object);
            let is_due = !is_again || (webhook.wants_again() && is_changed);
            if !is_due || !webhook.wants(&now, &namespace_labels) {
                continue;
            }
            let said = admitted(webhook, ask(webhook, &now, identity).await)?;
            warnings.extend(said.warnings);
            if let (Some(patch), Some(object)) = (said.patch, &mut object) {
                apply(webhook, object, &patch)?;
            }
            *seen = Some(object.clone());
        }
    }
    Ok((object, warnings))
}

fn apply(webhook: &Webhook, object: &mut Value, patch: &json_patch::Patch) -> Result<(), Failure> {
    json_patch::patch(object, patch).map_err(|error| {
        let message = format!(
            "the patch of webhook {:?} does not apply: {error}",
            webhook.name
        );
        Failure::new(500, "InternalError", message)
    })
}
