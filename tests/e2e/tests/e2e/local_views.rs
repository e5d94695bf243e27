//! A webhook that holds views itself decides by them while NATS is away, and by replicas before and after that.

use std::time::{Duration, Instant};

use anteroom_e2e::{
    check::is_denied,
    nats::NatsPlan,
    system::SystemPlan,
    wait,
    world::{World, host},
};
use anyhow::ensure;

use crate::load::{CALM, Load, decides_by_hosts};

const INGRESSES: usize = 1_000;

/// The absence of NATS: longer than requests wait for facts that nobody answers for, and shorter than views are fresh.
const AWAY: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn decisions_on_local_views_go_on_without_nats() -> anyhow::Result<()> {
    let plan = SystemPlan {
        nats: NatsPlan::one(),
        webhook_args: vec![("--local-views", "ingresses".to_owned())],
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    let load = Load::begin(world, &target);
    wait::until("the local view to answer all", async || {
        let before = answered(&*world).await?;
        load.decides(CALM).await?;
        let now = answered(&*world).await?;
        ensure!(now - before >= CALM as f64 / 2.0, "{before}, then {now}");
        anyhow::Ok(())
    })
    .await?;
    wait::until("its memory to be told", async || {
        let name = "anteroom_webhook_local_views_bytes";
        let bytes = world.system.webhook.metric(name, &[]).await?;
        ensure!(bytes > 0.0, "nothing is held");
        anyhow::Ok(())
    })
    .await?;

    world.nats.kill()?;
    let begun = Instant::now();
    while begun.elapsed() < AWAY {
        load.decides(CALM).await?;
    }
    world.nats.start_again().await?;
    load.end("NATS away for 20 s, with a local view").await?;
    world.system.ready().await?;
    is_denied(world, &host(7)).await
}

/// The queries that the webhook has answered by itself.
async fn answered(world: &World) -> anyhow::Result<f64> {
    let name = "anteroom_webhook_local_queries_total";
    world.system.webhook.metric(name, &["outcome=\"ok\""]).await
}
