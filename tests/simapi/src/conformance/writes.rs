//! Cases of writes.

use anyhow::{Context, ensure};
use serde_json::json;

use super::{
    Target, configmap, configmaps, definition, expect_status, in_namespace, namespace,
    resource_version,
};

pub(super) async fn conflicts(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let path = configmaps(&namespace);
    let first = configmap(target, &namespace, "a", json!({})).await?;
    let again = target
        .post(&path, &json!({"metadata": {"name": "a"}}))
        .await?;
    let status = expect_status(&again, 409, "AlreadyExists")?;
    ensure!(
        status["details"]["name"] == "a" && status["details"]["kind"] == "configmaps",
        "{status}"
    );
    let item = format!("{path}/a");
    let mut second = first.clone();
    second["data"]["a"] = "2".into();
    let second = target.put(&item, &second).await?.expect(200)?;
    ensure!(
        second["metadata"]["uid"] == first["metadata"]["uid"],
        "{second}"
    );
    expect_status(&target.put(&item, &first).await?, 409, "Conflict")?;
    let stale =
        json!({"metadata": {"resourceVersion": resource_version(&first)?}, "data": {"a": "3"}});
    expect_status(
        &target.patch(&item, "merge-patch+json", &stale).await?,
        409,
        "Conflict",
    )?;
    Ok(())
}

pub(super) async fn no_change(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let item = format!("{}/a", configmaps(&namespace));
    let made = configmap(target, &namespace, "a", json!({})).await?;
    let same = target
        .patch(&item, "merge-patch+json", &json!({"data": {"a": "1"}}))
        .await?
        .expect(200)?;
    ensure!(
        resource_version(&made)? == resource_version(&same)?,
        "a new version for no change: {same}"
    );
    Ok(())
}

pub(super) async fn status_subresource(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let (path, crd) = definition(target, "halves").await?;
    let own = in_namespace(&path, &namespace);
    let body = json!({"apiVersion": "conformance.anteroom.dev/v1", "kind": "Kindhalves",
        "metadata": {"name": "a"}, "spec": {"x": 1}, "status": {"y": 1}});
    let made = target.post(&own, &body).await?.expect(201)?;
    ensure!(
        made.get("status").is_none() && made["metadata"]["generation"] == 1,
        "{made}"
    );
    let item = format!("{own}/a");
    let both = json!({"spec": {"x": 2}, "status": {"y": 2}});
    let status = target
        .patch(&format!("{item}/status"), "merge-patch+json", &both)
        .await?
        .expect(200)?;
    ensure!(
        status["spec"]["x"] == 1 && status["status"]["y"] == 2,
        "{status}"
    );
    ensure!(status["metadata"]["generation"] == 1, "{status}");
    let both = json!({"spec": {"x": 3}, "status": {"y": 3}});
    let spec = target
        .patch(&item, "merge-patch+json", &both)
        .await?
        .expect(200)?;
    ensure!(spec["spec"]["x"] == 3 && spec["status"]["y"] == 2, "{spec}");
    ensure!(spec["metadata"]["generation"] == 2, "{spec}");
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = target
        .patch(&item, "merge-patch+json", &labelled)
        .await?
        .expect(200)?;
    ensure!(labelled["metadata"]["generation"] == 2, "{labelled}");
    let read = target.get(&format!("{item}/status")).await?.expect(200)?;
    ensure!(
        read["spec"]["x"] == 3,
        "the status subresource is the whole object: {read}"
    );
    target
        .delete(&format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}"
        ))
        .await?
        .expect(200)?;
    Ok(())
}

pub(super) async fn patches(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let path = configmaps(&namespace);
    configmap(target, &namespace, "a", json!({})).await?;
    let item = format!("{path}/a");
    let merged = target
        .patch(
            &item,
            "merge-patch+json",
            &json!({"data": {"a": null, "b": "2"}}),
        )
        .await?
        .expect(200)?;
    ensure!(merged["data"] == json!({"b": "2"}), "{merged}");
    let steps = json!([{"op": "test", "path": "/data/b", "value": "2"}, {"op": "add", "path": "/data/c", "value": "3"}]);
    let patched = target
        .patch(&item, "json-patch+json", &steps)
        .await?
        .expect(200)?;
    ensure!(patched["data"] == json!({"b": "2", "c": "3"}), "{patched}");
    let failing = json!([{"op": "test", "path": "/data/b", "value": "3"}]);
    expect_status(
        &target.patch(&item, "json-patch+json", &failing).await?,
        422,
        "Invalid",
    )?;
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"x": "1"}});
    let query = "fieldManager=conformance&force=true";
    let made = target
        .patch(&format!("{path}/new?{query}"), "apply-patch+yaml", &applied)
        .await?
        .expect(201)?;
    ensure!(made["data"]["x"] == "1", "{made}");
    let again = target
        .patch(&format!("{path}/new?{query}"), "apply-patch+yaml", &applied)
        .await?
        .expect(200)?;
    ensure!(
        resource_version(&again)? == resource_version(&made)?,
        "applied again: {again}"
    );
    Ok(())
}

pub(super) async fn failures(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let path = configmaps(&namespace);
    let missing = target.get(&format!("{path}/none")).await?;
    let status = expect_status(&missing, 404, "NotFound")?;
    ensure!(
        status["details"]["name"] == "none" && status["details"]["kind"] == "configmaps",
        "{status}"
    );
    let nowhere = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let lost = target
        .post("/api/v1/namespaces/no-such-namespace/configmaps", &nowhere)
        .await?;
    let status = expect_status(&lost, 404, "NotFound")?;
    ensure!(status["details"]["kind"] == "namespaces", "{status}");
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    expect_status(&target.post(&path, &other).await?, 400, "BadRequest").context("another kind")?;
    let renamed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "elsewhere"}});
    expect_status(&target.post(&path, &renamed).await?, 400, "BadRequest")
        .context("another namespace")?;
    // Within a group that is served a Status, elsewhere plain text.
    for path in [
        "/api/v1/nothings",
        "/apis/apps/v1/nothings",
        "/apis/apps/v9",
    ] {
        expect_status(&target.get(path).await?, 404, "NotFound").context(path)?;
    }
    let answer = target.get("/apis/none.anteroom.dev/v1/things").await?;
    ensure!(answer.code == 404 && answer.body.is_string(), "{answer:?}");
    let deleted = target.delete(&format!("{path}/none")).await?;
    expect_status(&deleted, 404, "NotFound")?;
    Ok(())
}
