//! Whom the webhook believes: the API server by its certificate, and nobody who only knows the path.

use std::fs;

use anteroom_e2e::{
    check::{ENTRY, POLICY, entry_is_ready, is_denied},
    folder::Folder,
    system::{SystemPlan, target},
    world::{World, host, ingress},
};
use anteroom_load::{Client, review};
use anteroom_runtime::{certs::issue::Authority, wall_clock};
use anyhow::{Context, ensure};

/// Hosts that are taken.
const INGRESSES: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn only_the_api_server_is_answered_where_it_presents_a_certificate() -> anyhow::Result<()> {
    let files = Folder::new()?;
    let plan = SystemPlan {
        webhook_takes_known_clients: true,
        webhook_args: given_certificate(&files)?,
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

/// The webhook's own certificate, as somebody else keeps it.
fn given_certificate(files: &Folder) -> anyhow::Result<Vec<(&'static str, String)>> {
    let now = wall_clock::now();
    let authority = Authority::new("given", now)?;
    let pair = authority.issue(&["127.0.0.1".to_owned()], now)?;
    let given = [
        ("--tls-cert-file", pair.chain),
        ("--tls-key-file", pair.key),
        ("--tls-ca-file", authority.certificate_pem),
    ];
    let written = given.map(|(flag, pem)| {
        let file = files.path().join(flag.trim_start_matches('-'));
        fs::write(&file, pem)?;
        anyhow::Ok((flag, file.display().to_string()))
    });
    written.into_iter().collect()
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    world.fill(0, INGRESSES).await?;
    for manifest in [ENTRY, POLICY] {
        world.create(&serde_saphyr::from_str(manifest)?).await?;
    }
    world.system.ready().await?;
    entry_is_ready(world, "ingresses", INGRESSES).await?;
    is_denied(world, &host(7)).await?;

    // Whoever knows the path, which is no less secret where the certificate comes from files.
    let target = target(&world.client).await?;
    ensure!(target.path.starts_with("/r/"), "{}", target.path);
    let mut client = Client::new(target)?;
    let body = review("00000000-forged", &ingress(INGRESSES + 1, "free.example"));
    let answer = client.post(body).await;
    let error = answer.err().context("it is answered")?;
    ensure!(!error.to_string().contains("HTTP"), "{error:#}");
    is_denied(world, &host(8)).await
}
