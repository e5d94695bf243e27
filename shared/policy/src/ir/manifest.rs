//! Limits of manifests. Pure.

use serde_json::Value;

/// Levels of nesting of a manifest, beyond which it is not walked. Kyverno's own policies stay below
/// 20.
pub const MANIFEST_DEPTH_MAX: usize = 64;

pub(crate) fn is_deeper_than(value: &Value, levels: usize) -> bool {
    let Some(left) = levels.checked_sub(1) else {
        return true;
    };
    match value {
        Value::Array(elements) => elements.iter().any(|element| is_deeper_than(element, left)),
        Value::Object(entries) => entries.values().any(|value| is_deeper_than(value, left)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_list_and_every_object_is_a_level() {
        for (value, levels) in [
            (json!(1), 1),
            (json!([]), 1),
            (json!([1]), 2),
            (json!({"a": 1}), 2),
            (json!([1, {"a": [], "b": [2]}]), 4),
        ] {
            assert!(!is_deeper_than(&value, levels), "{value}");
            assert!(is_deeper_than(&value, levels - 1), "{value}");
        }
    }
}
