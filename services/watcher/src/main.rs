//! `anteroom-watcher`: the watcher as a process of its own.

use std::{process::ExitCode, sync::Arc};

use anteroom_bus::nats::{NatsArgs, NatsBus};
use anteroom_runtime::{
    kubernetes::KubernetesArgs,
    process::{self, ProcessArgs},
};
use anteroom_watcher::Args;
use anyhow::Context as _;
use clap::Parser;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Watches sources at the Kubernetes API server and publishes what changes.
#[derive(Parser)]
#[command(name = "anteroom-watcher", version)]
struct Command {
    #[command(flatten)]
    watcher: Args,
    #[command(flatten)]
    kubernetes: KubernetesArgs,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    process: ProcessArgs,
}

fn main() -> ExitCode {
    let Command {
        watcher,
        kubernetes,
        nats,
        process,
    } = Command::parse();
    process::run("watcher", &process, |service| async move {
        let client = kubernetes.client().await?;
        let bus = NatsBus::connect(nats.config("watcher"));
        let bus = bus.await.context("AR701: the options for NATS are wrong")?;
        anteroom_watcher::run(watcher, Arc::new(bus), client, service).await
    })
}
