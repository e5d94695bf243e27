//! `--set NAME=VALUE`: values of variables on the command line.

use serde_json::Value;

/// One argument's: with commas between, as in `a=1,b.c=x`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assignments(pub(crate) Vec<(String, Value)>);

impl Assignments {
    /// Names may be paths. A list, an object or a quoted text is JSON, anything else is text, as in Kyverno: of
    /// numbers too, which conditions compare by what they say. A comma within quotes, brackets or
    /// braces is the value's own, and so is one that no `NAME=` comes after.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut whole: Vec<String> = Vec::new();
        for piece in pieces(text) {
            match whole.last_mut() {
                Some(last) if !piece.contains('=') => {
                    last.push(',');
                    last.push_str(piece);
                }
                _ => whole.push(piece.to_owned()),
            }
        }
        let parse = |text: &String| parse_assignment(text);
        whole.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }
}

fn parse_assignment(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if name.is_empty() {
        return Err("expected NAME=VALUE".to_owned());
    }
    let is_json = value.starts_with(['[', '{', '"']);
    let parsed = is_json.then(|| serde_json::from_str(value).ok()).flatten();
    let value = parsed.unwrap_or_else(|| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

/// Splits at the commas that stand in no quotes, brackets or braces.
fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut from) = (Vec::new(), 0);
    let (mut depth, mut is_quoted) = (0_usize, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            '[' | '{' if !is_quoted => depth += 1,
            ']' | '}' if !is_quoted => depth = depth.saturating_sub(1),
            ',' if depth == 0 && !is_quoted => {
                pieces.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&text[from..]);
    pieces
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn commas_stand_between_values_or_in_them() {
        for (text, values) in [
            ("a=1", vec![("a", json!("1"))]),
            (
                "a=true,b.c=x",
                vec![("a", json!("true")), ("b.c", json!("x"))],
            ),
            ("a=[x,b=\"1\"", vec![("a", json!("[x,b=\"1\""))]),
            (
                "a=[\"x\",\"y=1\"],b={\"c\":1,\"d\":2}",
                vec![("a", json!(["x", "y=1"])), ("b", json!({"c": 1, "d": 2}))],
            ),
            ("a=x,y,b=2", vec![("a", json!("x,y")), ("b", json!("2"))]),
            ("a=b=c", vec![("a", json!("b=c"))]),
            ("a=", vec![("a", json!(""))]),
        ] {
            let values = values
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value));
            assert_eq!(
                Assignments::parse(text),
                Ok(Assignments(values.collect())),
                "{text}"
            );
        }
        for bad in ["a", "=1", "a=1,=2", ""] {
            assert!(Assignments::parse(bad).is_err(), "{bad}");
        }
    }
}
