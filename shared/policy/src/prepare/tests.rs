//! The work of compiling: manifests that were made to take long.

use serde_json::{Value, json};

use super::*;

/// A `Policy` with a context of these entries, and a validation.
fn policy(context: &Value, validate: &Value) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "Policy",
        "metadata": {"name": "p", "namespace": "n"},
        "spec": {"rules": [{
            "name": "r", "context": context, "validate": validate,
            "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        }]},
    })
}

fn deny(keys: &[String]) -> Value {
    let conditions = keys
        .iter()
        .map(|key| json!({"key": key, "operator": "Equals", "value": 1}));
    json!({"deny": {"conditions": {"any": conditions.collect::<Vec<_>>()}}})
}

/// A context entry that is a list, with this expression.
fn list(name: &str, expression: &str) -> Value {
    let path = "/api/v1/namespaces/n/configmaps";
    json!({"name": name, "apiCall": {"urlPath": path, "jmesPath": expression}})
}

/// Returns whether a manifest compiles; `None`: it takes too many steps.
fn compiles(manifest: &Value) -> Option<bool> {
    match compile(manifest) {
        Ok(_) => Some(true),
        Err(problems) => {
            let is_over = |problem: &Problem| {
                problem.path == "spec" && problem.message.contains("takes more than 2000000 steps")
            };
            (!problems.iter().any(is_over)).then_some(false)
        }
    }
}

#[test]
fn a_policy_is_compiled_up_to_its_limit_of_steps() {
    // Each use of the entry is a query with the entry's own expression in it.
    let own = format!("items[?{}].x", vec!["a"; 2_000].join("||"));
    let uses = |count| deny(&vec!["{{ a[0].y }}".to_owned(); count]);
    let context = json!([list("a", &own)]);
    assert_eq!(compiles(&policy(&context, &uses(50))), Some(true));
    assert_eq!(compiles(&policy(&context, &uses(500))), None);
    let nested = (0..15).fold("request.object.a".to_owned(), |inner, _| {
        format!("request.object.b || '{{{{ {inner} }}}}'")
    });
    let nested = format!("{{{{ {nested} }}}} ");
    let message = |count| json!({"message": nested.repeat(count), "deny": {}});
    assert_eq!(compiles(&policy(&json!([]), &message(20))), Some(true));
    assert_eq!(compiles(&policy(&json!([]), &message(2_000))), None);
}

/// Each took minutes, or gigabytes.
#[test]
fn no_manifest_takes_long_to_compile() {
    let none = json!([]);
    // Whichever fact is asked, the innermost part keeps it from answering.
    let names: Vec<_> = (0..40).map(|at| format!("f{at}")).collect();
    let inside = names.iter().fold("f39.*".to_owned(), |inner, name| {
        format!("contains({name}[0].a, {inner})")
    });
    let facts = names.iter().map(|name| list(name, "items")).collect();
    let together = "{{a[0].x&&b.x}}".repeat(20_000);
    let both = json!([list("a", "items"), {"name": "b", "configMap": {"name": "b"}}]);
    let steps = format!("{{{{ request.object{} }}}}", ".a".repeat(30_000));
    for (what, manifest, expected) in [
        (
            "facts in each other",
            policy(&facts, &deny(&[format!("{{{{ {inside} }}}}")])),
            None,
        ),
        (
            "facts together",
            policy(&both, &deny(&[together])),
            Some(true),
        ),
        ("a long path", policy(&none, &deny(&[steps])), Some(true)),
        (
            "references that do not end",
            policy(&none, &json!({"pattern": {"a": "$(".repeat(300_000)}})),
            Some(true),
        ),
        (
            "braces that do not end",
            policy(&none, &deny(&[format!("{{{{ {}", "{ ".repeat(300_000))])),
            Some(false),
        ),
        (
            "variables that do not end",
            policy(&none, &json!({"pattern": {"a": "\\{{".repeat(200_000)}})),
            Some(true),
        ),
        (
            "many places with a long path",
            policy(
                &none,
                &json!({"pattern": {"k".repeat(30_000): "{{@}}".repeat(100_000)}}),
            ),
            None,
        ),
        (
            "many names that are not there",
            policy(
                &json!([{"name": "x".repeat(300_000), "variable": {"value": 1}}]),
                &deny(&["{{zz}}".repeat(50_000)]),
            ),
            Some(false),
        ),
    ] {
        assert_eq!(compiles(&manifest), expected, "{what}");
    }
}
