//! A changed resource, held against a file.

use std::path::Path;

use serde_json::Value;

use crate::{documents::manifests, resource::Resource};

/// The changed resource that a file expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchComparison {
    /// The resource is as expected.
    Same,
    /// The resource differs from what is expected.
    Differs,
    /// Nothing of this resource stands there.
    Missing,
}

/// Compares with the document of the very same resource: of its API version, kind, namespace and name.
///
/// # Errors
/// The file cannot be read.
pub(super) fn compare(path: &Path, patched: &Value) -> Result<PatchComparison, String> {
    let wanted = manifests(path).map_err(|error| error.to_string())?;
    let found = Resource::new(patched.clone());
    let mut wanted = wanted.into_iter().filter_map(Resource::new);
    let same = wanted.find(|wanted| {
        let is_same = |found: &Resource| wanted.is(found) && wanted.version == found.version;
        found.as_ref().is_some_and(is_same)
    });
    // A definition may say that it is in no namespace.
    let is_in_none = found.is_some_and(|found| found.is_assumed);
    let same = same.map(|mut wanted| {
        if is_in_none && wanted.is_assumed {
            wanted.leave_namespace();
        }
        wanted
    });
    Ok(match same {
        Some(wanted) if tidied(&wanted.value) == tidied(patched) => PatchComparison::Same,
        Some(_) => PatchComparison::Differs,
        None => PatchComparison::Missing,
    })
}

/// Without what says nothing: empty objects and lists, nulls. Numbers are compared by value.
pub(super) fn tidied(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let kept = fields.iter();
            let kept = kept.filter_map(|(name, value)| Some((name.clone(), tidied(value)?)));
            let kept: serde_json::Map<_, _> = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(elements) => {
            let kept: Vec<_> = elements.iter().filter_map(tidied).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && number.as_i64().is_none() => {
                Some(Value::from(float as i64))
            }
            _ => Some(value.clone()),
        },
        other => Some(other.clone()),
    }
}
