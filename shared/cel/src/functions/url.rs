//! Functions of URLs.

use std::sync::Arc;

use anteroom_functions::values::{Url, unescaped};

use super::function::{CallContext, CallResult, Function, global, method};
use crate::{
    EvalError,
    kind::Kind::{self, Bool, Map as Mapped, Text, Url as Address},
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

fn url<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(8 * text.len())?;
    let url = Url::parse(text).map(|url| Val::Url(Arc::new(url)));
    url.ok_or_else(|| {
        let start: String = text.chars().take(80).collect();
        EvalError::Refused(format!("`{start}` is no absolute URL and no absolute path"))
    })
}

fn is_url<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(8 * text.len())?;
    Ok(Val::Bool(Url::is_one(text)))
}

fn part<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Url(url)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(url.text.len())?;
    Ok(match call.name {
        "getScheme" => Val::text(&*url.scheme),
        "getHost" => Val::text(&*url.host),
        "getHostname" => Val::text(url.hostname()),
        "getPort" => Val::text(url.port()),
        _ => Val::text(&*url.escaped_path),
    })
}

/// Each name with the list of its values.
fn query<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Url(url)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(url.query.len())?;
    let mut found: Vec<(String, Vec<Val<'v>>)> = Vec::new();
    // Semicolons once separated pairs too, so a pair with a semicolon is ambiguous and skipped.
    let is_one = |pair: &&str| !pair.is_empty() && !pair.contains(';');
    for pair in url.query.split('&').filter(is_one) {
        call.budget().elements(1 + found.len())?;
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (of_query(name), of_query(value)) else {
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
fn of_query(text: &str) -> Option<String> {
    unescaped(&text.replace('+', " "))
}
