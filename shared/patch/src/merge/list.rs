//! Lists: by keys, as sets, or as a whole.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Directive, Path, below, directive, object, value};
use crate::{
    PatchError, Schema,
    schema::ListRule,
    size::{self, VALUE_BYTES, Work},
};

/// Merges a list.
pub(super) fn merge(
    document: Option<&[Value]>,
    patch: &[Value],
    rule: ListRule,
    path: &Path<'_>,
    work: Work<'_>,
) -> Result<Vec<Value>, PatchError> {
    work.charge(VALUE_BYTES * (1 + patch.len()))?;
    let (document, patch) = match without_replace(patch, path)? {
        Some(patch) => (&[][..], patch),
        None => (document.unwrap_or_default(), patch.iter().collect()),
    };
    match rule {
        ListRule::Keyed(keys, of) => keyed(document, &patch, keys, of, path, work),
        ListRule::Set => set(document, &patch, work),
        ListRule::Replaced(of) => replaced(&patch, of, path, work),
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
fn replaced(
    patch: &[&Value],
    of: Schema,
    path: &Path<'_>,
    work: Work<'_>,
) -> Result<Vec<Value>, PatchError> {
    let mut made = Vec::new();
    for element in patch {
        match element {
            Value::Null => made.push(Value::Null),
            element => made.extend(value(None, element, of, &below(path, "[]")?, work)?),
        }
    }
    Ok(made)
}

fn set(document: &[Value], patch: &[&Value], work: Work<'_>) -> Result<Vec<Value>, PatchError> {
    let mut seen = BTreeSet::new();
    let mut made = Vec::new();
    for value in patch.iter().copied().chain(document) {
        // Its text is compared with others, and the value is copied.
        work.charge(2 * size::work(value))?;
        if seen.insert(value.to_string()) {
            made.push(value.clone());
        }
    }
    Ok(made)
}

/// An element of the patch, whose counterpart is searched for.
struct Sought<'p> {
    element: &'p Map<String, Value>,
    keys: &'p [&'p str],
    /// The work of comparing the element with another element.
    compared_bytes: usize,
}

impl<'p> Sought<'p> {
    fn new(element: &'p Map<String, Value>, keys: &'p [&'p str]) -> Self {
        let values = keys.iter().filter_map(|key| element.get(*key));
        Self {
            element,
            keys,
            compared_bytes: VALUE_BYTES + values.map(size::work).sum::<usize>(),
        }
    }

    /// Returns the first place of the name with an element that is alike.
    fn first<'v>(
        &self,
        places: &BTreeMap<String, Vec<usize>>,
        name: &str,
        found: impl Fn(usize) -> Option<&'v Map<String, Value>>,
        work: Work<'_>,
    ) -> Result<Option<usize>, PatchError> {
        for &at in places.get(name).into_iter().flatten() {
            work.charge(self.compared_bytes)?;
            if found(at).is_some_and(|found| is_alike(found, self.element, self.keys)) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

fn keyed(
    document: &[Value],
    patch: &[&Value],
    keys: &[&str],
    of: Schema,
    path: &Path<'_>,
    work: Work<'_>,
) -> Result<Vec<Value>, PatchError> {
    let mut left: Vec<Option<&Value>> = document.iter().map(Some).collect();
    let places = places(document, keys, work)?;
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
        let sought = Sought::new(element, keys);
        work.charge(sought.compared_bytes)?;
        let name = name.to_string();
        // Of two elements of the patch with one key the second is merged into the first.
        let earlier = sought.first(&made_places, &name, |at| Some(&made[at]), work)?;
        if let Some(at) = earlier {
            match object(Some(&made[at]), element, of, &path, work)? {
                Some(merged) => made[at] = merged,
                None => made[at].clear(),
            }
            continue;
        }
        let in_document = |at: usize| left[at].and_then(Value::as_object);
        let at = sought.first(&places, &name, in_document, work)?;
        let found = at.and_then(|at| left[at].take());
        let found = found.and_then(Value::as_object);
        if let Some(merged) = object(found, element, of, &path, work)? {
            made_places.entry(name).or_default().push(made.len());
            if let Some(at) = at.filter(|_| keys.len() > 1) {
                stay.insert(at, made.len());
            }
            made.push(merged);
        }
    }
    let mut rest = Vec::with_capacity(left.len());
    for (at, left) in left.into_iter().enumerate() {
        if let Some(left) = left {
            work.charge_value(left)?;
            rest.push(left.clone());
        } else if let Some(&at) = stay.get(&at) {
            let staying = std::mem::take(&mut made[at]);
            rest.extend((!staying.is_empty()).then_some(Value::Object(staying)));
        }
    }
    let made = made.into_iter().filter(|made| !made.is_empty());
    Ok(made.map(Value::Object).chain(rest).collect())
}

/// The places of each first key's value.
fn places(
    document: &[Value],
    keys: &[&str],
    work: Work<'_>,
) -> Result<BTreeMap<String, Vec<usize>>, PatchError> {
    let mut places: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, element) in document.iter().enumerate() {
        work.charge(VALUE_BYTES)?;
        let name = keys.first().and_then(|key| element.get(key));
        if let Some(name) = name {
            work.charge_value(name)?;
            places.entry(name.to_string()).or_default().push(at);
        }
    }
    Ok(places)
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
pub(super) fn delete_from(
    list: Option<&mut Vec<Value>>,
    values: &[Value],
    work: Work<'_>,
) -> Result<(), PatchError> {
    charge_values(values, work)?;
    let values: BTreeSet<String> = values.iter().map(Value::to_string).collect();
    if let Some(list) = list {
        charge_values(list, work)?;
        list.retain(|value| !values.contains(&value.to_string()));
    }
    Ok(())
}

/// Puts the elements that are listed first.
pub(super) fn order(
    list: Option<&mut Vec<Value>>,
    order: &[Value],
    rule: ListRule,
    work: Work<'_>,
) -> Result<(), PatchError> {
    let key = match rule {
        ListRule::Keyed(keys, _) => keys.first().copied(),
        ListRule::Set | ListRule::Replaced(_) => None,
    };
    let name = |value: &Value| match key {
        Some(key) => value.get(key).map(Value::to_string),
        None => Some(value.to_string()),
    };
    charge_values(order, work)?;
    let places = order.iter().enumerate();
    let places: BTreeMap<_, _> = places.map(|(at, value)| (name(value), at)).collect();
    if let Some(list) = list {
        charge_values(list, work)?;
        list.sort_by_cached_key(|value| places.get(&name(value)).copied().unwrap_or(usize::MAX));
    }
    Ok(())
}

/// Counts the work of writing values as texts, and of looking each text up among others.
fn charge_values(values: &[Value], work: Work<'_>) -> Result<(), PatchError> {
    work.charge(2 * values.iter().map(size::work).sum::<usize>())
}
