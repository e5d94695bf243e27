use std::sync::Arc;

use anteroom_model::{ErrorCode, FactError};
use anteroom_policy::{AdmissionRequest, Evaluation, Policy, RuleOutcome};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::{
    incoming::ReviewOwner,
    review_work::{LongLane, REVIEW_STEPS_MAX},
    rule::RuleName,
    rule_run::NamedRule,
    testing::Script,
};

/// A policy with a rule for each list of variables: it denies where the last one is `bad`. Each variable after the
/// first is an API call whose path names the one before it.
fn policy(rules: &[(&str, &[&str])]) -> Policy {
    let rule = |(name, variables): &(&str, &[&str])| {
        let entry = |(at, variable): (usize, &&str)| match at.checked_sub(1) {
            None => json!({ "name": variable, "cachedContextEntry": { "name": "e" } }),
            Some(before) => {
                let path = format!("/api/v1/namespaces/{{{{ {} }}}}", variables[before]);
                json!({ "name": variable, "apiCall": { "urlPath": path } })
            }
        };
        let context: Vec<Value> = variables.iter().enumerate().map(entry).collect();
        let last = variables.last().unwrap();
        let condition =
            json!({ "key": format!("{{{{ {last} }}}}"), "operator": "Equals", "value": "bad" });
        json!({
            "name": name, "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
            "context": context,
            "validate": { "message": "no", "deny": { "conditions": { "all": [condition] } } },
        })
    };
    let rules: Vec<Value> = rules.iter().map(rule).collect();
    anteroom_policy::compile(&json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
        "spec": { "rules": rules },
    }))
    .unwrap()
}

fn request() -> AdmissionRequest {
    AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "object": { "apiVersion": "v1", "kind": "ConfigMap" },
    }))
    .unwrap()
}

/// Drives all rules; their outcomes, and the milliseconds that it took.
async fn run(policy: &Policy, script: &Script) -> (Vec<RuleOutcome>, u128) {
    let (request, catalog, begun) = (request(), Catalog::default(), Instant::now());
    let rules = policy.rules().iter();
    let names: Vec<_> = rules
        .map(|rule| Arc::new(RuleName::of(policy, rule)))
        .collect();
    let named = policy.rules().iter().zip(&names);
    let run = |(rule, name)| RuleRun::new(NamedRule { policy, rule, name }, &request, &catalog);
    let mut runs: Vec<_> = named.map(run).collect();
    let deadline = begun + std::time::Duration::from_secs(10);
    let lane = LongLane::new();
    let mut work = ReviewWork::new(&lane, ReviewOwner::default(), 0, deadline);
    drive(script, &catalog, &mut runs, &mut work, deadline).await;
    let outcomes = runs.into_iter().map(|run| run.into_report().outcome);
    (outcomes.collect(), begun.elapsed().as_millis())
}

fn failed() -> RuleOutcome {
    RuleOutcome::Fail {
        message: "no".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_goes_on_once_its_own_facts_are_there() {
    let policy = policy(&[("slow", &["s"]), ("fast", &["f", "g"])]);
    let script = Script::default()
        .with("s", 100, Ok(json!("good")))
        .with("f", 10, Ok(json!("a")))
        .with("g", 10, Ok(json!("bad")));
    let (outcomes, took_ms) = run(&policy, &script).await;
    assert_eq!(outcomes, [RuleOutcome::Pass, failed()]);
    let asked = [vec!["slow.s", "fast.f"], vec!["fast.g"]];
    assert_eq!(
        script.asked(),
        asked,
        "what is known to be needed goes at once"
    );
    assert_eq!(
        took_ms, 100,
        "the second fact of one does not wait for the other"
    );
}

#[tokio::test(start_paused = true)]
async fn a_facts_error_fails_its_own_rule_alone() {
    let policy = policy(&[("bad", &["a"]), ("good", &["b"])]);
    let script = Script::default()
        .with("a", 0, Err(FactError::NoWatcher))
        .with("b", 0, Ok(json!("good")));
    let (outcomes, _) = run(&policy, &script).await;
    let RuleOutcome::Error(error) = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.code(), FactError::NoWatcher.code());
    assert_eq!(outcomes[1], RuleOutcome::Pass);
}

#[tokio::test(start_paused = true)]
async fn a_fact_that_never_arrives_is_an_error_of_the_rule() {
    let policy = policy(&[("r", &["nobody"])]);
    let (outcomes, _) = run(&policy, &Script::default()).await;
    let RuleOutcome::Error(error) = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    assert!(
        error
            .to_string()
            .contains("no replica and no watcher answered"),
        "{error}"
    );
}

/// Drives the first rule where nothing is waited for. `steps`: of what its last step took, as far as is known.
fn at_once(variables: &[&str], steps: u64, script: &Script) -> RuleOutcome {
    let (policy, request) = (policy(&[("r", variables)]), request());
    let rule = &policy.rules()[0];
    let name = Arc::new(RuleName::of(&policy, rule));
    name.work.took(steps);
    let named = NamedRule {
        policy: &policy,
        rule,
        name: &name,
    };
    let evaluation = Evaluation::start(&policy, rule, &request);
    drive_at_once(script, RuleRun::of(named, evaluation)).outcome
}

#[tokio::test(start_paused = true)]
async fn rule_that_would_have_to_wait_is_out_of_time_at_once() {
    let script = |after_ms| Script::default().with("a", after_ms, Ok(json!("bad")));
    assert_eq!(at_once(&["a"], 0, &script(0)), failed());
    let RuleOutcome::Error(error) = at_once(&["a"], 0, &script(1)) else {
        panic!("it did not wait");
    };
    assert_eq!(error.code(), ErrorCode::DEADLINE_EXCEEDED);
}

#[test]
fn rule_that_took_long_needs_no_runtime_where_nothing_is_waited_for() {
    let script = Script::default()
        .with("a", 0, Ok(json!("b")))
        .with("c", 0, Ok(json!("bad")));
    assert_eq!(at_once(&["a", "c"], REVIEW_STEPS_MAX, &script), failed());
}
