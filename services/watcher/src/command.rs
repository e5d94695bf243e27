//! The command of the watcher's process: its options, and its start.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anteroom_bus::{
    Bus,
    nats::{NatsArgs, NatsBus},
};
use anteroom_runtime::{
    Service,
    kubernetes::KubernetesArgs,
    process::{self, ProcessArgs},
    units,
};
use anteroom_seal::{AskerArgs, SealArgs};

use crate::Args;

/// The options of `anteroom watcher`.
#[derive(clap::Args, Debug)]
pub struct Command {
    #[command(flatten)]
    watcher: Args,
    /// Alias of `--watcher-memory-limit`
    #[arg(
        long,
        env = "ANTEROOM_MEMORY_LIMIT",
        value_parser = crate::memory_limit,
        value_name = "BYTES",
        help_heading = "Watcher"
    )]
    memory_limit: Option<u64>,
    /// The time, as in `60s`, after which a silent watch counts as dead; at least 20 seconds. Use
    /// the same value as the replicas' `--stale-after`
    #[arg(
        long,
        env = "ANTEROOM_STALE_AFTER",
        default_value = "60s",
        value_parser = units::duration,
        value_name = "DURATION",
        help_heading = "Watcher"
    )]
    stale_after: Duration,
    /// Write no status, Event or object for policies and GlobalContextEntries: for an installation beside Kyverno, which writes
    /// them. Statuses of CachedContextEntries are written
    #[arg(long, env = "ANTEROOM_SHADOW", help_heading = "Watcher")]
    shadow: bool,
    #[command(flatten)]
    seal: SealArgs,
    #[command(flatten)]
    asker: AskerArgs,
    #[command(flatten)]
    kubernetes: KubernetesArgs,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    process: ProcessArgs,
}

impl Command {
    /// Runs until it is asked to stop, and returns the exit code of its process.
    pub fn run(self) -> ExitCode {
        let process = self.process.clone();
        process::run("watcher", &process, |service| self.serve(service))
    }

    async fn serve(self, service: Service) -> anyhow::Result<()> {
        let Self {
            mut watcher,
            memory_limit,
            stale_after,
            shadow,
            seal,
            asker,
            kubernetes,
            nats,
            process: _,
        } = self;
        watcher.watcher_memory_limit = watcher.watcher_memory_limit.or(memory_limit);
        watcher.stale_after = stale_after;
        watcher.shadow = shadow;
        watcher.keys = seal.keys().await?;
        watcher.asker_keys = asker.keys().await?;
        let (keys, asker_keys) = (watcher.keys.clone(), watcher.asker_keys.clone());
        let client = kubernetes.client().await?;
        let bus = Arc::new(NatsBus::connect(nats.config("watcher")).await?);
        let shared = Arc::clone(&bus) as Arc<dyn Bus>;
        let run = crate::run(watcher, shared, client, service);
        let work = Box::pin(asker.following(asker_keys, run));
        let ended = seal.following(keys, work).await;
        bus.close().await;
        ended
    }
}
