use std::sync::Arc;

use anteroom_model::ObjectKey;
use anteroom_policy::{FailureAction, RuleError};
use serde_json::json;

use super::*;
use crate::{
    rule::RuleName,
    verdict::{self, CHANGED_BYTES_MAX, CHANGED_MAX},
};

impl Mutation {
    /// Adds a rule's record, once the object that the rule made is compared.
    fn take(&mut self, record: RuleRecord) -> NextAsked {
        let changed = match &record.outcome {
            RuleOutcome::Mutated { object } => {
                self.places(object).ok_or(RuleError::ReviewTooCostly)
            }
            _ => Ok(ChangedPlaces::default()),
        };
        self.note(record, changed)
    }

    /// Returns all records, and the patch.
    fn end(self) -> (Vec<RuleRecord>, Option<Value>) {
        let patch = self.patch().unwrap_or_else(|_| self.whole_patch());
        (self.into_records(), patch)
    }
}

fn mutation() -> Mutation {
    let request = json!({
        "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "object": { "a": 1, "list": [1, 2] },
    });
    Mutation::new(AdmissionRequest::new(request).unwrap())
}

fn record(outcome: RuleOutcome, ignore_errors: bool) -> RuleRecord {
    RuleRecord {
        took: std::time::Duration::ZERO,
        name: Arc::new(RuleName::new(ObjectKey::new("", "p"), "r")),
        action: FailureAction::Enforce,
        ignore_errors,
        warn_on_audit: false,
        outcome,
        changed: ChangedPlaces::default(),
        facts: Vec::new(),
        excepted_by: Vec::new(),
        properties: std::collections::BTreeMap::new(),
        depends_on_arrival: false,
        knows_secrets: false,
    }
}

fn made(object: Value) -> RuleRecord {
    record(RuleOutcome::Mutated { object }, true)
}

fn failed(ignore_errors: bool) -> RuleRecord {
    record(RuleOutcome::Error(RuleError::TooManyFacts), ignore_errors)
}

fn changed(records: &[RuleRecord]) -> Vec<Vec<&str>> {
    let changed = records.iter().map(|record| record.changed.kept());
    changed
        .map(|changed| changed.iter().map(String::as_str).collect())
        .collect()
}

#[test]
fn what_is_undone_is_the_shared_state_from_before() {
    let mut mutation = mutation();
    let sent = mutation.request().shared_object();
    assert!(Arc::ptr_eq(&sent, &mutation.sent));
    mutation.begin_policy();
    assert_eq!(mutation.take(made(json!({ "a": 2 }))), NextAsked::Rule);
    assert!(!Arc::ptr_eq(&sent, &mutation.request().shared_object()));
    assert_eq!(mutation.take(failed(true)), NextAsked::Policy);
    assert!(Arc::ptr_eq(&sent, &mutation.request().shared_object()));
    assert_eq!(mutation.end().1, None);
}

#[test]
fn each_rule_sees_the_object_as_changed_by_the_rules_before_it() {
    let mut mutation = mutation();
    mutation.begin_policy();
    assert_eq!(
        mutation.take(made(json!({ "a": 2, "list": [1, 2] }))),
        NextAsked::Rule
    );
    assert_eq!(mutation.request().matched_object()["a"], 2);
    let skipped = RuleOutcome::Skipped { reason: "s".into() };
    assert_eq!(mutation.take(record(skipped, false)), NextAsked::Rule);
    mutation.begin_policy();
    assert_eq!(
        mutation.take(made(json!({ "a": 3, "list": [1], "b": {} }))),
        NextAsked::Rule
    );
    let (records, patch) = mutation.end();
    assert_eq!(
        changed(&records),
        [vec!["/a"], vec![], vec!["/a", "/b", "/list/1"]]
    );
    // A single patch of the sent object, not a history of patches.
    assert_eq!(
        patch.unwrap(),
        json!([
            { "op": "replace", "path": "/a", "value": 3 },
            { "op": "add", "path": "/b", "value": {} },
            { "op": "remove", "path": "/list/1" },
        ])
    );
}

