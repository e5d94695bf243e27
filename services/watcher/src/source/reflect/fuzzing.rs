//! The bodies of fuzz targets: watches, lists and errors of an API server, and its discovery documents.

use bytes::Bytes;

use super::parse::{self, Malformed, RawObject, WatchEvent};
use crate::source::{
    apiserver::{
        Fault,
        fuzzing::{fault, lines},
    },
    discovery::{DiscoveryDocument, ResourceQuery, parse_aggregated},
};

/// Status codes of answers without success.
const CODES: [u16; 5] = [403, 410, 429, 500, 503];

/// The text of a watch. The first byte of an input is the length of the chunks in which the text comes.
pub fn watch(input: &[u8]) {
    for line in lines(input) {
        match parse::event(&line) {
            Ok(WatchEvent::Put(object) | WatchEvent::Gone(object)) => is_named(&object),
            Ok(WatchEvent::Bookmark(_)) => {}
            Ok(WatchEvent::Failed(fault)) | Err(fault) => is_told(&fault),
        }
    }
}

/// A page of a list, a discovery document, or the body of an error.
pub fn list(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    if let Ok(page) = parse::page(&bytes) {
        page.objects.iter().for_each(is_named);
        if let Ok(size) = parse::size(&bytes) {
            assert!(size >= page.objects.len() as u64);
        }
    }
    for code in CODES {
        fault(code, input).iter().for_each(is_told);
    }
    if let Ok(DiscoveryDocument::Aggregated(served)) = parse_aggregated(input) {
        for resource in &served.resources {
            let gvr = &resource.record.gvr;
            let wanted = ResourceQuery {
                group: Some(&gvr.group),
                version: Some(&gvr.version),
                kind: &gvr.resource,
            };
            if let Ok(found) = served.resolve(wanted) {
                assert!(found.record.watchable);
            }
        }
    }
}

/// An object that is kept has a name and a version.
fn is_named(object: &Result<RawObject, Malformed>) {
    if let Ok(object) = object {
        assert!(!object.key.name.is_empty());
        assert!(!object.version.as_str().is_empty());
    }
}

/// A fault says what is the matter.
fn is_told(fault: &Fault) {
    assert!(!fault.to_string().is_empty() && !fault.code().is_empty());
    assert!(!fault.failure().reason.is_empty());
}
