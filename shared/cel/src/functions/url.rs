//! URLs.

use std::{fmt, sync::Arc};

use super::{Answer, Function, Given, global, method};
use crate::{
    EvalError,
    compile::Kind::{self, Bool, Map as Mapped, Text, Url as Address},
    value::{Map, Val},
};

const OF_TEXT: &[Kind] = &[Text];
const OF_URL: &[Kind] = &[Address];

pub(super) const FUNCTIONS: &[Function] = &[
    global("url", (1, 1), OF_TEXT, Address, url),
    global("isURL", (1, 1), OF_TEXT, Bool, is_url),
    method("getScheme", (1, 1), OF_URL, Text, part),
    method("getHost", (1, 1), OF_URL, Text, part),
    method("getHostname", (1, 1), OF_URL, Text, part),
    method("getPort", (1, 1), OF_URL, Text, part),
    method("getEscapedPath", (1, 1), OF_URL, Text, part),
    method("getQuery", (1, 1), OF_URL, Mapped, query),
];

/// An absolute URL, or an absolute path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Url {
    text: String,
    scheme: String,
    /// With its port.
    host: String,
    path: String,
    query: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Url {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_bad = |byte: u8| byte.is_ascii_control() || byte == b' ';
        if text.is_empty() || text.bytes().any(is_bad) {
            return None;
        }
        let (scheme, rest) = match text.starts_with('/') {
            true => ("", text),
            false => text.split_once(':')?,
        };
        let mut letters = scheme.bytes();
        let is_scheme = letters
            .next()
            .is_none_or(|first| first.is_ascii_alphabetic())
            && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if !is_scheme || (scheme.is_empty() && !text.starts_with('/')) {
            return None;
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = rest.strip_prefix("//").filter(|_| !scheme.is_empty());
        let (host, path) = match authority {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        if authority.is_some() && !is_host(host) || !is_escaped(path) {
            return None;
        }
        Some(Self {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }

    fn hostname(&self) -> &str {
        let name = split_port(&self.host).0;
        let inner = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'));
        inner.unwrap_or(name)
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

fn is_host(host: &str) -> bool {
    let (name, port) = split_port(host);
    let is_address = name.starts_with('[') == name.ends_with(']')
        && (name.starts_with('[') || !name.contains(['[', ']', ':']));
    is_address
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && !name.contains(['<', '>', '"', '\\', '^', '`', '{', '|', '}'])
}

/// Whether every `%` begins two hexadecimal digits.
fn is_escaped(text: &str) -> bool {
    let mut parts = text.split('%').skip(1);
    parts.all(|part| {
        let digits = part.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

fn url<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::Text(text)] = arguments else {
        return given.mismatch(arguments);
    };
    given.budget().build(2 * text.len())?;
    let url = Url::parse(text).map(|url| Val::Url(Arc::new(url)));
    url.ok_or_else(|| {
        let start: String = text.chars().take(80).collect();
        EvalError::Refused(format!("`{start}` is no absolute URL and no absolute path"))
    })
}

fn is_url<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::Text(text)] = arguments else {
        return given.mismatch(arguments);
    };
    given.budget().build(2 * text.len())?;
    Ok(Val::Bool(Url::parse(text).is_some()))
}

fn part<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::Url(url)] = arguments else {
        return given.mismatch(arguments);
    };
    given.budget().build(url.text.len())?;
    Ok(match given.name {
        "getScheme" => Val::text(&*url.scheme),
        "getHost" => Val::text(&*url.host),
        "getHostname" => Val::text(url.hostname()),
        "getPort" => Val::text(split_port(&url.host).1),
        _ => Val::text(escaped(&url.path)),
    })
}

/// What is not ASCII is escaped.
fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for char in path.chars() {
        match char.is_ascii() {
            true => text.push(char),
            false => {
                let mut bytes = [0; 4];
                for byte in char.encode_utf8(&mut bytes).bytes() {
                    text.push_str(&format!("%{byte:02X}"));
                }
            }
        }
    }
    text
}

/// Each name with the list of its values.
fn query<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::Url(url)] = arguments else {
        return given.mismatch(arguments);
    };
    given.budget().build(url.query.len())?;
    let mut found: Vec<(String, Vec<Val<'v>>)> = Vec::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty()) {
        given.budget().elements(1 + found.len())?;
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (unescaped(name), unescaped(value)) else {
            continue;
        };
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(Val::text(value)),
            None => found.push((name, vec![Val::text(value)])),
        }
    }
    found.sort_by(|(left, _), (right, _)| left.cmp(right));
    let entries = found.into_iter();
    let entries = entries.map(|(name, values)| (Val::text(name), Val::list(values)));
    Ok(Val::Map(Map::Own(entries.collect())))
}

/// `None` where it is escaped otherwise than it should be.
fn unescaped(text: &str) -> Option<String> {
    if !is_escaped(text) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = rest.get(2..)?;
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => *byte,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
