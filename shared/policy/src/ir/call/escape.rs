//! Percent escapes, and the characters that may stand in a segment.

use std::fmt::Write as _;

/// Characters of a path's segment that need no escape, besides letters and digits.
const SEGMENT_PLAIN: &[u8] = b"-._~!$&'()*+,;=:@";

/// Characters of a query that need no escape, besides letters and digits.
const QUERY_PLAIN: &[u8] = b"-._~/:,";

/// Text without its escapes; `plus_is_blank` in a query.
///
/// # Errors
/// The problem: a malformed escape, or bytes that are no text.
pub(crate) fn decode(text: &str, plus_is_blank: bool) -> Result<String, String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
                let (high, low) = digit().zip(digit()).ok_or("a `%` begins no escape")?;
                (high * 16 + low) as u8
            }
            b'+' if plus_is_blank => b' ',
            byte => byte,
        });
    }
    String::from_utf8(decoded).map_err(|_| "its escapes are no UTF-8".to_owned())
}

pub(crate) fn encode_segment(text: &str, into: &mut String) {
    encode(text, SEGMENT_PLAIN, into);
}

pub(crate) fn encode_query(text: &str, into: &mut String) {
    encode(text, QUERY_PLAIN, into);
}

fn encode(text: &str, plain: &[u8], into: &mut String) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || plain.contains(&byte);
    let mut rest = text;
    loop {
        // Nearly always all of it.
        let until = rest.bytes().position(|byte| !is_plain(byte));
        let (run, escaped) = rest.split_at(until.unwrap_or(rest.len()));
        into.push_str(run);
        let Some(first) = escaped.chars().next() else {
            return;
        };
        let (escaped, after) = escaped.split_at(first.len_utf8());
        for byte in escaped.bytes() {
            // Writing to a string cannot fail.
            let _ = write!(into, "%{byte:02X}");
        }
        rest = after;
    }
}

/// Checks that a text can stand in a segment of a path. A text may not have characters that separate segments, nor
/// characters that become such after another decoding.
///
/// # Errors
/// The reason why the text cannot stand there.
pub(crate) fn check_segment(text: &str) -> Result<(), String> {
    if text.contains("..") {
        return Err(refusal(text, "`..`", "the name of one thing in a path"));
    }
    match text
        .chars()
        .find(|c| "/\\?#%".contains(*c) || c.is_control())
    {
        None => Ok(()),
        Some(c) => Err(refusal(
            text,
            &format!("`{}`", c.escape_default()),
            "the name of one thing in a path",
        )),
    }
}

/// Checks a whole segment; see [`check_segment`].
pub(crate) fn check_name(text: &str) -> Result<(), String> {
    match text {
        "" => Err("it is empty, where the name of something stands".to_owned()),
        "." => Err(refusal(text, "`.`", "the name of one thing in a path")),
        text => check_segment(text),
    }
}

/// Checks a value for use in a selector. Characters that could end a requirement, begin a new one, or negate one are
/// refused.
pub(crate) fn check_selector(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match text.chars().find(|c| !plain(*c)) {
        None if text.contains("..") => Err(refusal(text, "`..`", "a part of a selector")),
        None => Ok(()),
        Some(c) => Err(refusal(
            text,
            &format!("`{}`", c.escape_default()),
            "a part of a selector",
        )),
    }
}

/// Nothing against any other text of a query.
pub(crate) fn check_query(text: &str) -> Result<(), String> {
    match text.chars().find(|c| c.is_control()) {
        None => Ok(()),
        Some(c) => Err(refusal(
            text,
            &format!("`{}`", c.escape_default()),
            "a query",
        )),
    }
}

fn refusal(text: &str, found: &str, place: &str) -> String {
    const SHOWN_CHARACTERS: usize = 64;
    let shown: String = text.chars().take(SHOWN_CHARACTERS).collect();
    format!("its value {shown:?} holds {found}, which cannot stand in {place}")
}
