//! Wildcards in the keys of `metadata.labels` and `metadata.annotations`.

use serde_json::{Map, Value};

use super::{Anchor, leaf};
use crate::{meter, operator, wildcard};

/// The pattern with each such key in place of its wildcard that the object has; `None` where there is
/// nothing to put in place.
pub(super) fn expand(
    pattern: &Map<String, Value>,
    object: &Map<String, Value>,
) -> Option<Map<String, Value>> {
    let (key, metadata) = pattern
        .iter()
        .find(|(key, _)| Anchor::parse(key).1 == "metadata")?;
    let found = object.get("metadata")?;
    // Where nothing is left of the meter, nobody looks at the answer.
    if !meter::charge(operator::length(metadata)) {
        return None;
    }
    let mut expanded = metadata.as_object()?.clone();
    let mut is_changed = false;
    for (key, pattern) in metadata.as_object()? {
        let (_, name) = Anchor::parse(key);
        let (true, Some(keys)) = (
            matches!(name, "labels" | "annotations"),
            pattern.as_object(),
        ) else {
            continue;
        };
        if keys.keys().any(|key| wildcard::has_wildcard(key)) {
            let found = found.get(name).and_then(Value::as_object);
            expanded.insert(key.clone(), Value::Object(keys_of(keys, found)));
            is_changed = true;
        }
    }
    let is_charged = |of: &Map<_, _>| meter::charge(of.values().map(operator::length).sum());
    (is_changed && is_charged(pattern)).then(|| {
        let mut pattern = pattern.clone();
        pattern.insert(key.clone(), Value::Object(expanded));
        pattern
    })
}

/// A key with a wildcard becomes the first that fits it, but takes the place of no key that is written as it is.
fn keys_of(pattern: &Map<String, Value>, found: Option<&Map<String, Value>>) -> Map<String, Value> {
    let mut keys = Map::new();
    for (written, value) in pattern {
        let (anchor, key) = Anchor::parse(written);
        let found = found.filter(|_| wildcard::has_wildcard(key));
        let fits = |(name, found): &(&String, &Value)| {
            wildcard::matches(key, name) && (anchor != Anchor::None || leaf::matches(value, found))
        };
        let key = match found.and_then(|found| found.iter().find(fits)) {
            Some((name, _)) => written.replace(key, name),
            None => written.clone(),
        };
        if key == *written || !pattern.contains_key(&key) {
            keys.insert(key, value.clone());
        }
    }
    keys
}
