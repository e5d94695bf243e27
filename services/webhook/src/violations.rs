//! The violations in a decision that the reporter writes Events of. Pure.
//!
//! The next scan finds a violation in a stored object again.

use anteroom_engine::{
    incoming::Incoming as _,
    verdict::{Decision, RuleRecord},
};
use anteroom_policy::{Operation, RuleOutcome};
use anteroom_wire::violation::{MESSAGE_BYTES_MAX, ViolatedRule, Violation, cut};

use crate::review::Review;

/// Returns the violation to report for a decision. For an admitted request it has only violations that no scan will
/// find.
pub(crate) fn violation_of(review: &Review<'_>, decision: &Decision) -> Option<Violation> {
    let is_bad = |record: &&RuleRecord| {
        matches!(
            record.outcome,
            RuleOutcome::Fail { .. } | RuleOutcome::Error(_)
        )
    };
    let head = &review.head;
    let blocked = !decision.allowed();
    let leaves_an_object = matches!(review.operation(), Operation::Create | Operation::Update)
        && head.sub_resource.is_empty();
    let is_told = |record: &&RuleRecord| blocked || !leaves_an_object || record.name.unscanned;
    let mut records = decision.rules.iter().filter(is_bad).filter(is_told);
    let first = records.next()?;
    if review.is_dry_run() {
        return None;
    }
    let (group, version) = (&*head.kind.group, &*head.kind.version);
    let violation = Violation {
        operation: review.operation().as_str().to_owned(),
        blocked,
        api_version: match group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        },
        kind: head.kind.kind.clone().into_owned(),
        namespace: match (group, &*head.kind.kind) {
            ("", "Namespace") => String::new(), // It lives in none.
            _ => head.namespace.clone().into_owned(),
        },
        name: head.name.clone().into_owned(),
        ..Violation::default()
    };
    let records = std::iter::once(first).chain(records);
    Some(violation.with_rules(records.map(violated)))
}

fn violated(record: &RuleRecord) -> ViolatedRule {
    let policy = &record.name.reader.policy;
    let message = match record.public_outcome() {
        RuleOutcome::Fail { message } => message,
        RuleOutcome::Error(error) => format!("{} {error}", error.code()),
        _ => String::new(),
    };
    ViolatedRule {
        policy_namespace: policy.namespace.to_string(),
        policy: policy.name.to_string(),
        rule: record.name.rule().to_owned(),
        error: matches!(record.outcome, RuleOutcome::Error(_)),
        unscanned: record.name.unscanned,
        message: cut(&message, MESSAGE_BYTES_MAX),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anteroom_model::ObjectKey;
    use anteroom_policy::FailureAction;
    use anteroom_wire::violation::RULES_MAX;
    use serde_json::json;

    use super::*;
    use anteroom_engine::{
        rule::RuleName,
        verdict::{self, ChangedPlaces},
    };

    fn violation_of_one(
        operation: &str,
        dry_run: bool,
        action: FailureAction,
        unscanned: bool,
    ) -> Option<Violation> {
        violation_of_messages(operation, dry_run, action, unscanned, &["taken"])
    }

    /// Returns the violation for a decision with a rule record for each message.
    fn violation_of_messages(
        operation: &str,
        dry_run: bool,
        action: FailureAction,
        unscanned: bool,
        messages: &[&str],
    ) -> Option<Violation> {
        let body =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "resource": {"group": "apps", "version": "v1", "resource": "deployments"},
            "dryRun": dry_run, "namespace": "n", "name": "a", "operation": operation,
            "object": {"metadata": {}}, "oldObject": {"metadata": {}}}})
            .to_string();
        let review = Review::parse(body.as_bytes()).unwrap();
        let mut name = RuleName::new(ObjectKey::new("", "p"), "r");
        name.unscanned = unscanned;
        let record = |outcome| RuleRecord {
            name: Arc::new(RuleName::new(ObjectKey::new("", "p"), "passes")),
            action,
            ignore_errors: false,
            warn_on_audit: false,
            facts: Vec::new(),
            changed: ChangedPlaces::default(),
            excepted_by: Vec::new(),
            properties: std::collections::BTreeMap::new(),
            depends_on_arrival: false,
            knows_secrets: false,
            took: std::time::Duration::ZERO,
            outcome,
        };
        let name = Arc::new(name);
        let fails = |message: &&str| RuleRecord {
            name: Arc::clone(&name),
            ..record(RuleOutcome::Fail {
                message: (*message).into(),
            })
        };
        let passes = std::iter::once(record(RuleOutcome::Pass));
        let records = passes.chain(messages.iter().map(fails)).collect();
        let decision = verdict::decide(records, Vec::new());
        violation_of(&review, &decision)
    }

    #[test]
    fn a_violation_of_a_rule_that_read_secrets_withholds_its_message() {
        let name = Arc::new(RuleName::new(ObjectKey::new("", "p"), "r"));
        let record = |outcome| RuleRecord {
            name: Arc::clone(&name),
            action: FailureAction::Enforce,
            ignore_errors: false,
            warn_on_audit: false,
            facts: Vec::new(),
            changed: ChangedPlaces::default(),
            excepted_by: Vec::new(),
            properties: std::collections::BTreeMap::new(),
            depends_on_arrival: false,
            knows_secrets: true,
            took: std::time::Duration::ZERO,
            outcome,
        };
        let failed = violated(&record(RuleOutcome::Fail {
            message: "no hunter2".into(),
        }));
        assert!(failed.message.starts_with("withheld"), "{failed:?}");
        let error = violated(&record(RuleOutcome::Error(
            anteroom_policy::RuleError::TooManyObjects {
                seen: 1,
                target: "hunter2".into(),
            },
        )));
        assert!(error.message.starts_with("AR203 withheld"), "{error:?}");
    }

    #[test]
    fn a_violation_counts_the_rules_it_has_no_room_for() {
        let long = "m".repeat(MESSAGE_BYTES_MAX + 1);
        let of = |messages: &[&str]| {
            violation_of_messages("CREATE", false, FailureAction::Enforce, false, messages).unwrap()
        };
        let full = of(&["m"; RULES_MAX]);
        assert_eq!((full.rules.len(), full.left_out), (RULES_MAX, 0));
        let over = of(&[long.as_str(); RULES_MAX + 2]);
        assert_eq!((over.rules.len(), over.left_out), (RULES_MAX, 2));
        let message = &over.rules[0].message;
        assert!(message.len() <= MESSAGE_BYTES_MAX && message.ends_with('…'));
    }

    #[test]
    fn a_violation_is_published_where_no_scan_will_find_it() {
        use FailureAction::{Audit, Enforce};
        for (operation, dry_run, action, unscanned, expected) in [
            ("CREATE", false, Enforce, false, Some(true)),
            ("CREATE", true, Enforce, false, None),
            ("CREATE", false, Audit, false, None),
            ("UPDATE", false, Audit, true, Some(false)),
            ("DELETE", false, Audit, false, Some(false)),
        ] {
            let found = violation_of_one(operation, dry_run, action, unscanned);
            let blocked = found.as_ref().map(|violation| violation.blocked);
            assert_eq!(blocked, expected, "{operation} {action:?} {unscanned}");
            if let Some(found) = found {
                assert_eq!((&*found.api_version, &*found.name), ("apps/v1", "a"));
                assert_eq!(found.rules.len(), 1);
                assert_eq!(found.rules[0].message, "taken");
            }
        }
    }
}
