//! With `MissingKey::Error`, a key that an object lacks is an error exactly where Kyverno's fork of
//! go-jmespath says so. What is expected here is what that fork answered (v0.4.1-0.20231124160150-95e59c162877).

use anteroom_jmespath::{Budget, Environment, EvalError, Expression, MissingKey};
use serde_json::{Value, json};

fn evaluate(text: &str) -> Result<Value, EvalError> {
    let document = json!({
        "a": {"b": 1},
        "list": [{"x": 1}, {"y": 2}, {"x": 3}, null, 4],
        "object": {"p": {"x": 1}, "q": {}},
        "null": null,
        "string": "s",
    });
    let environment = Environment::standard().with_missing_key(MissingKey::Error);
    Expression::parse(text)
        .unwrap()
        .evaluate_json(&document, &environment)
}

#[test]
fn a_missing_key_error_travels_up_a_path() {
    for text in [
        "no",
        "no.b",
        "a.no",
        "a.no.b",
        "no[0]",
        "no[0].b",
        "no.b[*]",
        "no.b[*].c",
        "no.b[:1]",
        "(no)",
        "@.no",
        "@ && no",
        "a && a.no",
        "no.[b]",
        "no.{k: b}",
        "no.length(@)",
        "object.p.no",
        "list[0].no",
    ] {
        assert_eq!(
            evaluate(text),
            Err(EvalError::MissingKey { key: "no".into() }),
            "{text}"
        );
    }
    assert_eq!(
        evaluate("a.no").unwrap_err().to_string(),
        "Unknown key \"no\" in path"
    );
}

#[test]
fn a_missing_key_is_null_outside_of_paths() {
    let table = [
        ("no || 'default'", json!("default")),
        ("a.no.b || 'default'", json!("default")),
        ("no || no", json!(null)),
        ("no && a", json!(null)),
        ("a && no && a", json!(null)),
        ("(a && no) || 'default'", json!("default")),
        ("!no", json!(true)),
        ("no == `null`", json!(true)),
        ("no != a", json!(true)),
        ("no < `1`", json!(null)),
        ("no | @", json!(null)),
        ("@ | no", json!(null)),
        ("a | b | @", json!(1)),
        ("no[*]", json!(null)),
        ("no[*].b", json!(null)),
        ("a.no[*].b", json!(null)),
        ("no[]", json!(null)),
        ("a.no[]", json!(null)),
        ("no.b[]", json!(null)),
        ("no[?x]", json!(null)),
        ("no.b[?x]", json!(null)),
        ("no.*", json!(null)),
        ("no.b.*", json!(null)),
        ("no[:1]", json!(null)),
        ("list[*].x", json!([1, 3])),
        ("list[].x.y", json!([])),
        ("list[?x].x", json!([1, 3])),
        ("list[?x == `3`]", json!([{"x": 3}])),
        ("list[?x].no", json!([])),
        ("object.*.x", json!([1])),
        ("[no, a.b]", json!([null, 1])),
        ("{k: no, l: a.b}", json!({"k": null, "l": 1})),
        ("type(no)", json!("null")),
        ("not_null(no, a.no, a.b)", json!(1)),
        ("to_array(no)", json!([null])),
        ("map(&no, list[:2])", json!([null, null])),
        // A field of what is not an object is null, not missing.
        ("null.no", json!(null)),
        ("string.no", json!(null)),
        ("list.no", json!(null)),
        ("list[9].no", json!(null)),
    ];
    for (text, expected) in table {
        assert_eq!(evaluate(text), Ok(expected), "{text}");
    }
}

#[test]
fn errors_other_than_a_missing_key_are_not_forgiven() {
    let not_copied_from_the_fork = ["sort_by(list[:1], &no)"];
    let errors_there_too = [
        "length(no) || 'default'",
        "sort_by(list[:2], &no)",
        "list[*].abs(@)",
        "list[].abs(@)",
        "list[?abs(string)]",
        "abs(string)[*]",
        "abs(string)[:1]",
        "abs(string).x",
        "[[list][].abs(@)]",
    ];
    for text in not_copied_from_the_fork.into_iter().chain(errors_there_too) {
        assert!(
            matches!(evaluate(text), Err(EvalError::InvalidType { .. })),
            "{text}"
        );
    }
}

/// What was given to a function is known, and it is nothing that the function takes.
#[test]
fn a_refused_argument_is_null_under_flatten_filter_and_values() {
    let table = [
        ("abs(string)[]", json!(null)),
        ("abs(string)[].x", json!(null)),
        ("abs(string)[?x]", json!(null)),
        ("abs(string).*", json!(null)),
        ("abs(string, string)[]", json!(null)),
        ("keys(no)[] || 'default'", json!("default")),
        ("[abs(string)][]", json!(null)),
        ("{k: abs(string)}.*", json!(null)),
        ("(string | abs(@))[]", json!(null)),
        // The third element is refused, after two were flattened.
        ("[[`1`], [`2`], [string]][].abs(@)[]", json!(null)),
        ("([[`1`], [`2`], [string]][].abs(@))[?@]", json!(null)),
        // Whatever fails behind what is no array.
        ("[`1`, `-2`, string][*].abs(@)[].length(@)", json!(null)),
        ("([`1`, string][*].abs(@))[?length(@)]", json!(null)),
        ("list[?abs(string)][]", json!(null)),
        ("length(to_array(abs(string)[]))", json!(1)),
    ];
    for (text, expected) in table {
        assert_eq!(evaluate(text), Ok(expected), "{text}");
    }
    // What is not known stays an error, whatever is refused after it.
    let unknown = EvalError::UnknownFunction {
        function: "nope".into(),
    };
    assert_eq!(
        evaluate("([`1`, string][*].abs(@))[?nope(@)]"),
        Err(unknown)
    );
    // Without missing keys the specification's rule holds.
    let document = json!({"string": "s"});
    for text in ["abs(string)[]", "abs(string)[?x]", "abs(string).*"] {
        let found = Expression::parse(text)
            .unwrap()
            .evaluate_json(&document, &Environment::standard());
        assert!(
            matches!(found, Err(EvalError::InvalidType { .. })),
            "{text}"
        );
    }
}

#[test]
fn an_exceeded_budget_is_never_null() {
    let budget = Budget {
        steps: 5,
        ..Budget::default()
    };
    let environment = Environment::standard()
        .with_missing_key(MissingKey::Error)
        .with_budget(budget);
    let document = json!({"list": [1, 2, 3, 4, 5, 6, 7]});
    for text in ["list[*].abs(@)[]", "list[?@][]", "{k: list[*].abs(@)}.*"] {
        let found = Expression::parse(text)
            .unwrap()
            .evaluate_json(&document, &environment);
        assert!(matches!(found, Err(EvalError::Budget { .. })), "{text}");
    }
}
