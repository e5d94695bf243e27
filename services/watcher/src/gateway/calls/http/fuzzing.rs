//! The body of a fuzz target: redirects.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use reqwest::Url;

use super::{Hop, Redirects, redirect};

/// A URL that answers, and its `Location`. Secret headers and data never go to another origin.
pub fn redirect(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let (Some(url), Some(location)) = (parts.next(), parts.next()) else {
        return;
    };
    let url = std::str::from_utf8(url).ok();
    let Some(url) = url.and_then(|url| Url::parse(url).ok()) else {
        return;
    };
    let Ok(location) = HeaderValue::from_bytes(location) else {
        return;
    };
    if !matches!(url.scheme(), "http" | "https") {
        return;
    }
    let secret = HeaderValue::from_static("Bearer secret");
    let hop = Hop {
        url,
        data: Some(Bytes::from_static(b"{}")),
        headers: HeaderMap::from_iter([(header::AUTHORIZATION, secret)]),
    };
    let answered = HeaderMap::from_iter([(header::LOCATION, location)]);
    for redirects in [Redirects::SameOrigin, Redirects::AnyOrigin] {
        for status in [StatusCode::FOUND, StatusCode::TEMPORARY_REDIRECT] {
            if let Ok(Some(next)) = redirect::next(&hop, redirects, status, &answered) {
                is_followed(&hop, redirects, &next);
            }
        }
    }
}

fn is_followed(hop: &Hop, redirects: Redirects, next: &Hop) {
    let keeps_secret = next.headers.contains_key(header::AUTHORIZATION) || next.data.is_some();
    if hop.url.origin() != next.url.origin() {
        assert_eq!(redirects, Redirects::AnyOrigin, "to {}", next.url);
        assert!(!keeps_secret, "to {}", next.url);
    }
    let is_encrypted = next.url.scheme() == "https";
    assert!(hop.url.scheme() == "http" || is_encrypted);
    assert!(next.url.has_host() && next.url.username().is_empty());
}
