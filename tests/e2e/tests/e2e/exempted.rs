//! What is exempt changes while a webhook runs, as its mounted ConfigMap does.

use std::fs;

use anteroom_e2e::{
    check::{ENTRY, POLICY, entry_is_ready, is_admitted, is_denied},
    folder::Folder,
    system::SystemPlan,
    wait,
    world::{World, host},
};
use anyhow::ensure;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use serde_json::Value;

const INGRESSES: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_file_of_exemptions_counts_without_a_restart() -> anyhow::Result<()> {
    let files = Folder::new()?;
    let file = files.path().join("exemptions.yaml");
    fs::write(&file, "{}")?;
    let plan = SystemPlan {
        webhook_args: vec![("--exemptions-file", file.display().to_string())],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let edit = |text: &str| -> anyhow::Result<()> { Ok(fs::write(&file, text)?) };
    let outcome = Box::pin(story(&mut world, edit)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World, edit: impl Fn(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
    world.fill(0, INGRESSES).await?;
    for manifest in [ENTRY, POLICY] {
        world.create(&serde_saphyr::from_str(manifest)?).await?;
    }
    world.system.ready().await?;
    entry_is_ready(world, "ingresses", INGRESSES).await?;
    is_denied(world, &host(7)).await?;

    // The user of this story.
    edit("excludeUsernames: [admin]")?;
    let taken = anteroom_load::ingress("default", "somebody-else", &host(7));
    is_admitted(world, &taken).await?;

    // What cannot be used changes nothing, and is told.
    edit("excludeUsername: [nobody]")?;
    wait::until("the file to be refused", async || {
        let webhook = &world.system.webhook;
        let refused = webhook.metric("anteroom_exemptions_file_refused", &[]);
        let refused = refused.await?;
        ensure!(refused > 0.0, "it is not");
        anyhow::Ok(())
    })
    .await?;
    is_admitted(world, &taken).await?;

    // The API server asks about other namespaces from now on.
    edit("exemptNamespaces: [ci]")?;
    is_denied(world, &host(8)).await?;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    wait::until("the configuration to follow", async || {
        let found = serde_json::to_value(configurations.get("anteroom").await?)?;
        let selector: &Value = &found["webhooks"][0]["namespaceSelector"];
        let namespaces = &selector["matchExpressions"][0]["values"];
        let expected = ["anteroom", "ci", "kube-node-lease", "kube-public"];
        ensure!(*namespaces == serde_json::json!(expected), "{namespaces}");
        anyhow::Ok(())
    })
    .await
}
