//! The target of a redirect, and the headers and bodies that may follow it there.

use http::{HeaderMap, HeaderName, StatusCode, header};
use reqwest::Url;

use super::Hop;
use crate::gateway::calls::CallFault;

/// Headers that are sent to a second origin too. All other headers belong to the first endpoint.
const SHARED_HEADERS: [HeaderName; 3] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_TYPE,
];

/// The redirects that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redirects {
    /// Within the scheme, host and port that were asked.
    SameOrigin,
    /// The request and its headers may go to any host.
    AnyOrigin,
}

/// Returns the next request if the answer is a redirect.
///
/// # Errors
/// [`CallFault::Redirected`] if it leads from `https` to `http`, or to an origin that is not followed to, would send data to
/// another origin, or has no usable `Location`.
pub(super) fn next(
    hop: &Hop,
    redirects: Redirects,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Hop>, CallFault> {
    let keeps_data = match status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => false,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        _ => return Ok(None),
    };
    let fault = |problem: &str| CallFault::Redirected {
        problem: problem.to_owned(),
    };
    let url = target(&hop.url, headers);
    let url = url.ok_or_else(|| fault("a redirect without a usable Location"))?;
    if hop.url.scheme() == "https" && url.scheme() != "https" {
        return Err(fault("a redirect from https to http"));
    }
    let same_origin = hop.url.origin() == url.origin();
    if !same_origin && redirects == Redirects::SameOrigin {
        let to = url.origin().ascii_serialization();
        return Err(fault(&format!(
            "a redirect to another scheme, host or port: where `{to}` is meant, name it in the URL that is called"
        )));
    }
    let data = hop.data.clone().filter(|_| keeps_data);
    if !same_origin && data.is_some() {
        return Err(fault("a redirect that would send data to another host"));
    }
    let mut headers = hop.headers.clone();
    if !same_origin {
        headers.clear();
        let shared = SHARED_HEADERS.iter().filter_map(|name| {
            let value = hop.headers.get(name)?;
            Some((name.clone(), value.clone()))
        });
        headers.extend(shared);
    }
    Ok(Some(Hop { url, data, headers }))
}

/// Returns the `Location`, resolved against the URL that answered. User information is refused.
fn target(base: &Url, headers: &HeaderMap) -> Option<Url> {
    let location = headers.get(header::LOCATION)?.to_str().ok()?;
    let mut url = base.join(location).ok()?;
    url.set_fragment(None);
    let has_user = !url.username().is_empty() || url.password().is_some();
    let is_http = matches!(url.scheme(), "http" | "https");
    (is_http && !has_user && url.has_host()).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, location: &str) -> (StatusCode, HeaderMap) {
        let location = location.parse().unwrap();
        let headers = HeaderMap::from_iter([(header::LOCATION, location)]);
        (StatusCode::from_u16(status).unwrap(), headers)
    }

    fn redirect(from: &str, status: u16, location: &str) -> Result<Option<String>, CallFault> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, "Bearer hidden".parse().unwrap());
        headers.insert(header::ACCEPT, "application/json".parse().unwrap());
        let hop = Hop {
            url: from.parse().unwrap(),
            data: None,
            headers,
        };
        let (status, answered) = answer(status, location);
        Ok(
            next(&hop, Redirects::AnyOrigin, status, &answered)?.map(|hop| {
                assert!(hop.headers.contains_key(header::ACCEPT));
                let with = hop.headers.contains_key(header::AUTHORIZATION);
                format!("{} {}", hop.url, if with { "with" } else { "without" })
            }),
        )
    }

    /// Redirects are limited in where they lead and in what they carry.
    #[test]
    fn a_redirect_takes_nothing_to_another_host() {
        for (from, status, location, to) in [
            ("https://a/b/c", 200, "https://x/", None),
            ("https://a/b/c", 302, "/d?e", Some("https://a/d?e with")),
            ("https://a/b/c", 302, "d", Some("https://a/b/d with")),
            (
                "https://a/b/c",
                307,
                "https://a/d",
                Some("https://a/d with"),
            ),
            (
                "https://a/b/c",
                301,
                "https://x/d#e",
                Some("https://x/d without"),
            ),
            ("https://a/b/c", 308, "//x/d", Some("https://x/d without")),
            (
                "https://a/b/c",
                302,
                "https://a:8443/",
                Some("https://a:8443/ without"),
            ),
            (
                "http://a/b/c",
                302,
                "https://a/",
                Some("https://a/ without"),
            ),
        ] {
            let found = redirect(from, status, location).unwrap();
            assert_eq!(found.as_deref(), to, "{from} {location}");
        }
        for (from, location) in [
            ("https://a/", "http://a/"),
            ("https://a/", "ftp://a/"),
            ("https://a/", "https://user@b/"),
            ("https://a/", "https://"),
        ] {
            let found = redirect(from, 302, location);
            assert!(
                matches!(found, Err(CallFault::Redirected { .. })),
                "{location}: {found:?}"
            );
        }
    }

    #[test]
    fn a_redirect_never_sends_the_body_to_a_different_origin() {
        let hop = Hop {
            url: "https://a/".parse().unwrap(),
            data: Some("{}".into()),
            headers: HeaderMap::new(),
        };
        let to = |status: u16, location: &str| {
            let (status, answered) = answer(status, location);
            next(&hop, Redirects::AnyOrigin, status, &answered)
                .map(|hop| hop.unwrap().data.is_some())
        };
        assert_eq!(to(307, "/b").ok(), Some(true));
        assert_eq!(to(303, "/b").ok(), Some(false));
        assert_eq!(to(303, "https://x/").ok(), Some(false));
        assert!(to(307, "https://x/").is_err());
    }
}
