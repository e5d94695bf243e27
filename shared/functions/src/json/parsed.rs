//! The memory of parsed JSON, by its text.
//!
//! The parts of the text are counted in one pass, which needs no memory.

use anteroom_jmespath::json_memory::{ELEMENT_BYTES, LIST_BYTES, MEMBER_BYTES, OBJECT_BYTES};
use memchr::memchr2;

/// The most bytes that the value of a JSON text takes, without its own 32. Of a text that is no JSON, some number.
pub fn parsed_bytes_max(text: &[u8]) -> u64 {
    let (mut objects, mut members, mut lists, mut commas) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut rest = text;
    while let [byte, following @ ..] = rest {
        rest = following;
        match byte {
            b'"' => rest = after_string(rest),
            // The API server writes no spaces. With some, an empty object counts as one with members.
            b'{' => objects += u64::from(rest.first() != Some(&b'}')),
            b'[' => lists += u64::from(rest.first() != Some(&b']')),
            b':' => members += 1,
            b',' => commas += 1,
            _ => {}
        }
    }
    // The value itself counts as an element. Each member but the first of its object has a comma before it.
    let elements = (1 + lists + commas + objects).saturating_sub(members);
    // The allocator rounds the size of a long text up by a quarter.
    let text_bytes = text.len() as u64;
    OBJECT_BYTES * objects
        + MEMBER_BYTES * members
        + LIST_BYTES * lists
        + ELEMENT_BYTES * elements
        + text_bytes
        + text_bytes / 4
}

/// Returns the text after a string, of which the first quote has been read.
fn after_string(mut text: &[u8]) -> &[u8] {
    while let Some(at) = memchr2(b'"', b'\\', text) {
        // An escape has at least one more byte.
        let (is_end, passed) = (text[at] == b'"', at + 1 + usize::from(text[at] == b'\\'));
        text = text.get(passed..).unwrap_or_default();
        if is_end {
            return text;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_members_lists_and_elements_count_outside_of_strings() {
        for (text, [objects, members, lists, elements]) in [
            ("1", [0, 0, 0, 1]),
            ("{}", [0, 0, 0, 1]),
            ("[]", [0, 0, 0, 1]),
            (r#"{"a":1}"#, [1, 1, 0, 1]),
            (r#"{"a":{},"b":[]}"#, [1, 2, 0, 1]),
            (r#"{"a":{"b":1},"c":{"d":[1]}}"#, [3, 4, 1, 2]),
            (r#"[1,[2,3],{"a":[4]},{}]"#, [1, 1, 3, 8]),
            (r#"["{[,:\"{[,:","\\",1]"#, [0, 0, 1, 4]),
            ("[1, { }]", [1, 0, 1, 4]),
        ] {
            let bytes = text.len() as u64;
            let parts = 600 * objects + 150 * members + 64 * lists + 80 * elements;
            let expected = parts + bytes + bytes / 4;
            assert_eq!(parsed_bytes_max(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_json_has_some_number() {
        for text in ["", "::::", "}]", "\"", "\"\\", "[[[["] {
            assert!(parsed_bytes_max(text.as_bytes()) < 1_000, "{text}");
        }
    }
}
