//! Cases of LIST.

use anyhow::{Context, ensure};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{
    Target, configmap, configmaps, definition, expect_status, in_namespace, names, namespace,
    resource_version, text,
};

async fn five(target: &Target) -> anyhow::Result<String> {
    let namespace = namespace(target).await?;
    for name in ["a", "b", "c", "d", "e"] {
        configmap(target, &namespace, name, json!({})).await?;
    }
    Ok(configmaps(&namespace))
}

/// The names of a list that the server itself may have put more into.
fn own(list: &Value) -> Vec<&str> {
    names(list)
        .into_iter()
        .filter(|name| name.len() == 1)
        .collect()
}

pub(super) async fn pages_are_of_one_moment(target: &Target) -> anyhow::Result<()> {
    let path = five(target).await?;
    let first = target.get(&format!("{path}?limit=2")).await?.expect(200)?;
    ensure!(names(&first) == ["a", "b"], "first page: {first}");
    // What happens between two pages is in neither.
    target.delete(&format!("{path}/d")).await?.expect(200)?;
    target
        .post(&path, &json!({"metadata": {"name": "cc"}}))
        .await?
        .expect(201)?;
    let token = text(&first, "/metadata/continue")?;
    let rest = target
        .get(&format!("{path}?limit=500&continue={token}"))
        .await?
        .expect(200)?;
    ensure!(
        own(&rest) == ["c", "d", "e"] && !names(&rest).contains(&"cc"),
        "rest: {rest}"
    );
    ensure!(
        rest["metadata"]
            .get("continue")
            .is_none_or(|token| token == ""),
        "more after the last: {rest}"
    );
    ensure!(
        resource_version(&first)? == resource_version(&rest)?,
        "versions differ: {first} {rest}"
    );
    let now = target.get(&path).await?.expect(200)?;
    ensure!(
        names(&now).contains(&"cc") && own(&now) == ["a", "b", "c", "e"],
        "now: {now}"
    );
    Ok(())
}

pub(super) async fn expired_token(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let refused = target
        .get(&format!(
            "{}?limit=2&continue=no-token",
            configmaps(&namespace)
        ))
        .await?;
    expect_status(&refused, 400, "BadRequest")?;
    let Some(compact) = &target.compact else {
        return Ok(());
    };
    // The resource is so young that no cache can know its first versions.
    let (path, crd) = definition(target, "expirings").await?;
    let path = in_namespace(&path, &namespace);
    for name in ["a", "b", "c", "d"] {
        let body = json!({"apiVersion": "conformance.anteroom.dev/v1", "kind": "Kindexpirings", "metadata": {"name": name}});
        target.post(&path, &body).await?.expect(201)?;
    }
    let first = target.get(&format!("{path}?limit=2")).await?.expect(200)?;
    let token = aged(&text(&first, "/metadata/continue")?)?;
    target.delete(&format!("{path}/c")).await?.expect(200)?;
    compact().await?;
    let expired = target
        .get(&format!("{path}?limit=500&continue={token}"))
        .await?;
    let status = expect_status(&expired, 410, "Expired")?;
    let token = text(&status, "/metadata/continue").context("no way to go on")?;
    let rest = target
        .get(&format!("{path}?limit=500&continue={token}"))
        .await?
        .expect(200)?;
    ensure!(names(&rest) == ["d"], "the rest of now: {rest}");
    target
        .delete(&format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}"
        ))
        .await?
        .expect(200)?;
    Ok(())
}

/// The same token from the first version of all: a server may remember more than its storage does,
/// but not that.
fn aged(token: &str) -> anyhow::Result<String> {
    let mut content: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(token)?)?;
    content["rv"] = 1.into();
    Ok(BASE64_URL_SAFE_NO_PAD.encode(content.to_string()))
}

