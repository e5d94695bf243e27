//! Facts that a request does not carry, on real parts: the labels of its namespace, the roles of its user, and the
//! exceptions that there are.

use anteroom_e2e::{
    check::condition,
    cluster::Identity,
    manifests,
    system::SystemPlan,
    wait,
    world::{NAMESPACE, World},
};
use anyhow::ensure;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

/// The namespace of exceptions.
const EXCEPTIONS: &str = "exceptions";

#[tokio::test(flavor = "multi_thread")]
async fn labels_roles_and_exceptions_decide() -> anyhow::Result<()> {
    let plan = SystemPlan {
        watcher_args: vec![("--exception-namespace", EXCEPTIONS.into())],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

fn policy(name: &str, filter: &Value) -> Value {
    json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": name},
        "spec": {"validationFailureAction": "Enforce", "rules": [{
            "name": "rule", "match": {"any": [filter]},
            "validate": {"message": format!("{name} says no"), "deny": {}},
        }]},
    })
}

fn exception() -> Value {
    json!({
        "apiVersion": "kyverno.io/v2", "kind": "PolicyException",
        "metadata": {"name": "spared", "namespace": EXCEPTIONS},
        "spec": {
            "match": {"any": [{"resources": {
                "names": ["spared*"], "namespaceSelector": {"matchLabels": {"env": "prod"}},
            }}]},
            "exceptions": [{"policyName": "by-labels", "ruleNames": ["rule"]}],
        },
    })
}

/// A namespace with this label.
async fn namespace(world: &World, name: &str, env: &str) -> anyhow::Result<()> {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"env": env}},
    });
    manifests::apply(&world.client, &namespace).await
}

/// Alice may write ConfigMaps, by a ClusterRole of the cluster's that is bound in one namespace.
async fn alice(world: &World) -> anyhow::Result<Client> {
    let api = "rbac.authorization.k8s.io/v1";
    let role = json!({
        "apiVersion": api, "kind": "ClusterRole", "metadata": {"name": "writers"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
    });
    let binding = json!({
        "apiVersion": api, "kind": "RoleBinding",
        "metadata": {"name": "writers", "namespace": NAMESPACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writers"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    manifests::apply(&world.client, &role).await?;
    manifests::apply(&world.client, &binding).await?;
    let kubeconfig = Kubeconfig::read_from(world.cluster.kubeconfig_file(Identity::Admin)?)?;
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.auth_info.impersonate = Some("alice".to_owned());
    Ok(Client::try_from(config)?)
}

/// Returns the refusal of a ConfigMap of this name, in a dry run; empty if it is admitted.
async fn said(client: &Client, namespace: &str, name: &str) -> Result<String, kube::Error> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api.create(&dry, &object).await {
        Ok(_) => Ok(String::new()),
        Err(kube::Error::Api(refused)) if refused.message.contains("says no") => {
            Ok(refused.message)
        }
        Err(error) => Err(error),
    }
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    for (name, env) in [("prod", "prod"), ("dev", "dev"), (EXCEPTIONS, "none")] {
        namespace(world, name, env).await?;
    }
    let alice = alice(world).await?;
    world.system.ready().await?;
    let kinds = json!(["ConfigMap"]);
    let policies = [
        policy(
            "by-labels",
            &json!({"resources": {
                "kinds": kinds, "namespaceSelector": {"matchLabels": {"env": "prod"}},
            }}),
        ),
        policy(
            "by-roles",
            &json!({
                "resources": {"kinds": kinds, "names": ["written*"]}, "clusterRoles": ["writers"],
            }),
        ),
    ];
    for policy in &policies {
        world.create(policy).await?;
    }
    for policy in &policies {
        condition(world, policy, "True", "").await?;
    }
    let admin = world.client.clone();
    ensure!(
        said(&admin, "prod", "a")
            .await?
            .contains("by-labels says no")
    );
    ensure!(said(&admin, "dev", "a").await?.is_empty());
    ensure!(
        said(&alice, NAMESPACE, "written")
            .await?
            .contains("by-roles says no")
    );
    ensure!(said(&alice, NAMESPACE, "another").await?.is_empty());
    ensure!(said(&admin, NAMESPACE, "written").await?.is_empty());
    // A namespace of this moment, whose label nobody waited for.
    namespace(world, "new", "prod").await?;
    ensure!(
        said(&admin, "new", "a")
            .await?
            .contains("by-labels says no")
    );

    world.create(&exception()).await?;
    wait::until("the exception to hold", async || {
        match said(&admin, "prod", "spared-1").await {
            Ok(said) if said.is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    ensure!(
        said(&admin, "prod", "a")
            .await?
            .contains("by-labels says no")
    );
    world.delete(&exception()).await?;
    wait::until("the exception to be gone", async || {
        match said(&admin, "prod", "spared-1").await {
            Ok(said) if said.contains("by-labels") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}
