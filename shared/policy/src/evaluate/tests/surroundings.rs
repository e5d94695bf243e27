//! Rules about what a request does not carry.

use super::*;
use crate::{
    CollectionReference, Reference,
    ir::matching::{LABELS, NAMESPACE_SELECTOR},
};

const DENY: &str = "deny: {conditions: {all: [{key: a, operator: Equals, value: a}]}}";

/// A rule about what `matching` says, which denies.
fn about(matching: &str) -> Policy {
    policy(&format!("{{{matching}, validate: {{{DENY}}}}}"))
}

/// Answers for the namespace and the bindings.
fn world(fact: &FactRequest) -> Result<Value, FactError> {
    Ok(match &fact.subject {
        FactSubject::NamespaceLabels { namespace } => {
            assert_eq!(namespace, "ns");
            assert_eq!(fact.expression, LABELS);
            json!({"env": "prod"})
        }
        FactSubject::RoleBindings { cluster } => {
            assert_eq!(
                fact.parameters["names"],
                json!(["robot", "system:serviceaccount:ns:robot"])
            );
            let role = match cluster {
                false => json!({"kind": "Role", "name": "edit"}),
                true => json!({"kind": "ClusterRole", "name": "admin"}),
            };
            let subjects = [json!({"kind": "ServiceAccount", "namespace": "ns", "name": "robot"})];
            json!([{"namespace": (!cluster).then_some("a"), "role": role, "subjects": subjects}])
        }
        other => panic!("{other} is not needed"),
    })
}

const PROD: &str = "namespaceSelector: {matchLabels: {env: prod}}";
const DEV: &str = "namespaceSelector: {matchLabels: {env: dev}}";
const INGRESS: &str = "kinds: [Ingress]";

#[test]
fn labels_and_roles_are_asked_for_only_where_they_decide_the_match() {
    let labels = vec!["labels of namespace ns".to_owned()];
    let roles = vec!["rolebindings".to_owned(), "clusterrolebindings".to_owned()];
    let any = |of: &str| format!("match: {{any: [{of}]}}");
    let but = |of: &str| {
        format!("match: {{any: [{{resources: {{{INGRESS}}}}}]}}, exclude: {{any: [{of}]}}")
    };
    for (matching, denied, asked) in [
        (
            any(&format!("{{resources: {{{INGRESS}, {PROD}}}}}")),
            true,
            vec![labels.clone()],
        ),
        (
            any(&format!("{{resources: {{{INGRESS}, {DEV}}}}}")),
            false,
            vec![labels.clone()],
        ),
        (
            but(&format!("{{resources: {{{PROD}}}}}")),
            false,
            vec![labels.clone()],
        ),
        (
            but(&format!("{{resources: {{{DEV}}}}}")),
            true,
            vec![labels.clone()],
        ),
        // What the request says by itself is enough.
        (
            any(&format!("{{resources: {{kinds: [Pod], {PROD}}}}}")),
            false,
            vec![],
        ),
        (
            any(&format!(
                "{{resources: {{{INGRESS}}}}}, {{resources: {{{PROD}}}}}"
            )),
            true,
            vec![],
        ),
        (
            but("{resources: {names: [x], namespaceSelector: {}}, roles: [a:edit]}"),
            true,
            vec![],
        ),
        (
            any(&format!("{{resources: {{{INGRESS}}}, roles: [a:edit]}}")),
            true,
            vec![roles.clone()],
        ),
        (
            any(&format!("{{resources: {{{INGRESS}}}, roles: [b:edit]}}")),
            false,
            vec![roles.clone()],
        ),
        (
            any(&format!(
                "{{resources: {{{INGRESS}}}, clusterRoles: [view, admin]}}"
            )),
            true,
            vec![roles.clone()],
        ),
        (but("{clusterRoles: [admin]}"), false, vec![roles.clone()]),
        (but("{clusterRoles: [view]}"), true, vec![roles.clone()]),
        (
            but("{clusterRoles: [admin], subjects: [{kind: User, name: alice}]}"),
            true,
            vec![],
        ),
        // Both at once.
        (
            any(&format!(
                "{{resources: {{{INGRESS}, {PROD}}}, roles: [a:edit]}}"
            )),
            true,
            vec![[labels, roles].concat()],
        ),
    ] {
        let (report, steps) = drive(&about(&matching), &create(&ingress("a", &[])), world);
        assert_eq!(
            matches!(report.outcome, RuleOutcome::Fail { .. }),
            denied,
            "{matching} {report:?}"
        );
        assert_eq!(steps, asked, "{matching}");
    }
}

