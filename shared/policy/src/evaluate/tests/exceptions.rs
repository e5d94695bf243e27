//! Rules that exceptions are about.

use super::*;

const DENY: &str = "deny: {conditions: {all: [{key: a, operator: Equals, value: a}]}}";

fn exception(spec: &str) -> PolicyException {
    let manifest: Value = serde_saphyr::from_str(&format!(
        "{{apiVersion: kyverno.io/v2, kind: PolicyException, metadata: {{name: e, namespace: ns}}, spec: {{\
         exceptions: [{{policyName: p, ruleNames: ['r*']}}], {spec}}}}}"
    ))
    .unwrap();
    PolicyException::compile(&manifest, crate::Driver::ALL).unwrap_or_else(|p| panic!("{p:#?}"))
}

/// Returns the outcome of the policy's first rule, and the requests for facts.
fn judged(
    policy: &Policy,
    exceptions: &[PolicyException],
    request: &AdmissionRequest,
    answer: impl Fn(&FactRequest) -> Result<Value, FactError>,
) -> (RuleReport, Vec<String>) {
    let evaluation = Evaluation::start(policy, &policy.rules()[0], request);
    let mut evaluation = evaluation.with_exceptions(exceptions);
    let mut asked = Vec::new();
    loop {
        match evaluation.step() {
            RuleStep::Done(report) => return (report, asked),
            RuleStep::Need(facts) => {
                for fact in facts {
                    assert!(!fact.is_pushed_down);
                    asked.push(fact.subject.to_string());
                    evaluation.supply(fact.id, answer(&fact));
                }
            }
        }
    }
}

const ANY: &str = "match: {any: [{resources: {kinds: ['*']}}]}";
const CONFIG: &str = "context: [{name: config, configMap: {name: c, namespace: ns}}]";

fn config(fact: &FactRequest) -> Result<Value, FactError> {
    assert!(
        matches!(fact.subject, FactSubject::ConfigMap { .. }),
        "{fact:?}"
    );
    Ok(json!({"data": {"excepted": "a", "denied": "yes"}}))
}

fn labels(fact: &FactRequest) -> Result<Value, FactError> {
    assert!(
        matches!(fact.subject, FactSubject::NamespaceLabels { .. }),
        "{fact:?}"
    );
    Ok(json!({"env": "test"}))
}

#[test]
fn an_exception_holds_by_its_match_and_its_conditions() {
    let rule = policy(&format!("{{{CONFIG}, validate: {{{DENY}}}}}"));
    let condition = |key: &str, value: &str| {
        let condition = format!("{{key: \"{key}\", operator: Equals, value: {value}}}");
        format!("{ANY}, conditions: {{any: [{condition}]}}")
    };
    let name = "{{ request.object.metadata.name }}";
    for (spec, excepted, asked) in [
        (ANY.to_owned(), true, vec![]),
        (
            "match: {any: [{resources: {kinds: [Pod]}}]}".to_owned(),
            false,
            vec![],
        ),
        (condition(name, "a"), true, vec![]),
        (condition(name, "b"), false, vec![]),
        // In the context of the rule.
        (
            condition("{{ config.data.excepted }}", "a"),
            true,
            vec!["configmap ns/c"],
        ),
        (
            condition("{{ config.data.excepted }}", "b"),
            false,
            vec!["configmap ns/c"],
        ),
        // What cannot be evaluated does not hold.
        (
            condition("{{ request.object.metadata.x.y }}", "a"),
            false,
            vec![],
        ),
        (condition("{{ unheard.of }}", "a"), false, vec![]),
    ] {
        let exceptions = [exception(&spec)];
        let (report, found) = judged(&rule, &exceptions, &create(&ingress("a", &[])), config);
        assert_eq!(found, asked, "{spec}");
        match excepted {
            true => {
                assert_eq!(report.excepted_by, ["ns/e"], "{spec}");
                assert!(
                    matches!(report.outcome, RuleOutcome::Skipped { .. }),
                    "{spec} {report:?}"
                );
            }
            false => {
                assert!(report.excepted_by.is_empty());
                assert!(
                    matches!(report.outcome, RuleOutcome::Fail { .. }),
                    "{spec} {report:?}"
                );
            }
        }
    }
    // With the fact it may hold.
    let unread = exception(&condition("{{ config.data.excepted }}", "a"));
    let (report, _) = judged(&rule, &[unread], &create(&ingress("a", &[])), |_| {
        Err(unsynced())
    });
    assert!(
        matches!(report.outcome, RuleOutcome::Error(RuleError::Fact { .. })),
        "{report:?}"
    );
}

#[test]
fn an_exception_by_namespace_labels_asks_for_them_and_is_not_guessed() {
    let rule = policy(&format!("{{validate: {{{DENY}}}}}"));
    let by = |env: &str| {
        let selector = format!("namespaceSelector: {{matchLabels: {{env: {env}}}}}");
        exception(&format!("match: {{any: [{{resources: {{{selector}}}}}]}}"))
    };
    let request = create(&ingress("a", &[]));
    let asked = ["labels of namespace ns"];
    let (report, found) = judged(&rule, &[by("test")], &request, labels);
    assert_eq!(
        (&*report.excepted_by, &*found),
        (&["ns/e".to_owned()][..], &asked.map(str::to_owned)[..])
    );
    let (report, _) = judged(&rule, &[by("prod")], &request, labels);
    assert!(
        matches!(report.outcome, RuleOutcome::Fail { .. }),
        "{report:?}"
    );
    let (report, _) = judged(&rule, &[by("test")], &request, |_| Err(unsynced()));
    assert!(
        matches!(report.outcome, RuleOutcome::Error(_)),
        "{report:?}"
    );
    // An exception that matches holds, although the other cannot be evaluated.
    let both = [by("test"), exception(ANY)];
    let (report, _) = judged(&rule, &both, &request, |_| Err(unsynced()));
    assert_eq!(report.excepted_by, ["ns/e"]);
    let labels = exception("match: {any: [{resources: {namespaceSelector: {}}}]}");
    assert_eq!(labels.references().count(), 1);
    assert_eq!(exception(ANY).references().count(), 0);
}

