//! Applying manifests, as `kubectl apply --server-side` does.

use std::{fs, path::Path};

use anyhow::{Context, bail};
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{stock::STOCK, wait};

/// Reads every document of every YAML file in a folder of `deploy/`, in the files' order.
pub fn read(folder: &str) -> anyhow::Result<Vec<Value>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy")
        .join(folder);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .map(|item| item.map(|item| item.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|e| e == "yaml"));
    files.sort();
    let mut documents = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        documents.extend(parse(&text).with_context(|| format!("in {}", file.display()))?);
    }
    Ok(documents)
}

/// Reads the objects of `deploy/install/default.yaml`.
pub fn installed() -> anyhow::Result<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/install/default.yaml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    parse(&text)
}

/// The RBAC of an installation, aggregated: a bare API server has no controller manager to fill
/// in a ClusterRole's `aggregationRule`.
pub fn rbac() -> anyhow::Result<Vec<Value>> {
    let mut manifests = installed()?;
    manifests.retain(|manifest| {
        matches!(
            manifest["kind"].as_str(),
            Some("ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding")
        )
    });
    let parts = manifests.clone();
    for role in &mut manifests {
        let Some(selectors) = role["aggregationRule"]["clusterRoleSelectors"].as_array() else {
            continue;
        };
        let wanted = |part: &&Value| {
            selectors
                .iter()
                .filter_map(|selector| selector["matchLabels"].as_object())
                .any(|labels| {
                    labels
                        .iter()
                        .all(|(name, value)| part["metadata"]["labels"][name] == *value)
                })
        };
        let rules: Vec<Value> = parts
            .iter()
            .filter(wanted)
            .filter_map(|part| part["rules"].as_array())
            .flatten()
            .cloned()
            .collect();
        role["rules"] = Value::Array(rules);
        if let Some(role) = role.as_object_mut() {
            role.remove("aggregationRule");
        }
    }
    Ok(manifests)
}

/// The ClusterRole by which an administrator lets the watcher read more, aggregated: the stock of
/// tests, and whatever else is given as (group, plural).
pub fn watcher_may_read(more: &[(&str, &str)]) -> Value {
    let stock = STOCK.iter().map(|of| (of.group, of.plural));
    let rules: Vec<Value> = stock
        .chain(more.iter().copied())
        .map(|(group, plural)| {
            json!({ "apiGroups": [group], "resources": [plural],
                "verbs": ["get", "list", "watch"] })
        })
        .collect();
    json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-added" }, "rules": rules })
}

/// Every document of a YAML text.
pub fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

/// Applies one manifest whose kind the API server serves.
pub async fn apply(client: &Client, manifest: &Value) -> anyhow::Result<()> {
    let (api, name) = named(client, manifest)?;
    let what = format!("{} {name}", manifest["kind"]);
    api.patch(
        &name,
        &PatchParams::apply("anteroom-e2e").force(),
        &Patch::Apply(manifest),
    )
    .await
    .with_context(|| format!("applying {what}"))?;
    Ok(())
}

/// Asks the API server whether it would take a manifest: unknown fields are errors, and nothing is stored.
pub async fn would_apply(client: &Client, manifest: &Value) -> anyhow::Result<()> {
    let (api, name) = named(client, manifest)?;
    let mut parameters = PatchParams::apply("anteroom-e2e-dry")
        .force()
        .validation_strict();
    parameters.dry_run = true;
    api.patch(&name, &parameters, &Patch::Apply(manifest))
        .await
        .with_context(|| format!("{} {name}", manifest["kind"]))?;
    Ok(())
}

/// Deletes what was applied.
pub async fn delete(client: &Client, manifest: &Value) -> anyhow::Result<()> {
    let (api, name) = named(client, manifest)?;
    let deleted = api.delete(&name, &Default::default()).await;
    deleted.with_context(|| format!("deleting {} {name}", manifest["kind"]))?;
    Ok(())
}

/// Returns the API of a manifest's object, and the object's name.
fn named(client: &Client, manifest: &Value) -> anyhow::Result<(Api<DynamicObject>, String)> {
    let metadata = &manifest["metadata"];
    let name = metadata["name"].as_str();
    let name = name.context("a manifest without metadata.name")?.to_owned();
    let resource = resource_of(manifest)?;
    let api = match metadata["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Ok((api, name))
}

/// Makes a namespace.
pub async fn apply_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let manifest = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    apply(client, &manifest).await
}

/// Applies the CRDs of `deploy/chart/files/crds` and waits until all of them are served.
pub async fn apply_crds(client: &Client) -> anyhow::Result<()> {
    for crd in read("chart/files/crds")? {
        apply(client, &crd).await?;
        let spec = &crd["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let path = format!(
            "/apis/{}/{}/{}",
            text(&spec["group"]),
            text(&spec["versions"][0]["name"]),
            text(&spec["names"]["plural"])
        );
        wait::until(&format!("{path} to be served"), async || {
            client
                .request_text(http::Request::get(&path).body(Vec::new())?)
                .await?;
            anyhow::Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The resource of a manifest, by the API's own convention for plurals.
fn resource_of(manifest: &Value) -> anyhow::Result<ApiResource> {
    let (Some(api_version), Some(kind)) =
        (manifest["apiVersion"].as_str(), manifest["kind"].as_str())
    else {
        bail!("a manifest without apiVersion or kind: {manifest}");
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Ok(ApiResource::from_gvk(&GroupVersionKind::gvk(
        group, version, kind,
    )))
}
