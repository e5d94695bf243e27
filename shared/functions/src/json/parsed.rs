//! The memory of parsed JSON, by its text.
//!
//! The parts of the text are counted in one pass, which needs no memory.

use anteroom_jmespath::json_memory::{ELEMENT_BYTES, LIST_BYTES, MEMBER_BYTES, OBJECT_BYTES};

/// The most bytes that the value of a JSON text takes, without its own 32. Of a text that is no JSON, some number.
pub fn parsed_bytes_max(text: &[u8]) -> u64 {
    let (mut objects, mut members, mut lists, mut commas) = (0_u64, 0_u64, 0_u64, 0_u64);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        // The API server writes no spaces. With some, an empty object counts as one with members.
        let next = bytes.as_slice().first();
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' => objects += u64::from(next != Some(&b'}')),
            b'[' => lists += u64::from(next != Some(&b']')),
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

/// Passes over the rest of a string, of which the first quote has been read.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
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
