//! Lists: by keys, as sets, or as a whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Directive, Path, below, directive, object, value};
use crate::{PatchError, Schema, schema::ListRule};

/// Merges a list.
pub(super) fn merge(
    document: Option<&[Value]>,
    patch: &[Value],
    rule: ListRule,
    path: &Path<'_>,
) -> Result<Vec<Value>, PatchError> {
    let (document, patch) = match without_replace(patch, path)? {
        Some(patch) => (&[][..], patch),
        None => (document.unwrap_or_default(), patch.iter().collect()),
    };
    match rule {
        ListRule::Keyed(keys, of) => keyed(document, &patch, keys, of, path),
        ListRule::Set => Ok(set(document, &patch)),
        ListRule::Replaced(of) => replaced(&patch, of, path),
    }
}

/// The elements beside one that says `$patch: replace` and nothing else, if there is one.
fn without_replace<'p>(
    patch: &'p [Value],
    path: &Path<'_>,
) -> Result<Option<Vec<&'p Value>>, PatchError> {
    let mut others = Vec::new();
    for element in patch {
        match element.as_object().filter(|object| object.len() == 1) {
            Some(object) if matches!(directive(object, path)?, Directive::Replace) => {}
            _ => others.push(element),
        }
    }
    Ok((others.len() < patch.len()).then_some(others))
}

/// The patch's elements alone, without what says how to merge.
fn replaced(patch: &[&Value], of: Schema, path: &Path<'_>) -> Result<Vec<Value>, PatchError> {
    let mut made = Vec::new();
    for element in patch {
        match element {
            Value::Null => made.push(Value::Null),
            element => made.extend(value(None, element, of, &below(path, "[]")?)?),
        }
    }
    Ok(made)
}

fn set(document: &[Value], patch: &[&Value]) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    patch
        .iter()
        .copied()
        .chain(document)
        .filter(|value| seen.insert(value.to_string()))
        .cloned()
        .collect()
}

fn keyed(
    document: &[Value],
    patch: &[&Value],
    keys: &[&str],
    of: Schema,
    path: &Path<'_>,
) -> Result<Vec<Value>, PatchError> {
    let mut left: Vec<Option<&Value>> = document.iter().map(Some).collect();
    let places = places(document, keys);
    let mut made: Vec<Map<String, Value>> = Vec::new();
    // Where in the document's list those stand that stay at their places.
    let mut stay: BTreeMap<usize, usize> = BTreeMap::new();
    let mut made_places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for element in patch {
        let path = below(path, "[]")?;
        let Some(element) = element.as_object() else {
            return Err(path.refuse("an object is expected in this list"));
        };
        let primary = keys.first().copied().unwrap_or_default();
        let Some(name) = element.get(primary).filter(|name| !name.is_null()) else {
            let problem = format!("an element needs its `{primary}`, by which it is merged");
            return Err(path.refuse(problem));
        };
        let name = name.to_string();
        // Of two elements of the patch with one key the second is merged into the first.
        let earlier = made_places.get(&name).into_iter().flatten().copied();
        let mut earlier = earlier.filter(|&at| is_alike(&made[at], element, keys));
        if let Some(at) = earlier.next() {
            match object(Some(&made[at]), element, of, &path)? {
                Some(merged) => made[at] = merged,
                None => made[at].clear(),
            }
            continue;
        }
        let places = places.get(&name).into_iter().flatten().copied();
        let mut places = places.filter(|&at| {
            let found = left[at].and_then(Value::as_object);
            found.is_some_and(|found| is_alike(found, element, keys))
        });
        let at = places.next();
        let found = at.and_then(|at| left[at].take());
        if let Some(merged) = object(found.and_then(Value::as_object), element, of, &path)? {
            made_places.entry(name).or_default().push(made.len());
            if let Some(at) = at.filter(|_| keys.len() > 1) {
                stay.insert(at, made.len());
            }
            made.push(merged);
        }
    }
    let mut rest = Vec::with_capacity(left.len());
    for (at, left) in left.into_iter().enumerate() {
        let staying = stay.get(&at).map(|&at| std::mem::take(&mut made[at]));
        let staying = staying.filter(|made| !made.is_empty()).map(Value::Object);
        rest.extend(left.cloned().or(staying));
    }
    let made = made.into_iter().filter(|made| !made.is_empty());
    Ok(made.map(Value::Object).chain(rest).collect())
}

/// The places of each first key's value.
fn places(document: &[Value], keys: &[&str]) -> BTreeMap<String, Vec<usize>> {
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, element) in document.iter().enumerate() {
        let name = keys.first().and_then(|key| element.get(key));
        if let Some(name) = name {
            places.entry(name.to_string()).or_default().push(at);
        }
    }
    places
}

/// Returns whether no key that both have tells them apart.
fn is_alike(left: &Map<String, Value>, right: &Map<String, Value>, keys: &[&str]) -> bool {
    keys.iter()
        .all(|key| match (left.get(*key), right.get(*key)) {
            (Some(left), Some(right)) => left == right,
            _ => true,
        })
}

/// Takes values away.
pub(super) fn delete_from(list: Option<&mut Vec<Value>>, values: &[Value]) {
    let values: BTreeSet<String> = values.iter().map(Value::to_string).collect();
    if let Some(list) = list {
        list.retain(|value| !values.contains(&value.to_string()));
    }
}

/// Puts the elements that are listed first.
pub(super) fn order(list: Option<&mut Vec<Value>>, order: &[Value], rule: ListRule) {
    let key = match rule {
        ListRule::Keyed(keys, _) => keys.first().copied(),
        ListRule::Set | ListRule::Replaced(_) => None,
    };
    let name = |value: &Value| match key {
        Some(key) => value.get(key).map(Value::to_string),
        None => Some(value.to_string()),
    };
    let places = order.iter().enumerate();
    let places: BTreeMap<_, _> = places.map(|(at, value)| (name(value), at)).collect();
    if let Some(list) = list {
        list.sort_by_cached_key(|value| places.get(&name(value)).copied().unwrap_or(usize::MAX));
    }
}
