//! The bodies of fuzz targets: answers of registries, and files of credentials.

use http::{HeaderMap, HeaderValue, header, uri::Scheme};
use serde_json::Value;

use super::{
    allowed_addresses::Registries,
    challenge::Challenge,
    credentials::Config,
    document::{
        config, digest, entries_of_index, has_digest, has_size, is_as_said, of_entry, of_platform,
        parsed, weight,
    },
};
use crate::gateway::calls::{CallFault, parse_or_null};

/// The registry that is spoken to by http.
const INSECURE: &str = "reg.local:5000";

/// The length of a digest that a registry is asked for.
const DIGEST_BYTES: usize = "sha256:".len() + 64;

/// A manifest or an index, and the document that it names.
pub fn registry(input: &[u8]) {
    let (first, second) = cut(input);
    assert!(!CallFault::status(500, first).to_string().is_empty());
    let _ = parse_or_null(first);
    let Ok(manifest) = parsed(first) else { return };
    let values = values_in(&manifest) * size_of::<Value>();
    assert!(weight(first) >= values, "it weighs more");
    assert!(has_digest(first, &digest(first)).is_ok());
    match entries_of_index(&manifest) {
        Ok(Some(entries)) => index(entries, second),
        Ok(None) => image(&manifest, second),
        Err(_) => {}
    }
}

fn index(entries: &[Value], named: &[u8]) {
    let Ok(entry) = of_platform(entries) else {
        return;
    };
    if let Ok(digest) = of_entry(entry) {
        assert!(is_safe(digest), "{digest}");
    }
    if let Ok(named) = parsed(named) {
        let _ = is_as_said(entry, &named);
    }
}

fn image(manifest: &Value, body: &[u8]) {
    if let Ok(digest) = config(manifest) {
        assert!(is_safe(digest), "{digest}");
    }
    let size = manifest.pointer("/config/size").and_then(Value::as_u64);
    let fits = size.is_none_or(|size| size == body.len() as u64);
    assert_eq!(has_size(body, manifest).is_ok(), fits);
}

/// Returns whether a digest leads nowhere else within a path.
fn is_safe(digest: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b':';
    digest.len() == DIGEST_BYTES && digest.bytes().all(is_plain)
}

/// Returns the number of values within a value, and itself.
fn values_in(value: &Value) -> usize {
    let (mut count, mut unvisited) = (0, vec![value]);
    while let Some(value) = unvisited.pop() {
        count += 1;
        match value {
            Value::Array(items) => unvisited.extend(items),
            Value::Object(fields) => unvisited.extend(fields.values()),
            _ => {}
        }
    }
    count
}

/// Challenges, each on a line, of a registry that is spoken to by https, and of one by http.
pub fn challenge(input: &[u8]) {
    let lines = input.split(|byte| *byte == b'\n');
    let values = lines.filter_map(|line| HeaderValue::from_bytes(line).ok());
    let headers = values.map(|value| (header::WWW_AUTHENTICATE, value));
    let headers: HeaderMap = headers.collect();
    let Some(Challenge::Bearer(realm)) = Challenge::of(&headers) else {
        return;
    };
    let registries = Registries {
        insecure: vec![INSECURE.to_owned()],
        ..Registries::default()
    };
    for of_insecure in [false, true] {
        let Ok(url) = realm.url(of_insecure, &registries) else {
            continue;
        };
        let host = url.authority().map_or("", |host| host.as_str());
        let by_http = of_insecure && host.eq_ignore_ascii_case(INSECURE);
        let is_https = url.scheme() == Some(&Scheme::HTTPS);
        assert!(is_https || by_http, "a password goes by http to {url}");
        if let Ok(asked) = realm.token_url(&url, "a/b") {
            assert_eq!(asked.scheme(), url.scheme());
            assert_eq!(asked.authority(), url.authority());
        }
    }
}

/// A host, a repository, and a file of credentials.
pub fn credentials(input: &[u8]) {
    let (host, rest) = cut(input);
    let (repository, file) = cut(rest);
    let (Ok(host), Ok(repository)) = (std::str::from_utf8(host), std::str::from_utf8(repository))
    else {
        return;
    };
    let Ok(config) = Config::parse(file) else {
        return;
    };
    assert!(config.wrong().all(|wrong| !wrong.to_string().is_empty()));
    let found = config.find(host, repository);
    let capitals = host.to_ascii_uppercase();
    assert_eq!(found, config.find(&capitals, repository));
}

/// Returns the first part of an input, and the rest of it.
fn cut(input: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    (part(), part())
}
