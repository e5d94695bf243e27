use std::{sync::Arc, time::Duration};

use anteroom_functions::meter;
use anteroom_model::{ErrorCode, FactError};
use anteroom_policy::{AdmissionRequest, Evaluation, Policy, RuleOutcome};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::{
    facts::{FactMemory, FactResult, WaitingMemory},
    incoming::ReviewOwner,
    review_work::{LongLane, REVIEW_STEPS_MAX, SHORT_STEPS_MAX},
    rule::RuleName,
    rule_run::NamedRule,
    testing::Script,
};

/// A policy with a rule for each list of variables: it denies where the last one is `bad`. Each variable after the
/// first is an API call whose path names the one before it.
fn policy(rules: &[(&str, &[&str])]) -> Policy {
    of_manifest(&json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
        "spec": { "rules": rules_of(rules) },
    }))
}

/// The same in the namespace of the request.
fn policy_of_namespace(rules: &[(&str, &[&str])]) -> Policy {
    of_manifest(&json!({
        "apiVersion": "kyverno.io/v1", "kind": "Policy",
        "metadata": { "name": "p", "namespace": "shop" },
        "spec": { "rules": rules_of(rules) },
    }))
}

fn of_manifest(manifest: &Value) -> Policy {
    anteroom_policy::compile(manifest).unwrap()
}

fn rules_of(rules: &[(&str, &[&str])]) -> Vec<Value> {
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
    rules.iter().map(rule).collect()
}

fn request() -> AdmissionRequest {
    AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "namespace": "shop",
        "object": { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "shop" } },
    }))
    .unwrap()
}

/// Drives all rules; their outcomes, and the milliseconds that it took.
async fn run(policy: &Policy, script: &Script) -> (Vec<RuleOutcome>, u128) {
    let lane = LongLane::new();
    run_within(&mut work(&lane), &[policy], script).await
}

/// The work of a review that has ten seconds.
fn work(lane: &LongLane) -> ReviewWork<'_> {
    let deadline = Instant::now() + Duration::from_secs(10);
    ReviewWork::new(lane, ReviewOwner::default(), 0, deadline)
}

/// Drives the rules of these policies. Those whose name begins with `long` took long before.
async fn run_within(
    work: &mut ReviewWork<'_>,
    policies: &[&Policy],
    script: &Script,
) -> (Vec<RuleOutcome>, u128) {
    run_on(&request(), work, policies, script).await
}

/// The same for a request.
async fn run_on(
    request: &AdmissionRequest,
    work: &mut ReviewWork<'_>,
    policies: &[&Policy],
    script: &Script,
) -> (Vec<RuleOutcome>, u128) {
    let (catalog, begun) = (Catalog::default(), Instant::now());
    let mut named = Vec::new();
    for policy in policies {
        for rule in policy.rules() {
            let name = Arc::new(RuleName::of(policy, rule));
            if rule.name().starts_with("long") {
                name.work.took(SHORT_STEPS_MAX + 1);
            }
            named.push((policy, rule, name));
        }
    }
    let mut runs = Vec::new();
    for (policy, rule, name) in &named {
        let rule = NamedRule { policy, rule, name };
        runs.push(RuleRun::new(rule, request, &catalog));
    }
    let deadline = work.deadline_of(PolicyScope::Cluster);
    drive(script, &catalog, &mut runs, work, deadline).await;
    let outcomes = runs.into_iter().map(|run| run.into_report().outcome);
    (outcomes.collect(), begun.elapsed().as_millis())
}

