//! A scanner for the `{{ }}` of a text.

/// Placeholders inside placeholders, the outermost counted; deeper is a problem.
pub(crate) const NESTING_MAX: usize = 16;

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Plain text, with `\{{` already read as `{{`.
    Text(String),
    /// The text between the braces, untrimmed.
    Hole(&'a str),
}

/// Splits a text into literals and holes. The scanner does not parse a hole; it ends at two closing braces that close
/// no brace within the hole.
pub(super) fn scan(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("{{") {
        if rest[..at].ends_with('\\') {
            plain.push_str(&rest[..at - 1]);
            plain.push_str("{{");
            rest = &rest[at + 2..];
            continue;
        }
        plain.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        let end = hole_end(inside).map_err(|problem| {
            let offset = text.len() - inside.len() - 2;
            format!("the `{{{{` at byte {offset} {problem}")
        })?;
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(Piece::Hole(&inside[..end]));
        rest = &inside[end + 2..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(pieces)
}

/// Returns the length of the text between the braces.
fn hole_end(text: &str) -> Result<usize, String> {
    // The number of closing characters for each open brace: two or one.
    let mut open = vec![2];
    let mut holes = 1;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let pair = bytes.get(at + 1) == Some(&bytes[at]);
        match (bytes[at], open.last()) {
            (b'{', _) if pair => {
                open.push(2);
                holes += 1;
            }
            (b'{', _) => open.push(1),
            (b'}', Some(2)) if pair => {
                open.pop();
                holes -= 1;
                if open.is_empty() {
                    return Ok(at);
                }
            }
            (b'}', Some(2)) => return Err("holds a `}` that closes nothing".to_owned()),
            (b'}', _) => {
                open.pop();
                at += 1;
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        }
        if holes > NESTING_MAX {
            return Err(format!("nests deeper than {NESTING_MAX} levels"));
        }
        at += if pair { 2 } else { 1 };
    }
    Err("has no `}}`; write `\\{{` for the braces themselves".to_owned())
}

/// Returns whether a text refers to another part of its document, `$(./path)`, which is not evaluated.
pub(super) fn has_reference(text: &str) -> bool {
    text.split(' ').any(|word| {
        let end = word.rfind(')').unwrap_or_default();
        let mut begins = word[..end].match_indices("$(");
        begins.any(|(at, _)| at + 2 < end && !word[..at].ends_with('\\'))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        Ok(scan(text)?
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => format!("<{text}>"),
                Piece::Hole(inside) => format!("[{inside}]"),
            })
            .collect())
    }

    #[test]
    fn scan_finds_the_variables_of_a_template() {
        for (text, pieces) in [
            ("", ""),
            ("plain } text { here", "<plain } text { here>"),
            ("{{a}}", "[a]"),
            ("x {{ a }} y{{b}}z", "<x >[ a ]< y>[b]<z>"),
            ("{{a}}{{b}}", "[a][b]"),
            ("{{ x[?n=='{{ y }}'] }}", "[ x[?n=='{{ y }}'] ]"),
            ("{{ x.{a: b} }}", "[ x.{a: b} ]"),
            ("{{ x.{a: {b: c}}}}", "[ x.{a: {b: c}}]"),
            ("{{ {{ {{ a }} }} }}", "[ {{ {{ a }} }} ]"),
            (r"\{{ a }}", "<{{ a }}>"),
            (r"a\{{b}} {{c}}", "<a{{b}} >[c]"),
            ("å{{é}}ü", "<å>[é]<ü>"),
        ] {
            assert_eq!(shown(text).unwrap(), pieces, "{text}");
        }
        for text in [
            "{{",
            "a {{ b",
            "{{ a }",
            "{{ {{ a }}",
            "{{ a } }}",
            "{{ x[?a=='}'] }}",
        ] {
            assert!(scan(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nesting_of_variables_is_limited() {
        let nested = |depth: usize| "{{".repeat(depth) + "a" + &"}}".repeat(depth);
        assert!(scan(&nested(NESTING_MAX)).is_ok());
        assert!(
            scan(&nested(NESTING_MAX + 1))
                .unwrap_err()
                .contains("deeper")
        );
        assert!(scan(&nested(100_000)).is_err());
    }

    #[test]
    fn scan_recognizes_references() {
        for (text, expected) in [
            ("$(./../name)", true),
            ("x $(a)", true),
            (r"\$(a)", false),
            ("$()", false),
            ("$(a b)", false),
            ("costs $5", false),
        ] {
            assert_eq!(has_reference(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn scanning_any_text_never_panics(text in "[{}a'\\\\é]{0,24}") {
            let _ = scan(&text);
        }
    }
}
