//! URLs as Kubernetes reads them: texts that Go's `net/url` reads as a request's URI, with the parts that `net/url`
//! reads in a reference.

use std::{fmt, net::Ipv6Addr};

/// An absolute URL, or an absolute path.
#[derive(Debug, PartialEq, Eq)]
pub struct Url {
    /// The URL as Go writes it: URLs with the same text are equal.
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
        if !fragment.is_empty() {
            url.text.push('#');
            url.text.push_str(&escaped(fragment, b"/:?@!()*")?);
        }
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
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (has_scheme, is_absolute) = (!scheme.is_empty(), rest.starts_with('/'));
        let may_have_host = match what {
            As::RequestUri => has_scheme,
            As::Reference => has_scheme || !rest.starts_with("///"),
        };
        let authority = rest.strip_prefix("//").filter(|_| may_have_host);
        let (user, host, path) = match authority {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let (user, host) = split_user(&scheme, authority)?;
                (user, host, path)
            }
            None if is_absolute || text == "*" => (None, String::new(), rest),
            // An opaque URL has no path.
            None if has_scheme => (None, String::new(), ""),
            None => return None,
        };
        let escaped_path = escaped(path, b"/:@")?;
        let before_path = match authority {
            Some(_) => written_authority(user.as_deref(), &host, path),
            None if has_scheme && !is_absolute => rest.to_owned(),
            None => String::new(),
        };
        let colon = if has_scheme { ":" } else { "" };
        let mark = if query.is_some() { "?" } else { "" };
        let query = query.unwrap_or_default().to_owned();
        Some(Self {
            text: format!("{scheme}{colon}{before_path}{escaped_path}{mark}{query}"),
            escaped_path,
            query,
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

/// The user and the host of an authority with its port; `None`: it is none.
fn split_user(scheme: &str, authority: &str) -> Option<(Option<String>, String)> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(written_user(user)?), host),
        None => (None, authority),
    };
    Some((user, parse_host(scheme, host)?))
}

/// A user, and a password behind a colon, with what has to be escaped.
fn written_user(user: &str) -> Option<String> {
    let is_of_user =
        |char: char| char.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(char);
    if !user.chars().all(is_of_user) {
        return None;
    }
    let written = |part: &str| Some(escape(&unescaped_bytes(part)?, is_plain));
    Some(match user.split_once(':') {
        Some((name, password)) => format!("{}:{}", written(name)?, written(password)?),
        None => written(user)?,
    })
}

/// Writes the user and the host between a scheme and the path.
fn written_authority(user: Option<&str>, host: &str, path: &str) -> String {
    if user.is_none() && host.is_empty() && path.is_empty() {
        return String::new();
    }
    let host = escape(host.as_bytes(), |byte| byte != b'%' && is_of_host(byte));
    match user {
        Some(user) => format!("//{user}@{host}"),
        None => format!("//{host}"),
    }
}

/// The host of an authority with its port; `None`: it is none.
fn parse_host(scheme: &str, host: &str) -> Option<String> {
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

/// Returns whether a character stands for itself in all parts of a URL in which it may stand.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,;=".contains(&byte)
}

/// A path or fragment as it is written, where all in it may stand in one; otherwise with what may not escaped. `also` may
/// stand in it too.
fn escaped(text: &str, also: &[u8]) -> Option<String> {
    let plain = unescaped_bytes(text)?;
    let stays = |byte: u8| is_plain(byte) || also.contains(&byte);
    let may_stand = |byte: u8| stays(byte) || b"!'()*[]:@%".contains(&byte);
    Some(match text.bytes().all(may_stand) {
        true => text.to_owned(),
        false => escape(&plain, stays),
    })
}

fn escape(bytes: &[u8], stays: impl Fn(u8) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match stays(byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
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
            ("http://h%7a/", None),
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
    fn urls_are_written_as_in_go() {
        for (text, expected) in [
            ("HTTP://a/%c3%a9", "http://a/%c3%a9"),
            ("http://a/é", "http://a/%C3%A9"),
            ("http://hé/a%41 b", "http://h%C3%A9/aA%20b"),
            ("http://h%25x<>/", "http://h%25x<>/"),
            ("http://[fe80::1%25en0]:80", "http://[fe80::1%25en0]:80"),
            ("http://u!:p%41!@h", "http://u%21:pA%21@h"),
            ("http://u:@h", "http://u:@h"),
            ("http://@h", "http://@h"),
            ("http://", "http:"),
            ("http:///x", "http:///x"),
            ("http:/x", "http:/x"),
            ("///x", "///x"),
            ("//", ""),
            ("//@/x", "//@/x"),
            ("mailto:A@b", "mailto:A@b"),
            ("*", "*"),
            ("http://h?", "http://h?"),
            ("http://h??", "http://h??"),
            ("http://h?a=é b", "http://h?a=é b"),
            ("/x#", "/x"),
            ("/x#a |b", "/x#a%20%7Cb"),
            ("/x?#!()*'[]?/%41", "/x?#!()*'[]?/%41"),
        ] {
            let written = Url::parse(text).map(|url| url.to_string());
            assert_eq!(written.as_deref(), Some(expected), "{text}");
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
            "http://h/?a#%zz",
            "http://h#f",
            "/a%+1",
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
