//! URLs as Kubernetes reads them: texts that Go's `net/url` reads as a request's URI, with the parts that `net/url`
//! reads in a reference.

use std::{fmt, net::Ipv6Addr};

/// An absolute URL, or an absolute path.
#[derive(Debug, PartialEq, Eq)]
pub struct Url {
    /// The URL as it was written.
    pub text: String,
    /// The scheme in lower case; empty for a path.
    pub scheme: String,
    /// The host with its port.
    pub host: String,
    /// The path, as it was written where all in it may stand in one.
    pub escaped_path: String,
    /// The query, without `?`.
    pub query: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The grammar by which a text is read.
#[derive(Clone, Copy, PartialEq)]
enum As {
    /// It is absolute, has no fragment, and a host only behind a scheme.
    RequestUri,
    Reference,
}

impl Url {
    /// Reads a URL; `None` if it is none, or its fragment has a malformed escape.
    pub fn parse(text: &str) -> Option<Self> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        if !Self::is_one(text) || !is_escaped(fragment) {
            return None;
        }
        let mut url = Self::parse_as(As::Reference, before)?;
        text.clone_into(&mut url.text);
        Some(url)
    }

    /// Returns whether a text is a URI as a request has it.
    pub fn is_one(text: &str) -> bool {
        !text.is_empty() && Self::parse_as(As::RequestUri, text).is_some()
    }

    fn parse_as(what: As, text: &str) -> Option<Self> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return None;
        }
        let (scheme, rest) = scheme(text)?;
        let scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (has_scheme, is_absolute) = (!scheme.is_empty(), rest.starts_with('/'));
        let may_have_host = match what {
            As::RequestUri => has_scheme,
            As::Reference => has_scheme || !rest.starts_with("///"),
        };
        let authority = rest.strip_prefix("//").filter(|_| may_have_host);
        let (host, path) = match authority {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (host(&scheme, authority)?, path)
            }
            None if is_absolute || text == "*" => (String::new(), rest),
            // An opaque URL has no path.
            None if has_scheme => (String::new(), ""),
            None => return None,
        };
        Some(Self {
            text: text.to_owned(),
            escaped_path: escaped_path(path)?,
            query: query.to_owned(),
            scheme,
            host,
        })
    }

    /// The host without its port and without brackets.
    pub fn hostname(&self) -> &str {
        let name = split_port(&self.host).0;
        let inner = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        inner.unwrap_or(name)
    }

    /// The port; empty if there is none.
    pub fn port(&self) -> &str {
        split_port(&self.host).1
    }
}

/// Splits at the first colon; `None` if nothing stands before it.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let end = text.bytes().position(|byte| !is_of_scheme(byte));
    match text.split_at(end.unwrap_or(text.len())) {
        (scheme, rest) if rest.starts_with(':') => {
            let begins = scheme.bytes().next()?.is_ascii_alphabetic();
            Some(if begins {
                (scheme, &rest[1..])
            } else {
                ("", text)
            })
        }
        _ => Some(("", text)),
    }
}

/// A name or an address, and a port.
fn split_port(host: &str) -> (&str, &str) {
    let from = host.rfind(']').unwrap_or(0);
    match host[from..].rfind(':') {
        Some(at) => (&host[..from + at], &host[from + at + 1..]),
        None => (host, ""),
    }
}

/// The host and port of an authority; `None`: it is none.
fn host(scheme: &str, authority: &str) -> Option<String> {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_of_user =
        |char: char| char.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(char);
    if !user.chars().all(is_of_user) || !is_escaped(user) {
        return None;
    }
    match host.rfind('[') {
        Some(0) => address(host),
        Some(_) => None,
        None => {
            // Other schemes have had lists of hosts with colons in them.
            let colon = match scheme {
                "http" | "https" => host.find(':'),
                _ => host.rfind(':'),
            };
            let is_right = colon.is_none_or(|at| is_port(&host[at..]));
            named(host).filter(|_| is_right)
        }
    }
}

/// An address in brackets, and a port.
fn address(host: &str) -> Option<String> {
    let (inside, port) = host.strip_prefix('[')?.rsplit_once(']')?;
    let (address, zone) = match inside.split_once("%25") {
        Some((address, written)) => (address, Some(zone(written)?)),
        None => (inside, None),
    };
    let is_address = address.parse::<Ipv6Addr>().is_ok();
    if !is_address || !is_port(port) || zone.as_deref() == Some("") {
        return None;
    }
    let zone = zone.map(|zone| format!("%{zone}")).unwrap_or_default();
    Some(format!("[{address}{zone}]{port}"))
}

/// Reads the zone behind `%25` in an address: characters of a host, escaped or not, and escaped spaces.
fn zone(written: &str) -> Option<String> {
    let is_right = |(at, _): (usize, &str)| {
        let plain = written.get(at..at + 3).and_then(unescaped_bytes);
        plain.is_some_and(|plain| matches!(*plain, [byte] if byte == b' ' || is_of_host(byte)))
    };
    let stands = written
        .bytes()
        .all(|byte| !byte.is_ascii() || is_of_host(byte));
    let is_right = stands && written.match_indices('%').all(is_right);
    unescaped(written).filter(|_| is_right)
}

fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':');
    text.is_empty() || digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns a host name without escapes; `None`: an ASCII character is escaped or not allowed.
fn named(host: &str) -> Option<String> {
    let mut escapes = host.match_indices('%');
    let is_right = |(at, _): (usize, &str)| {
        let escape = &host[at..];
        escape.starts_with("%25") || escape.as_bytes().get(1) > Some(&b'7')
    };
    let stands = host
        .bytes()
        .all(|byte| !byte.is_ascii() || is_of_host(byte));
    let is_right = stands && escapes.all(is_right);
    unescaped(host).filter(|_| is_right)
}

/// Returns whether an ASCII character may stand in a host, the start of an escape included.
fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&byte)
}

/// A path as it is written, where all in it may stand in one; otherwise with what may not escaped.
fn escaped_path(path: &str) -> Option<String> {
    let plain = unescaped_bytes(path)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte);
    if path
        .bytes()
        .all(|byte| is_plain(byte) || b"!'()*[]%".contains(&byte))
    {
        return Some(path.to_owned());
    }
    let mut text = String::with_capacity(plain.len());
    for byte in plain {
        match is_plain(byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(text)
}

/// Returns whether every `%` begins two hexadecimal digits.
fn is_escaped(text: &str) -> bool {
    let mut parts = text.split('%').skip(1);
    parts.all(|part| {
        let digits = part.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Returns the text with its escapes (`%20`) replaced; `None` if one is malformed.
pub fn unescaped(text: &str) -> Option<String> {
    let bytes = unescaped_bytes(text)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn unescaped_bytes(text: &str) -> Option<Vec<u8>> {
    if !is_escaped(text) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = rest.get(2..)?;
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => *byte,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Option<String> {
        Some(Url::parse(text)?.escaped_path)
    }

    fn host_of(text: &str) -> Option<String> {
        Some(Url::parse(text)?.host)
    }

    #[test]
    fn paths_of_urls_are_escaped_where_needed() {
        for (text, expected) in [
            (
                "https://example.com/path with spaces/",
                "/path%20with%20spaces/",
            ),
            ("https://h/a%20b", "/a%20b"),
            ("https://h/a%2fb", "/a%2fb"),
            // What is written escaped and need not be is written anew with what has to be.
            ("https://h/a%41 b", "/aA%20b"),
            ("/é", "/%C3%A9"),
            (
                "/a|b\"c<d>e^f`g{h}i\\j",
                "/a%7Cb%22c%3Cd%3Ee%5Ef%60g%7Bh%7Di%5Cj",
            ),
            ("/!'()*[]", "/!'()*[]"),
            ("/! ", "/%21%20"),
            ("https://h/x#f", "/x"),
            ("https://h/x?y=/z#f", "/x"),
            ("mailto:a@b", ""),
            ("*", "*"),
            ("//h/x", "/x"),
            ("///x", "///x"),
        ] {
            assert_eq!(path(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn hosts_of_urls_are_checked() {
        for (text, expected) in [
            ("http://a.b:80/", Some("a.b:80")),
            ("http://a:/", Some("a:")),
            ("http://u:p%20@a.b/", Some("a.b")),
            ("http://u p@a.b/", None),
            ("http://a<b>c/", Some("a<b>c")),
            ("http://a b/", None),
            ("http://a|b/", None),
            ("http://h%41/", None),
            ("http://h%25/", Some("h%")),
            ("http://h%C3%A9/", Some("hé")),
            ("http://a:b/", None),
            ("http://a:1:2/", None),
            ("postgres://a:1,b:2/", Some("a:1,b:2")),
            ("http://[::1]:80/", Some("[::1]:80")),
            ("http://[fe80::1%25en0]/", Some("[fe80::1%en0]")),
            ("http://[fe80::1%25]/", None),
            ("http://[fe80::1%25a%20%3C%25]/", Some("[fe80::1%a <%]")),
            ("http://[fe80::1%25a%0a]/", None),
            ("http://[fe80::1%25a%C3%A9]/", None),
            ("http://[fe80::1%25a^]/", None),
            ("http://[::1", None),
            ("http://[1.2.3.4]/", None),
            ("http://a[::1]/", None),
            ("http:///x", Some("")),
            ("//h/x", Some("h")),
            ("//a b/x", None),
        ] {
            assert_eq!(host_of(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn malformed_urls_are_refused() {
        for text in [
            "",
            "relative",
            "?a",
            ":a",
            "1http://a",
            "a_b://c",
            "/a%zz",
            "/a\nb",
            "http://h/x#%zz",
        ] {
            assert_eq!(Url::parse(text), None, "{text}");
        }
        // Of a request's URI, all behind the question mark is its query, and what begins with a slash a path.
        for text in ["http://h/?a#%zz", "//a b/x", "*", "mailto:%zz"] {
            assert!(Url::is_one(text), "{text}");
        }
        assert!(!Url::is_one("http://h#f"));
    }
}
