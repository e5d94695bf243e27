//! A check of values by the part of JSON Schema that the chart's schema uses.

use regex::Regex;
use serde_json::Value;

/// The places at which a value is not what a schema allows.
pub(super) fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, value, "", &mut found);
    found
}

fn check(whole: &Value, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let list = |key: &str| schema[key].as_array().into_iter().flatten();
    if let Some(pointer) = schema["$ref"].as_str() {
        check(
            whole,
            whole.pointer(&pointer[1..]).unwrap(),
            value,
            path,
            found,
        );
    }
    let mut expect = |fits: bool, what: &str| {
        if !fits {
            found.push(format!("{path}: {what} of {value}"));
        }
    };
    let kinds: Vec<_> = match &schema["type"] {
        Value::String(kind) => vec![kind.as_str()],
        _ => list("type").filter_map(Value::as_str).collect(),
    };
    expect(
        kinds.is_empty() || kinds.iter().any(|kind| is(kind, value)),
        "type",
    );
    let allowed = schema.get("enum").and_then(Value::as_array);
    expect(
        allowed.is_none_or(|allowed| allowed.contains(value)),
        "enum",
    );
    if let Some(text) = value.as_str() {
        let pattern = schema["pattern"].as_str();
        let fits = pattern.is_none_or(|pattern| Regex::new(pattern).unwrap().is_match(text));
        expect(fits, "pattern");
        let least = schema["minLength"].as_u64().unwrap_or_default();
        expect(text.chars().count() as u64 >= least, "minLength");
    }
    if let Some(number) = value.as_i64() {
        expect(
            schema["minimum"]
                .as_i64()
                .is_none_or(|least| number >= least),
            "minimum",
        );
        expect(
            schema["maximum"].as_i64().is_none_or(|most| number <= most),
            "maximum",
        );
    }
    for (at, element) in value.as_array().into_iter().flatten().enumerate() {
        check(
            whole,
            &schema["items"],
            element,
            &format!("{path}/{at}"),
            found,
        );
    }
    for required in list("required").filter_map(Value::as_str) {
        if value.is_object() && value.get(required).is_none() {
            found.push(format!("{path}: no {required}"));
        }
    }
    for (key, inner) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{key}");
        check(
            whole,
            &schema["propertyNames"],
            &Value::from(key.as_str()),
            &path,
            found,
        );
        match (&schema["properties"][key], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => found.push(format!("{path}: not known")),
            (Value::Null, others) => check(whole, others, inner, &path, found),
            (known, _) => check(whole, known, inner, &path, found),
        }
    }
    if !schema["if"].is_null() {
        let mut unmet = Vec::new();
        check(whole, &schema["if"], value, path, &mut unmet);
        if unmet.is_empty() {
            check(whole, &schema["then"], value, path, found);
        }
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64(),
        "number" => value.is_number(),
        other => panic!("the type {other}"),
    }
}
