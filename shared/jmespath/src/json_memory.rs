//! The memory of JSON documents, by their parts.
//!
//! The [`Value`] of many small objects takes up to 120 times the bytes of their text, and that of one string little more
//! than the text. So whoever makes a document counts its parts. The figures hold for 64 bits and jemalloc: a document
//! takes no more, and mostly not much less.

use serde_json::Value;

/// An object that is not empty: its first node has place for 11 members, in 632 bytes.
pub const OBJECT_BYTES: u64 = 600;

/// A member of an object. Nodes are half full at worst, and parents take a fifth of them. The allocator rounds the sizes
/// of the key and of a text up.
pub const MEMBER_BYTES: u64 = 150;

/// A list that is not empty: its first place is for four elements.
pub const LIST_BYTES: u64 = 64;

/// An element of a list, in 32 bytes. A list that grows has up to twice the places that it needs. The allocator rounds the
/// size of a text up.
pub const ELEMENT_BYTES: u64 = 80;

/// Memory that is made into a document, or copied, in one step.
pub const STEP_BYTES: u64 = 64;

/// Returns the memory of an object with so many members, without that of their texts and of what is in them.
#[inline]
pub const fn object_bytes(members: usize) -> u64 {
    match members {
        0 => 0,
        _ => OBJECT_BYTES + MEMBER_BYTES * members as u64,
    }
}

/// Returns the memory of a list with so many elements, without that of their texts and of what is in them.
#[inline]
pub const fn list_bytes(elements: usize) -> u64 {
    match elements {
        0 => 0,
        _ => LIST_BYTES + ELEMENT_BYTES * elements as u64,
    }
}

/// Returns the memory of a text with so many bytes: the allocator rounds the size of a long one up by a quarter.
#[inline]
pub const fn text_bytes(length: usize) -> u64 {
    let length = length as u64;
    length + length / 4
}

/// Returns the memory that can be made into documents in so many steps.
#[inline]
pub const fn bytes_within(steps: u64) -> u64 {
    steps.saturating_add(1).saturating_mul(STEP_BYTES) - 1
}

/// Returns the memory that a copy of a document takes, without its own 32 bytes; `None`: more than `bytes_max`.
pub fn copied_bytes(document: &Value, bytes_max: u64) -> Option<u64> {
    let mut left = bytes_max;
    take(document, &mut left).then(|| bytes_max - left)
}

/// Takes the memory of a document from what is left. Returns whether it suffices.
fn take(document: &Value, left: &mut u64) -> bool {
    match document {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => take_bytes(text_bytes(text.len()), left),
        Value::Array(elements) => {
            take_bytes(list_bytes(elements.len()), left)
                && elements.iter().all(|element| take(element, left))
        }
        Value::Object(members) => {
            take_bytes(object_bytes(members.len()), left)
                && members.iter().all(|(key, value)| {
                    take_bytes(text_bytes(key.len()), left) && take(value, left)
                })
        }
    }
}

fn take_bytes(bytes: u64, left: &mut u64) -> bool {
    match left.checked_sub(bytes) {
        Some(rest) => {
            *left = rest;
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_takes_the_memory_of_its_parts_up_to_a_limit() {
        for (document, bytes) in [
            (json!(null), 0),
            (json!(1), 0),
            (json!({}), 0),
            (json!([]), 0),
            (json!("12345678"), 10),
            (json!([1, []]), 64 + 2 * 80),
            (json!({"abcd": false}), 600 + 150 + 5),
            (
                json!([{"abcd": ["1234"]}]),
                64 + 80 + 600 + 150 + 5 + 64 + 80 + 5,
            ),
        ] {
            assert_eq!(copied_bytes(&document, bytes), Some(bytes), "{document}");
            assert_eq!(copied_bytes(&document, bytes + 7), Some(bytes));
            if let Some(fewer) = bytes.checked_sub(1) {
                assert_eq!(copied_bytes(&document, fewer), None, "{document}");
            }
        }
    }

    #[test]
    fn so_many_steps_make_so_much_memory_and_no_more() {
        for steps in [0, 1, 20_000] {
            let bytes = bytes_within(steps);
            assert_eq!(bytes / STEP_BYTES, steps);
            assert_eq!((bytes + 1) / STEP_BYTES, steps + 1);
        }
        assert_eq!(bytes_within(u64::MAX), u64::MAX - 1);
    }
}
