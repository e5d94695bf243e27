//! Paths in objects: as policies name them, and as they are in one object.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// The most elements of a list, or values of a map, that a path is looked for in.
const ELEMENTS_MAX: usize = 2;

/// Fields that hold maps of texts.
pub(super) const MAPS: &[&str] = &[
    "annotations",
    "data",
    "labels",
    "matchLabels",
    "nodeSelector",
    "stringData",
];

/// The most pointers that one path stands for in an object.
pub(super) const POINTERS_MAX: usize = 16;

/// A step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathStep {
    /// The field of an object.
    Field(Box<str>),
    /// Every element of a list, or every value of a map.
    Each,
}

/// A path as a policy names it, from the object on.
pub(super) type ValuePath = Vec<PathStep>;

/// A step in one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PointerStep {
    Field(Box<str>),
    At(usize),
}

/// A path in one object, which may not be there yet.
pub(super) type Pointer = Vec<PointerStep>;

/// Returns the pointers of a path into an object, through the first and the last element of each list. For a missing
/// field, the pointer leads to where the field belongs.
pub(super) fn pointers(object: &Value, path: &[PathStep]) -> Vec<Pointer> {
    let mut found = Vec::new();
    expand(Some(object), path, &mut Vec::new(), &mut found);
    found
}

fn expand(value: Option<&Value>, steps: &[PathStep], at: &mut Pointer, found: &mut Vec<Pointer>) {
    if found.len() == POINTERS_MAX {
        return;
    }
    let Some((step, rest)) = steps.split_first() else {
        found.push(at.clone());
        return;
    };
    let is_map = matches!(at.last(), Some(PointerStep::Field(name)) if MAPS.contains(&&**name));
    let mut below = |key: PointerStep, value: Option<&Value>, rest: &[PathStep]| {
        at.push(key);
        expand(value, rest, at, found);
        at.pop();
    };
    match (step, value) {
        (PathStep::Each, Some(Value::Array(list))) if !list.is_empty() => {
            for index in ends(list) {
                below(PointerStep::At(index), list.get(index), rest);
            }
        }
        (PathStep::Each, Some(Value::Object(map))) if !map.is_empty() => {
            for (name, value) in map.iter().take(ELEMENTS_MAX) {
                below(PointerStep::Field(name.as_str().into()), Some(value), rest);
            }
        }
        (PathStep::Each, _) if is_map => below(PointerStep::Field("x".into()), None, rest),
        (PathStep::Each, _) => below(PointerStep::At(0), None, rest),
        // A projection of JMESPath names what it passes no more.
        (PathStep::Field(_), Some(Value::Array(list))) if !list.is_empty() => {
            for index in ends(list) {
                below(PointerStep::At(index), list.get(index), steps);
            }
        }
        (PathStep::Field(name), value) => {
            let inside = value.and_then(|value| value.get(&**name));
            below(PointerStep::Field(name.clone()), inside, rest);
        }
    }
}

/// The paths of the first element and the last.
fn ends(list: &[Value]) -> Vec<usize> {
    match list.len() {
        0 => Vec::new(),
        1 => vec![0],
        len => vec![0, len - 1],
    }
}

/// Returns the value at a pointer.
pub(super) fn get<'v>(value: &'v Value, pointer: &[PointerStep]) -> Option<&'v Value> {
    pointer.iter().try_fold(value, |value, key| match key {
        PointerStep::Field(name) => value.get(&**name),
        PointerStep::At(index) => value.get(*index),
    })
}

/// Puts a value at a pointer, making what is missing on the way; `None` removes it.
pub(super) fn set(value: &mut Value, pointer: &[PointerStep], to: Option<Value>) {
    let Some((key, rest)) = pointer.split_first() else {
        if let Some(to) = to {
            *value = to;
        }
        return;
    };
    match (key, rest, to) {
        (PointerStep::Field(name), [], None) => {
            if let Value::Object(fields) = value {
                fields.remove(&**name);
            }
        }
        (PointerStep::At(index), [], None) => {
            if let Value::Array(list) = value
                && *index < list.len()
            {
                list.remove(*index);
            }
        }
        (PointerStep::Field(name), rest, to) => {
            if !value.is_object() {
                if to.is_none() {
                    return;
                }
                *value = Value::Object(Map::new());
            }
            if let Value::Object(fields) = value {
                match (fields.get_mut(&**name), to) {
                    (Some(inside), to) => set(inside, rest, to),
                    (None, None) => {}
                    (None, to) => {
                        let inside = fields.entry(name.to_string()).or_insert(Value::Null);
                        set(inside, rest, to);
                    }
                }
            }
        }
        (PointerStep::At(index), rest, to) => {
            if !value.is_array() {
                if to.is_none() {
                    return;
                }
                *value = Value::Array(Vec::new());
            }
            if let Value::Array(list) = value {
                if *index >= list.len() && to.is_some() {
                    list.push(Value::Null);
                }
                let at = (*index).min(list.len().saturating_sub(1));
                if let Some(inside) = list.get_mut(at) {
                    set(inside, rest, to);
                }
            }
        }
    }
}

