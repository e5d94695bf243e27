//! What an update changes of an object. Pure.

use anteroom_functions::{meter, operator};
use serde_json::Value;

use crate::ir::{AdmissionRequest, rule::ObjectPath};

/// Fields of `metadata` that the API server changes in each update.
const CHANGED_ALWAYS: [&str; 3] = ["managedFields", "resourceVersion", "generation"];

/// Returns whether both states of the object have the same values at these paths. Where there are no two states, or no
/// steps are left, they do not.
pub(super) fn are_equal_at(paths: &[ObjectPath], request: &AdmissionRequest) -> bool {
    let (Some(new), Some(old)) = (request.object(), request.old_object()) else {
        return false;
    };
    paths.iter().all(|path| match &**path {
        [] => are_equal_objects(new, old),
        path => are_equal_below(path, new, old),
    })
}

fn are_equal_objects(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return false;
    };
    let names = new.keys().chain(old.keys());
    names.into_iter().all(|name| {
        let pair = [new.get(name), old.get(name)];
        match pair.map(|value| value.and_then(Value::as_object)) {
            [Some(new), Some(old)] if name == "metadata" => {
                let names = new.keys().chain(old.keys());
                let mut names = names.filter(|name| !CHANGED_ALWAYS.contains(&&***name));
                names.all(|name| are_equal(new.get(name), old.get(name)))
            }
            _ => are_equal(pair[0], pair[1]),
        }
    })
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
