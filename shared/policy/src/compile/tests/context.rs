//! Entries of a `context`, and what they are called.

use serde_json::{Value, json};

use super::rule_problems;
use crate::{Driver, compile, compile_for};

#[test]
fn a_cloud_registry_provider_is_refused_unless_the_driver_supports_it() {
    let policy = |credentials: &Value| {
        json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [{
                "name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "context": [{"name": "data", "imageRegistry": {
                    "reference": "a", "imageRegistryCredentials": credentials,
                }}],
                "validate": {"deny": {}},
            }]},
        })
    };
    for (credentials, path) in [
        (
            json!({"providers": ["default"], "allowInsecureRegistry": false}),
            None,
        ),
        (json!({"secrets": ["regcred"]}), None),
        (
            json!({"providers": ["default", "amazon"]}),
            Some("providers"),
        ),
        (json!({"allowInsecureRegistry": true}), None),
    ] {
        let manifest = policy(&credentials);
        assert!(compile_for(&manifest, Driver::ALL).is_ok(), "{credentials}");
        let problem = compile(&manifest).err().map(|problems| problems[0].clone());
        let found = problem.map(|problem| (problem.code.as_str().to_owned(), problem.path));
        let place = "spec.rules[0].context[0].imageRegistry.imageRegistryCredentials";
        let expected = path.map(|path| ("AR301".to_owned(), format!("{place}.{path}")));
        assert_eq!(found, expected, "{credentials}");
    }
}

#[test]
fn registry_secrets_need_valid_names_and_are_limited_in_number() {
    let problems = |secrets: &Value| {
        let manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [{
                "name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "context": [{"name": "data", "imageRegistry": {
                    "reference": "a", "imageRegistryCredentials": {"secrets": secrets},
                }}],
                "validate": {"deny": {}},
            }]},
        });
        let problems = compile(&manifest).err().unwrap_or_default();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let many = |count: usize| Value::from_iter((0..count).map(|n| format!("s{n}")));
    for (secrets, says) in [
        (json!([]), None),
        (json!(["regcred", "team/regcred"]), None),
        (many(16), None),
        (many(17), Some("17 Secrets, over the limit of 16")),
        (
            json!(["../regcred"]),
            Some("`../regcred` is no name of a Secret"),
        ),
        (json!(["a/b/c"]), Some("`a/b/c` is no name of a Secret")),
        (json!(["Regcred"]), Some("`Regcred` is no name of a Secret")),
    ] {
        let problems = problems(&secrets);
        assert_eq!(problems.is_empty(), says.is_none(), "{problems:?}");
        let says = says.unwrap_or_default();
        assert!(
            problems.iter().all(|told| told.contains(says)),
            "{problems:?}"
        );
    }
}

#[test]
fn a_policy_names_registry_secrets_of_its_own_namespace_alone() {
    let compiled = |secrets: Value| {
        compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "Policy",
            "metadata": {"name": "p", "namespace": "a"},
            "spec": {"rules": [{
                "name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "context": [{"name": "data", "imageRegistry": {
                    "reference": "x", "imageRegistryCredentials": {"secrets": secrets},
                }}],
                "validate": {"deny": {}},
            }]},
        }))
    };
    assert!(compiled(json!(["regcred", "a/regcred"])).is_ok());
    let problems = compiled(json!(["regcred", "b/regcred"])).unwrap_err();
    assert_eq!(problems[0].code.as_str(), "AR304");
    assert!(problems[0].message.contains("`b/regcred`"), "{problems:?}");
}

/// A problem with a source names the field.
#[test]
fn malformed_fields_of_a_context_source_are_reported() {
    insta::assert_snapshot!(rule_problems(
        r#"
match: {any: [{resources: {kinds: [Pod]}}]}
context:
- {name: a, globalReference: {jmesPath: x}}
- {name: b, globalReference: {name: "", more: 1}}
- {name: c, resourceCache: {kind: "{{ request.kind.kind }}", namespace: "{{ request.namespace }}", group: "{{ x }}"}}
- {name: d, resourceCache: {group: apps/v1, version: v1/x}}
- {name: e, resourceCache: {kind: pods, name: x}}
- {name: f, resourceCache: {kind: pods, name: x, group: "", version: v1, labelSelector: a}}
- {name: g, apiCall: {method: PUT}}
- {name: h, apiCall: {urlPath: /version, service: {url: "http://x/"}}}
- {name: i, apiCall: {urlPath: /version, data: [{key: a, value: b}]}}
- {name: j, apiCall: {urlPath: /x, method: POST, data: [{key: a}, {value: b}, 5], cache: maybe}}
- {name: k, apiCall: {service: {caBundle: "{{ x }}", headers: [{key: "{{ x }}", value: "{{ x }}"}]}}}
- {name: l, configMap: {namespace: a/b}}
- {name: m, configMap: {name: "..", namespace: "{{ nope }}"}}
- {name: number, cachedContextEntry: {name: x, maxStaleness: 5}}
- {name: o, cachedContextEntry: {name: x, maxStaleness: "5"}}
- {name: p, cachedContextEntry: {name: x, maxStaleness: 0s}}
- {name: q, cachedContextEntry: {name: x, maxStaleness: 24h0.001s}}
- {name: r, cachedContextEntry: {name: x}, configMap: {name: x}}
- {name: s, apiCall: {urlPath: "/api/v1/namespaces/{{ t }}"}}
- {name: t, apiCall: {urlPath: "/api/v1/pods", jmesPath: "items[", default: "{{ nope }}"}}
validate: {deny: {}}
"#
    ));
}

#[test]
fn the_staleness_limit_is_at_most_a_day() {
    for (text, is_accepted) in [
        ("24h", true),
        ("1ms", true),
        ("24h1ms", false),
        ("999us", false),
        ("-1s", false),
    ] {
        let rule = format!(
            "match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}\ncontext: [{{name: x, cachedContextEntry: {{name: e, maxStaleness: {text}}}}}]\nvalidate: {{deny: {{}}}}"
        );
        assert_ne!(
            rule_problems(&rule).starts_with("AR302"),
            is_accepted,
            "{text}"
        );
    }
}

#[test]
fn an_entry_may_have_a_name_reserved_only_in_other_rule_types() {
    let problems = |name: &str| {
        let rule = json!({
            "name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "context": [{"name": name, "variable": {"value": "v"}}],
            "validate": {"deny": {}, "message": format!("{{{{ {name} }}}}")},
        });
        compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [rule]},
        }))
        .err()
    };
    for name in ["image", "target"] {
        assert_eq!(problems(name), None, "{name}");
    }
    for name in ["element", "elementIndex", "images", "request"] {
        assert!(problems(name).is_some(), "{name}");
    }
}
