//! Names that nobody knows, beside some that are known: keys that are missing, as in Kyverno.

use super::*;

/// Returns the outcome of a rule that compares the expression.
fn judged(expression: &str, value: &Value) -> RuleOutcome {
    let key = format!("{{{{ {expression} }}}}");
    let rule = json!({
        "context": [{"name": "known", "variable": {"value": [1, 2]}}],
        "validate": {"message": "same", "deny": {"conditions": {"all": [
            {"key": key, "operator": "Equals", "value": value},
        ]}}},
    });
    outcome(&rule.to_string(), &create(&ingress("x", &["h"])))
}

#[test]
fn an_unknown_name_is_a_missing_key() {
    for (expression, expected) in [
        ("length(nobody || `[]`)", json!(0)),
        ("nobody || request.namespace", json!("ns")),
        ("nobody.deep[0] || request.namespace", json!("ns")),
        ("request.object.nope || nobody || 'x'", json!("x")),
        ("request.namespace == nobody", json!(false)),
        // These are names too, and were meant to be more.
        ("request.object.nope == true", json!(true)),
        ("request.namespace == true", json!(false)),
        ("(request.object.nope || false) == null", json!(true)),
        ("!nobody && request.namespace", json!("ns")),
        ("not_null(nobody, request.namespace)", json!("ns")),
        ("known[?@ == nobody]", json!([])),
        ("length(nobody[?@ == 'a'] || known)", json!(2)),
    ] {
        let found = judged(expression, &expected);
        assert_eq!(found, fail("same"), "{expression}");
    }
}

#[test]
fn an_unknown_name_behaves_like_a_missing_field() {
    for expression in [
        "request.object.nope || nobody",
        "nobody || request.object.nope",
        "request.namespace && nobody",
        "nobody && request.namespace",
        "[nobody, request.namespace]",
        "{a: nobody, b: request.namespace}",
        "length(nobody)",
        "nobody | length(@)",
        "nobody[].a || known",
        "(nobody || known)[?@ == `1`]",
        "to_string(nobody.deep)",
    ] {
        let field = expression.replace("nobody", "request.object.nobody");
        for value in [json!(null), json!("ns"), json!([1])] {
            let (name, field) = (judged(expression, &value), judged(&field, &value));
            match (name, field) {
                (RuleOutcome::Error(name), RuleOutcome::Error(field)) => {
                    assert_eq!(name.code(), field.code(), "{expression}");
                }
                (name, field) => assert_eq!(name, field, "{expression} {value}"),
            }
        }
    }
}

#[test]
fn a_policy_is_refused_where_nothing_of_an_expression_is_known() {
    for (expression, is_refused) in [
        ("nobody", true),
        ("nobody.deep", true),
        ("nobody || none", true),
        ("nobody == true", true),
        ("!nobody", true),
        ("nobody[?a == 'b']", true),
        ("nobody || request.namespace", false),
        ("nobody || @.request", false),
        ("to_string(nobody)", false),
        ("nobody[?@ == 'b']", false),
    ] {
        let manifest = json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [{
                "name": "r", "match": {"any": [{"resources": {"kinds": ["*"]}}]},
                "validate": {"message": format!("{{{{ {expression} }}}}"), "deny": {}},
            }]},
        });
        assert_eq!(compile(&manifest).is_err(), is_refused, "{expression}");
    }
}
