//! Webhooks of a Service end: killed, or asked to, while reviews are posted all the time.
//!
//! This must hold:
//!
//! - A webhook that is asked to end decides every review that it has received.
//! - Its end costs no decision: it drains until its Service has found out by its readiness, as in a rolling update.
//! - A killed webhook costs the reviews under way at it, and connections until its Service leaves it out; never a wrong decision.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::time::Duration;

use anteroom_e2e::{
    nats::NatsPlan,
    services::{self, Running},
    system::{DRAIN_VARIABLE, SystemPlan},
    wait,
    world::{World, host},
};
use anteroom_load::{Answer, Client, Report, Target, review};
use anyhow::{Context, ensure};
use tokio::{task::JoinSet, time::sleep};

use crate::load::{CONCURRENCY, Faults, decides_by_hosts};

const INGRESSES: usize = 300;

const WEBHOOKS: usize = 2;

/// The absence of a killed webhook.
const KILLED_FOR: Duration = Duration::from_secs(3);

/// Reviews that a webhook has received, and not decided yet, when it is asked to end.
const UNDER_WAY: usize = 8;

/// The UID of these reviews.
const UID: &str = "00000000-under-way";

/// Decisions that a kill may cost: for each connection of the load the review under way, and some attempts to connect.
/// Every second connection leads to the killed webhook until two probes have failed.
const LOST_TO_KILL_MAX: usize = 4 * CONCURRENCY;

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_ends_decides_what_it_has_received_and_a_killed_one_makes_nothing_wrong()
-> anyhow::Result<()> {
    let plan = SystemPlan {
        webhooks: WEBHOOKS,
        nats: NatsPlan::one(),
        ..SystemPlan::default()
    };
    let mut world = World::start_as(&plan).await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    let target = decides_by_hosts(world, INGRESSES).await?;
    received_reviews_are_decided(world, &target).await?;
    let mut faults = Faults::new(target, INGRESSES);

    lead_to_all(world).await?;
    let what = "one of two webhooks killed";
    let report = faults.reported(world, what, kill).await?;
    only_connections_were_lost(what, &report, LOST_TO_KILL_MAX)?;

    lead_to_all(world).await?;
    let what = "one of two webhooks asked to end";
    faults.under_load(world, what, end).await
}

async fn lead_to_all(world: &World) -> anyhow::Result<()> {
    let service = world.webhook_service.as_ref().context("a Service")?;
    service.leads_to(WEBHOOKS).await
}

async fn kill(world: &mut World) -> anyhow::Result<()> {
    let slot = &mut world.system.other_webhooks[0];
    let mut running = slot.take().context("it runs")?;
    let recipe = running.recipe().clone();
    running.process.kill()?;
    sleep(KILLED_FOR).await;
    *slot = Some(recipe.start()?);
    Ok(())
}

/// Asks a webhook to end, which drains for its default time, and starts it again. Its Service finds out by probes.
async fn end(world: &mut World) -> anyhow::Result<()> {
    let service = world.webhook_service.as_ref().context("a Service")?;
    let webhook = world.system.other_webhooks[0].as_mut();
    let webhook = webhook.context("it runs")?;
    webhook.process.signal("TERM")?;
    service.leads_to(WEBHOOKS - 1).await?;
    webhook.process.check().context("it drains")?;
    has_ended(webhook).await?;
    *webhook = webhook.recipe().start()?;
    Ok(())
}

async fn has_ended(webhook: &mut Running) -> anyhow::Result<()> {
    let said = wait::until("the webhook to end", async || {
        match webhook.process.check() {
            Ok(()) => Err("it runs"),
            Err(ended) => Ok(ended.to_string()),
        }
    })
    .await?;
    ensure!(said.contains("exit status: 0"), "{said}");
    Ok(())
}

/// No decision was refused, and few were lost with their connections.
fn only_connections_were_lost(what: &str, report: &Report, lost_max: usize) -> anyhow::Result<()> {
    let is_refusal = |kind: &String| kind.contains("AR");
    ensure!(
        report.errors <= lost_max as u64 && !report.error_kinds.keys().any(is_refusal),
        "{what}: {report:#?}"
    );
    println!("{what}: lost {:?}", report.error_kinds);
    Ok(())
}

/// Reviews wait in a webhook for replicas that stand still. It is asked to end, and decides them once the replicas run on. From
/// then on it drains for its default time.
async fn received_reviews_are_decided(world: &mut World, target: &Target) -> anyhow::Result<()> {
    let webhook = world.system.other_webhooks[0].take();
    let webhook = webhook.context("it runs")?;
    let own = Target {
        address: webhook.listens_at()?,
        ..target.clone()
    };
    signal_replicas(world, "STOP")?;
    let mut answers = JoinSet::new();
    for _ in 0..UNDER_WAY {
        let mut client = Client::new(own.clone())?;
        let body = review(UID, &anteroom_load::ingress("default", "late", &host(7)));
        answers.spawn(async move { client.post(body).await });
    }
    wait::until("reviews to be under way", async || {
        let name = "anteroom_admission_reviews_in_flight";
        let under_way = webhook.metric(name, &[]).await?;
        ensure!(under_way >= UNDER_WAY as f64, "{under_way}");
        Ok(())
    })
    .await?;

    let (recipe, admin) = (webhook.recipe().clone(), webhook.admin());
    let ends = webhook.process.terminate();
    let decided = async {
        wait::until(
            "the webhook to say that it ends",
            async || match services::get(admin, "/readyz?verbose").await {
                Err(error) if error.to_string().contains("shutting down") => Ok(()),
                other => Err(format!("{other:?}")),
            },
        )
        .await?;
        signal_replicas(world, "CONT")?;
        while let Some(answer) = answers.join_next().await {
            let answer = Answer::parse(UID, &answer??).map_err(anyhow::Error::msg)?;
            ensure!(matches!(answer, Answer::Denied { .. }), "{answer:?}");
        }
        anyhow::Ok(())
    };
    let (status, ()) = tokio::try_join!(ends, decided)?;
    ensure!(status.success(), "{status}");
    let recipe = recipe.without_env(DRAIN_VARIABLE);
    world.system.other_webhooks[0] = Some(recipe.start()?);
    world.system.ready().await
}

fn signal_replicas(world: &World, signal: &str) -> anyhow::Result<()> {
    let mut replicas = world.system.replicas.iter().flatten();
    replicas.try_for_each(|replica| replica.process.signal(signal))
}
