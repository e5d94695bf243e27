//! The changes that an update makes to an object. Pure.

use anteroom_functions::{meter, operator};
use serde_json::{Map, Value};

use crate::ir::{AdmissionRequest, rule::ObjectPath};

/// Fields of `metadata` that the API server and controllers change, and no pattern is about.
const OF_THE_SYSTEM: [&str; 7] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "finalizers",
    "ownerReferences",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// Beginnings of annotations that controllers and `kubectl apply` write into objects of others.
const ANNOTATIONS_OF_THE_SYSTEM: [&str; 2] = [
    "deployment.kubernetes.io/",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Returns whether both states of the object have the same values at these paths. Where there are no two states, or no
/// steps are left, they do not. Of the object whole, and of all its metadata, what the system writes does not count: an
/// object that violates a rule can still be rid of its finalizers.
pub(super) fn are_equal_at(paths: &[ObjectPath], request: &AdmissionRequest) -> bool {
    let (Some(new), Some(old)) = (request.object(), request.old_object()) else {
        return false;
    };
    paths.iter().all(|path| match &**path {
        [] => are_equal_objects(new, old),
        [metadata] if **metadata == *"metadata" => {
            are_equal_metadata(new.get("metadata"), old.get("metadata"))
        }
        path => are_equal_below(path, new, old),
    })
}

fn are_equal_objects(new: &Value, old: &Value) -> bool {
    are_equal_fields(Some(new), Some(old), |name, new, old| match name {
        "status" => true,
        "metadata" => are_equal_metadata(new, old),
        _ => are_equal(new, old),
    })
}

fn are_equal_metadata(new: Option<&Value>, old: Option<&Value>) -> bool {
    are_equal_fields(new, old, |name, new, old| match name {
        name if OF_THE_SYSTEM.contains(&name) => true,
        "annotations" => are_equal_fields(new, old, |name, new, old| {
            let mut of_system = ANNOTATIONS_OF_THE_SYSTEM.iter();
            of_system.any(|start| name.starts_with(start)) || are_equal(new, old)
        }),
        _ => are_equal(new, old),
    })
}

/// Compares each field of two objects. One that is absent is empty.
fn are_equal_fields(
    new: Option<&Value>,
    old: Option<&Value>,
    mut are_equal: impl FnMut(&str, Option<&Value>, Option<&Value>) -> bool,
) -> bool {
    let none = Map::new();
    let [new, old] = [new, old].map(|object| object.and_then(Value::as_object).unwrap_or(&none));
    let mut names = new.keys().chain(old.keys());
    names.all(|name| are_equal(name, new.get(name), old.get(name)))
}

fn are_equal_below(path: &[Box<str>], new: &Value, old: &Value) -> bool {
    match (path.split_first(), new, old) {
        (Some((name, path)), Value::Object(new), Value::Object(old)) => {
            match (new.get(&**name), old.get(&**name)) {
                (Some(new), Some(old)) => are_equal_below(path, new, old),
                (new, old) => are_equal(new, old),
            }
        }
        // Lists are compared whole.
        _ => are_equal(Some(new), Some(old)),
    }
}

/// Compares values, and charges a step for each in one of them. A field that is absent is null.
fn are_equal(new: Option<&Value>, old: Option<&Value>) -> bool {
    let (new, old) = (new.unwrap_or(&Value::Null), old.unwrap_or(&Value::Null));
    meter::charge(operator::length(new)) && new == old
}
