//! YAML with comments. Pure.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

/// The width of comments.
const WIDTH: usize = 110;

/// Comments by the path of what they stand above, as in `config.excludeGroups` or `rules.0`.
pub(super) type Comments = BTreeMap<String, String>;

/// Returns a document in block style.
pub(super) fn block(value: &Value, comments: &Comments) -> String {
    let mut page = String::new();
    write(&mut page, value, 0, "", comments);
    page
}

/// Returns a comment, line by line. No text gets out of it.
pub(super) fn comment(text: &str) -> String {
    indented(text, 0)
}

fn indented(text: &str, indent: usize) -> String {
    let mut page = String::new();
    let mut line = String::new();
    let clean = text.replace(|c: char| c.is_control() || is_break(c), " ");
    for word in clean.split_whitespace() {
        if !line.is_empty() && indent + line.len() + word.len() > WIDTH {
            let _ = writeln!(page, "{:indent$}#{line}", "");
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(page, "{:indent$}#{line}", "");
    page
}

fn write(page: &mut String, value: &Value, indent: usize, path: &str, comments: &Comments) {
    let below = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let path = below(key);
                if let Some(text) = comments.get(&path) {
                    page.push_str(&indented(text, indent));
                }
                let _ = write!(page, "{:indent$}{}:", "", key_text(key));
                nested(page, value, indent, &path, comments);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for (at, element) in elements.iter().enumerate() {
                let path = below(&at.to_string());
                if let Some(text) = comments.get(&path) {
                    page.push_str(&indented(text, indent));
                }
                let mut inside = String::new();
                write(&mut inside, element, indent + 2, &path, comments);
                // The first line stands behind the dash.
                let _ = write!(page, "{:indent$}- {}", "", inside.trim_start());
            }
        }
        scalar => {
            let _ = writeln!(page, "{:indent$}{}", "", flow(scalar));
        }
    }
}

fn nested(page: &mut String, value: &Value, indent: usize, path: &str, comments: &Comments) {
    match value {
        Value::Object(fields) if !fields.is_empty() => page.push('\n'),
        Value::Array(elements) if elements.iter().any(|element| element.is_object()) => {
            page.push('\n');
        }
        Value::Array(elements) if flow(value).len() > WIDTH && !elements.is_empty() => {
            page.push('\n')
        }
        value => {
            let _ = writeln!(page, " {}", flow(value));
            return;
        }
    }
    write(page, value, indent + 2, path, comments);
}

/// JSON is YAML, once nothing in a text looks like the end of a line.
fn flow(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match c.is_control() || is_break(c) {
            true => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            false => text.push(c),
        }
    }
    text
}

/// Line breaks of YAML's that are no control characters, and the mark that is none inside a text.
fn is_break(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// A key as it is, where it cannot be anything else.
fn key_text(key: &str) -> String {
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_plain = key.starts_with(|c: char| c.is_ascii_alphabetic())
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._/".contains(c))
        && !WORDS.contains(&&*key.to_ascii_lowercase());
    match is_plain {
        true => key.to_owned(),
        false => flow(&Value::String(key.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let value = json!({
            "config": { "list": ["a: b", "#", "x\u{85}\u{2028}\ny"], "empty": [], "none": {}, "on": true, "yes": "yes",
                "long": vec!["[Event,*,*]"; 20] },
            "rules": [{ "verbs": ["get"], "nested": [{ "a": 1 }, [1, [2]]] }, "text"],
            "number": 12, "null": null,
        });
        let comments = [
            ("config".to_owned(), "one\nkey: value".to_owned()),
            ("rules.1".to_owned(), "word ".repeat(60)),
        ];
        let page = block(&value, &comments.into());
        assert_eq!(
            anteroom_functions::yaml::read(&page).unwrap(),
            value,
            "{page}"
        );
        assert!(
            page.contains("\n# one key: value\nconfig:\n")
                || page.starts_with("# one key: value\nconfig:"),
            "{page}"
        );
        assert!(page.lines().all(|line| line.len() < 260), "{page}");
    }
}
