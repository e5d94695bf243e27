//! Rules on their way through a decision.

use anteroom_functions::meter;
use anteroom_model::{ErrorCode, ObjectKey};
use serde_json::{Value, json};

use super::*;

fn named<'a>(policy: &'a Policy, at: usize, name: &'a Arc<RuleName>) -> NamedRule<'a> {
    let rule = &policy.rules()[at];
    NamedRule { policy, rule, name }
}

/// The requests of a rule and its outcome, where it first reads a Secret, or does not.
fn asked_after(secret: bool) -> (Vec<(String, Value)>, RuleOutcome) {
    let (asked, record) = recorded_after("{{ token.data.key }}", secret);
    (asked, record.outcome)
}

/// Runs the rule with this `key` in its condition; returns the bindings and the rule's record.
fn recorded_after(key: &str, secret: bool) -> (Vec<(String, Value)>, RuleRecord) {
    let condition = json!({ "key": key, "operator": "AnyIn", "value": "{{ hosts }}" });
    let rule = json!({
        "name": "r", "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
        "context": [
            { "name": "token", "apiCall": { "urlPath": "/api/v1/namespaces/a/secrets/x" } },
            { "name": "hosts", "cachedContextEntry": {
                "name": "ingresses", "jmesPath": "items[].host",
            } },
        ],
        "validate": { "failureAction": "Enforce", "message": "no {{ token.data.key }}",
            "deny": { "conditions": { "all": [condition] } } },
    });
    let policy = anteroom_policy::compile(&json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
        "spec": { "rules": [rule] },
    }));
    let policy = policy.unwrap();
    let request = AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "object": { "apiVersion": "v1", "kind": "ConfigMap" },
    }));
    let request = request.unwrap();
    let name = Arc::new(RuleName::new(ObjectKey::new("", "p"), "r"));
    let catalog = Catalog::default();
    let mut running = RuleRun::new(named(&policy, 0, &name), &request, &catalog);
    let mut asked = Vec::new();
    while let Some(needs) = running.step(0) {
        for request in needs.requests {
            let answer = match (&*request.variable, request.is_pushed_down) {
                ("token", true) => json!("hunter2"),
                ("token", false) => json!({ "data": { "key": "hunter2" } }),
                (_, true) => json!(true),
                (_, false) => json!(["hunter2"]),
            };
            running.supply(FactAnswer {
                asker: 0,
                id: request.id,
                answer: FactResult::Got(Ok(answer)),
                memory: None,
                origin: None,
                secret: secret && request.variable == "token",
            });
            asked.push((request.variable, json!(request.parameters)));
        }
    }
    (asked, running.into_record().unwrap())
}

#[test]
fn an_error_after_a_secret_was_read_is_told_by_its_code_alone() {
    let (_, open) = recorded_after("{{ to_boolean(token.data.key) }}", false);
    assert!(
        format!("{:?}", open.outcome).contains("hunter2"),
        "{open:?}"
    );
    let (_, record) = recorded_after("{{ to_boolean(token.data.key) }}", true);
    assert!(!format!("{record:?}").contains("hunter2"), "{record:?}");
    let (RuleOutcome::Error(error), RuleOutcome::Error(of_open)) = (record.outcome, open.outcome)
    else {
        panic!("both are errors");
    };
    assert_eq!(error.code(), of_open.code());
    assert!(error.to_string().starts_with("withheld"), "{error}");
}

#[test]
fn the_message_of_a_rule_that_read_a_secret_is_told_to_the_user_alone() {
    let (_, record) = recorded_after("{{ token.data.key }}", true);
    let public = format!("{:?}", record.public_outcome());
    assert!(!public.contains("hunter2"), "{public}");
    let decision = crate::verdict::decide(vec![record], Vec::new());
    assert_eq!(decision.blocked[0].message, "no hunter2");
}

#[test]
fn a_secrets_content_is_sent_to_no_other_view() {
    let told = |asked: &[(String, Value)]| {
        let of_others = asked.iter().filter(|(variable, _)| variable != "token");
        of_others
            .map(|(_, parameters)| parameters.to_string().contains("hunter2"))
            .collect::<Vec<_>>()
    };
    let (asked, outcome) = asked_after(false);
    assert_eq!(told(&asked), [true], "{asked:?}");
    assert!(matches!(outcome, RuleOutcome::Fail { .. }), "{outcome:?}");
    let (asked, of_secret) = asked_after(true);
    assert_eq!(told(&asked), [false], "{asked:?}");
    assert_eq!(of_secret, outcome);
}

