//! The label selector of a target, as its variables make it.

use serde_json::Value;

/// Returns a label selector in the API server's syntax. Each text becomes exactly one key or one value. A text that
/// is neither is an error, so a malformed selector never selects every object.
pub(super) fn label_selector(selector: &Value) -> Result<String, String> {
    let mut all = Vec::new();
    for (field, said) in selector.as_object().into_iter().flatten() {
        match (field.as_str(), said) {
            ("matchLabels", Value::Object(labels)) => {
                for (key, value) in labels {
                    all.push(format!("{}={}", plain(key)?, plain_value(value)?));
                }
            }
            ("matchExpressions", Value::Array(expressions)) => {
                for one in expressions {
                    all.push(requirement(one)?);
                }
            }
            _ => return Err(format!("`{field}: {said}` is no part of a selector")),
        }
    }
    Ok(all.join(","))
}

fn requirement(one: &Value) -> Result<String, String> {
    let key = plain_value(&one["key"])?;
    let values = match &one["values"] {
        Value::Null => Vec::new(),
        Value::Array(values) => values
            .iter()
            .map(plain_value)
            .collect::<Result<Vec<_>, _>>()?,
        other => return Err(format!("`values: {other}` is no list")),
    };
    let operator = one["operator"].as_str().unwrap_or_default();
    let takes_values = matches!(operator, "In" | "NotIn");
    if takes_values == values.is_empty() {
        return Err(format!("{operator} with {} values", values.len()));
    }
    let values = values.join(",");
    Ok(match operator {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "Exists" => key.to_owned(),
        "DoesNotExist" => format!("!{key}"),
        _ => return Err(format!("there is no operator {}", one["operator"])),
    })
}

fn plain_value(value: &Value) -> Result<&str, String> {
    match value.as_str() {
        Some(text) => plain(text),
        None => Err(format!("{value} is no label")),
    }
}

fn plain(text: &str) -> Result<&str, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match text.chars().all(is_plain) {
        true => Ok(text),
        false => Err(format!("`{text}` is no label")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_malformed_selector_never_selects_all_objects() {
        for (selector, expected) in [
            (json!({}), Some("")),
            (json!({"matchLabels": {"a": "b"}}), Some("a=b")),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}),
                Some("a in (b,c)"),
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b", "c"]}]}),
                Some("a notin (b,c)"),
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
                Some("a"),
            ),
            (json!({"matchLabels": null}), None),
            (json!({"matchLabels": "a=b"}), None),
            (json!({"matchLabels": {"a": 1}}), None),
            (json!({"matchLabels": {"a": "b,c"}}), None),
            (json!({"matchLabel": {"a": "b"}}), None),
            (json!({"matchExpressions": {"key": "a"}}), None),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}),
                None,
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": "b"}]}),
                None,
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
                None,
            ),
        ] {
            let found = label_selector(&selector);
            assert_eq!(found.as_deref().ok(), expected, "{selector}");
        }
    }
}
