//! The result of a rule on an object, as reports have it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use anteroom_model::ObjectKey;
use anteroom_policy::{Policy, PolicyKind, Reporting, RuleOutcome};
use anteroom_wire::violation::cut;
use serde_json::Value;

/// The length of a message; a longer one is cut, and ends with `…`.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 * 1024;

/// The length of the names and values of a result's properties; those after are left out.
pub(crate) const PROPERTIES_BYTES_MAX: usize = 4 * 1024;

/// The content of a report on a policy's rule (policy, rule, result), and since when, in seconds since 1970.
pub(crate) type ReportedSince = HashMap<(String, String, String), i64>;

/// The result of a rule, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReportOutcome {
    /// The object complies.
    Pass,
    /// The object violates the rule.
    Fail,
    /// The object violates the rule of a policy that is not scored.
    Warn,
    /// Nobody knows.
    Error,
    /// The rule does not apply to it.
    Skip,
}

impl ReportOutcome {
    /// The name of the outcome in reports.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Skip => "skip",
        }
    }

    /// Returns whether people should learn of the result.
    pub(crate) fn is_bad(self) -> bool {
        matches!(self, Self::Fail | Self::Warn | Self::Error)
    }
}

/// The names of a policy and its rule in reports. A policy of policies.kyverno.io is one rule without a name; those that
/// are derived from it have names of ours.
pub(crate) fn named(policy: &ObjectKey, rule: &str) -> (String, String) {
    let rule = match PolicyKind::of_key(policy).0.is_cel() {
        true => "",
        false => rule,
    };
    (PolicyKind::object_key(policy).to_string(), rule.to_owned())
}

/// The result of one rule on one object. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RuleResult {
    pub(crate) rule: Arc<str>,
    pub(crate) outcome: ReportOutcome,
    pub(crate) message: Arc<str>,
    /// Further results, as audit annotations of a policy in CEL by their keys; `None`: there are none.
    pub(crate) properties: Option<Arc<BTreeMap<String, String>>>,
}

impl RuleResult {
    /// Returns whether the result is unknown.
    pub(crate) fn is_error(&self) -> bool {
        self.outcome == ReportOutcome::Error
    }

    /// Returns whether two results have the same meaning. Errors with the same reason have, since durations and
    /// numbers of attempts in a message are no news.
    pub(crate) fn same_result(&self, other: &Self) -> bool {
        let same_message = match self.is_error() {
            false => self.message == other.message,
            true => is_same_error(&self.message, &other.message),
        };
        self.rule == other.rule
            && self.outcome == other.outcome
            && self.properties == other.properties
            && same_message
    }

    /// Sets its properties, as many as there is room for.
    pub(crate) fn set_properties(&mut self, properties: BTreeMap<String, String>) {
        let mut bytes = 0;
        let kept = properties.into_iter().take_while(|(name, value)| {
            bytes += name.len() + value.len();
            bytes <= PROPERTIES_BYTES_MAX
        });
        let kept: BTreeMap<_, _> = kept.collect();
        self.properties = (!kept.is_empty()).then(|| Arc::new(kept));
    }

    /// Returns the result of a rule's outcome; `None`: the rule does not match the object.
    pub(crate) fn of(policy: &Policy, rule: &str, outcome: &RuleOutcome) -> Option<Self> {
        let Reporting { unscored, .. } = policy.reporting();
        let (outcome, message) = match outcome {
            RuleOutcome::NotMatched => return None,
            RuleOutcome::Skipped { reason } => (ReportOutcome::Skip, reason.clone()),
            RuleOutcome::Pass | RuleOutcome::Mutated { .. } => {
                let mut rules = policy.rules().iter();
                let rule = rules.find(|known| known.name() == rule);
                let message = rule.map(anteroom_policy::Rule::pass_message);
                (ReportOutcome::Pass, message.unwrap_or_default())
            }
            RuleOutcome::Fail { message } if *unscored => (ReportOutcome::Warn, message.clone()),
            RuleOutcome::Fail { message } => (ReportOutcome::Fail, message.clone()),
            RuleOutcome::Error(error) => {
                (ReportOutcome::Error, format!("{} {error}", error.code()))
            }
        };
        Some(Self {
            rule: rule.into(),
            outcome,
            message: cut(&message, MESSAGE_BYTES_MAX).into(),
            properties: None,
        })
    }
}

/// Returns whether two errors have one code, and texts that differ in numbers at most.
fn is_same_error(one: &str, other: &str) -> bool {
    fn numberless(text: &str) -> impl Iterator<Item = char> {
        text.chars().filter(|c| !c.is_ascii_digit() && *c != '.')
    }
    match (one.split_once(' '), other.split_once(' ')) {
        (Some((code, text)), Some((other_code, other_text))) => {
            code == other_code && numberless(text).eq(numberless(other_text))
        }
        _ => one == other,
    }
}