/// The code of an outcome that is an error.
fn code(outcome: &RuleOutcome) -> Option<ErrorCode> {
    match outcome {
        RuleOutcome::Error(error) => Some(error.code()),
        _ => None,
    }
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

#[tokio::test(start_paused = true)]
async fn no_fact_waits_for_a_rule_that_waits_for_the_long_lane() {
    let policy = policy(&[("long", &["l"]), ("short", &["s", "t"])]);
    let script = Script::default()
        .with("s", 10, Ok(json!("a")))
        .with("t", 10, Ok(json!("bad")));
    let lane = LongLane::new();
    let _places = lane.hold_all(ReviewOwner::of("other", ""));
    let (outcomes, took_ms) = run_within(&mut work(&lane), &[&policy], &script).await;
    assert_eq!(script.asked(), [["short.s"], ["short.t"]]);
    assert_eq!(code(&outcomes[0]), Some(ErrorCode::DEADLINE_EXCEEDED));
    assert_eq!(outcomes[1], failed());
    assert_eq!(took_ms, 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_place_in_the_long_lane_is_for_rules_of_the_cluster_first() {
    let of_namespace = policy_of_namespace(&[("long-1", &["n"])]);
    let of_cluster = policy(&[("long-2", &["c"])]);
    let script = Script::default()
        .with("n", 10, Ok(json!("bad")))
        .with("c", 10, Ok(json!("bad")));
    let lane = LongLane::new();
    let places = lane.hold_all(ReviewOwner::of("other", ""));
    let free = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(places);
    };
    let (mut work, policies) = (work(&lane), [&of_namespace, &of_cluster]);
    let running = run_within(&mut work, &policies, &script);
    let ((outcomes, _), ()) = tokio::join!(running, free);
    assert_eq!(outcomes, [failed(), failed()]);
    assert_eq!(script.asked(), [["long-2.c"], ["long-1.n"]]);
}

#[tokio::test(start_paused = true)]
async fn rules_of_namespaces_wait_for_the_long_lane_for_half_of_the_time() {
    let of_namespace = policy_of_namespace(&[("long", &["n"])]);
    let of_cluster = policy(&[("short", &["c"])]);
    let script = Script::default().with("c", 10, Ok(json!("bad")));
    for (owner, expected) in [
        (ReviewOwner::of("other", ""), ErrorCode::DEADLINE_EXCEEDED),
        (ReviewOwner::default(), ErrorCode::REVIEWS_OVER_PART),
    ] {
        let lane = LongLane::new();
        let _places = lane.hold_all(owner);
        let mut work = work(&lane);
        work.share_time(true);
        let policies = [&of_cluster, &of_namespace];
        let (outcomes, took_ms) = run_within(&mut work, &policies, &script).await;
        assert_eq!(outcomes[0], failed());
        assert_eq!(code(&outcomes[1]), Some(expected));
        assert_eq!(took_ms, 5_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_takes_long_is_not_begun_when_the_time_is_over() {
    let policy = policy(&[("long", &["l"]), ("short", &["s"])]);
    let script = Script::default()
        .with("l", 0, Ok(json!("bad")))
        .with("s", 0, Ok(json!("bad")));
    let lane = LongLane::new();
    let mut work = ReviewWork::new(&lane, ReviewOwner::default(), 0, Instant::now());
    let (outcomes, _) = run_within(&mut work, &[&policy], &script).await;
    assert_eq!(code(&outcomes[0]), Some(ErrorCode::DEADLINE_EXCEEDED));
    assert_eq!(outcomes[1], failed());
    assert_eq!(script.asked(), [["short.s"]]);
}

/// Work for a policy of a namespace waits for a place until little time is left. What the rule of the cluster asks for then
/// comes too late.
#[tokio::test(start_paused = true)]
async fn a_fact_that_is_late_because_of_policies_of_namespaces_is_an_error_of_the_review() {
    let late = || {
        Err(FactError::DeadlineExceeded {
            deadline_ms: 1,
            over_part: false,
        })
    };
    for (scope, expected) in [
        (PolicyScope::Cluster, ErrorCode::DEADLINE_EXCEEDED),
        (PolicyScope::Namespace, ErrorCode::REVIEW_TOO_COSTLY),
    ] {
        let policy = policy(&[("r", &["v"])]);
        let script = Script::default().with("v", 0, late());
        let lane = LongLane::new();
        let _places = lane.hold_all(ReviewOwner::of("other", ""));
        let mut work = work(&lane);
        let long = || meter::charge(SHORT_STEPS_MAX);
        assert_eq!(work.run_for(scope, long).await, None);
        let (outcomes, _) = run_within(&mut work, &[&policy], &script).await;
        assert_eq!(code(&outcomes[0]), Some(expected), "{scope:?}");
    }
}

/// The facts of a rule are not looked at during a long step for a policy of a namespace.
#[tokio::test(start_paused = true)]
async fn a_rule_that_asked_before_long_work_for_a_namespace_is_held_up_too() {
    for (policy, expected) in [
        (policy(&[("r", &["v"])]), ErrorCode::REVIEW_TOO_COSTLY),
        (
            policy_of_namespace(&[("r", &["v"])]),
            ErrorCode::DEADLINE_EXCEEDED,
        ),
    ] {
        let (lane, request, catalog) = (LongLane::new(), request(), Catalog::default());
        let _places = lane.hold_all(ReviewOwner::of("other", ""));
        let (mut work, rule) = (work(&lane), &policy.rules()[0]);
        let name = Arc::new(RuleName::of(&policy, rule));
        let named = NamedRule {
            policy: &policy,
            rule,
            name: &name,
        };
        let mut rules = [RuleRun::new(named, &request, &catalog)];
        let StepHere::Asks(asked) = work.step_here(&mut rules[0], 0) else {
            panic!("it asks for no fact");
        };
        let long = || meter::charge(SHORT_STEPS_MAX);
        assert_eq!(work.run_for(PolicyScope::Namespace, long).await, None);
        work.note_hold_ups(&mut rules);
        for fact in asked.requests {
            let late = FactError::DeadlineExceeded {
                deadline_ms: 1,
                over_part: false,
            };
            rules[0].supply(FactAnswer::unanswered(0, fact.id, late));
        }
        assert!(matches!(work.step_here(&mut rules[0], 0), StepHere::Rests));
        work.settle(&mut rules);
        let [rule] = rules;
        assert_eq!(code(&rule.into_report().outcome), Some(expected));
    }
}

/// Other rules of the review may wait for the memory.
#[tokio::test]
async fn a_rule_that_has_ended_gives_back_the_memory_of_its_facts() {
    let (policy, request, catalog) = (policy(&[("r", &["a"])]), request(), Catalog::default());
    let rule = &policy.rules()[0];
    let (name, lane) = (Arc::new(RuleName::of(&policy, rule)), LongLane::new());
    for is_ended_before in [false, true] {
        let named = NamedRule {
            policy: &policy,
            rule,
            name: &name,
        };
        let mut run = RuleRun::new(named, &request, &catalog);
        let (memory, mut work) = (FactMemory::default(), work(&lane));
        let (holder, mut was_held) = (work.holder().clone(), false);
        while let StepHere::Asks(asked) = work.step_here(&mut run, 0) {
            for fact in asked.requests {
                let mut answer = FactAnswer::of(0, fact.id, FactResult::Declined);
                if !fact.is_pushed_down {
                    let taken = memory.take(0, 2 * 1024 * 1024, &holder, Instant::now());
                    answer.memory = taken.await.unwrap();
                    answer.answer = FactResult::Got(Ok(json!("bad")));
                }
                run.supply(answer);
            }
            was_held |= !memory.is_free();
            if was_held && is_ended_before {
                run.end_out_of_time();
            }
        }
        assert!(was_held && memory.is_free());
        assert_eq!(run.into_report().outcome == failed(), !is_ended_before);
    }
}

/// A policy whose question has the names of the request in it, and a request with so many names.
fn with_names(count: usize) -> (Policy, AdmissionRequest) {
    let query = "length(items[?contains({{ request.object.names }}, metadata.name)])";
    let policy = of_manifest(&json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
        "spec": { "rules": [{
            "name": "r", "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
            "context": [{ "name": "n", "apiCall": { "urlPath": "/api/v1/pods", "jmesPath": query } }],
            "validate": { "message": "no", "deny": { "conditions": { "all": [
                { "key": "{{ n }}", "operator": "Equals", "value": "bad" },
            ] } } },
        }] },
    }));
    let names: Vec<_> = (0..count)
        .map(|at| format!("web-{at:06}.example.com"))
        .collect();
    let request = AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "namespace": "shop",
        "object": {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "shop" }, "names": names,
        },
    }));
    (policy, request.unwrap())
}

