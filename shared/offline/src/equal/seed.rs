//! The objects at which variations begin: given objects, the controllers of given Pods, and minimal objects of kinds
//! without a given object.

use serde_json::{Value, json};

use super::{
    value_path::{Pointer, PointerStep, get},
    vocabulary::Vocabulary,
};
use crate::resource::Resource;

/// An object that requests are made from.
#[derive(Debug)]
pub(super) struct Seed {
    pub(super) object: Value,
    /// Its name for people.
    pub(super) title: String,
    /// The plural of its kind.
    pub(super) plural: String,
    /// The object was generated rather than given, so few requests are spent on the object.
    pub(super) is_made: bool,
}

/// Kinds that make Pods, with their versions. The last one has a template within a template.
const CONTROLLERS: &[(&str, &str)] = &[
    ("apps/v1", "Deployment"),
    ("batch/v1", "CronJob"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("v1", "ReplicationController"),
];

/// The controllers of which the template is varied.
const VARIED: usize = 2;

/// Plurals, versions and kinds of the API server's own groups that policies are most often about.
const KINDS: &[(&str, &str, &str)] = &[
    (
        "clusterrolebindings",
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
    ),
    (
        "clusterroles",
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
    ),
    ("configmaps", "v1", "ConfigMap"),
    ("cronjobs", "batch/v1", "CronJob"),
    ("daemonsets", "apps/v1", "DaemonSet"),
    ("deployments", "apps/v1", "Deployment"),
    (
        "horizontalpodautoscalers",
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
    ),
    ("ingresses", "networking.k8s.io/v1", "Ingress"),
    ("jobs", "batch/v1", "Job"),
    ("namespaces", "v1", "Namespace"),
    ("networkpolicies", "networking.k8s.io/v1", "NetworkPolicy"),
    ("nodes", "v1", "Node"),
    ("persistentvolumeclaims", "v1", "PersistentVolumeClaim"),
    ("persistentvolumes", "v1", "PersistentVolume"),
    ("poddisruptionbudgets", "policy/v1", "PodDisruptionBudget"),
    ("pods", "v1", "Pod"),
    ("replicasets", "apps/v1", "ReplicaSet"),
    ("replicationcontrollers", "v1", "ReplicationController"),
    (
        "rolebindings",
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
    ),
    ("roles", "rbac.authorization.k8s.io/v1", "Role"),
    ("secrets", "v1", "Secret"),
    ("serviceaccounts", "v1", "ServiceAccount"),
    ("services", "v1", "Service"),
    ("statefulsets", "apps/v1", "StatefulSet"),
    ("storageclasses", "storage.k8s.io/v1", "StorageClass"),
];

/// Returns the seeds: the given objects first, then bare ones, then controllers.
pub(super) fn seeds(given: &[Resource], vocabulary: &Vocabulary) -> Vec<Seed> {
    let seed = |resource: &Resource, is_made| Seed {
        object: resource.value.clone(),
        title: resource.title(),
        plural: resource.plural.clone(),
        is_made,
    };
    let mut seeds: Vec<_> = given.iter().map(|resource| seed(resource, false)).collect();
    for named in &vocabulary.kinds {
        if let Some(bare) = bare(named).and_then(Resource::new)
            && !seeds.iter().any(|own| own.object["kind"] == *bare.kind)
        {
            seeds.push(seed(&bare, true));
        }
    }
    let is_pod = |seed: &&Seed| seed.object["kind"] == "Pod" && seed.object["apiVersion"] == "v1";
    let pods: Vec<_> = seeds
        .iter()
        .filter(is_pod)
        .map(|seed| seed.object.clone())
        .collect();
    for (at, (version, kind)) in CONTROLLERS.iter().enumerate() {
        let pods = pods.iter().take(if at < VARIED { pods.len() } else { 1 });
        for controller in pods.filter_map(|pod| Resource::new(controller(version, kind, pod))) {
            seeds.push(seed(&controller, true));
        }
    }
    seeds
}

/// The controller that makes a Pod.
fn controller(version: &str, kind: &str, pod: &Value) -> Value {
    let mut metadata = pod["metadata"].clone();
    let (name, namespace) = (metadata["name"].clone(), metadata["namespace"].clone());
    if let Value::Object(fields) = &mut metadata {
        fields.remove("name");
        fields.remove("namespace");
    }
    let template = json!({"metadata": metadata, "spec": pod["spec"]});
    let spec = match kind {
        "CronJob" => {
            json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}})
        }
        _ => json!({"template": template}),
    };
    json!({
        "apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

/// A bare object of a kind as a rule names it, or of a plural.
fn bare(named: &str) -> Option<Value> {
    let parts: Vec<_> = named.split('/').collect();
    let named = |name: &str| name.starts_with(|c: char| c.is_ascii_uppercase());
    let (version, kind) = match (parts.iter().position(|part| named(part)), &*parts) {
        (Some(at), parts) if at + 1 == parts.len() => {
            let kind = parts[at];
            match KINDS.iter().find(|(_, _, known)| *known == kind) {
                Some((_, version, _)) if at == 0 => ((*version).to_owned(), kind),
                _ if at > 0 => (parts[..at].join("/").replace('*', "v1"), kind),
                _ => return None,
            }
        }
        (None, [plural]) => {
            let (_, version, kind) = KINDS.iter().find(|(known, ..)| known == plural)?;
            ((*version).to_owned(), *kind)
        }
        _ => return None,
    };
    if kind.contains(['*', '?']) {
        return None;
    }
    let metadata = json!({"name": "made"});
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
    let containers = json!([{"name": "c", "image": "registry.io/app:1.0"}]);
    if kind == "Pod" {
        object["spec"] = json!({"containers": containers});
    } else if makes_pods(&object) {
        let pod = json!({"metadata": object["metadata"], "spec": {"containers": containers}});
        return Some(controller(&version, kind, &pod));
    }
    Some(object)
}

/// Returns whether an object is of a kind that makes Pods.
pub(super) fn makes_pods(object: &Value) -> bool {
    let mut all = CONTROLLERS.iter();
    all.any(|(version, kind)| object["kind"] == *kind && object["apiVersion"] == *version)
}

/// Returns where policies may begin to read an object: at itself, and at the template of a Pod in it.
pub(super) fn roots(object: &Value) -> Vec<Pointer> {
    let field = |names: &[&str]| -> Pointer {
        names
            .iter()
            .map(|name| PointerStep::Field((*name).into()))
            .collect()
    };
    let all = [
        field(&[]),
        field(&["spec", "template"]),
        field(&["spec", "jobTemplate", "spec", "template"]),
    ];
    let is_root = |root: &Pointer| {
        root.is_empty() || get(object, root).is_some_and(|inside| inside["spec"].is_object())
    };
    all.into_iter().filter(is_root).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_without_an_object_get_a_bare_one_and_pods_their_controllers() {
        let mut vocabulary = Vocabulary::default();
        vocabulary.kinds.extend(
            [
                "Pod",
                "apps/*/Deployment",
                "cert.io/v1/Issuer",
                "Pod/exec",
                "*",
                "ingresses",
                "Unknown",
                "pods/exec",
            ]
            .map(str::to_owned),
        );
        let given = Resource::new(
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}}),
        );
        let seeds = seeds(&[given.unwrap()], &vocabulary);
        let titles: Vec<_> = seeds.iter().map(|seed| &*seed.title).collect();
        assert_eq!(titles[0], "Ingress/default/i");
        for expected in [
            "Pod/default/made",
            "Issuer/default/made",
            "CronJob/default/made",
            "Job/default/made",
        ] {
            assert!(titles.contains(&expected), "{expected}: {titles:?}");
        }
        assert_eq!(
            titles
                .iter()
                .filter(|title| title.starts_with("Ingress"))
                .count(),
            1
        );
        let cron = seeds
            .iter()
            .find(|seed| seed.title.starts_with("CronJob"))
            .unwrap();
        assert_eq!(roots(&cron.object).len(), 2);
    }
}