/// The object that a report is about. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ReportSubject {
    pub(crate) uid: Arc<str>,
    pub(crate) api_version: Arc<str>,
    pub(crate) kind: Arc<str>,
    /// The namespace; empty for a cluster-scoped object.
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl ReportSubject {
    /// Returns the subject of an object; `None`: it is no object of the API, since it has no name or no UID, or
    /// cannot be read.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        let text = |value: &Value| value.as_str().filter(|t| !t.is_empty()).map(Arc::from);
        Some(Self {
            uid: text(&metadata["uid"])?,
            api_version: text(&object["apiVersion"])?,
            kind: text(&object["kind"])?,
            namespace: text(&metadata["namespace"]).unwrap_or_default(),
            name: text(&metadata["name"])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use anteroom_policy::{Driver, compile_for};
    use serde_json::json;

    use super::*;

    fn policy(scored: &str) -> Policy {
        let manifest = json!({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
            "metadata": {"name": "p", "annotations": {"policies.kyverno.io/scored": scored}},
            "spec": {"rules": [{"name": "r", "match": {"any": [{"resources": {"kinds": ["Node"]}}]},
                "validate": {"message": "m", "pattern": {"x": 1}}}]}});
        compile_for(&manifest, Driver::ALL).unwrap()
    }

    #[test]
    fn every_outcome_has_its_word() {
        let fail = RuleOutcome::Fail {
            message: "taken".into(),
        };
        let skip = RuleOutcome::Skipped {
            reason: "not met".into(),
        };
        for (scored, outcome, expected) in [
            (
                "true",
                RuleOutcome::Pass,
                Some(("pass", "validation rule 'r' passed.")),
            ),
            ("true", fail.clone(), Some(("fail", "taken"))),
            ("false", fail, Some(("warn", "taken"))),
            ("true", skip, Some(("skip", "not met"))),
            (
                "true",
                RuleOutcome::Error(anteroom_policy::RuleError::TooManyFacts),
                Some((
                    "error",
                    "AR203 the rule reads more than 64 facts for one request",
                )),
            ),
            ("true", RuleOutcome::NotMatched, None),
        ] {
            let result = RuleResult::of(&policy(scored), "r", &outcome);
            let found = result.as_ref().map(|r| (r.outcome.as_str(), &*r.message));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn properties_are_told_as_far_as_there_is_room() {
        let mut result = RuleResult::of(&policy("true"), "r", &RuleOutcome::Pass).unwrap();
        let before = result.clone();
        result.set_properties(BTreeMap::new());
        assert_eq!(result, before);
        let value = "x".repeat(PROPERTIES_BYTES_MAX - 1);
        result.set_properties(BTreeMap::from([
            ("a".into(), value),
            ("b".into(), String::new()),
        ]));
        let told: Vec<_> = result
            .properties
            .iter()
            .flat_map(|all| all.keys())
            .collect();
        assert_eq!(told, ["a"], "the second name has no room");
        assert!(!result.same_result(&before));
    }

    #[test]
    fn errors_that_differ_only_in_numbers_are_the_same() {
        let result = |outcome, message: &str| RuleResult {
            rule: "r".into(),
            outcome,
            message: message.into(),
            properties: None,
        };
        for (outcome, one, other, same) in [
            (
                ReportOutcome::Error,
                "AR201 late by 1.5 s",
                "AR201 late by 30 s",
                true,
            ),
            (
                ReportOutcome::Error,
                "AR201 late by 1 s",
                "AR202 late by 1 s",
                false,
            ),
            (
                ReportOutcome::Error,
                "AR201 late by 1 s",
                "AR201 gone by 1 s",
                false,
            ),
            (
                ReportOutcome::Fail,
                "the limit is 1",
                "the limit is 2",
                false,
            ),
            (
                ReportOutcome::Fail,
                "the limit is 1",
                "the limit is 1",
                true,
            ),
        ] {
            let (one, other) = (result(outcome, one), result(outcome, other));
            assert_eq!(one.same_result(&other), same, "{one:?} {other:?}");
        }
        let (error, fail) = (
            result(ReportOutcome::Error, "m"),
            result(ReportOutcome::Fail, "m"),
        );
        assert!(!error.same_result(&fail));
    }

    #[test]
    fn an_object_has_to_have_a_name_and_a_uid() {
        let object = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let subject = ReportSubject::of(&object).unwrap();
        assert_eq!((&*subject.uid, &*subject.namespace), ("u", "n"));
        for missing in ["name", "uid"] {
            let mut object = object.clone();
            object["metadata"][missing] = Value::Null;
            assert_eq!(ReportSubject::of(&object), None);
        }
        assert_eq!(ReportSubject::of(&Value::Null), None);
    }
}