/// The parameters that a rule on objects of this kind asks an entry with, and its record.
fn asked_of_kind(kind: &str, key: &str) -> (Vec<String>, RuleRecord) {
    let condition = json!({ "key": key, "operator": "AnyIn", "value": "{{ hosts }}" });
    let rule = json!({
        "name": "r", "match": { "any": [{ "resources": { "kinds": [kind] } }] },
        "context": [{ "name": "hosts", "cachedContextEntry": {
            "name": "ingresses", "jmesPath": "items[].host",
        } }],
        "validate": {
            "failureAction": "Enforce", "message": "no {{ request.object.data.key }}",
            "deny": { "conditions": { "all": [condition] } },
        },
    });
    let policy = anteroom_policy::compile(&json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
        "spec": { "rules": [rule] },
    }));
    let policy = policy.unwrap();
    let request = AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": kind },
        "object": { "apiVersion": "v1", "kind": kind, "data": { "key": "hunter2" } },
    }));
    let (request, catalog) = (request.unwrap(), Catalog::default());
    let name = Arc::new(RuleName::new(ObjectKey::new("", "p"), "r"));
    let mut running = RuleRun::new(named(&policy, 0, &name), &request, &catalog);
    let mut asked = Vec::new();
    while let Some(needs) = running.step(0) {
        for request in needs.requests {
            asked.push(json!(request.parameters).to_string());
            let answer = match request.is_pushed_down {
                true => json!(true),
                false => json!(["hunter2"]),
            };
            running.supply(FactAnswer::of(0, request.id, FactResult::Got(Ok(answer))));
        }
    }
    (asked, running.into_record().unwrap())
}

#[test]
fn a_secret_under_admission_is_sent_to_no_view_and_is_told_to_the_user_alone() {
    let key = "{{ request.object.data.key }}";
    let (asked, _) = asked_of_kind("ConfigMap", key);
    assert!(asked.concat().contains("hunter2"), "{asked:?}");
    let (asked, record) = asked_of_kind("Secret", key);
    assert!(!asked.concat().contains("hunter2"), "{asked:?}");
    assert_eq!(record.result().as_str(), "fail");
    let public = format!("{:?}", record.public_outcome());
    assert!(!public.contains("hunter2"), "{public}");
    let quoting = "{{ to_boolean(request.object.data.key) }}";
    let (_, record) = asked_of_kind("Secret", quoting);
    assert!(!format!("{record:?}").contains("hunter2"), "{record:?}");
}

#[test]
fn apply_rules_one_applies_one_enforcing_and_one_auditing_rule() {
    let rule = |name: &str, action: &str, key: &str| {
        let condition = json!({ "key": key, "operator": "Equals", "value": "bad" });
        json!({
            "name": name, "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
            "validate": { "failureAction": action, "deny": { "conditions": { "all": [condition] } } },
        })
    };
    let rules = [
        rule("audit", "Audit", "good"),
        rule("enforce", "Enforce", "bad"),
        rule("audit-2", "Audit", "bad"),
        rule("enforce-2", "Enforce", "bad"),
    ];
    let policy = anteroom_policy::compile(&json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
        "spec": { "applyRules": "One", "rules": rules },
    }));
    let policy = policy.unwrap();
    let request = AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "object": {},
    }));
    let (request, catalog) = (request.unwrap(), Catalog::default());
    let key = ObjectKey::new("", "p");
    let name = |rule: &Rule| Arc::new(RuleName::new(key.clone(), rule.name()));
    let names: Vec<_> = policy.rules().iter().map(name).collect();
    let named = policy.rules().iter().zip(&names);
    let running = named.map(|(rule, name)| {
        let mut running = RuleRun::new(
            NamedRule {
                policy: &policy,
                rule,
                name,
            },
            &request,
            &catalog,
        );
        assert!(running.step(0).is_none());
        running
    });
    let records = records(running.collect());
    let found: Vec<_> = records.iter().map(|record| record.name.rule()).collect();
    assert_eq!(found, ["audit", "enforce"]);
}

#[test]
fn a_rule_that_there_is_no_time_for_is_an_error_of_its_policy() {
    let rule = json!({
        "name": "r", "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
        "mutate": { "patchStrategicMerge": { "data": { "a": "b" } } },
    });
    let policy = anteroom_policy::compile(&json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
        "spec": { "failurePolicy": "Ignore", "rules": [rule] },
    }));
    let policy = policy.unwrap();
    let request = json!({
        "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "object": {},
    });
    let request = AdmissionRequest::new(request).unwrap();
    let name = Arc::new(RuleName::new(ObjectKey::new("", "p"), "r"));
    let (rule, catalog) = (named(&policy, 0, &name), Catalog::default());
    let mut late = RuleRun::new(rule, &request, &catalog);
    late.end_out_of_time();
    assert!(late.step(0).is_none());
    let record = late.into_record().unwrap();
    assert!(record.ignore_errors);
    let RuleOutcome::Error(error) = record.outcome else {
        panic!("{:?}", record.outcome);
    };
    assert_eq!(error.code(), ErrorCode::DEADLINE_EXCEEDED);
}

