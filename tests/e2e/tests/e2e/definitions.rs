//! Kyverno's own cases of `GlobalContextEntry`, one by one, as its users meet them: what the API server
//! accepts, what the conditions say, and what becomes of a request.

use anteroom_e2e::{
    check::{condition, is_admitted, is_refused},
    manifests,
    system::SystemPlan,
    world::World,
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// The words of `kubectl` about any refusal by a webhook.
const DENIED: &str = "denied the request";

#[tokio::test(flavor = "multi_thread")]
async fn every_case_of_global_entries_is_as_kyverno_has_it() -> anyhow::Result<()> {
    let mut world = World::start_as(&SystemPlan::default()).await?;
    world.system.ready().await?;
    let deployments = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "anteroom-watcher-added" },
        "rules": [{ "apiGroups": ["apps"], "resources": ["deployments", "unknown"],
            "verbs": ["get", "list", "watch"] }],
    });
    manifests::apply(&world.client, &deployments).await?;

    resource_correct(&world).await?;
    apicall_correct(&world).await?;
    resource_correct_projection(&world).await?;
    apicall_correct_projection(&world).await?;
    apicall_failed(&world).await?;
    gctxentry_not_exist(&world).await?;
    validate_apicall_data(&world).await?;
    validate_crd(&world).await?;
    validate_reference(&world).await
}

fn entry(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry",
        "metadata": { "name": name }, "spec": spec })
}

fn of_resource(namespace: &str) -> Value {
    json!({ "kubernetesResource": { "group": "apps", "version": "v1", "resource": "deployments",
        "namespace": namespace } })
}

fn of_call(path: &str) -> Value {
    json!({ "apiCall": { "urlPath": path, "refreshInterval": "1h" } })
}

/// On Pods, and so on Deployments by a derived rule, in one namespace.
fn policy(name: &str, namespace: &str, reference: &Value, operator: &str) -> Value {
    json!({
        "apiVersion": "kyverno.io/v2beta1", "kind": "ClusterPolicy", "metadata": { "name": name },
        "spec": { "validationFailureAction": "Enforce", "failurePolicy": "Fail", "rules": [{
            "name": "main-deployment-exists",
            "context": [{ "name": "deploymentCount", "globalReference": reference }],
            "match": { "all": [{ "resources": { "kinds": ["Pod"], "namespaces": [namespace] } }] },
            "preconditions": { "all": [{ "key": "{{ request.operation }}", "operator": "AnyIn",
                "value": ["CREATE", "UPDATE"] }] },
            "validate": { "deny": { "conditions": { "any": [{
                "key": "{{ deploymentCount }}", "operator": operator, "value": 0 }] } } },
        }] },
    })
}

fn deployment(namespace: &str, name: &str) -> Value {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "namespace": namespace, "name": name, "labels": labels },
        "spec": { "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels },
            "spec": { "containers": [{ "name": "main", "image": "nginx" }] } } },
    })
}

/// The namespace, with its main Deployment, the entry and the policy, which is ready.
async fn set_up(world: &World, namespace: &str, all: [&Value; 2]) -> anyhow::Result<()> {
    manifests::apply_namespace(&world.client, namespace).await?;
    world.create(&deployment(namespace, "main")).await?;
    for one in all {
        world.create(one).await?;
    }
    condition(world, all[1], "True", "").await
}

async fn tear_down(world: &World, all: [&Value; 2]) -> anyhow::Result<()> {
    for one in all {
        world.delete(one).await?;
    }
    Ok(())
}

/// A new Deployment is created while the main one is there; that the policy asks is shown by what
/// happens when it is not.
async fn created_while_main_is_there(
    world: &World,
    namespace: &str,
    all: [&Value; 2],
) -> anyhow::Result<()> {
    set_up(world, namespace, all).await?;
    is_admitted(world, &deployment(namespace, "new")).await?;
    world.delete(&deployment(namespace, "main")).await?;
    is_refused(world, &deployment(namespace, "new"), DENIED).await?;
    tear_down(world, all).await
}

/// `resource-correct`.
async fn resource_correct(world: &World) -> anyhow::Result<()> {
    let namespace = "resource-correct";
    let entry = entry(namespace, &of_resource(namespace));
    let reference = json!({ "name": namespace, "jmesPath": "length(@)" });
    let policy = policy("cpol-resource-correct", namespace, &reference, "Equals");
    created_while_main_is_there(world, namespace, [&entry, &policy]).await
}

/// `apicall-correct`: once an hour is once.
async fn apicall_correct(world: &World) -> anyhow::Result<()> {
    let namespace = "apicall-correct";
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let entry = entry(namespace, &of_call(&path));
    let reference = json!({ "name": namespace, "jmesPath": "items | length(@)" });
    let policy = policy("cpol-apicall-correct", namespace, &reference, "Equals");
    let all = [&entry, &policy];
    set_up(world, namespace, all).await?;
    is_admitted(world, &deployment(namespace, "new")).await?;
    tear_down(world, all).await
}

/// `resource-correct-projection`.
async fn resource_correct_projection(world: &World) -> anyhow::Result<()> {
    let namespace = "resource-projection";
    let mut spec = json!({ "kubernetesResource": {
        "group": "apps", "version": "v1", "resource": "deployments" } });
    let expression = format!("[?metadata.namespace=='{namespace}'] | length(@)");
    spec["projections"] = json!([{ "name": "count", "jmesPath": expression }]);
    denied_by_a_projection(world, namespace, &spec).await
}

