//! Kubernetes' strategic merge of a patch into a document.
//!
//! | in the patch | does |
//! |---|---|
//! | `key: null` | takes the field away |
//! | a number or a boolean, where the document has a text | puts its text there, as in Kyverno |
//! | `$patch: replace`, `delete`, `merge` | in an object: it stands for the whole, takes it away, or is merged, as without it; in an element of a list `replace` is about the list |
//! | `$retainKeys: [a, b]` | takes all other fields away |
//! | `$deleteFromPrimitiveList/LIST: [a]` | takes these away from a list of texts |
//! | `$setElementOrder/LIST: […]` | these come first in the list, in this order |
//!
//! Elements of a list with keys that are in the patch come first, in the patch's order: this is how
//! Kyverno merges, where `kubectl` leaves elements where they are and adds new ones at the end. In a list with
//! two keys only new ones come first. Other lists are replaced.

mod list;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{
    DEPTH_MAX, PatchError, Schema,
    schema::ListRule,
    size::{self, Budget, VALUE_BYTES, Work},
};

/// Merges `patch` into `document`.
///
/// # Errors
/// [`PatchError::Malformed`] of a directive that is none or an element without its list's key,
/// [`PatchError::TooLarge`], [`PatchError::TooDeep`].
pub fn merge(document: &Value, patch: &Value, schema: Schema) -> Result<Value, PatchError> {
    merge_charged(document, patch, schema, &|_| true)
}

/// Merges like [`merge`]. Each part of the merge tells `charge` its work before it does it: copying, comparing, searching. The
/// unit is the time to copy a byte of text. If `charge` returns `false`, the merge ends there.
///
/// # Errors
/// Those of [`merge`]; [`PatchError::TooCostly`] if `charge` has returned `false`.
pub fn merge_charged(
    document: &Value,
    patch: &Value,
    schema: Schema,
    charge: &dyn Fn(usize) -> bool,
) -> Result<Value, PatchError> {
    size::check_depth(document)?;
    size::check_depth(patch)?;
    let mut budget = Budget::new();
    budget.take_document(document)?;
    budget.take(patch)?;
    let work = Work::counted_by(charge);
    let merged = value(Some(document), patch, schema, &Path::ROOT, work)?;
    Ok(merged.unwrap_or(Value::Null))
}

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Returns whether a key of a patch is no field but says how to merge.
pub fn is_directive(key: &str) -> bool {
    key == PATCH
        || key == RETAIN_KEYS
        || [ORDER, DELETE_FROM]
            .iter()
            .any(|prefix| key.starts_with(prefix))
}

/// The path in the patch, for errors; it lives on the stack alone.
struct Path<'p> {
    above: Option<&'p Path<'p>>,
    name: &'p str,
    depth: usize,
}

impl Path<'_> {
    const ROOT: Self = Self {
        above: None,
        name: "",
        depth: 0,
    };

    fn text(&self) -> String {
        match self.above {
            None => "the patch".to_owned(),
            Some(above) if above.above.is_none() => self.name.to_owned(),
            Some(above) => format!("{}.{}", above.text(), self.name),
        }
    }

    fn refuse(&self, problem: impl Into<String>) -> PatchError {
        PatchError::malformed(self.text(), problem)
    }
}

fn below<'p>(path: &'p Path<'p>, name: &'p str) -> Result<Path<'p>, PatchError> {
    let depth = path.depth + 1;
    if depth > DEPTH_MAX {
        return Err(PatchError::TooDeep);
    }
    Ok(Path {
        above: Some(path),
        name,
        depth,
    })
}

/// A directive about a whole object.
enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(patch: &Map<String, Value>, path: &Path<'_>) -> Result<Directive, PatchError> {
    match patch.get(PATCH).map(Value::as_str) {
        None | Some(Some("merge")) => Ok(Directive::Merge),
        Some(Some("replace")) => Ok(Directive::Replace),
        Some(Some("delete")) => Ok(Directive::Delete),
        Some(_) => Err(path.refuse("`$patch` is none of delete, merge, replace")),
    }
}

/// `None`: nothing is left of it.
fn value(
    document: Option<&Value>,
    patch: &Value,
    schema: Schema,
    path: &Path<'_>,
    work: Work<'_>,
) -> Result<Option<Value>, PatchError> {
    match patch {
        Value::Null => Ok(None),
        Value::Object(patch) => {
            let found = document.and_then(Value::as_object);
            object(found, patch, schema, path, work).map(|merged| merged.map(Value::Object))
        }
        Value::Array(elements) => {
            let rule = ListRule::Replaced(Schema::UNKNOWN);
            list::merge(None, elements, rule, path, work).map(|merged| Some(Value::Array(merged)))
        }
        scalar => {
            work.charge_value(scalar)?;
            let text = text_of(scalar).filter(|_| document.is_some_and(Value::is_string));
            Ok(Some(text.map_or_else(|| scalar.clone(), Value::String)))
        }
    }
}

