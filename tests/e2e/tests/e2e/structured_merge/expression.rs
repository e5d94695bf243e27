//! Partial objects as CEL expressions.

use serde_json::Value;

/// Names that are words of CEL, and so no fields in an expression.
const WORDS: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Writes a value at a path from the root, as in `Object.spec{replicas: 1}`. Objects whose fields are no names
/// are maps, which no path goes through.
pub(super) fn write(value: &Value, path: &str) -> String {
    match value {
        Value::Object(fields) if fields.keys().all(|name| is_name(name)) => {
            let fields = fields.iter().map(|(name, value)| {
                let value = write(value, &format!("{path}.{name}"));
                format!("{name}: {value}")
            });
            format!("{path}{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                format!(
                    "{}: {}",
                    Value::from(name.as_str()),
                    of_any_type(value, path)
                )
            });
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Array(elements) => {
            let elements = elements.iter().map(|element| of_any_type(element, path));
            format!("[{}]", elements.collect::<Vec<_>>().join(", "))
        }
        single => single.to_string(),
    }
}

/// A value in a list or map, whose values must be of one type where the types are known.
fn of_any_type(value: &Value, path: &str) -> String {
    format!("dyn({})", write(value, path))
}

fn is_name(name: &str) -> bool {
    let of_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    name.starts_with(|char: char| char.is_ascii_alphabetic())
        && name.chars().all(of_name)
        && !WORDS.contains(&name)
}
