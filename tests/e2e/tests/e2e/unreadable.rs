//! Objects that are made to be hard to carry: long names, deep nesting, many labels, many bytes. Each costs at most
//! itself.

use anteroom_e2e::{
    check::condition,
    manifests::{self, apply_namespace},
    wait,
    world::{NAMESPACE, World},
};
use anyhow::ensure;
use kube::api::PostParams;
use serde_json::{Value, json};

/// The namespace of whoever makes such objects.
const HOSTILE: &str = "hostile";

const GROUP: &str = "test.dev";

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_hard_to_carry_spoils_at_most_itself() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

fn definition() -> Value {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("widgets.{GROUP}") },
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget" },
            "versions": [{ "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

fn widget(namespace: &str, name: &str, content: &Value) -> Value {
    json!({ "apiVersion": format!("{GROUP}/v1"), "kind": "Widget",
        "metadata": { "namespace": namespace, "name": name }, "content": content })
}

fn nested(depth: usize) -> Value {
    (1..depth).fold(json!([]), |inner, _| json!([inner]))
}

fn long_binding(name: &str) -> Value {
    let api = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{api}/v1"), "kind": "RoleBinding",
        "metadata": { "namespace": HOSTILE, "name": name },
        "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": "none" },
        "subjects": [{ "apiGroup": api, "kind": "User", "name": "x" }],
    })
}

/// Policies that read all bindings of roles, the widgets of the request's namespace, and those of all namespaces.
fn policies() -> [Value; 3] {
    let policy = |name: &str, prefix: &str, rule: Value| {
        let mut rule = rule;
        rule["name"] = "r".into();
        rule["match"]["any"][0]["resources"] =
            json!({ "kinds": ["ConfigMap"], "names": [format!("{prefix}*")] });
        json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": { "name": name },
            "spec": { "failurePolicy": "Fail", "validationFailureAction": "Enforce", "rules": [rule] },
        })
    };
    let by_widgets = |path: &str| {
        json!({
            "match": { "any": [{}] },
            "context": [{ "name": "widgets", "apiCall": {
                "urlPath": path, "jmesPath": "items[].metadata.name" } }],
            "validate": { "message": "a widget has this name", "deny": { "conditions": { "any": [{
                "key": "{{ request.object.data.widget }}", "operator": "AnyIn",
                "value": "{{ widgets }}" }] } } },
        })
    };
    let near = "/apis/test.dev/v1/namespaces/{{ request.namespace }}/widgets";
    [
        policy(
            "by-roles",
            "roles",
            json!({ "match": { "any": [{ "clusterRoles": ["nobody"] }] },
                "validate": { "message": "nobody", "deny": {} } }),
        ),
        policy("near", "near", by_widgets(near)),
        policy("far", "far", by_widgets("/apis/test.dev/v1/widgets")),
    ]
}

/// Creates a widget that nests so deep. The client cannot read the API server's answer then.
async fn create_deep(world: &World, name: &str, depth: usize) -> anyhow::Result<()> {
    match world.create(&widget(HOSTILE, name, &nested(depth))).await {
        Ok(()) | Err(kube::Error::SerdeError(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the refusal of a ConfigMap that names this widget, in a dry run; empty if it is admitted.
async fn said(world: &World, namespace: &str, name: &str, widget: &str) -> anyhow::Result<String> {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": namespace, "name": name }, "data": { "widget": widget } });
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let api = world.api(&object);
    let object = serde_json::from_value(object)?;
    match api.create(&dry, &object).await {
        Ok(_) => Ok(String::new()),
        Err(kube::Error::Api(status)) => Ok(status.message),
        Err(error) => Err(error.into()),
    }
}

async fn says(
    world: &World,
    (namespace, name, widget): (&str, &str, &str),
    expected: &str,
) -> anyhow::Result<()> {
    let what = format!("{name} in {namespace} that names {widget} to be told {expected:?}");
    wait::until(&what, async || {
        let said = said(world, namespace, name, widget).await?;
        ensure!(
            said.contains(expected) && said.is_empty() == expected.is_empty(),
            "{said:?}"
        );
        Ok(())
    })
    .await
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    manifests::apply(&world.client, &definition()).await?;
    let may_read = manifests::watcher_may_read(&[(GROUP, "widgets")]);
    manifests::apply(&world.client, &may_read).await?;
    apply_namespace(&world.client, HOSTILE).await?;
    world.system.ready().await?;
    for policy in &policies() {
        world.create(policy).await?;
        condition(world, policy, "True", "").await?;
    }
    let created = wait::until("the first widget", async || {
        world.create(&widget(HOSTILE, "plain", &Value::Null)).await
    });
    created.await?;
    says(world, (HOSTILE, "near", "plain"), "a widget has this name").await?;

    // All of this can be carried.
    for name in ["a".repeat(4_000), ":".repeat(1_500), "ü".repeat(2_000)] {
        world.create(&long_binding(&name)).await?;
    }
    let mut labelled = widget(HOSTILE, "labelled", &Value::Null);
    labelled["metadata"]["labels"] = (0..100_000)
        .map(|n| (format!("l{n}"), Value::from("")))
        .collect();
    world.create(&labelled).await?;
    let large = "x".repeat(1_400_000).into();
    world.create(&widget(HOSTILE, "large", &large)).await?;
    create_deep(world, "deep", 400).await?;
    for name in ["labelled", "large", "deep"] {
        says(world, (HOSTILE, "near", name), "a widget has this name").await?;
    }
    says(world, (NAMESPACE, "roles", "-"), "").await?;
    says(world, (NAMESPACE, "far", "-"), "").await?;

    // This object cannot be carried: only queries that could see it fail, with an error that names the object.
    create_deep(world, "deeper", 600).await?;
    says(world, (HOSTILE, "near", "-"), "hostile/deeper").await?;
    says(world, (NAMESPACE, "far", "-"), "AR119").await?;
    says(world, (NAMESPACE, "near", "-"), "").await?;
    says(world, (NAMESPACE, "roles", "-"), "").await?;
    world
        .delete(&widget(HOSTILE, "deeper", &Value::Null))
        .await?;
    says(world, (NAMESPACE, "far", "deep"), "a widget has this name").await?;
    says(world, (HOSTILE, "near", "-"), "").await
}
