//! The status of policies of policies.kyverno.io, in Kyverno's fields: `conditionStatus` with exactly two conditions, in
//! this order. Pure.
//!
//! | condition | it is `True` once |
//! |---|---|
//! | `WebhookConfigured` | the policy is in force, as `Ready` says for policies of kyverno.io |
//! | `RBACPermissionsGranted` | the objects that it is scanned on may be listed and watched |
//!
//! `ready` is true if both conditions are. `message` has further remarks, or is empty.

use anteroom_model::Failure;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde_json::{Value, json};

use super::conditions::{self, Ready, SERVED};

/// The condition that says whether the policy is in force.
pub(crate) const WEBHOOK_CONFIGURED: &str = "WebhookConfigured";

/// The condition that says whether the policy can be scanned.
const RBAC_GRANTED: &str = "RBACPermissionsGranted";

/// The desired status of a policy, beside its present status.
#[derive(Clone, Debug)]
pub(crate) struct CelStatus {
    conditions: [Ready; 2],
    summary: Summary,
    /// The summary as the object has it now.
    summary_now: Summary,
}

/// The fields of `conditionStatus` beside its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Summary {
    ready: Option<bool>,
    message: Option<String>,
}

impl Summary {
    /// Reads it from a status.
    pub(crate) fn read(status: &Value) -> Self {
        let summary = status.get("conditionStatus").cloned().unwrap_or_default();
        serde_json::from_value(summary).unwrap_or_default()
    }
}

impl CelStatus {
    /// Returns the status of a policy with this `Ready` condition. `unscannable` says which objects it cannot be
    /// scanned on, and why; empty: it can.
    pub(crate) fn new(ready: &Ready, unscannable: &str, summary_now: Summary) -> Self {
        let says = |type_, is_true, message: String| {
            let (status, reason) = match is_true {
                true => ("True", "Succeeded"),
                false => ("False", "Failed"),
            };
            let failure = Failure::new(reason, message);
            Ready::of_type(type_, status, failure, ready.generation)
        };
        let is_in_force = ready.status == "True";
        let webhook = match is_in_force {
            true => "Webhook configured.".to_owned(),
            false => format!("{}: {}", ready.reason, ready.message),
        };
        let rbac = match unscannable {
            "" => "Policy is ready for reporting.".to_owned(),
            why => format!("Policy is not ready for reporting: {why}"),
        };
        let message = match &*ready.message {
            SERVED => String::new(),
            message => message.to_owned(),
        };
        Self {
            conditions: [
                says(WEBHOOK_CONFIGURED, is_in_force, webhook),
                says(RBAC_GRANTED, unscannable.is_empty(), rbac),
            ],
            summary: Summary {
                ready: Some(is_in_force && unscannable.is_empty()),
                message: Some(message),
            },
            summary_now,
        }
    }

    /// The conditions that it should have.
    pub(crate) fn wanted(&self) -> &[Ready] {
        &self.conditions
    }

    /// The desired fields beside the conditions.
    pub(crate) fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Returns whether the conditions and the summary fields equal the desired status; `None`: the object's own
    /// fields.
    pub(crate) fn is_said_by(&self, conditions: &[Condition], summary: Option<&Summary>) -> bool {
        let said = self.conditions.iter().zip(conditions);
        let mut said =
            said.map(|(wanted, said)| said.type_ == wanted.type_ && wanted.is_said_by(said));
        conditions.len() == self.conditions.len()
            && said.all(|said| said)
            && *summary.unwrap_or(&self.summary_now) == self.summary
    }

    /// The conditions to write in the place of `before`.
    pub(crate) fn conditions(&self, before: &[Condition], now: Timestamp) -> Vec<Condition> {
        let conditions = self.conditions.iter();
        conditions
            .map(|wanted| wanted.as_condition(before, now))
            .collect()
    }