/// Returns the text that a number or a boolean becomes where the document has a text; `None` of any other value.
pub fn text_of(scalar: &Value) -> Option<String> {
    match scalar {
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => {
            // `1.0` is written as `1`, and a very large number with an exponent.
            let float = number.as_f64().filter(|_| number.is_f64());
            let plain = float.filter(|float| float.abs() < 1e21);
            Some(plain.map_or_else(|| number.to_string(), |float| float.to_string()))
        }
        _ => None,
    }
}

fn object(
    document: Option<&Map<String, Value>>,
    patch: &Map<String, Value>,
    schema: Schema,
    path: &Path<'_>,
    work: Work<'_>,
) -> Result<Option<Map<String, Value>>, PatchError> {
    let keys: usize = patch.keys().map(|key| VALUE_BYTES + key.len()).sum();
    work.charge(VALUE_BYTES + keys)?;
    let document = match directive(patch, path)? {
        Directive::Delete => return Ok(None),
        Directive::Replace => None,
        Directive::Merge => document,
    };
    let mut merged = unpatched(document, patch, path, work)?;
    for (key, patch) in patch.iter().filter(|(key, _)| !is_directive(key)) {
        let path = below(path, key)?;
        let found = document.and_then(|document| document.get(key));
        check_shape(found, patch, &path)?;
        let made = match patch {
            Value::Array(elements) => {
                let found = found.and_then(Value::as_array).map(Vec::as_slice);
                let made = list::merge(found, elements, schema.list(key), &path, work)?;
                Some(Value::Array(made))
            }
            patch => value(found, patch, schema.field(key), &path, work)?,
        };
        if let Some(made) = made {
            merged.insert(key.clone(), made);
        }
    }
    for (key, listed) in patch {
        if let Some(name) = key.strip_prefix(DELETE_FROM) {
            let values = elements(listed, key, path)?;
            list::delete_from(list_of(&mut merged, name), values, work)?;
        }
    }
    for (key, listed) in patch {
        if let Some(name) = key.strip_prefix(ORDER) {
            let order = elements(listed, key, path)?;
            list::order(list_of(&mut merged, name), order, schema.list(name), work)?;
        }
    }
    Ok(Some(merged))
}

/// A patch takes a field away, or says more of it, and never makes a list of an object.
fn check_shape(found: Option<&Value>, patch: &Value, path: &Path<'_>) -> Result<(), PatchError> {
    let shape = |value: &Value| match value {
        Value::Null => None,
        Value::Object(_) => Some("an object"),
        Value::Array(_) => Some("a list"),
        _ => Some("a single value"),
    };
    match (found.and_then(shape), shape(patch)) {
        (Some(found), Some(patched)) if found != patched => Err(PatchError::DoesNotApply {
            operation: "merge",
            path: path.text(),
            problem: format!("the patch has {patched} where the object has {found}"),
        }),
        _ => Ok(()),
    }
}

/// Returns the document's fields that the patch says nothing of. So every value is copied once, however deep the patch is.
fn unpatched(
    document: Option<&Map<String, Value>>,
    patch: &Map<String, Value>,
    path: &Path<'_>,
    work: Work<'_>,
) -> Result<Map<String, Value>, PatchError> {
    let kept = retained(patch, path, work)?;
    let is_kept = |key: &str| kept.as_ref().is_none_or(|kept| kept.contains(key));
    let is_patched = |key: &str| !is_directive(key) && patch.contains_key(key);
    let mut copied = Map::new();
    for (key, found) in document.into_iter().flatten() {
        work.charge(VALUE_BYTES + key.len())?;
        if is_kept(key) && !is_patched(key) {
            work.charge_value(found)?;
            copied.insert(key.clone(), found.clone());
        }
    }
    Ok(copied)
}

/// Returns the only fields that stay; `None`: all do.
fn retained<'p>(
    patch: &'p Map<String, Value>,
    path: &Path<'_>,
    work: Work<'_>,
) -> Result<Option<BTreeSet<&'p str>>, PatchError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else {
        return Ok(None);
    };
    work.charge_value(keys)?;
    let keys = elements(keys, RETAIN_KEYS, path)?;
    let kept: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let not_kept = |key: &&String| !is_directive(key) && !kept.contains(key.as_str());
    if let Some(key) = patch.keys().find(not_kept) {
        return Err(path.refuse(format!("`{key}` is not among its `$retainKeys`")));
    }
    Ok(Some(kept))
}

fn list_of<'m>(merged: &'m mut Map<String, Value>, name: &str) -> Option<&'m mut Vec<Value>> {
    merged.get_mut(name).and_then(Value::as_array_mut)
}

fn elements<'p>(listed: &'p Value, key: &str, path: &Path<'_>) -> Result<&'p [Value], PatchError> {
    match listed.as_array() {
        Some(elements) => Ok(elements),
        None => Err(path.refuse(format!("`{key}` is not a list"))),
    }
}

#[cfg(test)]
mod tests;
