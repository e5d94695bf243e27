//! Where a redirect leads, if it may be followed.

use http::{HeaderMap, Response, StatusCode, Uri, header, uri::Scheme};

use super::Hop;
use crate::calls::CallFault;

/// Headers that another origin is sent too. All others are the endpoint's own business.
const ANYBODYS: [header::HeaderName; 3] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_TYPE,
];

/// The next request, where the answer is a redirect.
///
/// # Errors
/// [`CallFault::Redirected`] where it leads from `https` to `http`, or nowhere.
pub(super) fn next<B>(hop: &Hop, response: &Response<B>) -> Result<Option<Hop>, CallFault> {
    let keeps_data = match response.status() {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => false,
        StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
        _ => return Ok(None),
    };
    let fault = |problem: &str| CallFault::Redirected {
        problem: problem.to_owned(),
    };
    let location = response.headers().get(header::LOCATION);
    let location = location.and_then(|value| value.to_str().ok());
    let url = location.and_then(|location| resolve(&hop.url, location));
    let url = url.ok_or_else(|| fault("a redirect that leads nowhere"))?;
    if hop.url.scheme() == Some(&Scheme::HTTPS) && url.scheme() != Some(&Scheme::HTTPS) {
        return Err(fault("a redirect from https to http"));
    }
    let same_origin = same_origin(&hop.url, &url);
    let data = hop.data.clone().filter(|_| keeps_data);
    if !same_origin && data.is_some() {
        return Err(fault("a redirect that would send data to another host"));
    }
    let headers = if same_origin {
        hop.headers.clone()
    } else {
        let mine = ANYBODYS.iter().filter_map(|name| {
            let value = hop.headers.get(name)?;
            Some((name.clone(), value.clone()))
        });
        mine.collect::<HeaderMap>()
    };
    Ok(Some(Hop { url, data, headers }))
}

/// Whether one may be told what is the other's.
pub(super) fn same_origin(one: &Uri, other: &Uri) -> bool {
    one.scheme() == other.scheme() && one.authority() == other.authority()
}

/// A reference of a location, against what it came from. User information is not taken over.
fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    let location = location.split('#').next()?.trim();
    let scheme = base.scheme_str()?;
    let authority = base.authority()?;
    let text = if location.contains("://") {
        location.to_owned()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let (folder, _) = base.path().rsplit_once('/')?;
        format!("{scheme}://{authority}{folder}/{location}")
    };
    let url: Uri = text.parse().ok()?;
    let known = matches!(url.scheme_str(), Some("http" | "https"));
    let plain = url
        .authority()
        .is_some_and(|a| !a.as_str().contains('@') && !a.host().is_empty());
    (known && plain).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(from: &str, status: u16, location: &str) -> Result<Option<String>, CallFault> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, "Bearer hidden".parse().unwrap());
        headers.insert(header::ACCEPT, "application/json".parse().unwrap());
        let hop = Hop {
            url: from.parse().unwrap(),
            data: None,
            headers,
        };
        let response = Response::builder().status(status);
        let response = response
            .header(header::LOCATION, location)
            .body(())
            .unwrap();
        Ok(next(&hop, &response)?.map(|hop| {
            assert!(hop.headers.contains_key(header::ACCEPT));
            let with = hop.headers.contains_key(header::AUTHORIZATION);
            format!("{} {}", hop.url, if with { "with" } else { "without" })
        }))
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
    fn data_go_to_the_endpoint_that_they_are_for() {
        let hop = Hop {
            url: "https://a/".parse().unwrap(),
            data: Some("{}".into()),
            headers: HeaderMap::new(),
        };
        let to = |status: u16, location: &str| {
            let response = Response::builder().status(status);
            let response = response
                .header(header::LOCATION, location)
                .body(())
                .unwrap();
            next(&hop, &response).map(|hop| hop.unwrap().data.is_some())
        };
        assert_eq!(to(307, "/b").ok(), Some(true));
        assert_eq!(to(303, "/b").ok(), Some(false));
        assert_eq!(to(303, "https://x/").ok(), Some(false));
        assert!(to(307, "https://x/").is_err());
    }
}
