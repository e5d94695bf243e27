//! The tokens of expressions, as far as a reader of their fields and literals wants to know them.

use serde_json::Value;

/// The two languages of expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Cel,
    JmesPath,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Literal(Value),
    Mark(char),
}

/// Returns the tokens of an expression. Invalid text is tokenised leniently; the compiler reports the error.
pub(super) fn tokens(source: &str, language: Language) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            _ if first.is_whitespace() => &rest[first.len_utf8()..],
            '/' if rest.starts_with("//") && language == Language::Cel => {
                rest.split_once('\n').map_or("", |(_, after)| after)
            }
            '`' if language == Language::JmesPath => {
                let (text, after) = quoted(&rest[1..], '`', false);
                let value = serde_json::from_str(&text).unwrap_or_else(|_| text.trim().into());
                found.push(Token::Literal(value));
                after
            }
            '"' | '\'' => {
                let (text, after) = quoted(&rest[1..], first, false);
                found.push(match (first, language) {
                    ('"', Language::JmesPath) => Token::Name(text),
                    _ => Token::Literal(text.into()),
                });
                after
            }
            'r' | 'R' if language == Language::Cel && rest[1..].starts_with(['"', '\'']) => {
                let quote = if rest[1..].starts_with('"') {
                    '"'
                } else {
                    '\''
                };
                let (text, after) = quoted(&rest[2..], quote, true);
                found.push(Token::Literal(text.into()));
                after
            }
            '0'..='9' => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.';
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                let text = rest[..end].trim_end_matches(['u', 'U']);
                if let Ok(number) = serde_json::from_str::<Value>(text) {
                    found.push(Token::Literal(number));
                }
                &rest[end..]
            }
            _ if first.is_alphabetic() || first == '_' => {
                let is_part = |c: char| c.is_alphanumeric() || c == '_';
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                found.push(match (&rest[..end], language) {
                    ("true", Language::Cel) => Token::Literal(true.into()),
                    ("false", Language::Cel) => Token::Literal(false.into()),
                    ("null", Language::Cel) => Token::Literal(Value::Null),
                    (name, _) => Token::Name(name.to_owned()),
                });
                &rest[end..]
            }
            mark => {
                found.push(Token::Mark(mark));
                &rest[mark.len_utf8()..]
            }
        };
    }
    found
}

/// A quoted text up to its end, and the rest.
fn quoted(rest: &str, quote: char, is_raw: bool) -> (String, &str) {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if !is_raw => match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, c)) => text.push(c),
                None => {}
            },
            c if c == quote => return (text, &rest[at + c.len_utf8()..]),
            c => text.push(c),
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn literals_and_names_are_those_of_the_language() {
        let literals = |source: &str, language| -> Vec<Value> {
            let found = tokens(source, language).into_iter();
            found
                .filter_map(|token| match token {
                    Token::Literal(value) => Some(value),
                    _ => None,
                })
                .collect()
        };
        for (source, language, expected) in [
            (
                r#"a == "x\"y" && b == 'z'"#,
                Language::Cel,
                json!(["x\"y", "z"]),
            ),
            (
                r"m(r'\d+') + 10u // 'no'",
                Language::Cel,
                json!([r"\d+", 10]),
            ),
            (
                "a == true ? 1.5 : null",
                Language::Cel,
                json!([true, 1.5, null]),
            ),
            (
                r#""a.b" == '1' || `{"x": 1}`"#,
                Language::JmesPath,
                json!(["1", {"x": 1}]),
            ),
            ("`unfinished", Language::JmesPath, json!(["unfinished"])),
            ("'ü", Language::JmesPath, json!(["ü"])),
        ] {
            assert_eq!(json!(literals(source, language)), expected, "{source}");
        }
    }
}
