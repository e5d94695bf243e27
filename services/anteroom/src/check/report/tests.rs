//! The schema of the output, held against outputs of healthy and of faulty installations.

use std::collections::BTreeSet;

use regex::Regex;

use super::*;
use crate::check::{
    CATEGORIES, checks,
    system::tests::faulty,
    tests::{FAULTS, healthy},
};

const SCHEMA: &str = include_str!("../../../../../docs/checks.schema.json");

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

/// Returns the places where a value is not as its schema says, or has a field that the schema does not name.
fn violations(schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (keyword, rule) in schema.as_object().unwrap() {
        let holds = match keyword.as_str() {
            "$schema" | "title" | "description" => true,
            "type" => match rule.as_array() {
                Some(types) => types.iter().any(|kind| is_of(value, kind)),
                None => is_of(value, rule),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "pattern" => {
                let pattern = Regex::new(rule.as_str().unwrap()).unwrap();
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "required" => {
                let mut fields = rule.as_array().unwrap().iter();
                fields.all(|field| value.get(field.as_str().unwrap()).is_some())
            }
            "properties" => {
                for (field, value) in value.as_object().into_iter().flatten() {
                    let place = format!("{place}.{field}");
                    match rule.get(field) {
                        Some(schema) => found.extend(violations(schema, value, &place)),
                        None => found.push(format!("{place} is not in the schema")),
                    }
                }
                true
            }
            "items" => {
                for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(violations(rule, item, &format!("{place}[{at}]")));
                }
                true
            }
            other => panic!("this test does not know the keyword {other}"),
        };
        if !holds {
            found.push(format!("{place}: {keyword}: {rule}"));
        }
    }
    found
}

fn is_of(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        other => panic!("this test does not know the type {other}"),
    }
}

fn output(cluster: &Cluster, pre: bool) -> Value {
    let report = Report::new(&checks(pre), cluster);
    serde_json::from_str(&report.show(Output::Json).unwrap()).unwrap()
}

/// Returns what is printed of a healthy installation, of each fault, and where nothing is heard over NATS.
fn outputs() -> Vec<Value> {
    let of_cluster = FAULTS.iter().map(|(.., fault)| {
        let mut cluster = healthy();
        fault(&mut cluster);
        cluster
    });
    let of_system = faulty().map(|heard| Cluster {
        nats: Some(Ok(heard)),
        ..healthy()
    });
    let unheard = Cluster {
        nats: None,
        ..healthy()
    };
    let all = of_cluster.chain(of_system).chain([unheard, healthy()]);
    let all = all.map(|cluster| output(&cluster, false));
    all.chain([output(&healthy(), true)]).collect()
}

#[test]
fn every_output_is_as_the_schema_says() {
    let schema = schema();
    let mut results = BTreeSet::new();
    for output in outputs() {
        assert_eq!(violations(&schema, &output, ""), [""; 0]);
        let categories = output["categories"].as_array().unwrap().iter();
        let checks = categories.flat_map(|category| category["checks"].as_array().unwrap());
        results.extend(checks.map(|check| check["result"].to_string()));
    }
    let categories = &schema["properties"]["categories"]["items"]["properties"];
    assert_eq!(categories["categoryName"]["enum"], json!(CATEGORIES));
    let known = &categories["checks"]["items"]["properties"]["result"]["enum"];
    let known = known.as_array().unwrap().iter().map(Value::to_string);
    assert_eq!(results, known.collect());
}

#[test]
fn an_output_that_is_not_as_the_schema_says_is_found() {
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 6] = [
        (|of| of["success"] = json!("yes"), ".success: type"),
        (|of| drop(of["categories"].take()), ".categories: type"),
        (|of| of["more"] = json!(1), ".more is not in the schema"),
        (
            |of| of["categories"][0]["categoryName"] = json!("none"),
            ".categories[0].categoryName: enum",
        ),
        (
            |of| of["categories"][0]["checks"][0]["hint"] = json!("docs/other.md"),
            ".categories[0].checks[0].hint: pattern",
        ),
        (
            |of| of["categories"][0]["checks"][0] = json!({ "id": "kubernetes-version" }),
            ".categories[0].checks[0]: required",
        ),
    ];
    for (change, expected) in changes {
        let mut output = output(&healthy(), false);
        change(&mut output);
        let found = violations(&schema(), &output, "");
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{expected}: {found:?}"
        );
    }
}
