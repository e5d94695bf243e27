//! The parts of a YAML file that texts of others go into. Pure.

use std::fmt::Write as _;

use serde_json::Value;

/// The width of lines, where they can be broken.
const WIDTH: usize = 110;

/// Returns a comment, line by line. No text gets out of it.
pub(super) fn comment(text: &str, indent: usize) -> String {
    let (mut page, mut line) = (String::new(), String::new());
    let clean = text.replace(is_break, " ");
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

/// Returns a value on one line: JSON is YAML, once nothing in a text looks like the end of a line.
pub(super) fn flow(value: &Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        match is_break(c) {
            true => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            false => text.push(c),
        }
    }
    text
}

/// Returns what stands behind a key: the value on its line, or a long list with a line for each element.
pub(super) fn behind_key(value: &Value, indent: usize) -> String {
    let line = flow(value);
    match value.as_array() {
        Some(elements) if line.len() > WIDTH => {
            let lines = elements
                .iter()
                .map(|element| format!("\n{:indent$}- {}", "", flow(element)));
            lines.collect()
        }
        _ => format!(" {line}"),
    }
}

/// Controls, YAML's other line breaks, and the mark that stands at the begin of a file.
fn is_break(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn written_yaml_is_read_as_the_same_values() {
        let long = vec!["[Event,*,*]"; 20];
        let value = json!({ "list": ["a: b", "#", "x\u{85}\u{2028}\ny"], "on": { "yes": [true, null, 1.5] } });
        let page = format!(
            "{}key:{}\nlong:{}\n",
            comment(&format!("one\nkey: {}", "word ".repeat(60)), 2),
            behind_key(&value, 2),
            behind_key(&json!(long), 2)
        );
        let read = anteroom_functions::yaml::read(&page).unwrap();
        assert_eq!(read, json!({ "key": value, "long": long }), "{page}");
        assert!(page.lines().all(|line| line.len() < 120), "{page}");
    }
}