/// An error of a parameter is told to the replica, and may quote the Secret that it was read from.
#[test]
fn a_part_with_a_failed_parameter_stays_at_home_if_the_rule_knows_a_secret() {
    let policy = anteroom_policy::compile(&json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "metadata": { "name": "p" },
        "spec": {
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }] },
            "variables": [{
                "name": "key", "expression": "int(resource.get('v1', 'secrets', 'shop', 'key').data.key)",
            }],
            "validations": [{
                "expression": "resource.list('v1', 'configmaps', '').items.exists(c, c.size == variables.key)",
            }],
        },
    }));
    let policy = policy.unwrap();
    let request = AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "Pod" },
        "resource": { "group": "", "version": "v1", "resource": "pods" },
        "namespace": "shop", "object": { "metadata": { "name": "web", "namespace": "shop" } },
    }));
    let request = request.unwrap();
    let name = Arc::new(RuleName::new(ObjectKey::new("", "p"), "p"));
    let catalog = Catalog::default();
    for secret in [false, true] {
        let mut running = RuleRun::new(named(&policy, 0, &name), &request, &catalog);
        let asked = running.step(0).unwrap().requests;
        let read = json!({ "data": { "key": "hunter2" } });
        let mut fact = FactAnswer::of(0, asked[0].id, FactResult::Got(Ok(read)));
        fact.secret = secret;
        running.supply(fact);
        let asked = running.step(0).unwrap().requests;
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(asked[0].is_pushed_down, !secret);
        let says = asked[0].cel.as_ref().map(|cel| cel.failed.len());
        assert_eq!(says, (!secret).then_some(1));
    }
}

/// Takes the next step with a meter of so many steps. A step for which these are too few is undone, and taken again.
fn step_within<'a>(running: &mut RuleRun<'a>, steps: u64) -> (Option<RuleRequests<'a>>, bool) {
    let (asked, left) = meter::within(steps, || running.step(0));
    if left > 0 {
        return (asked, false);
    }
    running.begin_anew();
    (running.step(0), true)
}

/// The whole facts that the rule asks for, its outcome, and the number of steps that were undone.
fn run_within(policy: &Policy, steps: u64) -> (Vec<String>, RuleOutcome, usize) {
    let request = AdmissionRequest::new(json!({
        "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
        "object": {
            "apiVersion": "v1", "kind": "ConfigMap", "names": ["a-1", "b-2", "c-3"],
        },
    }));
    let request = request.unwrap();
    let name = Arc::new(RuleName::new(ObjectKey::new("", "p"), "r"));
    let catalog = Catalog::default();
    let mut running = RuleRun::new(named(policy, 0, &name), &request, &catalog);
    let (mut asked, mut undone) = (Vec::new(), 0);
    loop {
        let (needs, is_anew) = step_within(&mut running, steps);
        undone += usize::from(is_anew);
        let Some(needs) = needs else {
            break;
        };
        for request in needs.requests {
            let answer = match (&*request.variable, request.is_pushed_down) {
                (_, true) => FactResult::Declined,
                ("token", _) => FactResult::Got(Ok(json!({ "key": "b-*", "home": "n" }))),
                (_, false) => FactResult::Got(Ok(json!(["x", "c-3"]))),
            };
            if !request.is_pushed_down {
                asked.push(request.variable);
            }
            running.supply(FactAnswer::of(0, request.id, answer));
        }
    }
    (asked, running.into_report().outcome, undone)
}

fn condition(key: &str, operator: &str, value: impl serde::Serialize) -> Value {
    json!({ "all": [{ "key": key, "operator": operator, "value": value }] })
}

/// A meter that ends anywhere in a step leaves nothing behind of what the step came to.
#[test]
fn a_step_that_is_undone_and_taken_again_comes_to_the_same() {
    let wildcards: Vec<_> = (0..40).map(|at| format!("*-known-{at}")).collect();
    let rule = json!({
        "name": "r", "match": { "any": [{ "resources": { "kinds": ["ConfigMap"] } }] },
        "context": [
            { "name": "token", "apiCall": { "urlPath": "/api/v1/namespaces/a/configmaps/x" } },
            { "name": "hosts", "apiCall": {
                "urlPath": "/api/v1/namespaces/{{ token.home }}/pods",
            } },
        ],
        "preconditions": condition("{{ request.object.names }}", "AnyNotIn", wildcards),
        "validate": { "failureAction": "Enforce", "message": "no", "foreach": [{
            "list": "request.object.names[?contains(@, '-')]",
            "preconditions": condition("{{ element }}", "NotEquals", "{{ token.key }}"),
            "deny": { "conditions": condition("{{ element }}", "AnyIn", "{{ hosts }}") },
        }] },
    });
    let policy = anteroom_policy::compile(&json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
        "spec": { "rules": [rule] },
    }));
    let policy = policy.unwrap();
    let (asked, outcome, undone) = run_within(&policy, 1_000_000);
    assert_eq!(asked, ["token", "hosts"]);
    assert_eq!(undone, 0);
    assert!(matches!(outcome, RuleOutcome::Fail { .. }), "{outcome:?}");
    let mut undone_most = 0;
    // Ends: with enough steps none is undone.
    for steps in 1.. {
        let found = run_within(&policy, steps);
        assert_eq!((&found.0, &found.1), (&asked, &outcome), "{steps} steps");
        undone_most = undone_most.max(found.2);
        if found.2 == 0 {
            break;
        }
    }
    assert!(undone_most > 1);
}