    /// The part of a merge patch of the status that has these conditions.
    pub(crate) fn patch(&self, conditions: &[Condition]) -> Value {
        let Summary { ready, message } = &self.summary;
        let status = json!({"ready": ready, "message": message, "conditions": conditions});
        json!({"conditionStatus": status})
    }
}

/// Reads the conditions from a status.
pub(crate) fn read_conditions(status: &Value) -> Vec<Condition> {
    let conditions = status.pointer("/conditionStatus/conditions").cloned();
    conditions::read(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(status: &'static str, reason: &str, message: &str) -> Ready {
        Ready::new(status, Failure::new(reason, message), 3)
    }

    fn patch(ready: &Ready, unscannable: &str) -> Value {
        let status = CelStatus::new(ready, unscannable, Summary::default());
        let conditions = status.conditions(&[], Timestamp::UNIX_EPOCH);
        let patch = status.patch(&conditions);
        assert_eq!(read_conditions(&patch), conditions);
        let read = Summary::read(&patch);
        assert!(status.is_said_by(&conditions, Some(&read)));
        assert!(
            !status.is_said_by(&conditions, None),
            "the object says nothing yet"
        );
        patch
    }

    fn said(patch: &Value) -> Vec<String> {
        let conditions = patch["conditionStatus"]["conditions"].as_array().unwrap();
        let texts = conditions.iter().map(|condition| {
            assert_eq!(condition["observedGeneration"], 3);
            let text = |field: &str| condition[field].as_str().unwrap();
            let fields = ["type", "status", "reason", "message"].map(text);
            fields.join(" ")
        });
        texts.collect()
    }

    #[test]
    fn the_status_of_a_policy_in_force_equals_kyvernos() {
        let patch = patch(&ready("True", "Succeeded", SERVED), "");
        assert_eq!(
            said(&patch),
            [
                "WebhookConfigured True Succeeded Webhook configured.",
                "RBACPermissionsGranted True Succeeded Policy is ready for reporting.",
            ]
        );
        assert_eq!(patch["conditionStatus"]["ready"], true);
        assert_eq!(patch["conditionStatus"]["message"], "");
    }

    #[test]
    fn a_policy_that_does_not_compile_says_why() {
        let patch = patch(&ready("False", "Invalid", "AR302 spec.x: no"), "");
        assert_eq!(
            said(&patch)[0],
            "WebhookConfigured False Failed Invalid: AR302 spec.x: no"
        );
        assert_eq!(patch["conditionStatus"]["ready"], false);
        assert_eq!(patch["conditionStatus"]["message"], "AR302 spec.x: no");
    }

    #[test]
    fn a_policy_that_cannot_be_scanned_is_in_force_and_not_ready() {
        let patch = patch(&ready("True", "Succeeded", SERVED), "`pods/exec` is none");
        assert!(said(&patch)[0].starts_with("WebhookConfigured True"));
        assert_eq!(
            said(&patch)[1],
            "RBACPermissionsGranted False Failed Policy is not ready for reporting: `pods/exec` is none"
        );
        assert_eq!(patch["conditionStatus"]["ready"], false);
    }

    #[test]
    fn reordered_missing_or_foreign_conditions_are_written_again() {
        let status = CelStatus::new(&ready("True", "Succeeded", SERVED), "", Summary::default());
        let all = status.conditions(&[], Timestamp::UNIX_EPOCH);
        let is_said =
            |conditions: &[Condition]| status.is_said_by(conditions, Some(status.summary()));
        assert!(is_said(&all));
        let reversed: Vec<_> = all.iter().rev().cloned().collect();
        let cached = Condition {
            type_: "PolicyCached".into(),
            ..all[0].clone()
        };
        for other in [reversed, [&all[..], &[cached]].concat(), all[..1].to_vec()] {
            assert!(!is_said(&other), "{other:?}");
            assert_eq!(status.conditions(&other, Timestamp::UNIX_EPOCH).len(), 2);
        }
    }
}
