//! The bodies of the fuzz targets, here so that the tests of a stable toolchain run the same.
//!
//! Each panics where a property does not hold.

use crate::{Budget, Environment, Expression, MissingKey, Value};

/// Parsing never panics, its errors point into the text, and its result is stable.
pub fn parse(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match Expression::parse(text) {
        Ok(expression) => {
            assert!(Expression::parse(expression.as_str()).is_ok_and(|again| again == expression));
        }
        Err(error) => {
            assert!(error.offset_bytes <= text.len());
            assert!(!format!("{error:#}").is_empty());
        }
    }
}

/// Evaluation never panics and keeps to its budget. The input is an expression, a NUL, and a JSON
/// document, which is bound to the parameters as well.
pub fn evaluate(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let (Some(text), Some(json)) = (parts.next(), parts.next()) else {
        return;
    };
    let Some(expression) = std::str::from_utf8(text)
        .ok()
        .and_then(|text| Expression::parse(text).ok())
    else {
        return;
    };
    let Ok(document) = serde_json::from_slice::<serde_json::Value>(json) else {
        return;
    };
    let bound: serde_json::Map<_, _> = expression
        .parameters()
        .map(|name| (name.to_owned(), document.clone()))
        .collect();
    let budget = Budget {
        steps: 20_000,
        depth: 64,
        built_bytes: 256 * 1024,
        json_bytes: 4 * 1024 * 1024,
    };
    for missing_key in [MissingKey::Null, MissingKey::Error] {
        let environment = Environment::standard()
            .with_parameters(&bound)
            .with_missing_key(missing_key)
            .with_budget(budget);
        if let Ok(value) = expression.evaluate(&document, &environment) {
            check_result(&value, budget);
        }
    }
}

fn check_result(value: &Value<'_, &serde_json::Value>, budget: Budget) {
    if let Ok(json) = value.to_json_within(budget.json_bytes) {
        assert_eq!(serde_json::to_value(value).ok(), Some(json));
    }
}
