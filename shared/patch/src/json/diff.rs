//! Computes the JSON Patch between two documents, for the answer of an admission webhook.

use serde_json::{Map, Value, json};

use crate::{
    PatchError,
    size::{self, VALUE_BYTES, Work},
};

/// The most operations of a patch that says where in a field documents differ.
pub(super) const OPERATIONS_MAX: usize = 10_000;

/// The most bytes of these operations' paths.
const PATH_BYTES_MAX: usize = 1024 * 1024;

/// A patch of RFC 6902 under which `before` becomes `after`. Fields and elements that are alike are left
/// alone; of lists what differs between the first and the last elements that are alike.
///
/// So that a patch is never much larger than the documents, a field at the top that would take more than the rest of
/// 10,000 operations, or of 1 MiB of paths, is replaced whole. Where there are as many such fields, the document is.
///
/// Each value that is compared or copied is told to `charge` before. The unit is the time to copy a byte of text.
///
/// Recursion is as deep as both documents; whoever reads them bounds that.
///
/// # Errors
/// [`PatchError::TooCostly`] if `charge` has returned `false`.
pub fn diff_charged(
    before: &Value,
    after: &Value,
    charge: &dyn Fn(usize) -> bool,
) -> Result<Value, PatchError> {
    let mut made = Operations {
        operations: Vec::new(),
        path_bytes: 0,
        work: Work::counted_by(charge),
    };
    let is_made = match (before, after) {
        (Value::Object(before), Value::Object(after)) => fields(before, after, &mut made),
        _ => compare(before, after, &mut String::new(), &mut made),
    };
    match is_made {
        Ok(()) => Ok(Value::Array(made.operations)),
        Err(Stop::TooMany) => {
            made.work.charge_value(after)?;
            Ok(replaced(after))
        }
        Err(Stop::TooCostly(error)) => Err(error),
    }
}

/// A patch that replaces the whole document.
pub fn replaced(after: &Value) -> Value {
    json!([{"op": "replace", "path": "", "value": after}])
}

/// Why a comparison goes no further.
enum Stop {
    /// There is no room for another operation.
    TooMany,
    /// The work is more than the caller allows.
    TooCostly(PatchError),
}

impl From<PatchError> for Stop {
    fn from(error: PatchError) -> Self {
        Self::TooCostly(error)
    }
}

struct Operations<'c> {
    operations: Vec<Value>,
    path_bytes: usize,
    work: Work<'c>,
}

impl Operations<'_> {
    fn add(&mut self, op: &str, path: &str, value: Option<&Value>) -> Result<(), Stop> {
        self.path_bytes += path.len();
        if self.operations.len() >= OPERATIONS_MAX || self.path_bytes > PATH_BYTES_MAX {
            return Err(Stop::TooMany);
        }
        let copied = path.len() + value.map_or(0, size::work);
        self.work.charge(3 * VALUE_BYTES + copied)?;
        self.operations.push(match value {
            Some(value) => json!({"op": op, "path": path, "value": value}),
            None => json!({"op": op, "path": path}),
        });
        Ok(())
    }
}

/// Compares the fields at the top.
fn fields(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    made: &mut Operations<'_>,
) -> Result<(), Stop> {
    let mut path = String::new();
    removed(before, after, &mut path, made)?;
    for (key, after) in after {
        at(&mut path, key, |path| {
            let (operations, path_bytes) = (made.operations.len(), made.path_bytes);
            match field(before.get(key), after, path, made) {
                Err(Stop::TooMany) => {
                    made.operations.truncate(operations);
                    made.path_bytes = path_bytes;
                    made.add("replace", path, Some(after))
                }
                compared => compared,
            }
        })?;
    }
    Ok(())
}