#[test]
fn unknown_labels_and_roles_are_an_error_and_never_absent() {
    for (matching, variable) in [
        (
            format!("match: {{any: [{{resources: {{{PROD}}}}}]}}"),
            "namespaceSelector",
        ),
        ("exclude: {any: [{roles: [a:edit]}]}".to_owned(), "roles"),
    ] {
        let (report, _) = drive(&about(&matching), &create(&ingress("a", &[])), |_| {
            Err(unsynced())
        });
        let RuleOutcome::Error(RuleError::Fact {
            variable: found,
            source,
            ..
        }) = report.outcome
        else {
            panic!("{matching}: {:?}", report.outcome);
        };
        assert_eq!((&*found, source), (variable, unsynced()));
    }
}

#[test]
fn the_roles_that_an_expression_names_are_in_the_request() {
    let rule = "validate: {deny: {conditions: {all: [\
        {key: admin, operator: AnyIn, value: '{{ request.clusterRoles }}'}, \
        {key: \"{{ contains(request.roles, 'a:edit') }}\", operator: Equals, value: true}]}}}";
    let policy = policy(&format!("{{{rule}}}"));
    let (report, steps) = drive(&policy, &create(&ingress("a", &[])), world);
    assert!(
        matches!(report.outcome, RuleOutcome::Fail { .. }),
        "{report:?}"
    );
    assert_eq!(steps, [["rolebindings", "clusterrolebindings"]]);
}

#[test]
fn roles_that_the_request_does_not_have_are_a_missing_key() {
    let outcome = |value: &str, request: &AdmissionRequest| {
        let conditions = format!("[{{key: admin, operator: AnyNotIn, value: \"{value}\"}}]");
        let rule = format!("{{validate: {{deny: {{conditions: {{all: {conditions}}}}}}}}}");
        let found = |fact: &FactRequest| match fact.subject {
            FactSubject::RoleBindings { cluster: true } => Ok(json!([])),
            _ => world(fact),
        };
        drive(&policy(&rule), request, found).0.outcome
    };
    let mut said = create(&ingress("a", &[])).value();
    said["roles"] = json!(["a:edit"]);
    said["clusterRoles"] = json!([]);
    let said = AdmissionRequest::new(said).unwrap();
    for request in [create(&ingress("a", &[])), said] {
        assert!(matches!(
            outcome("{{ request.clusterRoles }}", &request),
            RuleOutcome::Error(RuleError::Variable { .. })
        ));
        for value in ["{{ request.clusterRoles || `[]` }}", "{{ request.roles }}"] {
            let outcome = outcome(value, &request);
            assert!(
                matches!(outcome, RuleOutcome::Fail { .. }),
                "{value} {outcome:?}"
            );
        }
    }
}

#[test]
fn a_policy_declares_the_labels_and_bindings_its_match_needs() {
    let references = |matching: &str| -> Vec<String> {
        let references = about(matching);
        let all = references.references().map(|reference| {
            assert!(
                reference.is_declared() && reference.is_inline(),
                "{reference:?}"
            );
            reference.name()
        });
        all.collect()
    };
    let name = |of| Reference::Collection(of).name();
    let bindings = [true, false].map(|cluster| name(CollectionReference::role_bindings(cluster)));
    assert_eq!(references("name: x"), [""; 0]);
    let selector = format!("exclude: {{any: [{{resources: {{{PROD}}}}}]}}");
    assert_eq!(
        references(&selector),
        [name(CollectionReference::namespaces())]
    );
    assert_eq!(references("match: {any: [{clusterRoles: [a]}]}"), bindings);
}

#[test]
fn only_the_namespace_of_a_selector_is_read_live() {
    let call = |path| crate::Call::Api { path, data: None };
    let policy = |matching: &str| about(matching);
    let selector = policy(&format!("match: {{any: [{{resources: {{{PROD}}}}}]}}"));
    let permits = |policy: &Policy, path| {
        policy
            .permits("rule", NAMESPACE_SELECTOR, call(path))
            .is_ok()
    };
    assert!(permits(&selector, "/api/v1/namespaces/ns"));
    for path in [
        "/api/v1/namespaces/",
        "/api/v1/namespaces/ns/pods",
        "/api/v1/namespaces/..",
        "/api/v1/nodes/ns",
        "/api/v1/namespaces/a?x=y",
    ] {
        assert!(!permits(&selector, path), "{path}");
    }
    // An exception from a rule may be about them where the rule is not.
    assert!(permits(&policy("name: rule"), "/api/v1/namespaces/ns"));
    let other = Policy::permits(
        &selector,
        "another",
        NAMESPACE_SELECTOR,
        call("/api/v1/namespaces/ns"),
    );
    assert!(other.is_err());
}
