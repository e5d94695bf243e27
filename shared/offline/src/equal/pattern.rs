//! Patterns and wildcards, as lists of paths and literals.

use serde_json::Value;

use super::{
    expression::Reached,
    mention::Mention,
    value_path::{PathStep, ValuePath},
};

/// The depth to which a pattern is followed.
const DEPTH_MAX: usize = 64;

/// Operators before a value of a pattern, longer ones first.
const OPERATORS: &[&str] = &[">=", "<=", "!", ">", "<"];

/// Reads a pattern about the object at `path`: one mention for each of its leaves. `templates` reads the variables of a
/// text.
pub(super) fn read(
    pattern: &Value,
    path: &ValuePath,
    templates: &mut dyn FnMut(&str, &mut Mention) -> Reached,
    found: &mut Vec<Mention>,
) {
    if path.len() > DEPTH_MAX {
        return;
    }
    match pattern {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = without_anchor(key);
                let mut names = Mention::default();
                match key.contains("{{") {
                    true => drop(templates(key, &mut names)),
                    false => fill(key, &mut names),
                }
                // A wildcard stands for one name here.
                let name = names.literals.iter().find_map(Value::as_str).unwrap_or(key);
                let mut below = path.clone();
                below.push(PathStep::Field(name.into()));
                read(value, &below, templates, found);
                if key.contains("{{") {
                    found.push(names);
                }
            }
        }
        Value::Array(elements) => {
            let mut below = path.clone();
            below.push(PathStep::Each);
            for element in elements {
                read(element, &below, templates, found);
            }
        }
        leaf => {
            let mut mention = Mention::default();
            mention.paths.insert(path.clone());
            match leaf {
                Value::Null => {}
                Value::String(text) if text.contains("{{") => {
                    templates(text, &mut mention);
                }
                Value::String(text) => {
                    for part in text.split(['|', '&']) {
                        fill(part.trim(), &mut mention);
                    }
                }
                leaf => mention.literal(leaf.clone()),
            }
            found.push(mention);
        }
    }
}

/// Adds texts that match a text with wildcards or an operator, and its number if the text is one.
pub(super) fn fill(text: &str, mention: &mut Mention) {
    let operator = OPERATORS
        .iter()
        .find(|operator| text.starts_with(**operator));
    let text = text
        .trim_start_matches(operator.copied().unwrap_or_default())
        .trim();
    let number = serde_json::from_str::<Value>(text).ok();
    if let Some(number) = number.filter(|value| value.is_number() || value.is_boolean()) {
        mention.literal(number);
    }
    match text.contains(['*', '?']) {
        true => {
            mention.literal(text.replace(['*', '?'], "x").into());
            mention.literal(
                text.replace("?*", "x")
                    .replace('*', "")
                    .replace('?', "x")
                    .into(),
            );
        }
        false => mention.literal(text.into()),
    }
    // A range.
    if let Some((low, high)) = text.split_once('-')
        && !low.is_empty()
        && low.starts_with(|c: char| c.is_ascii_digit())
        && high.starts_with(|c: char| c.is_ascii_digit())
    {
        for end in [low, high] {
            mention.literal(serde_json::from_str(end).unwrap_or_else(|_| end.into()));
        }
    }
}

/// The key of a pattern without its anchor, as in `(image)`, `=(image)`, `X(image)`.
fn without_anchor(key: &str) -> &str {
    let inside = ["=(", "^(", "<(", "X(", "+(", "("];
    let inside = inside.iter().find_map(|start| key.strip_prefix(*start));
    inside.and_then(|key| key.strip_suffix(')')).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::equal::value_path::path;

    #[test]
    fn leaves_of_patterns_are_paths_with_their_literals() {
        let pattern = json!({
            "spec": {
                "=(hostNetwork)": false,
                "containers": [{"(name)": "a*", "image": "!*:latest & *:*"}],
            },
            "metadata": {"labels": {"app": "?*"}},
        });
        let mut found = Vec::new();
        read(
            &pattern,
            &ValuePath::new(),
            &mut |_, _| Reached::default(),
            &mut found,
        );
        let of = |text: &str| {
            let path = path(text);
            let mention = found
                .iter()
                .find(|mention| mention.paths.contains(&path))
                .unwrap();
            json!(mention.literals)
        };
        assert_eq!(of("spec.hostNetwork"), json!([false]));
        assert_eq!(of("spec.containers[].name"), json!(["ax", "a"]));
        assert_eq!(
            of("spec.containers[].image"),
            json!(["x:latest", ":latest", "x:x", ":"])
        );
        assert_eq!(of("metadata.labels.app"), json!(["xx", "x"]));
    }

    #[test]
    fn operators_and_ranges_are_taken_off_their_values() {
        for (text, expected) in [
            (">=10", json!([10, "10"])),
            ("!true", json!([true, "true"])),
            ("1-3", json!(["1-3", 1, 3])),
            ("<512Mi", json!(["512Mi"])),
            ("10Mi-20Mi", json!(["10Mi-20Mi", "10Mi", "20Mi"])),
            ("a-b", json!(["a-b"])),
        ] {
            let mut mention = Mention::default();
            fill(text, &mut mention);
            assert_eq!(json!(mention.literals), expected, "{text}");
        }
    }
}
