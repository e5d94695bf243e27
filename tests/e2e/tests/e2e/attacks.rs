//! What somebody does to the webhook who may only make requests, or only reach it: large objects that cost much, reviews
//! that are made up, and connections that are kept open.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::time::{Duration, Instant};

use anteroom_e2e::{
    check::{ENTRY, POLICY, entry_is_ready, is_denied},
    process::Peak,
    system::target,
    world::{World, host, ingress},
};
use anteroom_load::{Client, Target, hostile_ingress, review};
use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::Value;
use tokio::net::TcpStream;

/// Hosts that are taken.
const INGRESSES: usize = 1_000;

/// Hosts of a large review, each with a wildcard: none is equal to another's.
const HOSTS: usize = 20_000;

/// Large reviews at once.
const LARGE: usize = 4;

/// The memory limit of the webhook in the chart.
const MEMORY_LIMIT: u64 = 256 << 20;

/// Connections that are kept open.
const IDLE: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn attacks_on_the_webhook_stop_nobody() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world)).await;
    world.with_logs(outcome)
}

async fn post(target: &Target, object: &Value) -> anyhow::Result<Value> {
    let mut client = Client::new(target.clone())?;
    let answer = client.post(review("00000000-attack", object)).await?;
    let answer: Value = serde_json::from_slice(&answer)?;
    Ok(answer["response"].clone())
}

/// Small reviews are decided as ever beside large ones.
async fn large_reviews(world: &World, target: &Target) -> anyhow::Result<()> {
    let peak = Peak::watch(&world.system.webhook.process);
    let object = hostile_ingress(HOSTS);
    let body = review("00000000-size", &object).len();
    let large = (0..LARGE).map(|_| {
        let (target, object) = (target.clone(), object.clone());
        tokio::spawn(async move { post(&target, &object).await })
    });
    let large: Vec<_> = large.collect();
    let (mut decided, mut slowest) = (0, Duration::ZERO);
    while large.iter().any(|one| !one.is_finished()) {
        let begun = Instant::now();
        let answer = post(target, &ingress(INGRESSES + 2, &host(7))).await?;
        ensure!(answer["allowed"] == false, "{answer}");
        let message = answer["status"]["message"].as_str().unwrap_or_default();
        ensure!(
            !message.contains("AR"),
            "it is the policy that refuses: {message}"
        );
        slowest = slowest.max(begun.elapsed());
        decided += 1;
    }
    let mut refused = 0;
    for one in large {
        // The failure policy decides on one that has no answer in time. None of its hosts is taken, so one that is
        // decided by the policy is admitted.
        let Ok(answer) = one.await? else { continue };
        if answer["allowed"] == false {
            let message = answer["status"]["message"].as_str().unwrap_or_default();
            ensure!(message.contains("AR20"), "{answer}");
            refused += 1;
        }
    }
    println!(
        "{LARGE} reviews of {body} bytes, {refused} refused: {decided} small ones beside them, the slowest {} ms; the webhook took {} MiB \
         at most",
        slowest.as_millis(),
        peak.bytes() >> 20
    );
    ensure!(decided > 0, "no small review was decided beside them");
    ensure!(peak.bytes() < MEMORY_LIMIT, "{} bytes", peak.bytes());
    Ok(())
}

/// A pod reaches the webhook, and does not know the path.
async fn forged_reviews(world: &World, target: &Target) -> anyhow::Result<()> {
    let (_, path) = target.path.split_once("/validate/").context("no path")?;
    for path in [
        "/validate?timeout=10s".to_owned(),
        format!("/validate/{path}"),
        format!("/r/{}/validate/{path}", "0".repeat(32)),
        "/policies?timeout=10s".to_owned(),
    ] {
        let forged = Target {
            path,
            ..target.clone()
        };
        let mut client = Client::new(forged)?;
        let body: Bytes = review("00000000-forged", &ingress(1, &host(7)));
        let error = client.post(body).await.err().context("it is answered")?;
        ensure!(error.to_string().contains("403"), "{error:#}");
    }
    is_denied(world, &host(7)).await
}

/// Connections that bring nothing.
async fn idle_connections(world: &World, target: &Target) -> anyhow::Result<()> {
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(TcpStream::connect(target.address).await?);
    }
    // A connection that is new, and the API server's.
    let answer = post(target, &ingress(INGRESSES + 2, &host(7))).await?;
    ensure!(answer["allowed"] == false, "{answer}");
    is_denied(world, &host(7)).await?;
    drop(idle);
    Ok(())
}

async fn story(world: &mut World) -> anyhow::Result<()> {
    world.fill(0, INGRESSES).await?;
    for manifest in [ENTRY, POLICY] {
        world.create(&serde_saphyr::from_str(manifest)?).await?;
    }
    world.system.ready().await?;
    entry_is_ready(world, "ingresses", INGRESSES).await?;
    is_denied(world, &host(7)).await?;
    let target = target(&world.client).await?;
    forged_reviews(world, &target).await?;
    idle_connections(world, &target).await?;
    large_reviews(world, &target).await?;
    world.system.webhook.process.check()
}
