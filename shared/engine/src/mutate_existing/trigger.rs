//! The object that triggers a rule, as the cluster has it.
//!
//! A review proves nothing by itself: another webhook may refuse the request, and anyone who knows this webhook's
//! path may make a review up. So the object is read before the rule runs, and the stored object replaces the object
//! of the review.
//!
//! | request | the stored object | then |
//! |---|---|---|
//! | CREATE | has the request's UID | it took effect |
//! | UPDATE | has the request's UID, and another `resourceVersion` than before | it took effect |
//! | UPDATE | has the request's UID, and the same `resourceVersion` | it changed nothing, or is not stored yet |
//! | DELETE | is gone, is being deleted, or was made anew | it took effect |
//! | any | anything else | it is not stored yet, or never was |
//!
//! A deleted object cannot be read any more. Its content is read before the request is answered
//! ([`MutateExisting::read_before_delete`](super::MutateExisting::read_before_delete)).

use anteroom_model::FactError;
use anteroom_policy::{AdmissionRequest, Operation};
use serde_json::Value;
use tokio::time::Instant;

use crate::{facts::BusFacts, rule::RuleRef};

/// The effect of a request, as the cluster shows it.
#[derive(Debug)]
pub(super) enum TriggerEffect {
    /// The request took effect; the value has the object as stored.
    Stored(Box<AdmissionRequest>),
    /// The object is as it was before.
    Unchanged(Box<AdmissionRequest>),
    /// The object does not exist, or a different object has its name.
    NotStored,
}

/// Looks up the object of a request.
///
/// # Errors
/// The reason why it cannot be read.
pub(super) async fn look_up(
    facts: &BusFacts,
    reader: &RuleRef,
    request: &AdmissionRequest,
    deadline: Instant,
) -> Result<Option<Value>, FactError> {
    let mut found = facts.triggers(reader, request.subject(), deadline).await?;
    let items = found["items"].as_array_mut();
    Ok(items.and_then(Vec::pop))
}

/// Returns the effect of a request whose object is now `stored` (`None`: no object is). Pure.
pub(super) fn effect(request: &AdmissionRequest, stored: Option<Value>) -> TriggerEffect {
    if request.operation() == Operation::Delete {
        return match stored.filter(|stored| is_same(request, stored) && !is_being_deleted(stored)) {
            Some(_) => TriggerEffect::NotStored,
            None => TriggerEffect::Stored(Box::new(request.clone())),
        };
    }
    let Some(stored) = stored.filter(|stored| is_same(request, stored)) else {
        return TriggerEffect::NotStored;
    };
    let before = request.old_object().and_then(version);
    let is_unchanged = before.is_some() && version(&stored) == before;
    let request = Box::new(with_stored(request, stored));
    match is_unchanged {
        true => TriggerEffect::Unchanged(request),
        false => TriggerEffect::Stored(request),
    }
}

/// Returns a DELETE of the stored object; `None`: the request could delete no stored object. Pure.
pub(super) fn deletion(
    request: &AdmissionRequest,
    stored: Option<Value>,
) -> Option<AdmissionRequest> {
    let stored = stored.filter(|stored| is_same(request, stored))?;
    Some(match is_identity_alone(&stored) {
        true => request.clone(),
        false => request.clone().with_old_object(stored),
    })
}

fn with_stored(request: &AdmissionRequest, stored: Value) -> AdmissionRequest {
    match is_identity_alone(&stored) {
        true => request.clone(),
        false => request.with_object(stored),
    }
}

/// Returns whether both are one object. A request whose object has no UID is about none that is stored.
fn is_same(request: &AdmissionRequest, stored: &Value) -> bool {
    let uid = |object: &Value| object["metadata"]["uid"].as_str().map(str::to_owned);
    let of_request = uid(request.matched_object());
    of_request.is_some_and(|of_request| !of_request.is_empty() && uid(stored) == Some(of_request))
}

fn is_being_deleted(stored: &Value) -> bool {
    stored["metadata"]["deletionTimestamp"].is_string()
}

fn version(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str()
}

