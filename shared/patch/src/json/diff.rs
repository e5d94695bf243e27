//! Computes the JSON Patch between two documents, for the answer of an admission webhook.

use serde_json::{Map, Value, json};

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
/// Recursion is as deep as both documents; whoever reads them bounds that.
pub fn diff(before: &Value, after: &Value) -> Value {
    let mut made = Operations::default();
    let is_made = match (before, after) {
        (Value::Object(before), Value::Object(after)) => fields(before, after, &mut made),
        _ => compare(before, after, &mut String::new(), &mut made),
    };
    match is_made {
        Ok(()) => Value::Array(made.operations),
        Err(TooMany) => json!([{"op": "replace", "path": "", "value": after}]),
    }
}

/// There is no room for another operation.
struct TooMany;

#[derive(Default)]
struct Operations {
    operations: Vec<Value>,
    path_bytes: usize,
}

impl Operations {
    fn add(&mut self, op: &str, path: &str, value: Option<&Value>) -> Result<(), TooMany> {
        self.path_bytes += path.len();
        if self.operations.len() >= OPERATIONS_MAX || self.path_bytes > PATH_BYTES_MAX {
            return Err(TooMany);
        }
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
    made: &mut Operations,
) -> Result<(), TooMany> {
    let mut path = String::new();
    removed(before, after, &mut path, made)?;
    for (key, after) in after {
        at(&mut path, key, |path| {
            let (operations, path_bytes) = (made.operations.len(), made.path_bytes);
            field(before.get(key), after, path, made).or_else(|TooMany| {
                made.operations.truncate(operations);
                made.path_bytes = path_bytes;
                made.add("replace", path, Some(after))
            })
        })?;
    }
    Ok(())
}

fn removed(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    path: &mut String,
    made: &mut Operations,
) -> Result<(), TooMany> {
    let mut keys = before.keys().filter(|key| !after.contains_key(*key));
    keys.try_for_each(|key| at(path, key, |path| made.add("remove", path, None)))
}

fn field(
    before: Option<&Value>,
    after: &Value,
    path: &mut String,
    made: &mut Operations,
) -> Result<(), TooMany> {
    match before {
        Some(before) => compare(before, after, path, made),
        None => made.add("add", path, Some(after)),
    }
}

fn compare(
    before: &Value,
    after: &Value,
    path: &mut String,
    made: &mut Operations,
) -> Result<(), TooMany> {
    match (before, after) {
        (before, after) if before == after => Ok(()),
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
    made: &mut Operations,
) -> Result<(), TooMany> {
    let alike = |(before, after): &(&Value, &Value)| before == after;
    let first = before.iter().zip(after).take_while(alike).count();
    let (before, after) = (&before[first..], &after[first..]);
    let backwards = before.iter().rev().zip(after.iter().rev());
    let last = backwards.take_while(alike).count();
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

/// One step further, and back.
fn at<T>(path: &mut String, step: &str, then: impl FnOnce(&mut String) -> T) -> T {
    let length = path.len();
    path.push('/');
    path.push_str(&step.replace('~', "~0").replace('/', "~1"));
    let value = then(path);
    path.truncate(length);
    value
}