#[test]
fn an_exception_for_the_old_object_does_not_hide_its_violation() {
    let condition =
        "{key: \"{{ request.object.spec.rules[0].host }}\", operator: Equals, value: x}";
    let rule = policy(&format!(
        "{{validate: {{deny: {{conditions: {{all: [{condition}]}}}}}}}}"
    ));
    // It is about the old object, and not about the new one.
    let old = exception("match: {any: [{resources: {kinds: ['*'], names: [old]}}]}");
    let [bad, bad_before, good_before] =
        [("new", "x"), ("old", "x"), ("old", "y")].map(|(name, host)| ingress(name, &[host]));
    for (before, is_excused) in [(&bad_before, true), (&good_before, false)] {
        let update = request("UPDATE", &bad, before);
        let (report, _) = judged(&rule, std::slice::from_ref(&old), &update, nothing);
        let excused = matches!(report.outcome, RuleOutcome::Skipped { .. });
        assert_eq!(excused, is_excused, "{report:?}");
    }
}

/// A fact that the rule reads in part is whole for the conditions.
#[test]
fn an_exceptions_conditions_read_facts_whole() {
    let rule = format!(
        "{{{CONFIG}, validate: {{deny: {{conditions: {{all: [\
         {{key: \"{{{{ config.data.denied }}}}\", operator: Equals, value: yes}}]}}}}}}}}"
    );
    let spec = format!(
        "{ANY}, conditions: {{all: [{{key: \"{{{{ config.data.excepted }}}}\", operator: Equals, value: a}}]}}"
    );
    let (report, _) = judged(
        &policy(&rule),
        &[exception(&spec)],
        &create(&ingress("a", &[])),
        config,
    );
    assert_eq!(report.excepted_by, ["ns/e"], "{report:?}");
    // The rule by itself would ask whether the name is in the list.
    let rule = r#"
context: [{name: hosts, cachedContextEntry: {name: ingresses, jmesPath: "items[].host"}}]
validate:
  deny: {conditions: {all: [{key: "{{ request.name }}", operator: AnyIn, value: "{{ hosts }}"}]}}
"#;
    let spec = format!(
        "{ANY}, conditions: {{all: [{{key: \"{{{{ request.name }}}}\", operator: Equals, value: other}}]}}"
    );
    let (report, asked) = judged(
        &policy(rule),
        &[exception(&spec)],
        &create(&ingress("a", &[])),
        |_| Ok(json!(["n"])),
    );
    assert_eq!(asked, ["ingresses"]);
    assert!(
        matches!(report.outcome, RuleOutcome::Fail { .. }),
        "{report:?}"
    );
}

#[test]
fn an_exception_may_exempt_single_controls_of_a_standard() {
    let rule = policy("{validate: {podSecurity: {level: restricted, version: latest}}}");
    let pod = |user: &Value| {
        AdmissionRequest::new(json!({
            "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
                "hostNetwork": user["hostNetwork"],
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{"name": "c", "image": "i", "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                }}],
            }},
        }))
        .unwrap()
    };
    let (good, bad) = (
        pod(&json!({"hostNetwork": false})),
        pod(&json!({"hostNetwork": true})),
    );
    let control = |name: &str| {
        [exception(&format!(
            "{ANY}, podSecurity: [{{controlName: {name}}}]"
        ))]
    };
    let judged =
        |exceptions: &[PolicyException], request| judged(&rule, exceptions, request, nothing).0;
    let host = control("Host Namespaces");
    let other = control("Seccomp");
    assert!(matches!(
        judged(&[], &bad).outcome,
        RuleOutcome::Fail { .. }
    ));
    assert!(matches!(
        judged(&other, &bad).outcome,
        RuleOutcome::Fail { .. }
    ));
    let spared = judged(&host, &bad);
    assert!(
        matches!(spared.outcome, RuleOutcome::Skipped { .. }),
        "{spared:?}"
    );
    assert_eq!(spared.excepted_by, ["ns/e"]);
    // Nothing had to be excepted.
    let report = judged(&host, &good);
    assert_eq!(
        (report.outcome, &*report.excepted_by),
        (RuleOutcome::Pass, &[][..])
    );
    assert_eq!(judged(&[exception(ANY)], &good).excepted_by, ["ns/e"]);
}

#[test]
fn an_exception_for_users_does_not_hold_when_the_user_is_unknown() {
    let rule = policy(&format!("validate: {{{DENY}}}"));
    let with_user = create(&ingress("a", &[]));
    let without = AdmissionRequest::new(json!({
        "operation": "CREATE", "namespace": "ns",
        "kind": {"group": "networking.k8s.io", "version": "v1", "kind": "Ingress"},
        "object": ingress("a", &[]),
    }))
    .unwrap();
    let robot =
        "match: {any: [{resources: {kinds: ['*']}, subjects: [{kind: User, name: '*robot'}]}]}";
    for (spec, request, expected) in [
        (ANY, &without, &["ns/e"][..]),
        (robot, &with_user, &["ns/e"]),
        (robot, &without, &[]),
    ] {
        let (report, _) = judged(&rule, &[exception(spec)], request, nothing);
        assert_eq!(report.excepted_by, expected, "{spec}: {report:?}");
    }
}