#[test]
fn an_object_changed_and_changed_back_gives_no_patch() {
    let mut mutation = mutation();
    mutation.begin_policy();
    mutation.take(made(json!({ "a": 2, "list": [1, 2] })));
    mutation.take(made(json!({ "a": 1, "list": [1, 2] })));
    assert_eq!(mutation.end().1, None);
    assert_eq!(self::mutation().end().1, None);
}

#[test]
fn a_policy_that_ignores_failures_is_applied_whole_or_not_at_all() {
    let mut mutation = mutation();
    mutation.begin_policy();
    mutation.take(made(json!({ "a": 2 })));
    mutation.begin_policy();
    mutation.take(made(json!({ "a": 2, "b": 1 })));
    mutation.take(made(json!({ "a": 2, "b": 2 })));
    assert_eq!(mutation.take(failed(true)), NextAsked::Policy);
    assert_eq!(mutation.request().matched_object(), &json!({ "a": 2 }));
    mutation.begin_policy();
    assert_eq!(mutation.take(failed(true)), NextAsked::Policy);
    let (records, patch) = mutation.end();
    assert_eq!(
        changed(&records),
        [vec!["/list", "/a"], vec![], vec![], vec![], vec![]]
    );
    assert_eq!(patch.unwrap().as_array().unwrap().len(), 2);
    // What was undone is not told as done.
    let undone = |record: &&RuleRecord| matches!(record.outcome, RuleOutcome::Skipped { .. });
    assert_eq!(records.iter().filter(undone).count(), 2);
}

#[test]
fn no_further_rule_runs_after_a_failure_that_counts() {
    let mut mutation = mutation();
    mutation.begin_policy();
    assert_eq!(mutation.take(failed(false)), NextAsked::Nobody);
}

#[test]
fn a_change_that_takes_too_many_steps_to_compare_refuses_the_request() {
    let mut mutation = mutation();
    mutation.begin_policy();
    let many: Vec<_> = (0..10_000).collect();
    let changes = made(json!({ "a": 1, "list": many }));
    let (next, left) = meter::within(1_000, || mutation.take(changes));
    assert_eq!((next, left), (NextAsked::Nobody, 0));
    assert_eq!(mutation.request().matched_object()["list"], json!([1, 2]));
    let (records, patch) = mutation.end();
    assert_eq!(patch, None);
    assert_eq!(
        records[0].outcome,
        RuleOutcome::Error(RuleError::ReviewTooCostly)
    );
    assert!(!verdict::decide(records, Vec::new()).allowed());
}

#[test]
fn an_answer_that_takes_too_many_steps_to_compare_replaces_the_object() {
    let mut mutation = mutation();
    mutation.begin_policy();
    let object = json!({ "a": 2, "list": [1, 2] });
    mutation.take(made(object.clone()));
    let ((_, patch), _) = meter::within(1, || mutation.end());
    let whole = json!([{ "op": "replace", "path": "", "value": object }]);
    assert_eq!(patch, Some(whole));
}

/// Hundreds of rules may each change thousands of places, or some below a very long key.
#[test]
fn few_and_short_places_of_each_rule_are_kept_and_the_others_counted() {
    let mut mutation = mutation();
    mutation.begin_policy();
    let long = "ä".repeat(10_000);
    let data: Vec<_> = (0..5_000).collect();
    mutation.take(made(json!({ "a": data, "list": [1, 2] })));
    let data: Vec<_> = (1..5_001).collect();
    mutation.take(made(json!({ "a": data, "list": [1, 2] })));
    mutation.take(made(json!({ &long: 1, "a": data, "list": [1, 2] })));
    let (records, _) = mutation.end();
    let found = records.iter().map(|record| &record.changed);
    let found: Vec<_> = found
        .map(|places| (places.kept().len(), places.left_out()))
        .collect();
    assert_eq!(found, [(1, 0), (CHANGED_MAX, 5_000 - CHANGED_MAX), (1, 0)]);
    let place = &records[2].changed.kept()[0];
    assert!(long.starts_with(&place[1..]) && place.len() <= CHANGED_BYTES_MAX);
}
