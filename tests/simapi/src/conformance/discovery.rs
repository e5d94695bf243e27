//! Cases of discovery.

use anyhow::{Context, ensure};
use serde_json::Value;

use super::Target;

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

fn find<'a>(list: &'a Value, field: &str, value: &str) -> anyhow::Result<&'a Value> {
    let items = list.as_array().context("no list")?;
    let found = items.iter().find(|item| item[field] == value);
    found.with_context(|| format!("none with {field} {value}: {list}"))
}

pub(super) async fn both_shapes(target: &Target) -> anyhow::Result<()> {
    let groups = target.get("/apis").await?.expect(200)?;
    let networking = find(&groups["groups"], "name", "networking.k8s.io")?;
    ensure!(
        networking["preferredVersion"]["groupVersion"] == "networking.k8s.io/v1",
        "{networking}"
    );
    let group = target.get("/apis/networking.k8s.io").await?.expect(200)?;
    ensure!(
        group["kind"] == "APIGroup" && group["preferredVersion"]["version"] == "v1",
        "{group}"
    );
    let resources = target
        .get("/apis/networking.k8s.io/v1")
        .await?
        .expect(200)?;
    let ingresses = find(&resources["resources"], "name", "ingresses")?;
    ensure!(
        ingresses["namespaced"] == true && ingresses["kind"] == "Ingress",
        "{ingresses}"
    );
    ensure!(ingresses["singularName"] == "ingress", "{ingresses}");
    find(&resources["resources"], "name", "ingresses/status")?;
    let core = target.get("/api/v1").await?.expect(200)?;
    ensure!(
        find(&core["resources"], "name", "namespaces")?["namespaced"] == false,
        "{core}"
    );
    ensure!(
        target.get("/apis/none.anteroom.dev").await?.code == 404,
        "a group that is not served"
    );

    let all = target.get_as("/apis", AGGREGATED).await?;
    let content_type = all
        .headers
        .get("content-type")
        .and_then(|value| value.to_str().ok());
    ensure!(
        content_type.is_some_and(|of| of.contains("as=APIGroupDiscoveryList")),
        "{content_type:?}"
    );
    let all = all.expect(200)?;
    let items = all["items"].as_array().context("no items")?;
    let networking = items
        .iter()
        .find(|group| group["metadata"]["name"] == "networking.k8s.io");
    let version = find(
        &networking.context("no group")?["versions"],
        "version",
        "v1",
    )?;
    let ingresses = find(&version["resources"], "resource", "ingresses")?;
    ensure!(
        ingresses["responseKind"]["kind"] == "Ingress" && ingresses["scope"] == "Namespaced",
        "{ingresses}"
    );
    find(&ingresses["subresources"], "subresource", "status")?;
    let core = target.get_as("/api", AGGREGATED).await?.expect(200)?;
    let version = find(&core["items"][0]["versions"], "version", "v1")?;
    ensure!(
        find(&version["resources"], "resource", "namespaces")?["scope"] == "Cluster",
        "{version}"
    );
    Ok(())
}