pub(super) async fn selectors(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let path = configmaps(&namespace);
    for (name, labels) in [
        ("a", json!({"app": "x", "tier": "1"})),
        ("b", json!({"app": "y"})),
        ("c", json!({"other": ""})),
    ] {
        configmap(target, &namespace, name, labels).await?;
    }
    for (query, expected) in [
        ("labelSelector=app%3Dx", &["a"][..]),
        ("labelSelector=app%20in%20(x,y)", &["a", "b"]),
        ("labelSelector=app%20notin%20(x)%2Cother", &["c"]),
        ("labelSelector=!app%2Cother", &["c"]),
        ("labelSelector=app!%3Dx%2Capp", &["b"]),
        ("fieldSelector=metadata.name%3Db", &["b"]),
        ("fieldSelector=metadata.name!%3Db&labelSelector=app", &["a"]),
    ] {
        let list = target.get(&format!("{path}?{query}")).await?.expect(200)?;
        ensure!(own(&list) == expected, "{query}: {list}");
    }
    let across = format!(
        "/api/v1/configmaps?fieldSelector=metadata.namespace%3D{namespace},metadata.name%3Da"
    );
    ensure!(
        names(&target.get(&across).await?.expect(200)?) == ["a"],
        "over all namespaces"
    );
    for query in ["labelSelector=a%20b", "fieldSelector=spec.nothing%3D1"] {
        expect_status(
            &target.get(&format!("{path}?{query}")).await?,
            400,
            "BadRequest",
        )
        .context(query)?;
    }
    Ok(())
}

pub(super) async fn bad_options(target: &Target) -> anyhow::Result<()> {
    let path = configmaps(&namespace(target).await?);
    for (query, code, reason) in [
        ("resourceVersionMatch=Exact", 422, "Invalid"),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            422,
            "Invalid",
        ),
        (
            "resourceVersionMatch=Latest&resourceVersion=1",
            422,
            "Invalid",
        ),
        ("watch=true&sendInitialEvents=true", 422, "Invalid"),
        (
            "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
            422,
            "Invalid",
        ),
        ("limit=x", 400, "BadRequest"),
    ] {
        let answer = target.get(&format!("{path}?{query}")).await?;
        expect_status(&answer, code, reason).context(query)?;
    }
    Ok(())
}

pub(super) async fn item_shape(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    configmap(target, &namespace, "a", json!({})).await?;
    let list = target.get(&configmaps(&namespace)).await?.expect(200)?;
    ensure!(
        list["kind"] == "ConfigMapList" && list["apiVersion"] == "v1",
        "list: {list}"
    );
    ensure!(
        list["items"][0].get("kind").is_none(),
        "a built-in item: {list}"
    );
    let (path, crd) = definition(target, "shapes").await?;
    let own = in_namespace(&path, &namespace);
    target
        .post(
            &own,
            &json!({"apiVersion": "conformance.anteroom.dev/v1", "kind": "Kindshapes",
        "metadata": {"name": "a"}}),
        )
        .await?
        .expect(201)?;
    let list = target.get(&path).await?.expect(200)?;
    ensure!(list["kind"] == "KindshapesList", "list: {list}");
    ensure!(
        list["items"][0]["kind"] == "Kindshapes",
        "a custom item: {list}"
    );
    target
        .delete(&format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}"
        ))
        .await?
        .expect(200)?;
    Ok(())
}

pub(super) async fn future_version(target: &Target) -> anyhow::Result<()> {
    let namespace = namespace(target).await?;
    let path = configmaps(&namespace);
    let ahead = u64::MAX / 2;
    for query in ["", "&resourceVersionMatch=NotOlderThan"] {
        let answer = target
            .get(&format!("{path}?resourceVersion={ahead}{query}"))
            .await?;
        let status = expect_status(&answer, 504, "Timeout").context(query)?;
        let cause = status.pointer("/details/causes/0/reason");
        ensure!(
            cause.is_some_and(|cause| cause == "ResourceVersionTooLarge"),
            "{status}"
        );
    }
    Ok(())
}
