//! The Pod in an object, and its containers.

use serde_json::{Value, json};

/// The lists of a Pod's containers.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// A Pod, or the template of one.
pub struct Pod<'o> {
    pub(super) metadata: &'o Value,
    pub(super) spec: &'o Value,
}

/// A container, and where it is in the Pod.
pub(super) struct Container<'o> {
    pub(super) path: String,
    pub(super) value: &'o Value,
}

impl<'o> Pod<'o> {
    /// The Pod in an object; `None` for a kind without one.
    pub fn of(object: &'o Value) -> Option<Self> {
        let pointer = match object["kind"].as_str()? {
            "Pod" => "",
            "DaemonSet"
            | "Deployment"
            | "Job"
            | "ReplicaSet"
            | "ReplicationController"
            | "StatefulSet" => "/spec/template",
            "CronJob" => "/spec/jobTemplate/spec/template",
            "PodTemplate" => "/template",
            _ => return None,
        };
        let pod = object.pointer(pointer)?;
        Some(Self {
            metadata: &pod["metadata"],
            spec: &pod["spec"],
        })
    }

    pub(super) fn containers(&self) -> impl Iterator<Item = Container<'o>> {
        let spec = self.spec;
        CONTAINERS.into_iter().flat_map(move |list| {
            let containers = spec[list].as_array().map_or(&[][..], Vec::as_slice);
            let one = move |(at, value)| Container {
                path: format!("spec.{list}[{at}]"),
                value,
            };
            containers.iter().enumerate().map(one)
        })
    }

    /// Returns the Pod's spec with one empty container in place of its own containers. Checks of this spec find
    /// violations of the Pod itself, and of defaults that an empty container leaves unset.
    pub(super) fn spec_alone(&self) -> Value {
        let mut spec = self.spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|name, _| !CONTAINERS.contains(&name.as_str()));
            fields.insert("containers".to_owned(), json!([{ "name": "fake" }]));
        }
        spec
    }

    pub(super) fn volumes(&self) -> impl Iterator<Item = (usize, &'o Value)> {
        self.spec["volumes"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
    }

    pub(super) fn is_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }
}

impl Container<'_> {
    pub(super) fn image(&self) -> Option<String> {
        let image = self.value["image"].as_str().unwrap_or_default();
        Some(image.to_owned())
    }

    pub(super) fn security(&self) -> &Value {
        &self.value["securityContext"]
    }
}