/// Returns whether the watcher says which object it is and nothing else, as of Secrets.
fn is_identity_alone(stored: &Value) -> bool {
    stored["apiVersion"] == "v1" && stored["kind"] == "Secret"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(operation: &str, object: &Value, old: &Value) -> AdmissionRequest {
        AdmissionRequest::new(json!({
            "operation": operation, "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
            "namespace": "shop", "name": "c", "object": object, "oldObject": old,
        }))
        .unwrap()
    }

    fn object(uid: &str, version: &str, value: &str) -> Value {
        json!({"metadata": {"name": "c", "uid": uid, "resourceVersion": version}, "data": {"a": value}})
    }

    /// Returns the outcome, with the object or the old object that the rule sees.
    fn said(effect: TriggerEffect) -> (&'static str, Value) {
        match effect {
            TriggerEffect::Stored(request) => {
                ("stored", request.matched_object()["data"]["a"].clone())
            }
            TriggerEffect::Unchanged(request) => {
                ("unchanged", request.matched_object()["data"]["a"].clone())
            }
            TriggerEffect::NotStored => ("not stored", Value::Null),
        }
    }

    #[test]
    fn the_effect_of_a_request_is_read_from_the_stored_object() {
        let mut terminating = object("u", "1", "old");
        terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let no_uid = json!({"metadata": {"name": "c"}, "data": {"a": "said"}});
        let (create, update, delete) = (
            request("CREATE", &object("u", "", "said"), &Value::Null),
            request(
                "UPDATE",
                &object("u", "1", "said"),
                &object("u", "1", "old"),
            ),
            request("DELETE", &Value::Null, &object("u", "1", "old")),
        );
        for (request, stored, expected) in [
            (
                &create,
                Some(object("u", "1", "real")),
                ("stored", json!("real")),
            ),
            (
                &create,
                Some(object("v", "1", "real")),
                ("not stored", Value::Null),
            ),
            (&create, None, ("not stored", Value::Null)),
            (
                &request("CREATE", &no_uid, &Value::Null),
                Some(no_uid),
                ("not stored", Value::Null),
            ),
            (
                &update,
                Some(object("u", "2", "real")),
                ("stored", json!("real")),
            ),
            (
                &update,
                Some(object("u", "1", "old")),
                ("unchanged", json!("old")),
            ),
            (
                &update,
                Some(object("v", "2", "real")),
                ("not stored", Value::Null),
            ),
            (&update, None, ("not stored", Value::Null)),
            (&delete, None, ("stored", json!("old"))),
            (&delete, Some(terminating), ("stored", json!("old"))),
            (
                &delete,
                Some(object("v", "2", "new")),
                ("stored", json!("old")),
            ),
            (
                &delete,
                Some(object("u", "1", "old")),
                ("not stored", Value::Null),
            ),
        ] {
            let of = format!("{} {stored:?}", request.operation().as_str());
            assert_eq!(said(effect(request, stored)), expected, "{of}");
        }
    }

    #[test]
    fn a_deletion_triggers_by_the_stored_object_and_not_by_the_one_in_the_review() {
        let delete = request("DELETE", &Value::Null, &object("u", "1", "said"));
        let of = |stored| deletion(&delete, stored).map(|request| request.matched_object().clone());
        assert_eq!(
            of(Some(object("u", "1", "real"))),
            Some(object("u", "1", "real"))
        );
        assert_eq!(of(Some(object("v", "1", "real"))), None);
        assert_eq!(of(None), None);
    }

    #[test]
    fn a_secret_is_looked_up_without_its_content() {
        let identity = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "2"}});
        let update = request(
            "UPDATE",
            &object("u", "1", "said"),
            &object("u", "1", "old"),
        );
        assert_eq!(
            said(effect(&update, Some(identity.clone()))),
            ("stored", json!("said"))
        );
        let delete = request("DELETE", &Value::Null, &object("u", "1", "said"));
        let deleted = deletion(&delete, Some(identity)).unwrap();
        assert_eq!(deleted.matched_object()["data"]["a"], "said");
    }
}
