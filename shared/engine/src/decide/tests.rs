//! Decisions with facts of a script.

use std::{convert::Infallible, time::Duration};

use anteroom_functions::meter;
use anteroom_model::{FactError, ObjectKey};
use anteroom_policy::{Operation, RequestParts};
use futures::FutureExt as _;
use serde_json::json;
use tokio::sync::watch;

use super::*;
use crate::{
    facts::{Arriving, FactAnswer, FactHolder, RuleRequests},
    incoming::{RequestHead, ResourcePath},
    policies::PolicySet,
    recorder::NoRecorder,
    review_work::REVIEW_STEPS_MAX,
    testing::{self, Script},
};

/// A request that creates an Ingress with these hosts.
struct Creation(Vec<String>);

impl Incoming for Creation {
    type Error = Infallible;

    fn head(&self) -> RequestHead<'_> {
        let (group, version) = ("networking.k8s.io", "v1");
        RequestHead {
            kind: KindName {
                group,
                version,
                kind: "Ingress",
            },
            resource: ResourcePath {
                group,
                version,
                resource: "ingresses",
                subresource: "",
            },
            operation: Operation::Create,
            namespace: "shop",
        }
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(String::len).sum()
    }

    fn owner(&self) -> ReviewOwner {
        ReviewOwner::of("shop", "")
    }

    fn is_dry_run(&self) -> bool {
        false
    }

    fn field_manager(&self) -> String {
        String::new()
    }

    fn request(&self, _parts: &RequestParts) -> Result<AdmissionRequest, Infallible> {
        let request = AdmissionRequest::new(json!({
            "operation": "CREATE", "namespace": "shop", "name": "a",
            "kind": { "group": "networking.k8s.io", "version": "v1", "kind": "Ingress" },
            "object": {
                "kind": "Ingress", "metadata": { "name": "a", "namespace": "shop" }, "hosts": self.0,
            },
        }));
        Ok(request.unwrap())
    }
}

/// A catalog with the policy `p` alone, which denies where the entry that it reads is `bad`.
fn catalog(failure_policy: &str) -> Catalog {
    let manifest = testing::manifest(&["Ingress"], |manifest| {
        manifest["spec"]["failurePolicy"] = failure_policy.into();
        let rule = &mut manifest["spec"]["rules"][0];
        rule["context"] = json!([{ "name": "v", "cachedContextEntry": { "name": "e" } }]);
        let condition = json!({ "key": "{{ v }}", "operator": "Equals", "value": "bad" });
        rule["validate"]["deny"]["conditions"]["all"] = json!([condition]);
    });
    Catalog {
        policies: Arc::new(testing::policies(vec![("p", manifest)])),
        ..Catalog::default()
    }
}

async fn decide(
    now: &watch::Receiver<Option<Arc<Catalog>>>,
    by: Option<Arc<Catalog>>,
    script: Script,
) -> Decision {
    let engine = Engine::new(now.clone(), script, Arc::new(NoRecorder));
    let deadline = Instant::now() + Duration::from_secs(1);
    let scope = CallScope::all(Phase::Validation);
    let decided = engine
        .decide(by.as_ref(), &Creation(Vec::new()), &scope, deadline)
        .await;
    decided.unwrap_or_else(|never| match never {})
}

fn answers(answer: Result<Value, FactError>) -> Script {
    Script::default().with("v", 5, answer)
}

