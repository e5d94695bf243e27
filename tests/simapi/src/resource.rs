//! The resources that the simulator serves: the built-in resources, and those that CustomResourceDefinitions add.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

mod built_in;

pub(crate) use built_in::built_in;

/// A resource by its full name: `services` in the core group, `ingresses.networking.k8s.io` in
/// another. All served versions of a resource are one set of objects, so no version is named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// The name of `plural` in `group` (empty: the core group).
    pub fn new(group: &str, plural: &str) -> Self {
        if group.is_empty() {
            Self(plural.into())
        } else {
            Self(format!("{plural}.{group}").into())
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ResourceName {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<&ResourceName> for ResourceName {
    fn from(name: &ResourceName) -> Self {
        name.clone()
    }
}

impl Borrow<str> for ResourceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A resource type: its names, and the rules of its writes.
#[derive(Clone, Debug)]
pub(crate) struct ResourceType {
    pub(crate) group: String,
    /// Served versions, the preferred one first.
    pub(crate) versions: Vec<String>,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Has a `status` subresource, so that the main one keeps off `status`.
    pub(crate) status: bool,
    /// Counts changes of what is neither metadata nor status in `metadata.generation`.
    pub(crate) generation: bool,
    /// Fields that a field selector may name besides `metadata.name` and `metadata.namespace`.
    pub(crate) field_labels: Vec<String>,
    /// Comes from a CustomResourceDefinition. List items of a custom resource carry `apiVersion` and
    /// `kind`, those of a built-in one do not.
    pub(crate) custom: bool,
}

impl ResourceType {
    pub(crate) fn name(&self) -> ResourceName {
        ResourceName::new(&self.group, &self.plural)
    }

    /// `apiVersion` of the objects in `version`.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        }
    }

    /// Returns true if a field selector may name `field`.
    pub(crate) fn selects_by(&self, field: &str) -> bool {
        field == "metadata.name"
            || (field == "metadata.namespace" && self.namespaced)
            || self.field_labels.iter().any(|label| label == field)
    }

    /// The resource that a CustomResourceDefinition asks for; `None` if it serves no version or is
    /// not one.
    pub(crate) fn from_crd(crd: &Value) -> Option<Self> {
        let spec = crd.get("spec")?;
        let names = spec.get("names")?;
        let versions = spec.get("versions")?.as_array()?;
        let flag =
            |version: &Value, name: &str| version.get(name).and_then(Value::as_bool) == Some(true);
        let storage = versions.iter().find(|version| flag(version, "storage"));
        let mut served: Vec<String> = versions
            .iter()
            .filter(|version| flag(version, "served"))
            .filter_map(|version| text(version, "name"))
            .collect();
        served.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
        let kind = text(names, "kind")?;
        (!served.is_empty()).then_some(())?;
        Some(Self {
            group: text(spec, "group")?,
            versions: served,
            plural: text(names, "plural")?,
            singular: text(names, "singular").unwrap_or_else(|| kind.to_lowercase()),
            kind,
            short_names: texts(names, "shortNames"),
            categories: texts(names, "categories"),
            namespaced: text(spec, "scope")? == "Namespaced",
            status: storage
                .is_some_and(|version| version.pointer("/subresources/status").is_some()),
            generation: true,
            field_labels: Vec::new(),
            custom: true,
        })
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    Some(value.get(name)?.as_str()?.to_owned())
}

fn texts(value: &Value, name: &str) -> Vec<String> {
    let items = value.get(name).and_then(Value::as_array);
    items
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// Kubernetes' order of versions: `v2` before `v1` before `v2beta1` before `v1beta2` before
/// `v1alpha1`, and anything else last.
pub(crate) fn version_priority(version: &str) -> (u8, u32, u32) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let major_end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major: u32 = rest[..major_end].parse().ok()?;
        let suffix = &rest[major_end..];
        if suffix.is_empty() {
            return Some((3, major, 0));
        }
        let (level, minor) = match suffix.strip_prefix("beta") {
            Some(minor) => (2, minor),
            None => (1, suffix.strip_prefix("alpha")?),
        };
        Some((level, major, minor.parse().ok()?))
    };
    parsed().unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_as_kubernetes_does() {
        let mut versions = ["v1alpha1", "v1", "other", "v2beta1", "v10", "v2", "v1beta2"];
        versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "other"]
        );
    }

    #[test]
    fn a_crd_without_a_served_version_serves_nothing() {
        let crd = |served: bool| {
            serde_json::json!({"spec": {"group": "a.dev", "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": served, "storage": true,
                    "subresources": {"status": {}}}]}})
        };
        assert!(ResourceType::from_crd(&crd(false)).is_none());
        let thing = ResourceType::from_crd(&crd(true)).unwrap();
        assert_eq!(thing.name().as_str(), "things.a.dev");
        assert!(thing.status && thing.namespaced && thing.custom);
    }
}
