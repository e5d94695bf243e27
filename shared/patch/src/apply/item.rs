//! The identity of an element in a list that is merged by keys, or as a set.

use serde_json::Value;

use super::types::{List, ListMapKey};

/// The work of writing an identity, in bytes of text, beside that of going through the element: several short texts are
/// made and put together.
pub(super) const IDENTITY_BYTES: usize = 128;

/// Returns the identity of an element, as it is written in paths: `[containerPort=80,protocol="TCP"]`, or
/// `["a"]` in a set.
///
/// # Errors
/// Why the element has none.
pub(super) fn identity(list: &List, element: &Value) -> Result<String, &'static str> {
    match list.keys.is_empty() {
        true => of_set(element),
        false => of_keys(&list.keys, element),
    }
}

fn of_set(element: &Value) -> Result<String, &'static str> {
    match element {
        Value::Null => Err("an element of a set may not be null"),
        Value::Array(_) => Err("an element of a set may not be a list"),
        Value::Object(_) => Err("an element of a set may not be an object"),
        single => Ok(format!("[={}]", written(single))),
    }
}

fn of_keys(keys: &[ListMapKey], element: &Value) -> Result<String, &'static str> {
    let Some(element) = element.as_object() else {
        return Err("an element of a list with keys must be an object");
    };
    let present = keys.iter().filter_map(|key| {
        let value = element.get(&key.name).or(key.default.as_ref())?;
        Some(format!("{}={}", key.name, written(value)))
    });
    // An element that lacks one of several keys differs from all elements with the key.
    let mut present: Vec<String> = present.collect();
    if present.is_empty() {
        return Err("an element of a list with keys must have one of them");
    }
    present.sort();
    Ok(format!("[{}]", present.join(",")))
}

/// A value as text, alike for numbers that are equal.
fn written(value: &Value) -> String {
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            // Minus zero equals zero.
            format!("{}", number + 0.0)
        }
        value => value.to_string(),
    }
}
