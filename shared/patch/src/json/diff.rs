//! Computes the JSON Patch between two documents, for the answer of an admission webhook.

use serde_json::{Value, json};

/// A patch of RFC 6902 under which `before` becomes `after`. Fields and elements that are alike are left
/// alone; of lists what differs between the first and the last elements that are alike.
///
/// Recursion is as deep as both documents; whoever reads them bounds that.
pub fn diff(before: &Value, after: &Value) -> Value {
    let mut operations = Vec::new();
    compare(before, after, &mut String::new(), &mut operations);
    Value::Array(operations)
}

fn compare(before: &Value, after: &Value, path: &mut String, made: &mut Vec<Value>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Value::Object(before), Value::Object(after)) => {
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                at(path, key, |path| {
                    made.push(json!({"op": "remove", "path": path}));
                });
            }
            for (key, after) in after {
                at(path, key, |path| match before.get(key) {
                    Some(before) => compare(before, after, path, made),
                    None => made.push(json!({"op": "add", "path": path, "value": after})),
                });
            }
        }
        (Value::Array(before), Value::Array(after)) => lists(before, after, path, made),
        (_, after) => made.push(json!({"op": "replace", "path": path, "value": after})),
    }
}

fn lists(before: &[Value], after: &[Value], path: &mut String, made: &mut Vec<Value>) {
    let alike = |(before, after): &(&Value, &Value)| before == after;
    let first = before.iter().zip(after).take_while(alike).count();
    let (before, after) = (&before[first..], &after[first..]);
    let backwards = before.iter().rev().zip(after.iter().rev());
    let last = backwards.take_while(alike).count();
    let (before, after) = (&before[..before.len() - last], &after[..after.len() - last]);
    let both = before.len().min(after.len());
    for (place, (before, after)) in before.iter().zip(after).enumerate() {
        let place = (first + place).to_string();
        at(path, &place, |path| compare(before, after, path, made));
    }
    // Removal starts at the last element, so that the indexes of earlier elements stay valid.
    for place in (both..before.len()).rev() {
        at(path, &(first + place).to_string(), |path| {
            made.push(json!({"op": "remove", "path": path}));
        });
    }
    for (place, value) in after.iter().enumerate().skip(both) {
        at(path, &(first + place).to_string(), |path| {
            made.push(json!({"op": "add", "path": path, "value": value}));
        });
    }
}

/// One step further, and back.
fn at(path: &mut String, step: &str, then: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(&step.replace('~', "~0").replace('/', "~1"));
    then(path);
    path.truncate(length);
}
