//! Cases of WATCH.

use anyhow::{Context, ensure};
use serde_json::json;

use super::{Target, configmap, configmaps, definition, in_namespace, namespace, resource_version};

const ANNOTATION: &str = "/object/metadata/annotations/k8s.io~1initial-events-end";

pub(super) async fn from_a_list(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let path = configmaps(&namespace);
    configmap(target, &namespace, "before", json!({})).await?;
    let list = target.get(&path).await?.expect(200)?;
    let since = resource_version(&list)?;
    configmap(target, &namespace, "a", json!({})).await?;
    let mut watch = target
        .watch(&format!(
            "{path}?watch=true&allowWatchBookmarks=true&resourceVersion={since}"
        ))
        .await?;
    let added = watch.expect("ADDED", "a").await?;
    ensure!(
        added["kind"] == "ConfigMap" && added["apiVersion"] == "v1",
        "an event's object: {added}"
    );
    let patched = target
        .patch(
            &format!("{path}/a"),
            "merge-patch+json",
            &json!({"data": {"a": "2"}}),
        )
        .await?
        .expect(200)?;
    let modified = watch.expect("MODIFIED", "a").await?;
    ensure!(
        resource_version(&modified)? == resource_version(&patched)?,
        "{modified} {patched}"
    );
    target.delete(&format!("{path}/a")).await?.expect(200)?;
    let deleted = watch.expect("DELETED", "a").await?;
    // The last state, as of the deletion's own version.
    let number = |version: String| {
        version
            .parse::<u64>()
            .context("a version that is no number")
    };
    ensure!(deleted["data"]["a"] == "2", "{deleted}");
    ensure!(
        number(resource_version(&deleted)?)? > number(resource_version(&modified)?)?,
        "{deleted}"
    );
    Ok(())
}

pub(super) async fn from_nothing(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let path = configmaps(&namespace);
    configmap(target, &namespace, "a", json!({"own": "x"})).await?;
    for query in ["", "&resourceVersion=0"] {
        let mut watch = target
            .watch(&format!("{path}?watch=true&labelSelector=own{query}"))
            .await?;
        watch.expect("ADDED", "a").await.context(query)?;
    }
    Ok(())
}

pub(super) async fn streamed_list(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let path = configmaps(&namespace);
    for name in ["a", "b"] {
        configmap(target, &namespace, name, json!({"own": "x"})).await?;
    }
    let query = "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=own";
    let mut watch = target.watch(&format!("{path}?{query}")).await?;
    let mut names = Vec::new();
    let bookmark = loop {
        let event = watch.next().await?.context("the watch ended")?;
        if event["type"] == "BOOKMARK" && event.pointer(ANNOTATION).is_some() {
            break event;
        }
        ensure!(event["type"] == "ADDED", "{event}");
        names.push(event["object"]["metadata"]["name"].clone());
    };
    names.sort_by_key(ToString::to_string);
    ensure!(names == ["a", "b"], "{names:?}");
    ensure!(
        bookmark
            .pointer(ANNOTATION)
            .is_some_and(|end| end == "true"),
        "{bookmark}"
    );
    ensure!(bookmark["object"]["kind"] == "ConfigMap", "{bookmark}");
    let since = resource_version(&bookmark["object"])?;
    let mut later = target
        .watch(&format!("{path}?watch=true&resourceVersion={since}"))
        .await?;
    configmap(target, &namespace, "c", json!({"own": "x"})).await?;
    watch.expect("ADDED", "c").await?;
    later
        .expect("ADDED", "c")
        .await
        .context("from the bookmark")?;
    Ok(())
}

pub(super) async fn selection_changes(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let path = configmaps(&namespace);
    let list = target.get(&path).await?.expect(200)?;
    let since = resource_version(&list)?;
    let mut watch = target
        .watch(&format!(
            "{path}?watch=true&labelSelector=in%3Dyes&resourceVersion={since}"
        ))
        .await?;
    configmap(target, &namespace, "a", json!({"in": "no"})).await?;
    let label = |value: &str| json!({"metadata": {"labels": {"in": value}}});
    let item = format!("{path}/a");
    target
        .patch(&item, "merge-patch+json", &label("yes"))
        .await?
        .expect(200)?;
    watch.expect("ADDED", "a").await?;
    let left = target
        .patch(&item, "merge-patch+json", &label("no"))
        .await?
        .expect(200)?;
    let deleted = watch.expect("DELETED", "a").await?;
    ensure!(
        deleted["metadata"]["labels"]["in"] == "yes",
        "the last state that was selected: {deleted}"
    );
    ensure!(
        resource_version(&deleted)? == resource_version(&left)?,
        "{deleted} {left}"
    );
    Ok(())
}

pub(super) async fn too_old(target: &Target) -> anyhow::Result<()> {
    // A resource whose history surely begins later than version 1.
    let (path, crd) = definition(target, "histories").await?;
    let mut watch = target
        .watch(&format!("{path}?watch=true&resourceVersion=1"))
        .await?;
    let (kind, status) = watch.next_change().await?;
    ensure!(kind == "ERROR", "{kind} {status}");
    ensure!(
        status["kind"] == "Status" && status["code"] == 410,
        "{status}"
    );
    ensure!(
        status["reason"] == "Expired" || status["reason"] == "Gone",
        "{status}"
    );
    target
        .delete(&format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}"
        ))
        .await?
        .expect(200)?;
    Ok(())
}

pub(super) async fn ends_at_timeout(target: &Target) -> anyhow::Result<()> {
    let path = configmaps(&namespace(target).await?);
    let list = target.get(&path).await?.expect(200)?;
    let since = resource_version(&list)?;
    let mut watch = target
        .watch(&format!(
            "{path}?watch=true&timeoutSeconds=1&resourceVersion={since}"
        ))
        .await?;
    watch.end().await
}

pub(super) async fn definition_deleted(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let (path, crd) = definition(target, "passings").await?;
    let body = json!({"apiVersion": "conformance.anteroom.dev/v1", "kind": "Kindpassings", "metadata": {"name": "a"}});
    target
        .post(&in_namespace(&path, &namespace), &body)
        .await?
        .expect(201)?;
    let mut watch = target.watch(&format!("{path}?watch=true")).await?;
    watch.expect("ADDED", "a").await?;
    target
        .delete(&format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}"
        ))
        .await?
        .expect(200)?;
    watch.end().await?;
    target.until(&path, 404).await
}
