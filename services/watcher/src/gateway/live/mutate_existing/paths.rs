//! The paths of objects that exist. Pure.

use anteroom_model::{ExistingObjects, KindRecord};
use serde_json::Value;

use crate::source::reflect::escape;

/// Returns the path of all objects of a kind, in a namespace unless that is empty.
fn of_all(kind: &KindRecord, namespace: &str) -> String {
    let gvr = &kind.gvr;
    let root = if gvr.group.is_empty() { "api" } else { "apis" };
    let (version, resource) = (gvr.api_version(), &gvr.resource);
    match namespace {
        "" => format!("/{root}/{version}/{resource}"),
        namespace => {
            let namespace = escape(namespace);
            format!("/{root}/{version}/namespaces/{namespace}/{resource}")
        }
    }
}

/// Returns whether a text is exactly one segment of a path: the API server decodes a path before it splits it.
fn is_one(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['*', '?', '/', '%'])
}

/// Returns the path of a single named object. Labels are checked after the read.
pub(super) fn of_one(kind: &KindRecord, objects: &ExistingObjects) -> Option<String> {
    let ExistingObjects {
        namespace, name, ..
    } = objects;
    let has_place = match kind.namespaced {
        true => is_one(namespace),
        false => namespace.is_empty(),
    };
    let is_one = has_place && is_one(name);
    is_one.then(|| format!("{}/{}", of_all(kind, namespace), escape(name)))
}

/// Returns the path of a page of a list. The page may hold more than the targets.
pub(super) fn of_part(
    kind: &KindRecord,
    objects: &ExistingObjects,
    most: usize,
    continues: &str,
) -> String {
    let namespace = match kind.namespaced && is_one(&objects.namespace) {
        true => &*objects.namespace,
        false => "",
    };
    let mut path = format!("{}?limit={most}", of_all(kind, namespace));
    let field_selector = match is_one(&objects.name) {
        true => format!("metadata.name={}", objects.name),
        false => String::new(),
    };
    for (name, value) in [
        ("labelSelector", &*objects.label_selector),
        ("fieldSelector", &field_selector),
        ("continue", continues),
    ] {
        if !value.is_empty() {
            path.push_str(&format!("&{name}={}", escape(value)));
        }
    }
    path
}

/// Returns the path of an object to write.
///
/// # Errors
/// The object lacks its name, or the version that the change was computed from.
pub(super) fn of_object(kind: &KindRecord, object: &Value) -> Result<String, String> {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let has_place = match kind.namespaced {
        true => is_one(namespace),
        false => namespace.is_empty(),
    };
    if !is_one(name) || !has_place {
        return Err(format!("it is no {} with a name and a place", kind.kind));
    }
    if text("resourceVersion").is_empty() {
        return Err("it does not say which `resourceVersion` it rests on".to_owned());
    }
    Ok(format!("{}/{}", of_all(kind, namespace), escape(name)))
}

#[cfg(test)]
mod tests {
    use anteroom_model::GroupVersionResource;
    use serde_json::json;

    use super::*;

    fn kind(resource: &str, namespaced: bool) -> KindRecord {
        KindRecord {
            gvr: GroupVersionResource::new("", "v1", resource),
            kind: "Thing".into(),
            namespaced,
            subresources: Vec::new(),
            preferred: true,
            watchable: true,
        }
    }

    /// The API server decodes a path before it takes it apart, so `%2F` leads on, too.
    #[test]
    fn an_object_name_cannot_lead_to_another_path() {
        let (inside, outside) = (kind("pods", true), kind("namespaces", false));
        let of = |kind: &KindRecord, namespace: &str, name: &str| {
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            let objects = ExistingObjects {
                namespace,
                name,
                ..ExistingObjects::default()
            };
            of_one(kind, &objects)
        };
        assert_eq!(
            of(&outside, "", "a").as_deref(),
            Some("/api/v1/namespaces/a")
        );
        let written = |namespace: &str, name: &str| {
            let metadata = json!({"namespace": namespace, "name": name, "resourceVersion": "1"});
            of_object(&inside, &json!({ "metadata": metadata }))
        };
        assert_eq!(
            written("a", "b").as_deref(),
            Ok("/api/v1/namespaces/a/pods/b")
        );
        for name in ["a/secrets/b", "a%2Fsecrets%2Fb", "..", ".", "a/log", ""] {
            assert_eq!(of(&outside, "", name), None, "{name}");
            assert_eq!(of(&inside, name, "a"), None, "{name}");
            assert!(written("a", name).is_err(), "{name}");
            assert!(written(name, "a").is_err(), "{name}");
        }
    }
}