/// The reviews of one namespace have two thirds of it, and what is refused for lack of it passes by no failure policy.
#[tokio::test(start_paused = true)]
async fn rules_that_wait_with_large_questions_share_a_limited_memory_and_others_need_none_of_it() {
    let script = Script::default().with("n", 100, Ok(json!("bad")));
    let (lane, memory) = (LongLane::new(), WaitingMemory::new(8 * 1024 * 1024));
    let [flood, shop] = ["flood", "shop"].map(|namespace| ReviewOwner::of(namespace, ""));
    let (large, small) = (with_names(4_000), with_names(10));
    let review = async |owner: ReviewOwner, (policy, request): &(Policy, AdmissionRequest)| {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut work = ReviewWork::new(&lane, owner, 0, deadline).with_memory(&memory);
        let (outcomes, _) = run_on(request, &mut work, &[policy], &script).await;
        outcomes.into_iter().next()
    };
    let flooding = join_all((0..30).map(|_| review(flood, &large)));
    let others = [(shop, &large), (flood, &small), (shop, &small)];
    let others = join_all(others.map(|(owner, asked)| review(owner, asked)));
    let (flooding, others) = tokio::join!(flooding, others);
    let is_decided = |outcome: &Option<RuleOutcome>| *outcome == Some(failed());
    assert!(others.iter().all(is_decided), "{others:?}");
    let (decided, refused): (Vec<_>, Vec<_>) = flooding.into_iter().partition(is_decided);
    assert!(!decided.is_empty() && !refused.is_empty());
    for outcome in refused {
        let Some(RuleOutcome::Error(error)) = &outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(error.code(), ErrorCode::DEADLINE_EXCEEDED);
        assert!(error.is_caused_by_request(true, false), "{error}");
    }
    assert!(memory.is_free());
}

/// The rule ends while other rules of its review may wait on.
#[tokio::test]
async fn a_rule_that_has_ended_gives_back_the_memory_of_its_questions() {
    let ((policy, request), catalog) = (with_names(4_000), Catalog::default());
    let (lane, memory, rule) = (
        LongLane::new(),
        WaitingMemory::default(),
        &policy.rules()[0],
    );
    let name = Arc::new(RuleName::of(&policy, rule));
    let named = NamedRule {
        policy: &policy,
        rule,
        name: &name,
    };
    let mut run = RuleRun::new(named, &request, &catalog);
    let mut waiting = memory.of(ReviewOwner::default());
    let asked = run.step(0);
    assert!(asked.is_some() && run.hold(&mut waiting).is_ok());
    assert!(!memory.is_free());
    work(&lane).end_late(&mut run);
    assert!(memory.is_free());
}