/// Fields without which an API server takes no Pod and nothing that makes Pods, from the Pod or its template on.
const REQUIRED: &[&[&str]] = &[
    &["spec"],
    &["spec", "containers"],
    &["spec", "containers", "", "name"],
    &["spec", "containers", "", "image"],
    &["spec", "ephemeralContainers", "", "name"],
    &["spec", "ephemeralContainers", "", "image"],
    &["spec", "initContainers", "", "name"],
    &["spec", "initContainers", "", "image"],
    &["spec", "template"],
    &["spec", "jobTemplate"],
    &["spec", "jobTemplate", "spec"],
    &["spec", "jobTemplate", "spec", "template"],
];

/// Returns whether an API server takes no Pod without what is at a pointer. Kinds that are about something else have
/// no such fields but for `spec`.
pub(super) fn is_required(pointer: &[PointerStep]) -> bool {
    // Containers are all there is of a list that is to have one.
    let names = names(pointer);
    let is_first =
        pointer.last() == Some(&PointerStep::At(0)) && matches!(&*names, [.., "containers", ""]);
    let templates: [&[&str]; 3] = [
        &[],
        &["spec", "template"],
        &["spec", "jobTemplate", "spec", "template"],
    ];
    let mut inside = templates
        .iter()
        .filter_map(|start| names.strip_prefix(*start));
    is_first || inside.any(|names| REQUIRED.contains(&names))
}

/// Returns whether a container stands at a pointer.
pub(super) fn is_container(pointer: &[PointerStep]) -> bool {
    let names = names(pointer);
    matches!(
        &*names,
        [
            ..,
            "containers" | "ephemeralContainers" | "initContainers",
            ""
        ]
    )
}

fn names(pointer: &[PointerStep]) -> Vec<&str> {
    pointer
        .iter()
        .map(|key| match key {
            PointerStep::Field(name) => &**name,
            PointerStep::At(_) => "",
        })
        .collect()
}

/// A pointer for people, as in `spec.containers[0].image`.
pub(super) fn title(pointer: &[PointerStep]) -> String {
    let mut text = String::new();
    for key in pointer {
        match key {
            PointerStep::At(index) => {
                let _ = write!(text, "[{index}]");
            }
            PointerStep::Field(name) if name.contains(['.', '/']) => {
                let _ = write!(text, "[{name:?}]");
            }
            PointerStep::Field(name) if text.is_empty() => text.push_str(name),
            PointerStep::Field(name) => {
                let _ = write!(text, ".{name}");
            }
        }
    }
    text
}

/// A path out of its text, as in `spec.containers[].image`: for tables of paths and for tests.
pub(super) fn path(text: &str) -> ValuePath {
    let mut path = ValuePath::new();
    for part in text.split('.') {
        let name = part.trim_end_matches("[]");
        if !name.is_empty() {
            path.push(PathStep::Field(name.into()));
        }
        if part.ends_with("[]") {
            path.push(PathStep::Each);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_stands_for_what_is_there_and_for_what_could_be() {
        let object = json!({"spec": {"a": [{"x": 1}, {"x": 2}, {}], "m": {"k": 1}}});
        for (text, expected) in [
            ("spec.a[].x", &["spec.a[0].x", "spec.a[2].x"][..]),
            // As a projection has it.
            ("spec.a.x", &["spec.a[0].x", "spec.a[2].x"]),
            ("spec.m[]", &["spec.m.k"]),
            ("spec.b[].c", &["spec.b[0].c"]),
            ("metadata.labels", &["metadata.labels"]),
        ] {
            let found: Vec<_> = pointers(&object, &path(text))
                .iter()
                .map(|one| title(one))
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn values_are_put_and_removed_and_what_is_missing_is_made() {
        let at = |text: &str| pointers(&Value::Null, &path(text)).remove(0);
        let mut object = json!({"spec": {"a": [1, 2]}});
        set(&mut object, &at("spec.b[].c"), Some(json!(3)));
        assert_eq!(object["spec"]["b"], json!([{"c": 3}]));
        set(&mut object, &at("spec.a[]"), None);
        assert_eq!(object["spec"]["a"], json!([2]));
        let before = object.clone();
        set(&mut object, &at("spec.none[].c"), None);
        set(&mut object, &at("spec.a.c"), None);
        assert_eq!(object, before);
    }
}