fn removed(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    path: &mut String,
    made: &mut Operations<'_>,
) -> Result<(), Stop> {
    let looked_up = before.keys().chain(after.keys());
    let looked_up = looked_up.map(|key| VALUE_BYTES + key.len());
    made.work.charge(looked_up.sum())?;
    let mut keys = before.keys().filter(|key| !after.contains_key(*key));
    keys.try_for_each(|key| at(path, key, |path| made.add("remove", path, None)))
}

fn field(
    before: Option<&Value>,
    after: &Value,
    path: &mut String,
    made: &mut Operations<'_>,
) -> Result<(), Stop> {
    match before {
        Some(before) => compare(before, after, path, made),
        None => made.add("add", path, Some(after)),
    }
}

fn compare(
    before: &Value,
    after: &Value,
    path: &mut String,
    made: &mut Operations<'_>,
) -> Result<(), Stop> {
    match (before, after) {
        (before, after) if is_alike(before, after, made.work)? => Ok(()),
        (Value::Object(before), Value::Object(after)) => {
            removed(before, after, path, made)?;
            after.iter().try_for_each(|(key, after)| {
                at(path, key, |path| field(before.get(key), after, path, made))
            })
        }
        (Value::Array(before), Value::Array(after)) => lists(before, after, path, made),
        (_, after) => made.add("replace", path, Some(after)),
    }
}

fn lists(
    before: &[Value],
    after: &[Value],
    path: &mut String,
    made: &mut Operations<'_>,
) -> Result<(), Stop> {
    let first = count_alike(before.iter().zip(after), made.work)?;
    let (before, after) = (&before[first..], &after[first..]);
    let backwards = before.iter().rev().zip(after.iter().rev());
    let last = count_alike(backwards, made.work)?;
    let (before, after) = (&before[..before.len() - last], &after[..after.len() - last]);
    let both = before.len().min(after.len());
    for (place, (before, after)) in before.iter().zip(after).enumerate() {
        let place = (first + place).to_string();
        at(path, &place, |path| compare(before, after, path, made))?;
    }
    // Removal starts at the last element, so that the indexes of earlier elements stay valid.
    for place in (both..before.len()).rev() {
        at(path, &(first + place).to_string(), |path| {
            made.add("remove", path, None)
        })?;
    }
    for (place, value) in after.iter().enumerate().skip(both) {
        at(path, &(first + place).to_string(), |path| {
            made.add("add", path, Some(value))
        })?;
    }
    Ok(())
}

/// Returns the number of pairs that are alike before the first that is not.
fn count_alike<'v>(
    pairs: impl Iterator<Item = (&'v Value, &'v Value)>,
    work: Work<'_>,
) -> Result<usize, PatchError> {
    let mut count = 0;
    for (before, after) in pairs {
        if !is_alike(before, after, work)? {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// Returns whether two values are equal. Every pair of values that is compared is charged.
fn is_alike(before: &Value, after: &Value, work: Work<'_>) -> Result<bool, PatchError> {
    work.charge(VALUE_BYTES)?;
    match (before, after) {
        (Value::Array(before), Value::Array(after)) => {
            let is_as_long = before.len() == after.len();
            Ok(is_as_long && count_alike(before.iter().zip(after), work)? == before.len())
        }
        (Value::Object(before), Value::Object(after)) => {
            if before.len() != after.len() {
                return Ok(false);
            }
            for (key, before) in before {
                work.charge(VALUE_BYTES + key.len())?;
                match after.get(key) {
                    Some(after) if is_alike(before, after, work)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::String(before), Value::String(after)) => {
            if before.len() != after.len() {
                return Ok(false);
            }
            work.charge(before.len())?;
            Ok(before == after)
        }
        (before, after) => Ok(before == after),
    }
}

/// One step further, and back.
fn at<T>(path: &mut String, step: &str, then: impl FnOnce(&mut String) -> T) -> T {
    let length = path.len();
    path.push('/');
    path.push_str(&step.replace('~', "~0").replace('/', "~1"));
    let value = then(path);
    path.truncate(length);
    value
}

#[cfg(test)]
mod tests;
