//! Catalogs made by hand and scripted facts, for tests of the engine and of its users.

#![allow(clippy::unwrap_used)] // These values are written here.

mod script;

use std::collections::BTreeMap;

use anteroom_model::{EntryRecord, GroupVersionResource, KindRecord, ObjectKey};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::{catalog::EntrySet, kinds::Kinds, policies::PolicySet};

pub use script::Script;

/// A namespaced kind with these subresources.
pub fn kind(gvr: [&str; 3], kind: &str, subresources: &[&str]) -> KindRecord {
    KindRecord {
        gvr: GroupVersionResource::new(gvr[0], gvr[1], gvr[2]),
        kind: kind.to_owned(),
        namespaced: true,
        subresources: subresources.iter().map(|s| (*s).to_owned()).collect(),
        preferred: true,
        watchable: true,
    }
}

/// Pods, Services, Deployments, and Ingresses of two versions.
pub fn kinds() -> Kinds {
    let pod = ["ephemeralcontainers", "exec", "resize", "status"];
    let ingress = |version| {
        kind(
            ["networking.k8s.io", version, "ingresses"],
            "Ingress",
            &["status"],
        )
    };
    Kinds::new(vec![
        kind(["", "v1", "pods"], "Pod", &pod),
        kind(["", "v1", "services"], "Service", &["status"]),
        kind(
            ["apps", "v1", "deployments"],
            "Deployment",
            &["scale", "status"],
        ),
        ingress("v1"),
        ingress("v1beta1"),
    ])
}

/// Returns the entries of these records.
pub fn entries(records: &[EntryRecord]) -> EntrySet {
    let body = |record: &EntryRecord| {
        let key = record.kind.key(&record.name);
        (key, anteroom_wire::body::encode(record).unwrap())
    };
    let bodies: BTreeMap<_, _> = records.iter().map(body).collect();
    let objects = bodies
        .iter()
        .map(|(key, body)| (&*key.namespace, &*key.name, &**body));
    EntrySet::build(&EntrySet::default(), objects)
}

/// Returns the manifest of a `ClusterPolicy` that denies `kinds`, as the log has it. `change` edits the manifest
/// first.
pub fn manifest(kinds: &[&str], change: impl FnOnce(&mut Value)) -> Bytes {
    let condition = json!({ "key": "a", "operator": "Equals", "value": "a" });
    let mut manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": "p" },
        "spec": {
            "validationFailureAction": "Enforce",
            "rules": [{
                "name": "r",
                "match": { "any": [{ "resources": { "kinds": kinds } }] },
                "validate": {
                    "message": "m",
                    "deny": { "conditions": { "all": [condition] } },
                },
            }],
        },
    });
    change(&mut manifest);
    anteroom_wire::body::encode_json(&manifest).unwrap()
}

/// The manifest of a policy that reads the entry of this name.
pub fn reading_entry(name: &str) -> Bytes {
    manifest(&["Ingress"], |manifest| {
        manifest["spec"]["rules"][0]["context"] = json!([
            { "name": "v", "cachedContextEntry": { "name": name } },
        ]);
    })
}

/// Returns the policies of these manifests, by name.
pub fn policies(manifests: Vec<(&str, Bytes)>) -> PolicySet {
    let keyed = manifests
        .into_iter()
        .map(|(name, body)| (ObjectKey::new("", name), body));
    PolicySet::build(&PolicySet::default(), keyed)
}
