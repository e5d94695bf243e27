//! Texts of policies and users: expressions, names, YAML.

use anteroom_cel::{Arrival, Dialect, Machine, Names, Program, Roots};
use anteroom_functions::{
    images, pod_security, query_functions,
    values::{self, Cidr, Format, Quantity, Url},
    wildcard, yaml,
};
use anteroom_jmespath::{Budget, Environment, Expression};
use anteroom_model::{LabelSelector, NameSelector};
use serde_json::Value;

use crate::texts;

/// The work that one input may do.
const BUDGET: Budget = Budget {
    steps: 20_000,
    depth: 64,
    built_bytes: 256 * 1024,
    json_bytes: 4 * 1024 * 1024,
};

/// An expression with all functions of Kyverno, and a document.
pub(crate) fn functions(input: &[u8]) {
    let Some([text, json]) = texts(input) else {
        return;
    };
    let Ok(document) = serde_json::from_str::<Value>(json) else {
        return;
    };
    let Ok(expression) = Expression::parse(text) else {
        return;
    };
    let environment = Environment::standard()
        .with_functions(query_functions())
        .with_budget(BUDGET);
    if let Ok(value) = expression.evaluate(&document, &environment) {
        let _ = value.to_json_within(BUDGET.json_bytes);
    }
}

/// A CEL expression, and an object.
pub(crate) fn cel(input: &[u8]) {
    let Some([text, json]) = texts(input) else {
        return;
    };
    let Ok(object) = serde_json::from_str::<Value>(json) else {
        return;
    };
    for dialect in [Dialect::Kubernetes, Dialect::Kyverno] {
        let names = Names::default().in_dialect(dialect);
        if let Ok(program) = Program::compile(text, &names) {
            evaluate(&program, &object);
        }
    }
}

fn evaluate(program: &Program, object: &Value) {
    let roots = Roots {
        object: Some(object),
        old_object: Some(object),
        request: Some(object),
        ..Roots::default()
    };
    let arrival = Arrival { now_ns: 0, seed: 1 };
    let machine =
        || Machine::new(roots, &[], anteroom_cel::Budget::default()).with_arrival(arrival);
    assert_eq!(
        machine().truth(program).ok(),
        machine().truth(program).ok(),
        "it comes to the same each time"
    );
    assert_eq!(machine().json(program).ok(), machine().json(program).ok());
    let _ = machine().text(program);
    let _ = machine().patches(program);
    let _ = machine().object(program);
}

/// Small languages: wildcards, selectors, quantities, images, durations, versions. A pattern, and a text.
pub(crate) fn names(input: &[u8]) {
    let Some([pattern, text]) = texts(input) else {
        return;
    };
    assert!(wildcard::matches("*", text));
    if !wildcard::has_wildcard(pattern) {
        assert_eq!(wildcard::matches(pattern, text), pattern == text);
    }
    if let Ok(selector) = LabelSelector::parse(pattern) {
        selector.matches(|name| (name == "a").then_some(text));
    }
    if let Ok(selector) = NameSelector::parse(pattern) {
        selector.matches(text, pattern);
    }
    let pod = serde_json::json!({"spec": {"containers": [{"name": "a", "image": text}]}});
    let _ = images::images("Pod", &pod);
    let _ = (
        pod_security::Level::parse(text),
        pod_security::Version::parse(text),
    );
    let _ = (
        values::duration_ns(text),
        values::parse_ip(text),
        Cidr::parse(text),
    );
    if let Some(quantity) = Quantity::parse(text) {
        assert_eq!(
            quantity.partial_cmp(&quantity),
            Some(std::cmp::Ordering::Equal)
        );
    }
    if let Some(url) = Url::parse(text) {
        let _ = (url.hostname(), url.port());
    }
    let _ = Format::find(pattern).map(|format| format.check(text));
}

/// A stream of YAML documents.
pub(crate) fn yaml(input: &[u8]) {
    let Some([text]) = texts(input) else { return };
    let _ = yaml::read(text);
    let _ = yaml::read_all(text);
}