/// `apicall-correct-projection`.
async fn apicall_correct_projection(world: &World) -> anyhow::Result<()> {
    let namespace = "apicall-projection";
    let mut spec = of_call("/apis/apps/v1/deployments");
    let expression = format!("items[?metadata.namespace=='{namespace}'] | length(@)");
    spec["projections"] = json!([{ "name": "count", "jmesPath": expression }]);
    denied_by_a_projection(world, namespace, &spec).await
}

async fn denied_by_a_projection(
    world: &World,
    namespace: &str,
    spec: &Value,
) -> anyhow::Result<()> {
    let entry = entry(namespace, spec);
    let reference = json!({ "name": format!("{namespace}.count") });
    let name = format!("cpol-{namespace}");
    let policy = policy(&name, namespace, &reference, "GreaterThan");
    let all = [&entry, &policy];
    set_up(world, namespace, all).await?;
    let says = [DENIED, &name, "autogen-main-deployment-exists"];
    refused_with(world, &deployment(namespace, "new"), &says).await?;
    tear_down(world, all).await
}

/// Refused with a message that says all of these.
async fn refused_with(world: &World, object: &Value, says: &[&str]) -> anyhow::Result<()> {
    let last = says.last().copied().unwrap_or_default();
    is_refused(world, object, last).await?;
    let Err(kube::Error::Api(status)) = world.create(object).await else {
        anyhow::bail!("it is not refused again")
    };
    for text in says {
        ensure!(status.message.contains(text), "{text}: {}", status.message);
    }
    Ok(())
}

/// `apicall-failed`.
async fn apicall_failed(world: &World) -> anyhow::Result<()> {
    let namespace = "apicall-failed";
    let entry = entry(
        namespace,
        &of_call("/apis/apps/v1/namespaces/default/unknown"),
    );
    let reference = json!({ "name": namespace, "jmesPath": "items | length(@)" });
    let policy = policy("cpol-apicall-failed", namespace, &reference, "Equals");
    let all = [&entry, &policy];
    set_up(world, namespace, all).await?;
    let says = [DENIED, "cpol-apicall-failed", "permission denied"];
    refused_with(world, &deployment(namespace, "new"), &says).await?;
    condition(world, &entry, "False", "permission denied").await?;
    tear_down(world, all).await
}

/// `gctxentry-not-exist`: the policy is accepted, and ready.
async fn gctxentry_not_exist(world: &World) -> anyhow::Result<()> {
    let namespace = "gctxentry-not-exist";
    manifests::apply_namespace(&world.client, namespace).await?;
    let reference = json!({ "name": "non-existent-gctx", "jmesPath": "length(@)" });
    let policy = policy("cpol-not-exist", namespace, &reference, "Equals");
    world.create(&policy).await?;
    condition(world, &policy, "True", "").await?;
    let says = [DENIED, "cpol-not-exist", "non-existent-gctx"];
    refused_with(world, &deployment(namespace, "new"), &says).await?;
    world.delete(&policy).await
}

/// The API server itself refuses it, with a message that says all of these.
async fn rejected(world: &World, object: &Value, says: &[&str]) -> anyhow::Result<()> {
    let answer = world.create(object).await;
    let Err(kube::Error::Api(status)) = answer else {
        anyhow::bail!("{object} is accepted: {answer:?}")
    };
    for text in says {
        ensure!(status.message.contains(text), "{text}: {}", status.message);
    }
    Ok(())
}

/// `validate-apicall-data`.
async fn validate_apicall_data(world: &World) -> anyhow::Result<()> {
    let mut spec = of_call("/version");
    spec["apiCall"]["method"] = "GET".into();
    spec["apiCall"]["data"] = json!([{ "key": "a", "value": "b" }]);
    for version in ["v2alpha1", "v2beta1", "v2"] {
        let mut entry = entry("with-data", &spec);
        entry["apiVersion"] = format!("kyverno.io/{version}").into();
        rejected(world, &entry, &["data", "POST"]).await?;
    }
    Ok(())
}

/// `validate-crd`.
async fn validate_crd(world: &World) -> anyhow::Result<()> {
    let valid = entry("valid", &of_resource("default"));
    let mut both = of_resource("default");
    both["apiCall"] = of_call("/version")["apiCall"].take();
    let one_of = "must validate one and only one schema (oneOf)";
    for version in ["v2alpha1", "v2beta1", "v2"] {
        let of = |entry: &Value| {
            let mut entry = entry.clone();
            entry["apiVersion"] = format!("kyverno.io/{version}").into();
            entry
        };
        world.create(&of(&valid)).await.context(version)?;
        world.delete(&of(&valid)).await?;
        let says = [one_of, "Found 2 valid alternatives"];
        rejected(world, &of(&entry("both", &both)), &says).await?;
        let says = [
            one_of,
            "Found none valid",
            "spec.kubernetesResource: Required value",
        ];
        rejected(world, &of(&entry("neither", &json!({}))), &says).await?;
    }
    Ok(())
}

/// `validate-reference`.
async fn validate_reference(world: &World) -> anyhow::Result<()> {
    let reference = json!({ "jmesPath": "length(@)" });
    let mut policy = policy("cpol-no-name", "default", &reference, "Equals");
    let says = "spec.rules[0].context[0].globalReference.name: Required value";
    for version in ["v1", "v2beta1"] {
        policy["apiVersion"] = format!("kyverno.io/{version}").into();
        rejected(world, &policy, &[says]).await?;
    }
    Ok(())
}
