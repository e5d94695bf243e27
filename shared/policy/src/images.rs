//! `images`: the images of a Pod, or of what makes Pods, taken apart.
//!
//! ```text
//! images.containers.NAME.{registry, path, name, tag, digest, reference, referenceWithTag}
//! ```
//!
//! beside `initContainers` and `ephemeralContainers`. An image that cannot be taken apart is left out,
//! so that a rule that looks at it finds nothing, never something else.

use serde_json::{Map, Value, json};

/// The registry of an image that names none.
const REGISTRY: &str = "docker.io";

/// The tag of an image that names neither tag nor digest.
const TAG: &str = "latest";

/// Where the Pod's spec stands in an object of each kind.
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

/// Those of an object of this kind; `None` where it has none.
pub(crate) fn images(kind: &str, object: &Value) -> Option<Value> {
    let (_, spec) = SPECS.iter().find(|(of, _)| *of == kind)?;
    let spec = object.pointer(spec)?;
    let mut images = Map::new();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = spec[list].as_array().map_or(&[][..], Vec::as_slice);
        let taken_apart = containers.iter().filter_map(|container| {
            let name = container["name"].as_str()?;
            let image = Image::parse(container["image"].as_str()?)?;
            Some((name.to_owned(), image.value()))
        });
        let taken_apart: Map<_, _> = taken_apart.collect();
        if !taken_apart.is_empty() {
            images.insert(list.to_owned(), Value::Object(taken_apart));
        }
    }
    (!images.is_empty()).then_some(Value::Object(images))
}

/// An image with its registry, and its digest or its tag; `None` of what is none.
pub(crate) fn normal(image: &str) -> Option<String> {
    Image::parse(image).map(|image| image.reference())
}

#[derive(Debug, PartialEq)]
struct Image<'a> {
    registry: &'a str,
    path: &'a str,
    tag: &'a str,
    digest: &'a str,
}

impl<'a> Image<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (text, digest) = match text.split_once('@') {
            Some((text, digest)) => (text, Some(digest)),
            None => (text, None),
        };
        let (registry, rest) = text
            .split_once('/')
            .filter(|(first, _)| is_registry(first))
            .unwrap_or((REGISTRY, text));
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        let is_part = |text: &str| !text.is_empty() && text.chars().all(is_of_part);
        let is_path = path.split('/').all(is_part) && !path.contains(char::is_uppercase);
        let is_tag = tag.is_none_or(is_part);
        let is_digest = digest.is_none_or(|digest| {
            let parts = digest.split_once(':');
            parts.is_some_and(|(algorithm, hex)| is_part(algorithm) && is_hex(hex))
        });
        let digest = digest.unwrap_or_default();
        let tag = tag.unwrap_or(if digest.is_empty() { TAG } else { "" });
        (is_path && is_tag && is_digest).then_some(Self {
            registry,
            path,
            tag,
            digest,
        })
    }

    /// By its digest, or by its tag where it has none.
    fn reference(&self) -> String {
        let Self { registry, path, .. } = self;
        match self.digest {
            "" => format!("{registry}/{path}:{}", self.tag),
            digest => format!("{registry}/{path}@{digest}"),
        }
    }

    fn value(&self) -> Value {
        let Self {
            registry,
            path,
            tag,
            digest,
        } = self;
        let mut image = json!({
            "registry": registry, "path": path, "name": path.rsplit('/').next(),
            "reference": self.reference(), "referenceWithTag": format!("{registry}/{path}:{tag}"),
        });
        for (name, value) in [("tag", tag), ("digest", digest)] {
            if !value.is_empty() {
                image[name] = (*value).into();
            }
        }
        image
    }
}

fn is_of_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether what stands before the first `/` is a registry and no part of a path.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.contains(char::is_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_taken_apart() {
        for (text, expected) in [
            ("nginx", ("docker.io", "nginx", "latest", "")),
            ("nginx:1.2", ("docker.io", "nginx", "1.2", "")),
            ("team/app", ("docker.io", "team/app", "latest", "")),
            ("ghcr.io/team/app:v1", ("ghcr.io", "team/app", "v1", "")),
            ("localhost/app", ("localhost", "app", "latest", "")),
            ("reg:5000/app:v1", ("reg:5000", "app", "v1", "")),
            (
                "reg:5000/app@sha256:abc1",
                ("reg:5000", "app", "", "sha256:abc1"),
            ),
            ("a.io/app:v1@sha256:ab", ("a.io", "app", "v1", "sha256:ab")),
        ] {
            let image = Image::parse(text).unwrap();
            let found = (image.registry, image.path, image.tag, image.digest);
            assert_eq!(found, expected, "{text}");
        }
        for text in [
            "",
            ":v1",
            "a b",
            "app:",
            "Team",
            "a.io/",
            "a@",
            "a@sha256:xyz",
            "a//b",
        ] {
            assert_eq!(Image::parse(text), None, "{text}");
        }
    }

    #[test]
    fn images_are_named_by_their_containers() {
        let spec = json!({
            "containers": [{ "name": "a", "image": "a.io/x/y:1" }, { "name": "b", "image": "!" }],
            "initContainers": [{ "name": "i", "image": "z@sha256:12" }],
        });
        let expected = json!({
            "containers": { "a": { "registry": "a.io", "path": "x/y", "name": "y", "tag": "1",
                "reference": "a.io/x/y:1", "referenceWithTag": "a.io/x/y:1" } },
            "initContainers": { "i": { "registry": "docker.io", "path": "z", "name": "z",
                "digest": "sha256:12", "reference": "docker.io/z@sha256:12",
                "referenceWithTag": "docker.io/z:" } },
        });
        let pod = json!({ "spec": spec });
        assert_eq!(images("Pod", &pod), Some(expected.clone()));
        let deployment = json!({ "spec": { "template": { "spec": spec } } });
        assert_eq!(images("Deployment", &deployment), Some(expected));
        assert_eq!(images("ConfigMap", &pod), None);
        assert_eq!(images("Pod", &json!({ "spec": {} })), None);
    }
}
