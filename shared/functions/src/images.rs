//! `images`: the images of a Pod, or of what makes Pods, taken apart.
//!
//! ```text
//! images.containers.NAME.{registry, path, name, tag, digest, reference, referenceWithTag, jsonPointer}
//! ```
//!
//! beside `initContainers` and `ephemeralContainers`. Where one of them cannot be taken apart, there is an
//! error in place of all, so that a rule about images never passes over one.

mod reference;

use serde_json::{Map, Value};

pub use reference::ImageRef;
pub(crate) use reference::normal;

use crate::meter;

/// The steps of taking an image apart into a value of several fields, beside reading it.
const IMAGE_STEPS: u64 = 32;

/// The JSON pointers to the Pod's spec, by kind.
const SPECS: &[(&str, &str)] = &[
    ("Pod", "/spec"),
    ("DaemonSet", "/spec/template/spec"),
    ("Deployment", "/spec/template/spec"),
    ("Job", "/spec/template/spec"),
    ("ReplicaSet", "/spec/template/spec"),
    ("ReplicationController", "/spec/template/spec"),
    ("StatefulSet", "/spec/template/spec"),
    ("CronJob", "/spec/jobTemplate/spec/template/spec"),
];

/// Returns the images of an object of this kind; `None` where it has none. Each image is charged to the meter. The work
/// goes on where no steps are left: it is one pass over the object, and the caller may keep the result.
///
/// # Errors
/// Why they cannot be determined.
pub fn images(kind: &str, object: &Value) -> Result<Option<Value>, String> {
    let Some((_, place)) = SPECS.iter().find(|(of, _)| *of == kind) else {
        return Ok(None);
    };
    let Some(spec) = spec_of(object, place)? else {
        return Ok(None);
    };
    let mut images = Map::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let mut found = Map::new();
        if let Some(containers) = spec.get(list) {
            each_of(containers, list, &format!("{place}/{list}"), &mut found)?;
        }
        if !found.is_empty() {
            images.insert(list.to_owned(), Value::Object(found));
        }
    }
    Ok((!images.is_empty()).then_some(Value::Object(images)))
}

/// Null is as good as not there, on the way too.
fn spec_of<'v>(object: &'v Value, path: &str) -> Result<Option<&'v Map<String, Value>>, String> {
    let mut found = object;
    for name in path.split('/').skip(1) {
        match found {
            Value::Object(entries) => found = entries.get(name).unwrap_or(&Value::Null),
            Value::Null => return Ok(None),
            _ => return Err(format!("what `{name}` should be in is no object")),
        }
    }
    match found {
        Value::Object(spec) => Ok(Some(spec)),
        Value::Null => Ok(None),
        _ => Err("the spec of the Pod is no object".to_owned()),
    }
}

/// Visits the objects of a list, or the values of an object. `place` is the JSON pointer to it.
fn each_of(
    containers: &Value,
    list: &str,
    place: &str,
    found: &mut Map<String, Value>,
) -> Result<(), String> {
    match containers {
        Value::Null => Ok(()),
        Value::Array(elements) => elements.iter().enumerate().try_for_each(|(at, element)| {
            let place = format!("{place}/{at}");
            match element {
                Value::Object(container) => add_container(container, list, &place, found),
                Value::Array(_) => each_of(element, list, &place, found),
                _ => Ok(()),
            }
        }),
        Value::Object(values) => values.iter().try_for_each(|(key, value)| match value {
            Value::Object(container) => {
                add_container(container, list, &format!("{place}/{key}"), found)
            }
            Value::Array(_) => Err(format!("`{list}` holds a list where a container should be")),
            _ => Ok(()),
        }),
        _ => Err(format!("`{list}` is no list")),
    }
}