#[tokio::test(start_paused = true)]
async fn decision_follows_from_facts_and_failure_policy() {
    let nobody = || Err(FactError::NoWatcher);
    // Allowed, with an error, warnings.
    for (failure_policy, answer, expected) in [
        ("Fail", Ok(json!("good")), (true, false, 0)),
        ("Fail", Ok(json!("bad")), (false, false, 0)),
        ("Ignore", Ok(json!("bad")), (false, false, 0)),
        ("Fail", nobody(), (false, true, 0)),
        ("Ignore", nobody(), (true, true, 1)),
    ] {
        let by = Arc::new(catalog(failure_policy));
        let (_now_in, now) = watch::channel(Some(Arc::clone(&by)));
        let decision = decide(&now, Some(by), answers(answer.clone())).await;
        let found = (decision.allowed(), decision.error, decision.warnings.len());
        assert_eq!(found, expected, "{failure_policy} {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_under_policies_that_are_gone_does_not_count() {
    let by = Some(Arc::new(catalog("Fail")));
    let (_now_in, now) = watch::channel(Some(Arc::new(Catalog::default())));
    let decision = decide(&now, by.clone(), answers(Err(FactError::NoWatcher))).await;
    assert!(decision.allowed() && !decision.error);
    // What was decided without an error stands.
    let decision = decide(&now, by, answers(Ok(json!("bad")))).await;
    assert!(!decision.allowed());
}

#[tokio::test(start_paused = true)]
async fn no_request_is_admitted_before_the_policies_are_read() {
    let (_now_in, now) = watch::channel(None);
    let decision = decide(&now, None, Script::default()).await;
    assert!(!decision.allowed() && decision.error);
    assert_eq!(decision.blocked[0].error, Some(ErrorCode::NOT_READY));
}

#[tokio::test(start_paused = true)]
async fn a_large_request_that_its_own_namespace_keeps_waiting_is_refused_whatever_the_failure_policy()
 {
    let large = Creation(vec!["h".repeat(100_000)]);
    let scope = CallScope {
        ignores_errors: true,
        ..CallScope::all(Phase::Validation)
    };
    for (owner, refused_with) in [
        (large.owner(), Some(ErrorCode::REVIEWS_OVER_PART)),
        (ReviewOwner::of("other", ""), None),
    ] {
        let by = Arc::new(catalog("Ignore"));
        let (_now_in, now) = watch::channel(Some(Arc::clone(&by)));
        let engine = Engine::new(now, Script::default(), Arc::new(NoRecorder));
        let _places = engine.lane.hold_all(owner);
        let deadline = Instant::now() + Duration::from_secs(1);
        let decision = engine.decide(Some(&by), &large, &scope, deadline).await;
        let Ok(decision) = decision;
        let blocked = decision.blocked.first();
        assert_eq!(blocked.and_then(|blocked| blocked.error), refused_with);
        assert!(decision.error);
    }
}

/// A policy that compares each host with each of 3,000.
fn compares(failure_policy: &str, phase: Phase) -> Catalog {
    let known: Vec<_> = (0..3_000).map(|at| format!("known-{at}.example")).collect();
    let manifest = testing::manifest(&["Ingress"], |manifest| {
        manifest["spec"]["failurePolicy"] = failure_policy.into();
        let condition =
            json!({ "key": "{{ request.object.hosts }}", "operator": "AnyIn", "value": known });
        let rule = &mut manifest["spec"]["rules"][0];
        match phase {
            Phase::Validation => rule["validate"]["deny"]["conditions"]["all"] = json!([condition]),
            Phase::Mutation => {
                rule.as_object_mut().unwrap().remove("validate");
                rule["preconditions"]["all"] = json!([condition]);
                rule["mutate"]["patchStrategicMerge"]["metadata"]["labels"]["a"] = json!("b");
            }
        }
    });
    Catalog {
        policies: Arc::new(testing::policies(vec![("p", manifest)])),
        ..Catalog::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_takes_too_long_is_refused_whatever_the_failure_policy() {
    let plain = |at| format!("host-{at}.example");
    let pattern = |at| format!("*.h{at}.example");
    let few: Vec<_> = (0..100).map(pattern).collect();
    let many_plain: Vec<_> = (0..20_000).map(plain).collect();
    let many: Vec<_> = (0..20_000).map(pattern).collect();
    for phase in Phase::ALL {
        for failure_policy in ["Fail", "Ignore"] {
            let by = Arc::new(compares(failure_policy, phase));
            let (_now_in, now) = watch::channel(Some(Arc::clone(&by)));
            let engine = Engine::new(now, Script::default(), Arc::new(NoRecorder));
            let deadline = Instant::now() + Duration::from_secs(60);
            let scope = CallScope::all(phase);
            for (hosts, expected) in [(&few, None), (&many_plain, None), (&many, Some("AR207"))] {
                let incoming = Creation(hosts.clone());
                let decided = engine.decide(Some(&by), &incoming, &scope, deadline);
                let decision = decided.await.unwrap_or_else(|never| match never {});
                let code = decision.blocked.first().and_then(|blocked| blocked.error);
                let found = code.map(ErrorCode::as_str);
                assert_eq!(found, expected, "{phase:?} {failure_policy}: {decision:?}");
            }
        }
    }
}

/// A policy with this condition.
fn on_condition(condition: &str) -> Catalog {
    let manifest = testing::manifest(&["Ingress"], |manifest| {
        let condition = json!({ "name": "c", "expression": condition });
        manifest["spec"]["webhookConfiguration"]["matchConditions"] = json!([condition]);
    });
    Catalog {
        policies: Arc::new(testing::policies(vec![("p", manifest)])),
        ..Catalog::default()
    }
}

/// A policy that sets a label, without a condition.
fn labels() -> Catalog {
    let manifest = testing::manifest(&["Ingress"], |manifest| {
        let rule = &mut manifest["spec"]["rules"][0];
        rule.as_object_mut().unwrap().remove("validate");
        rule["mutate"]["patchStrategicMerge"]["metadata"]["labels"]["a"] = json!("b");
    });
    Catalog {
        policies: Arc::new(testing::policies(vec![("p", manifest)])),
        ..Catalog::default()
    }
}

/// A condition that evaluates 10,000 comparisons, whatever the object.
fn costly_condition() -> String {
    let list = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let each = |inner: String, level| format!("{list}.all(v{level}, {inner})");
    (0..4).fold("object.metadata.name != ''".to_owned(), each)
}

/// The policy chooses the work, and the size of the object says nothing about it.
#[tokio::test(start_paused = true)]
async fn what_takes_long_for_a_small_object_is_done_in_the_long_lane_and_all_else_in_place() {
    let small = Creation(vec!["h".repeat(1_000)]);
    let patterns = (0..100).map(|at| format!("*.h{at}.example"));
    let compared = Creation(patterns.collect());
    let plain = || on_condition("object.metadata.name != ''");
    let costly = || on_condition(&costly_condition());
    let cases: [(&str, &Creation, &dyn Fn() -> Catalog, bool); 5] = [
        ("a cheap policy", &small, &plain, false),
        ("a costly condition", &small, &costly, true),
        (
            "a costly rule",
            &compared,
            &|| compares("Fail", Phase::Validation),
            true,
        ),
        (
            "a costly change",
            &compared,
            &|| compares("Fail", Phase::Mutation),
            true,
        ),
        ("a cheap change", &small, &labels, false),
    ];
    for (case, incoming, catalog, is_long) in cases {
        let by = Arc::new(catalog());
        let phase = match case.ends_with("change") {
            true => Phase::Mutation,
            false => Phase::Validation,
        };
        let scope = CallScope::all(phase);
        let (_now_in, now) = watch::channel(Some(Arc::clone(&by)));
        let engine = Engine::new(now, Script::default(), Arc::new(NoRecorder));
        let decide = async || {
            let deadline = Instant::now() + Duration::from_secs(1);
            let decided = engine.decide(Some(&by), incoming, &scope, deadline);
            let decision = decided.await.unwrap_or_else(|never| match never {});
            let error = decision.blocked.first().and_then(|blocked| blocked.error);
            (decision.error, error)
        };
        let late = (true, Some(ErrorCode::DEADLINE_EXCEEDED));
        let held = engine.lane.hold_all(ReviewOwner::of("other", ""));
        let expected = if is_long { late } else { (false, None) };
        assert_eq!(decide().await, expected, "{case}, without a place");
        drop(held);
        assert_eq!(decide().await, (false, None), "{case}");
    }
}

/// A policy computes for long for each object of its namespace.
#[tokio::test(start_paused = true)]
async fn objects_of_a_namespace_are_judged_in_turns_with_those_of_others() {
    let catalog = compares("Fail", Phase::Validation);
    let entries = catalog.policies.all().iter().map(|entry| &**entry);
    let entries: Vec<&CompiledPolicy> = entries.collect();
    let hosts: Vec<_> = (0..100).map(|at| format!("*.h{at}.example")).collect();
    let (_now_in, now) = watch::channel(None);
    let engine = Engine::new(now, Script::default(), Arc::new(NoRecorder));
    let _places = engine.lane.hold_all(ReviewOwner::of("busy", ""));
    for (namespace, expected) in [
        ("busy", ErrorCode::REVIEWS_OVER_PART),
        ("shop", ErrorCode::DEADLINE_EXCEEDED),
    ] {
        let request = AdmissionRequest::new(json!({
            "operation": "CREATE", "namespace": namespace, "name": "a",
            "kind": { "group": "networking.k8s.io", "version": "v1", "kind": "Ingress" },
            "object": { "kind": "Ingress", "metadata": { "name": "a" }, "hosts": hosts },
        }));
        let (request, timeout) = (request.unwrap(), Duration::from_secs(1));
        let records = engine.judge(&catalog, &entries, &request, timeout).await;
        let RuleOutcome::Error(error) = &records[0].outcome else {
            panic!("{records:?}");
        };
        assert_eq!(error.code(), expected, "{namespace}");
    }
}

/// Facts that nobody answers: each is given up at its deadline.
struct NobodyAnswers;

impl FactSource for NobodyAnswers {
    fn ask<'a>(
        &'a self,
        _catalog: &Catalog,
        asked: Vec<RuleRequests<'a>>,
        _holder: &FactHolder,
        deadline: Deadline,
    ) -> Vec<Arriving<'a>> {
        let mut arriving = Vec::new();
        for RuleRequests {
            asker, requests, ..
        } in asked
        {
            for request in requests {
                let given_up = async move {
                    tokio::time::sleep_until(deadline).await;
                    vec![FactAnswer::unanswered(
                        asker,
                        request.id,
                        FactError::NoWatcher,
                    )]
                };
                arriving.push(given_up.boxed());
            }
        }
        arriving
    }
}

/// A tenant's rule waits for a registry that never answers, so as to use up the time of the rules after it.
#[tokio::test(start_paused = true)]
async fn mutating_policies_of_namespaces_leave_half_of_the_time_to_those_of_the_cluster() {
    let manifest = |change: fn(&mut Value)| {
        testing::manifest(&["Ingress"], |manifest| {
            manifest["spec"]["failurePolicy"] = "Ignore".into();
            let rule = &mut manifest["spec"]["rules"][0];
            rule.as_object_mut().unwrap().remove("validate");
            rule["mutate"]["patchStrategicMerge"]["metadata"]["labels"]["a"] = json!("b");
            change(manifest);
        })
    };
    let waits = |manifest: &mut Value| {
        manifest["kind"] = "Policy".into();
        manifest["metadata"]["namespace"] = "shop".into();
        let rule = &mut manifest["spec"]["rules"][0];
        let registry = json!({ "reference": "registry.example/a:b" });
        rule["context"] = json!([{ "name": "v", "imageRegistry": registry }]);
        let labels = &mut rule["mutate"]["patchStrategicMerge"]["metadata"]["labels"];
        labels["a"] = json!("{{ v.manifest.mediaType }}");
    };
    let of_namespace = (ObjectKey::new("shop", "p"), manifest(waits));
    let of_cluster = (ObjectKey::new("", "p"), manifest(|_| ()));
    let both = vec![of_namespace.clone(), of_cluster];
    for (manifests, waited_ms, is_changed) in
        [(both, 500, true), (vec![of_namespace], 1_000, false)]
    {
        let policies = PolicySet::build(&PolicySet::default(), manifests);
        assert_eq!(policies.counts().1, 0);
        let by = Arc::new(Catalog {
            policies: Arc::new(policies),
            ..Catalog::default()
        });
        let (_now_in, now) = watch::channel(Some(Arc::clone(&by)));
        let engine = Engine::new(now, NobodyAnswers, Arc::new(NoRecorder));
        let (begun, scope) = (Instant::now(), CallScope::all(Phase::Mutation));
        let deadline = begun + Duration::from_secs(1);
        let incoming = Creation(Vec::new());
        let decided = engine.decide(Some(&by), &incoming, &scope, deadline);
        let decision = decided.await.unwrap_or_else(|never| match never {});
        assert!(decision.allowed() && decision.error, "{decision:?}");
        assert_eq!(decision.patch.is_some(), is_changed, "{decision:?}");
        assert_eq!(begun.elapsed().as_millis(), waited_ms);
    }
}

/// The second decision goes on with the steps that the first has left, large requests in the long lane and small ones where
/// they arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_that_is_decided_twice_has_one_budget() {
    let by = || {
        let known: Vec<_> = (0..30_000)
            .map(|at| format!("known-{at}.example"))
            .collect();
        let manifest = testing::manifest(&["Ingress"], |manifest| {
            let condition =
                json!({ "key": "{{ request.object.hosts }}", "operator": "AnyIn", "value": known });
            let rules = manifest["spec"]["rules"].as_array_mut().unwrap();
            let mut compares = rules[0].clone();
            compares["name"] = "compares".into();
            compares["validate"]["deny"]["conditions"]["all"] = json!([condition]);
            rules[0]["context"] = json!([{ "name": "v", "cachedContextEntry": { "name": "e" } }]);
            let condition = json!({ "key": "{{ v }}", "operator": "Equals", "value": "bad" });
            rules[0]["validate"]["deny"]["conditions"]["all"] = json!([condition]);
            rules.push(compares);
        });
        Arc::new(Catalog {
            policies: Arc::new(testing::policies(vec![("p", manifest)])),
            ..Catalog::default()
        })
    };
    let (first, second) = (by(), by());
    let is_too_costly = async |hosts: usize, now: &Arc<Catalog>| {
        let (_now_in, now) = watch::channel(Some(Arc::clone(now)));
        let script = answers(Err(FactError::NoWatcher));
        let engine = Engine::new(now, script, Arc::new(NoRecorder));
        let hosts = (0..hosts).map(|at| format!("*.h{at}.example")).collect();
        let (incoming, scope) = (Creation(hosts), CallScope::all(Phase::Validation));
        let deadline = Instant::now() + Duration::from_secs(60);
        let decided = engine.decide(Some(&first), &incoming, &scope, deadline);
        let decision = decided.await.unwrap_or_else(|never| match never {});
        assert!(decision.error, "the fact is not there");
        let mut codes = decision.blocked.iter().filter_map(|blocked| blocked.error);
        codes.any(|code| code.as_str() == "AR207")
    };
    let mut hosts = 50;
    while !is_too_costly(2 * hosts, &first).await {
        hosts *= 2;
    }
    assert!(!is_too_costly(hosts, &first).await);
    assert!(is_too_costly(hosts, &second).await, "{hosts} hosts");
}

/// The rule puts one element before 10,000 others: it shifts these in a few thousand steps, and the comparison goes through
/// them.
#[tokio::test]
async fn the_comparison_of_a_changed_object_takes_steps_of_the_review() {
    let manifest = testing::manifest(&["Ingress"], |manifest| {
        manifest["spec"]["failurePolicy"] = "Ignore".into();
        let rule = &mut manifest["spec"]["rules"][0];
        rule.as_object_mut().unwrap().remove("validate");
        let operation = json!({ "op": "add", "path": "/hosts/0", "value": "x" });
        rule["mutate"] = json!({ "patchesJson6902": [operation] });
    });
    let catalog = Catalog {
        policies: Arc::new(testing::policies(vec![("p", manifest)])),
        ..Catalog::default()
    };
    let entries = catalog.policies.all().iter().map(|entry| &**entry);
    let entries: Vec<&CompiledPolicy> = entries.collect();
    let request = json!({
        "operation": "CREATE", "namespace": "shop", "name": "a",
        "kind": { "group": "networking.k8s.io", "version": "v1", "kind": "Ingress" },
        "object": { "kind": "Ingress", "metadata": { "name": "a" }, "hosts": vec!["h"; 10_000] },
    });
    let (_now_in, now) = watch::channel(None);
    let engine = Engine::new(now, Script::default(), Arc::new(NoRecorder));
    let deadline = Instant::now() + Duration::from_secs(60);
    for (steps, expected) in [(9_000, Some("AR207")), (100_000, None)] {
        let mut work = ReviewWork::at_once(deadline);
        work.run(|| meter::charge(REVIEW_STEPS_MAX - steps)).await;
        let request = AdmissionRequest::new(request.clone()).unwrap();
        let changed = engine.change(&catalog, &entries, request, &mut work);
        let (records, patch) = changed.await;
        let code = match &records[0].outcome {
            RuleOutcome::Error(error) => Some(error.code().as_str()),
            _ => None,
        };
        assert_eq!(code, expected, "{records:?}");
        assert_eq!(patch.is_some(), expected.is_none());
    }
}
