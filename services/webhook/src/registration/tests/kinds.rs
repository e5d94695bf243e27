//! Kinds of policies become resources of webhooks.

use anteroom_policy::PolicyKind;

use super::*;

#[test]
fn webhooks_name_the_resources_of_the_policies_kinds() {
    let of = |kinds: &[&str]| rules(&[policy(kinds, &["UPDATE", "CREATE"], "Fail", None)]);
    assert_eq!(
        of(&["Pod"]),
        // And what makes Pods, as far as it is served.
        [
            "/v1 pods,pods/ephemeralcontainers,pods/resize CREATE,UPDATE",
            "apps/v1 deployments CREATE,UPDATE",
        ]
    );
    assert_eq!(
        of(&["Ingress", "Service"]),
        [
            "/v1 services CREATE,UPDATE",
            "networking.k8s.io/v1 ingresses CREATE,UPDATE",
            "networking.k8s.io/v1beta1 ingresses CREATE,UPDATE",
        ]
    );
    assert_eq!(
        of(&["apps/v1/Deployment/scale"]),
        ["apps/v1 deployments/scale CREATE,UPDATE"]
    );
    assert_eq!(
        of(&["*"]),
        ["*/* *,pods/ephemeralcontainers,pods/resize CREATE,UPDATE"]
    );
    assert_eq!(of(&["*/*"]), ["*/* */* CREATE,UPDATE"]);
    assert_eq!(of(&["*", "*/*"]), ["*/* */* CREATE,UPDATE"]);
}

#[test]
fn a_kind_that_is_not_served_yet_is_its_whole_group_or_its_plural_in_that_version() {
    let of = |kind: &str| rules(&[policy(&[kind], &["CREATE"], "Fail", None)]);
    assert_eq!(of("example.com/v1/Widget"), ["example.com/* */* CREATE"]);
    assert_eq!(
        of("networking.k8s.io/v1/Ingress"),
        ["networking.k8s.io/v1 ingresses CREATE"]
    );
    // The plural is known from the versions that are served.
    assert_eq!(
        of("networking.k8s.io/v2/Ingress"),
        ["networking.k8s.io/v2 ingresses CREATE"]
    );
    for nowhere in [
        "networking.k8s.io/v2*/Ingress",
        "Widget",
        "v1/Widget",
        "apps/v1/Widget",
        "*.com/v1/Widget",
    ] {
        let none: [&str; 0] = [];
        assert_eq!(of(nowhere), none, "{nowhere}");
    }
}

/// A policy in CEL that does not compile: it is registered as far as it can be read.
fn in_cel(rules: &Value) -> Value {
    json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "metadata": { "name": "p" },
        "spec": { "matchConstraints": { "resourceRules": rules }, "validations": [{ "expression": "(" }] },
    })
}

fn rules_of_unready(resources: &[&str], group: &str, version: &str) -> Vec<String> {
    let policy = in_cel(&json!([{
        "apiGroups": [group], "apiVersions": [version], "operations": ["*"], "resources": resources,
    }]));
    let body = anteroom_wire::body::encode_json(&policy).unwrap();
    let key = PolicyKind::Validating.key("", "p");
    let set = PolicySet::build(&PolicySet::default(), [(key, body)]);
    let made =
        registration(None).configuration(Phase::Validation, &set, &testing::kinds(), "PEM", "");
    let webhooks = made.webhooks.iter();
    let of_objects = webhooks.filter(|webhook| webhook.name.contains(".validate."));
    let rules = of_objects.flat_map(|webhook| webhook.rules.iter().flatten());
    let texts = |list: &Option<Vec<String>>| list.iter().flatten().cloned().collect::<Vec<_>>();
    rules
        .map(|rule| {
            let parts = [&rule.api_groups, &rule.api_versions, &rule.resources];
            parts.map(|part| texts(part).join(",")).join(" ")
        })
        .collect()
}

#[test]
fn resources_that_a_policy_names_by_their_plurals_are_registered_as_written() {
    for (resources, group, version, expected) in [
        (&["pods"][..], "", "v1", " v1 pods"),
        (&["pods", "pods/exec"], "", "v1", " v1 pods,pods/exec"),
        // Served or not, the plural is known.
        (&["widgets"], "example.com", "v1", "example.com v1 widgets"),
        (&["*"], "*", "*", "* * *"),
        (&["deployments"], "apps", "*", "apps * deployments"),
    ] {
        assert_eq!(rules_of_unready(resources, group, version), [expected]);
    }
}

/// The API server would refuse a rule that names a resource twice, and the whole configuration with it.
#[test]
fn resources_that_a_wildcard_covers_are_left_out() {
    for (resources, expected) in [
        (&["*/*", "*", "pods", "pods/exec"][..], "*/*"),
        (&["*", "pods", "pods/exec"], "*,pods/exec"),
        (&["pods/*", "pods", "pods/exec"], "pods,pods/*"),
        (
            &["*/scale", "deployments/scale", "pods/exec"],
            "*/scale,pods/exec",
        ),
        (&["*/scale", "pods/*"], "*/scale,pods/*"),
    ] {
        let found = rules_of_unready(resources, "", "v1");
        assert_eq!(found, [format!(" v1 {expected}")]);
    }
    let none: [&str; 0] = [];
    assert_eq!(rules_of_unready(&["", "pods"], "", ""), none);
}