/// Adds a container's image by the container's name. A container without an image is skipped. `place` is the JSON
/// pointer to the container.
///
/// # Errors
/// The container has no name, or its image cannot be parsed.
fn add_container(
    container: &Map<String, Value>,
    list: &str,
    place: &str,
    found: &mut Map<String, Value>,
) -> Result<(), String> {
    let text = |field| container.get(field).and_then(Value::as_str);
    let Some(name) = text("name") else {
        return Err(format!("a container of `{list}` has no name"));
    };
    let Some(image) = text("image").filter(|image| !image.trim().is_empty()) else {
        return Ok(());
    };
    meter::charge(IMAGE_STEPS);
    meter::charge_bytes(image.len());
    let Some(parsed) = ImageRef::parse(image) else {
        return Err(format!("`{image}` of container `{name}` is no image"));
    };
    let mut value = parsed.value();
    value["jsonPointer"] = format!("{place}/image").into();
    found.insert(name.to_owned(), value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_named_by_their_containers() {
        let digest = format!("sha256:{}", "1f".repeat(32));
        let digested = format!("z@{digest}");
        let spec = json!({
            "containers": [{ "name": "a", "image": "a.io/x/y:1" }, { "name": "b" }, "text"],
            "initContainers": [{ "name": "i", "image": digested }],
        });
        let expected = |at: &str| {
            let [first, init] =
                ["containers", "initContainers"].map(|list| format!("{at}/{list}/0/image"));
            json!({
                "containers": { "a": { "registry": "a.io", "path": "x/y", "name": "y", "tag": "1",
                    "reference": "a.io/x/y:1", "referenceWithTag": "a.io/x/y:1",
                    "jsonPointer": first } },
                "initContainers": { "i": { "registry": "docker.io", "path": "z", "name": "z",
                    "digest": digest, "reference": format!("docker.io/{digested}"),
                    "referenceWithTag": "docker.io/z:", "jsonPointer": init } },
            })
        };
        let pod = json!({ "spec": spec });
        assert_eq!(images("Pod", &pod), Ok(Some(expected("/spec"))));
        let deployment = json!({ "spec": { "template": { "spec": spec } } });
        assert_eq!(
            images("Deployment", &deployment),
            Ok(Some(expected("/spec/template/spec")))
        );
        assert_eq!(images("ConfigMap", &pod), Ok(None));
        for none in [
            json!({}),
            json!({ "spec": null }),
            json!({ "spec": { "containers": null } }),
        ] {
            assert_eq!(images("Pod", &none), Ok(None), "{none}");
        }
        for none in [
            json!({ "spec": null }),
            json!({ "spec": { "template": null } }),
        ] {
            assert_eq!(images("Deployment", &none), Ok(None), "{none}");
        }
    }

    #[test]
    fn no_container_hides_in_another_shape_than_a_list() {
        let container = json!({ "name": "a", "image": "a.io/x/y:1" });
        let of = |containers| images("Pod", &json!({ "spec": { "containers": containers } }));
        let listed = of(json!([container]));
        assert!(matches!(listed, Ok(Some(_))), "{listed:?}");
        for (containers, place) in [
            (json!([[container]]), "0/0"),
            (json!({ "first": container }), "first"),
        ] {
            let mut expected = listed.clone();
            if let Ok(Some(images)) = &mut expected {
                let pointer = format!("/spec/containers/{place}/image");
                images["containers"]["a"]["jsonPointer"] = pointer.into();
            }
            assert_eq!(of(containers.clone()), expected, "{containers}");
        }
    }

    #[test]
    fn each_image_is_charged_and_all_are_found_without_steps_too() {
        let containers = (0..100).map(|at| json!({ "name": at.to_string(), "image": "nginx" }));
        let containers: Vec<Value> = containers.collect();
        let pod = json!({ "spec": { "containers": containers } });
        let found = images("Pod", &pod);
        let (charged, left) = meter::within(10_000, || images("Pod", &pod));
        assert_eq!((&charged, left), (&found, 10_000 - 100 * IMAGE_STEPS));
        assert_eq!(meter::within(10, || images("Pod", &pod)), (found, 0));
    }

    #[test]
    fn one_unreadable_image_is_an_error_for_the_whole_pod() {
        let good = json!({ "name": "a", "image": "nginx" });
        for spec in [
            json!({ "containers": [good, { "name": "b", "image": "!" }] }),
            json!({ "containers": [good, { "image": "nginx" }] }),
            json!({ "containers": [good, {}] }),
            json!({ "containers": [good], "initContainers": "none" }),
            json!({ "containers": { "a": [good] } }),
            json!("text"),
        ] {
            let found = images("Pod", &json!({ "spec": spec }));
            assert!(found.is_err(), "{spec}: {found:?}");
        }
        assert!(images("Deployment", &json!({ "spec": "text" })).is_err());
    }
}
