//! A look at the text before it is parsed.
//!
//! The parser recurses for each branch of a conditional, and copies what stands before each call of a
//! chain. So the text is held to limits first, by which both stay small.

use crate::CompileError;

/// Bytes of one expression.
pub const SOURCE_BYTES_MAX: usize = 16 * 1024;

/// Names, literals, operators and brackets of one expression.
pub const TOKENS_MAX: usize = 2_000;

/// Brackets within brackets.
pub const NESTING_MAX: usize = 40;

/// `? :` of one expression.
pub const CONDITIONALS_MAX: usize = 48;

/// Checks that a text is within the limits. The parser checks that it is an expression.
pub(crate) fn check(source: &str) -> Result<(), CompileError> {
    if source.len() > SOURCE_BYTES_MAX {
        let message = format!("the expression has more than {SOURCE_BYTES_MAX} bytes");
        return Err(CompileError::Invalid(message));
    }
    let counts = count(source);
    let limits = [
        (counts.tokens, TOKENS_MAX, "names, literals and operators"),
        (counts.nesting, NESTING_MAX, "brackets within each other"),
        (counts.conditionals, CONDITIONALS_MAX, "conditionals `? :`"),
    ];
    for (count, most, what) in limits {
        if count > most {
            let message = format!("the expression has more than {most} {what}");
            return Err(CompileError::Invalid(message));
        }
    }
    Ok(())
}

#[derive(Default)]
struct Counts {
    tokens: usize,
    nesting: usize,
    conditionals: usize,
}

fn count(source: &str) -> Counts {
    let bytes = source.as_bytes();
    let (mut counts, mut depth, mut at) = (Counts::default(), 0_usize, 0);
    let mut before = b' ';
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => continue,
            b'/' if bytes.get(at) == Some(&b'/') => {
                at = after_line(bytes, at);
                continue;
            }
            b'`' => at = after_field(bytes, at),
            b'"' | b'\'' => at = after_text(bytes, at - 1, is_raw(bytes, at - 1)),
            b'(' | b'[' | b'{' => {
                depth += 1;
                counts.nesting = counts.nesting.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            // Of `.?` and `[?` it is no conditional.
            b'?' if !matches!(before, b'.' | b'[') => counts.conditionals += 1,
            byte if is_word(byte) => {
                at += bytes[at..]
                    .iter()
                    .take_while(|next| is_word(**next))
                    .count();
            }
            _ => {}
        }
        before = byte;
        counts.tokens += 1;
    }
    counts
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Returns the end of a field in backticks; of what is none, only the backtick counts.
fn after_field(bytes: &[u8], from: usize) -> usize {
    let is_of_field = |byte: &&u8| byte.is_ascii_alphanumeric() || b"_.-/ ".contains(*byte);
    let end = from + bytes[from..].iter().take_while(is_of_field).count();
    match bytes.get(end) {
        Some(b'`') => end + 1,
        _ => from,
    }
}

fn after_line(bytes: &[u8], from: usize) -> usize {
    let left = bytes[from..].iter().position(|byte| *byte == b'\n');
    left.map_or(bytes.len(), |found| from + found)
}

/// Returns whether `r` stands right before the quote.
fn is_raw(bytes: &[u8], quote: usize) -> bool {
    let before = &bytes[..quote];
    let prefix = before.iter().rev().take_while(|byte| is_word(**byte));
    let (mut raw, mut count) = (false, 0);
    for byte in prefix {
        count += 1;
        raw |= matches!(byte, b'r' | b'R');
        if !matches!(byte, b'r' | b'R' | b'b' | b'B') || count > 2 {
            return false;
        }
    }
    raw
}

/// Returns the end of a quoted text; an open one ends where the source does.
fn after_text(bytes: &[u8], quote: usize, raw: bool) -> usize {
    let mark = bytes[quote];
    let long = bytes[quote..].starts_with(&[mark, mark, mark]);
    let mut at = quote + if long { 3 } else { 1 };
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if !raw => at += 2,
            byte if byte == mark && !long => return at + 1,
            byte if byte == mark && bytes[at..].starts_with(&[mark, mark, mark]) => return at + 3,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_counts_as_one_token() {
        for (source, tokens, nesting, conditionals) in [
            ("", 0, 0, 0),
            ("a.b", 3, 0, 0),
            ("'((((' + \"?\"", 3, 0, 0),
            (r"'\'(' + 'x'", 3, 0, 0),
            (r"r'\' + (b)", 6, 1, 0),
            ("'''a'(\"'''", 1, 0, 0),
            ("// (((\n1", 1, 0, 0),
            ("a.?b[?c] ? d : e", 12, 1, 1),
            ("((a))", 5, 2, 0),
            ("'open ((", 1, 0, 0),
            ("a.`b//c` + (d)", 7, 1, 0),
            ("`b(((", 5, 3, 0),
            ("a / ((b))", 7, 2, 0),
            ("a_b + é", 3, 0, 0),
            ("'''a''' + ((b))", 7, 2, 0),
            // A text is raw behind a prefix of at most two letters. Behind other words it is a text of its own.
            (r"br'\' + (b)", 6, 1, 0),
            (r"rbr'\'(' + b", 4, 0, 0),
            (r"xr'\'(' + b", 4, 0, 0),
        ] {
            let counts = count(source);
            let found = (counts.tokens, counts.nesting, counts.conditionals);
            assert_eq!(found, (tokens, nesting, conditionals), "{source}");
        }
    }

    #[test]
    fn token_and_nesting_limits_hold_at_the_edge() {
        let cases: [(&str, &str, usize, &str); 4] = [
            ("", " ", SOURCE_BYTES_MAX, "bytes"),
            ("", "1 ", TOKENS_MAX, "names"),
            ("", "(", NESTING_MAX, "brackets"),
            ("", "?", CONDITIONALS_MAX, "conditionals"),
        ];
        for (prefix, unit, most, word) in cases {
            let of = |count| format!("{prefix}{}", unit.repeat(count));
            assert_eq!(check(&of(most)), Ok(()), "{word}");
            let error = check(&of(most + 1)).unwrap_err().to_string();
            assert!(
                error.contains(&most.to_string()) && error.contains(word),
                "{error}"
            );
        }
    }
}
