//! Paths, URLs and images.

use std::net::IpAddr;

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Signature, Types};

use super::arguments::string;
use crate::images;

pub(super) fn register(table: &mut FunctionTable) {
    let one = || Signature::of([Types::STRING]);
    table
        .register("path_canonicalize", one(), |call| {
            let path = string(call, 0)?;
            call.new_string(&canonical(&path))
        })
        .register("image_normalize", one(), image_normalize)
        .register("is_external_url", one(), is_external_url);
}

/// The shortest path that leads to the same place, as far as the path itself tells.
fn canonical(path: &str) -> String {
    if path.is_empty() {
        return String::new();
    }
    let is_absolute = path.starts_with('/');
    let mut steps: Vec<&str> = Vec::new();
    for step in path.split('/') {
        match step {
            "" | "." => {}
            ".." => match steps.last() {
                Some(last) if *last != ".." => {
                    steps.pop();
                }
                // There is nothing above the root.
                None if is_absolute => {}
                _ => steps.push(step),
            },
            step => steps.push(step),
        }
    }
    match (is_absolute, &*steps) {
        (true, steps) => format!("/{}", steps.join("/")),
        (false, []) => ".".to_owned(),
        (false, steps) => steps.join("/"),
    }
}

/// Returns the image's full reference: the registry, and the digest or the tag.
fn image_normalize(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let image = string(call, 0)?;
    match images::normal(&image) {
        Some(normal) => call.new_string(&normal),
        None => {
            let shown: String = image.chars().take(64).collect();
            Err(call.invalid_value(format!("`{shown}` is no image")))
        }
    }
}

/// Returns whether the URL's host is an address that is neither private nor this machine's own. Names are not
/// resolved here, but `localhost` counts as this machine.
fn is_external_url(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let url = string(call, 0)?;
    let Some(host) = host(&url) else {
        let shown: String = url.chars().take(64).collect();
        return Err(call.invalid_value(format!("`{shown}` is no URL with a host")));
    };
    if let Ok(address) = host.parse::<IpAddr>() {
        return call.new_boolean(!is_internal(address));
    }
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") {
        return call.new_boolean(false);
    }
    let shown: String = host.chars().take(64).collect();
    Err(call.invalid_value(format!(
        "which addresses `{shown}` has is not known, since names are not resolved here; an address can be judged"
    )))
}

fn is_internal(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_private(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local(),
    }
}

/// The host of a URL, without brackets, port and zone.
fn host(url: &str) -> Option<&str> {
    let rest = match url.strip_prefix("//") {
        Some(rest) => rest,
        None => {
            let (scheme, rest) = url.split_once(':')?;
            let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
            rest.strip_prefix("//").filter(|_| is_scheme)?
        }
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (_, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (host, port) = match place.strip_prefix('[') {
        Some(inside) => {
            let (host, after) = inside.split_once(']')?;
            let host = host.split_once("%25").map_or(host, |(host, _)| host);
            (host, after)
        }
        None => match place.rfind(':') {
            Some(at) => place.split_at(at),
            None => (place, ""),
        },
    };
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
    (is_port && !host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use anteroom_jmespath::{Environment, Expression};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::functions;

    #[test]
    fn paths_are_made_canonical() {
        for (path, short) in [
            ("", ""),
            ("/", "/"),
            ("///", "/"),
            ("///var/run/x.sock", "/var/run/x.sock"),
            ("/var/run///x.sock", "/var/run/x.sock"),
            ("/var/run/", "/var/run"),
            ("/a/./b/../c", "/a/c"),
            ("/../a", "/a"),
            ("../../a", "../../a"),
            ("a/../../b", "../b"),
            ("a/..", "."),
            ("./", "."),
            ("/..", "/"),
            ("...", "..."),
        ] {
            assert_eq!(canonical(path), short, "{path}");
        }
    }

    #[test]
    fn external_urls_are_recognized_by_their_hosts() {
        let external = |url: &str| {
            let expression = Expression::parse("is_external_url(@)").unwrap();
            let environment = Environment::standard().with_functions(functions());
            let found = expression.evaluate_json(&json!(url), &environment);
            found.map_err(|error| error.to_string())
        };
        for (url, is_external) in [
            ("https://8.8.8.8/x", true),
            ("http://127.0.0.1:8080", false),
            ("http://10.0.0.1", false),
            ("http://172.32.0.1", true),
            ("http://user:pass@192.168.1.1/x", false),
            ("http://user@8.8.8.8@10.0.0.1/", false),
            ("http://[::1]:80/", false),
            ("http://[fd00::1%25eth0]/", false),
            ("http://[2001:4860:4860::8888]", true),
            ("http://[::ffff:10.0.0.1]", false),
            ("http://localhost/", false),
            ("//1.1.1.1/x", true),
        ] {
            assert_eq!(external(url), Ok(json!(is_external)), "{url}");
        }
        for (url, says) in [
            ("https://example.com", "names are not resolved here"),
            ("example.com", "no URL"),
            ("mailto:a@b", "no URL"),
            ("http://", "no URL"),
            ("http://a:b/", "no URL"),
            ("http://[::1/", "no URL"),
            ("1http://8.8.8.8", "no URL"),
        ] {
            let error = external(url).unwrap_err();
            assert!(error.contains(says), "{url}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_canonical_path_stays_as_it_is(path in "[./a]{0,16}") {
            let short = canonical(&path);
            prop_assert_eq!(canonical(&short), &*short);
            prop_assert!(short.len() <= path.len().max(1));
        }

        #[test]
        fn reading_the_host_of_any_url_never_panics(url in "(http)?:?/{0,3}[a-z0-9.:@%é\\[\\]/?#]{0,20}") {
            let _ = host(&url);
        }
    }
}
