//! The body of an object that cannot be carried: a stub in its place.
//!
//! An object that nests too deep, or is too large, is there all the same. Its stub has its key and version, so
//! the view stays whole: number and digest are those of the source. Whoever would read more of the object than
//! its metadata gets an error.
//!
//! ```text
//! 0xC1 | 2 | {"metadata": {"labels": {…}}, "unreadable": "why, for people"}
//! ```
//!
//! No other body begins so: MessagePack never has 0xC1, and behind it a sealed body has 1.

use std::collections::BTreeMap;

use anteroom_jmespath::Node as _;
use anteroom_model::limits::NAME_BYTES_MAX;
use bytes::Bytes;
use serde::Serialize;

use crate::body::{self, BodyNode, SEALED};

/// The number of this format, behind [`SEALED`].
const FORMAT: u8 = 2;

/// The largest document of a stub: one without labels that long is made in place of a larger one.
pub const DOCUMENT_BYTES_MAX: usize = 64 * 1024;

/// The longest reason: one for people.
const REASON_BYTES_MAX: usize = NAME_BYTES_MAX;

/// The document of a stub that says nothing.
const EMPTY_MAP: &[u8] = b"\x80";

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

#[derive(Serialize)]
struct StubDocument<'a> {
    metadata: Metadata<'a>,
    unreadable: &'a str,
}

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a Labels>,
}

/// The stub of an object that cannot be carried for this reason. `labels` are left out where they are not known,
/// or too many: the object may then match any selector.
pub fn stub(reason: &str, labels: Option<&Labels>) -> Bytes {
    let reason = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
    let encode = |labels| {
        body::encode(&StubDocument {
            metadata: Metadata { labels },
            unreadable: reason,
        })
    };
    let fits = |document: &Bytes| document.len() <= DOCUMENT_BYTES_MAX;
    let document = encode(labels).ok().filter(fits);
    let document = document.or_else(|| encode(None).ok());
    let document = document.unwrap_or(Bytes::from_static(EMPTY_MAP));
    [&[SEALED, FORMAT], &document[..]].concat().into()
}

/// The document of a stub, which is a body like others; `None`: the body is no stub.
pub fn document(body: &[u8]) -> Option<&[u8]> {
    body.strip_prefix(&[SEALED, FORMAT])
}

/// The reason in a stub's document, for people.
pub fn reason(document: BodyNode<'_>) -> &str {
    let reason = document.field("unreadable").and_then(BodyNode::as_str);
    reason.unwrap_or_default()
}

/// Returns whether a stub's document says which labels the object has.
pub fn has_labels(document: BodyNode<'_>) -> bool {
    let metadata = document.field("metadata");
    metadata.is_some_and(|metadata| metadata.field("labels").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(count: usize) -> Labels {
        let label = |n| (format!("label-{n:010}"), "x".repeat(63));
        (0..count).map(label).collect()
    }

    #[test]
    fn a_stub_says_why_and_is_told_from_every_other_body() {
        let stub = stub("too deep", Some(&labels(2)));
        assert!(!body::is_sealed(&stub) && body::validate(&stub).is_err());
        let document = document(&stub).unwrap();
        body::validate(document).unwrap();
        let node = BodyNode::new(document);
        assert_eq!((reason(node), has_labels(node)), ("too deep", true));
        for other in [&b"\x80"[..], b"\xc1\x01key", b"\xc1", b""] {
            assert_eq!(super::document(other), None);
        }
    }

    #[test]
    fn a_stub_is_small_whatever_the_object_has() {
        let stub = stub(&"é".repeat(100_000), Some(&labels(100_000)));
        let node = BodyNode::new(document(&stub).unwrap());
        assert!(!has_labels(node) && reason(node).len() <= REASON_BYTES_MAX);
        assert!(stub.len() < DOCUMENT_BYTES_MAX);
    }
}
