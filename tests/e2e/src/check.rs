//! Checks of a running system, for every test that makes them true.

use anteroom_bus::{Bus, nats::NatsBus};
use anyhow::{Context, anyhow, ensure};
use serde_json::Value;

use crate::{
    services::Running,
    views::held,
    wait,
    world::{World, ingress, service},
};

/// The policy's message to whoever wants a host that is taken.
pub const MESSAGE: &str = "another Ingress already owns one of these hosts";

/// The demo's entry of all Ingresses.
pub const ENTRY: &str = include_str!("../../../tests/demo/manifests/entry.yaml");
/// The demo's entry of all Services.
pub const SERVICES_ENTRY: &str = include_str!("../../../tests/demo/manifests/entry-services.yaml");
/// The demo's policy: no two Ingresses with one host.
pub const POLICY: &str = include_str!("../../../tests/demo/manifests/policy.yaml");

/// A user who wants that host is refused with the policy's own words, soon; from then on it is
/// taken for the oracle.
pub async fn is_denied(world: &World, host: &str) -> anyhow::Result<()> {
    let object = anteroom_load::ingress("default", "somebody-else", host);
    wait::until(&format!("{host} to be denied"), async || {
        match world.create(&object).await {
            Err(kube::Error::Api(status)) if status.message.contains(MESSAGE) => Ok(()),
            // Seen too early: undone, so that it does not own the host itself.
            Ok(()) => undone(world, &object).await,
            Err(other) if is_there(&other) => undone(world, &object).await,
            Err(other) => Err(format!("refused otherwise: {other}")),
        }
    })
    .await?;
    world.oracle.take(host.to_owned());
    Ok(())
}

/// Returns true if an object was not created because it is there: an attempt whose answer was lost has created it, or one
/// that was to be undone.
fn is_there(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_already_exists())
}

/// Deletes an object that was admitted too early, so that the next attempt tells.
async fn undone(world: &World, object: &Value) -> Result<(), String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let deleted = world.api(object).delete(name, &Default::default()).await;
    deleted.map_err(|error| error.to_string())?;
    Err("admitted".to_owned())
}

/// The entry's status says that it is ready, and of at least so many objects.
pub async fn entry_is_ready(world: &World, name: &str, objects: usize) -> anyhow::Result<()> {
    let entry: Value = serde_saphyr::from_str(ENTRY)?;
    wait::until(
        &format!("entry {name} to be ready with {objects} objects"),
        async || {
            let found = world.api(&entry).get(name).await?;
            let status = &found.data["status"];
            let ready = status["conditions"]
                .as_array()
                .and_then(|conditions| conditions.iter().find(|c| c["type"] == "Ready"))
                .is_some_and(|ready| ready["status"] == "True");
            // The Ingresses and Services of the cluster itself (`kubernetes`) are counted too.
            let counted = status["objects"].as_u64().unwrap_or_default();
            ensure!(
                ready && counted >= objects as u64 && status["bytes"].as_u64() > Some(0),
                "{status}"
            );
            Ok(())
        },
    )
    .await
}

/// The `Ready` condition of an entry or a policy is so, and its message says this.
pub async fn condition(
    world: &World,
    object: &Value,
    status: &str,
    says: &str,
) -> anyhow::Result<()> {
    let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
    let name = name.as_str().context("no name")?;
    wait::until(
        &format!("{kind} {name} to be {status}: {says}"),
        async || {
            let found = world.api(object).get(name).await?;
            let conditions = found.data["status"]["conditions"].as_array();
            let ready = conditions
                .and_then(|conditions| conditions.iter().find(|c| c["type"] == "Ready"))
                .with_context(|| format!("no Ready: {}", found.data["status"]))?;
            let message = ready["message"].as_str().unwrap_or_default();
            ensure!(
                ready["status"] == status && message.contains(says),
                "{ready}"
            );
            Ok(())
        },
    )
    .await
}

/// Waits until creating the object is refused with a message that contains `says`.
pub async fn is_refused(world: &World, object: &Value, says: &str) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().context("no name")?;
    wait::until(
        &format!("{name} to be refused: {says}"),
        async || match world.create(object).await {
            Err(kube::Error::Api(status)) if status.message.contains(says) => Ok(()),
            Ok(()) => undone(world, object).await,
            // The answer to an earlier try, or its undoing, was lost.
            Err(other) if is_there(&other) => undone(world, object).await,
            Err(other) => Err(format!("refused otherwise: {other}")),
        },
    )
    .await
}

/// Creating this object is admitted, soon; it is taken away again.
pub async fn is_admitted(world: &World, object: &Value) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().context("no name")?;
    wait::until(&format!("{name} to be admitted"), async || {
        world.create(object).await
    })
    .await?;
    world.delete(object).await
}

/// Waits until exactly one of these watchers is the coordinator, and returns that watcher.
pub async fn one_leads<'r>(watchers: &[&'r Running]) -> anyhow::Result<&'r Running> {
    wait::until("exactly one watcher to lead", async || {
        let mut leading = Vec::new();
        for &watcher in watchers {
            if watcher.metric("anteroom_leader", &[]).await? == 1.0 {
                leading.push(watcher);
            }
        }
        match leading[..] {
            [one] => Ok(one),
            _ => Err(anyhow!("{} lead", leading.len())),
        }
    })
    .await
}

/// Every replica holds exactly what the API server lists: keys and resource versions.
pub async fn replicas_equal_the_api_server(world: &World) -> anyhow::Result<()> {
    let bus = NatsBus::connect(world.nats.config_of_webhook()).await?;
    for (view, example) in [
        ("ingresses.v1.networking.k8s.io", ingress(0, "any")),
        ("services.v1", service("any")),
    ] {
        for index in 0..world.system.replicas.len() {
            let what = format!("replica-{index} to hold the {view} of the API server");
            wait::until(&what, async || {
                let listed = world.listed(&example).await?;
                let held = held(&bus, &format!("replica-{index}"), view).await?;
                ensure!(
                    held == listed,
                    "{} held, {} listed",
                    held.len(),
                    listed.len()
                );
                Ok(())
            })
            .await?;
        }
    }
    bus.close().await;
    Ok(())
}
