//! The objects of a Kyverno installation, read from a cluster.

use anteroom_cel::plural_of_kind;
use anteroom_policy::PolicyKind;
use anyhow::{anyhow, bail};
use kube::Client;
use serde_json::Value;

use super::installation::NOT_RUN;
use crate::{asker::Asker, explain::MANIFESTS_MAX};

/// Versions of a group in which objects are asked for, the first that is served.
const VERSIONS: [&str; 6] = ["v1", "v2", "v2beta1", "v1beta1", "v2alpha1", "v1alpha1"];

/// Kinds beside policies, by group.
const BESIDE: [(&str, &str); 5] = [
    ("kyverno.io", "PolicyException"),
    ("policies.kyverno.io", "PolicyException"),
    ("kyverno.io", "GlobalContextEntry"),
    ("kyverno.io", "CachedContextEntry"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
];

/// Reads everything by the caller's own rights.
///
/// # Errors
/// Something cannot be read: what is not known is not taken for absent.
pub(super) async fn read(client: &Client, namespace: &str) -> anyhow::Result<Vec<Value>> {
    let asker = Asker(client);
    let mut found = Vec::new();
    let policies = PolicyKind::ALL.map(|kind| (kind.group(), kind.as_str()));
    for (group, kind) in policies.into_iter().chain(BESIDE).chain(NOT_RUN) {
        for version in VERSIONS {
            let api_version = format!("{group}/{version}");
            let path = format!("/apis/{api_version}/{}", plural_of_kind(kind));
            if let Some(items) = list(&asker, &path, &api_version, kind).await? {
                found.extend(items);
                break;
            }
        }
    }
    for (api, version, kind, plural) in [
        ("api/v1", "v1", "ConfigMap", "configmaps"),
        ("apis/apps/v1", "apps/v1", "Deployment", "deployments"),
    ] {
        let path = format!("/{api}/namespaces/{namespace}/{plural}");
        let items = list(&asker, &path, version, kind)
            .await?
            .unwrap_or_default();
        // An API server lists what is in a namespace that does not exist too.
        if items.is_empty() {
            bail!(
                "no {kind} is in the namespace {namespace}: say with --namespace where Kyverno runs"
            );
        }
        found.extend(items);
    }
    Ok(found)
}

/// Returns the objects at a path, each with its kind, which lists leave out; `None`: it is not served.
async fn list(
    asker: &Asker<'_>,
    path: &str,
    api_version: &str,
    kind: &str,
) -> anyhow::Result<Option<Vec<Value>>> {
    let items = asker
        .list(path)
        .await
        .map_err(|error| anyhow!("{path}: {error}"))?;
    let Some(mut items) = items else {
        return Ok(None);
    };
    if items.len() >= MANIFESTS_MAX {
        bail!("{path}: there are {MANIFESTS_MAX} objects or more");
    }
    for item in &mut items {
        if let Some(fields) = item.as_object_mut() {
            fields.insert("apiVersion".to_owned(), api_version.into());
            fields.insert("kind".to_owned(), kind.into());
        }
    }
    Ok(Some(items))
}
