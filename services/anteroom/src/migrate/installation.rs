//! The objects of a Kyverno installation, sorted by what they are. Pure.

use anteroom_policy::PolicyKind;
use anyhow::bail;
use serde_json::Value;

use super::kinds::Kinds;
use crate::explain::{MANIFESTS_MAX, Manifests};

/// Kinds of policies that no part of Anteroom runs, by group.
pub(super) const NOT_RUN: [(&str, &str); 8] = [
    ("kyverno.io", "CleanupPolicy"),
    ("kyverno.io", "ClusterCleanupPolicy"),
    ("policies.kyverno.io", "DeletingPolicy"),
    ("policies.kyverno.io", "GeneratingPolicy"),
    ("policies.kyverno.io", "ImageValidatingPolicy"),
    ("policies.kyverno.io", "NamespacedDeletingPolicy"),
    ("policies.kyverno.io", "NamespacedGeneratingPolicy"),
    ("policies.kyverno.io", "NamespacedImageValidatingPolicy"),
];

/// The keys by which Kyverno's ConfigMap is recognised, since its name may be changed: the ConfigMap has at least
/// one.
const CONFIG_KEYS: [&str; 3] = [
    "resourceFilters",
    "enableDefaultRegistryMutation",
    "webhooks",
];

/// A Deployment of Kyverno's that has a like here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KyvernoDeployment {
    Admission,
    Reports,
}

impl KyvernoDeployment {
    /// The end of the Deployment's name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission-controller",
            Self::Reports => "reports-controller",
        }
    }
}

/// The installed objects, in the order of kinds, namespaces and names.
#[derive(Debug, Default)]
pub(super) struct Installation {
    /// Policies that Anteroom knows, and entries.
    pub(super) manifests: Manifests,
    /// The entries as they are written.
    pub(super) entries: Vec<Value>,
    pub(super) exceptions: Vec<Value>,
    /// Policies of kinds that are not run.
    pub(super) not_run: Vec<Value>,
    /// Kyverno's ConfigMap; more than one where several files have one.
    pub(super) config: Vec<Value>,
    pub(super) deployments: Vec<(KyvernoDeployment, Value)>,
    pub(super) kinds: Kinds,
}

impl Installation {
    /// Sorts documents. What is not of Kyverno is passed over, Secrets among it.
    pub(super) fn of(mut documents: Vec<Value>) -> anyhow::Result<Self> {
        documents.sort_by_cached_key(|one| (title(one), text(one, "/apiVersion")));
        let (mut found, mut policies) = (Self::default(), Vec::new());
        for document in documents {
            let (version, kind) = (text(&document, "/apiVersion"), text(&document, "/kind"));
            let group = version.split_once('/').map_or("", |(group, _)| group);
            match (group, &*kind) {
                known if NOT_RUN.contains(&known) => found.not_run.push(document),
                _ if PolicyKind::of_manifest(&version, &kind).is_some() => policies.push(document),
                ("kyverno.io" | "policies.kyverno.io", "PolicyException") => {
                    found.exceptions.push(document);
                }
                ("kyverno.io", "GlobalContextEntry" | "CachedContextEntry") => {
                    found.entries.push(document);
                }
                ("", "ConfigMap") if is_config(&document) => found.config.push(document),
                ("apps", "Deployment") => found.take_deployment(document),
                ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                    found.kinds.learn(&document);
                }
                _ => {}
            }
        }
        let others = found.not_run.len() + found.exceptions.len();
        if others > MANIFESTS_MAX {
            bail!("there are more than {MANIFESTS_MAX} manifests: name fewer files");
        }
        policies.extend(found.entries.iter().cloned());
        if others + policies.len() + found.config.len() + found.deployments.len() == 0 {
            bail!("there is nothing of Kyverno's in what was given");
        }
        found.manifests = Manifests::of(policies)?;
        Ok(found)
    }

    fn take_deployment(&mut self, document: Value) {
        let name = text(&document, "/metadata/name");
        let of_kyverno = text(&document, "/metadata/labels/app.kubernetes.io~1part-of");
        let is_kyvernos = name.contains("kyverno") || of_kyverno.contains("kyverno");
        let mut parts = [KyvernoDeployment::Admission, KyvernoDeployment::Reports].into_iter();
        let part = parts.find(|part| name.ends_with(part.name()));
        if let Some(part) = part.filter(|_| is_kyvernos) {
            self.deployments.push((part, document));
        }
    }
}

fn is_config(config_map: &Value) -> bool {
    CONFIG_KEYS
        .iter()
        .any(|key| config_map["data"][key].is_string())
}

/// Returns the text at a pointer, empty if there is none.
pub(super) fn text(value: &Value, pointer: &str) -> String {
    let text = value.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Returns the name, with the namespace before it if there is one.
pub(super) fn full_name(manifest: &Value) -> String {
    let name = text(manifest, "/metadata/name");
    match text(manifest, "/metadata/namespace") {
        namespace if namespace.is_empty() => name,
        namespace => format!("{namespace}/{name}"),
    }
}

/// Returns kind and name, for people.
pub(super) fn title(manifest: &Value) -> String {
    format!("{} {}", text(manifest, "/kind"), full_name(manifest))
}
