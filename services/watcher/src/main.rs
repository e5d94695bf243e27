//! `anteroom-watcher`: the watcher as a process of its own.

use std::{process::ExitCode, sync::Arc, time::Duration};

use anteroom_bus::{
    Bus,
    nats::{NatsArgs, NatsBus},
};
use anteroom_runtime::{
    kubernetes::KubernetesArgs,
    process::{self, ProcessArgs},
    units,
};
use anteroom_seal::{AskerArgs, SealArgs};
use anteroom_watcher::Args;
use clap::Parser;

/// Watches sources at the Kubernetes API server and publishes their changes.
#[derive(Parser)]
#[command(name = "anteroom-watcher", version)]
struct Command {
    #[command(flatten)]
    watcher: Args,
    /// The same as `--watcher-memory-limit`
    #[arg(
        long,
        env = "ANTEROOM_MEMORY_LIMIT",
        value_parser = anteroom_watcher::memory_limit,
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

fn main() -> ExitCode {
    let Command {
        mut watcher,
        memory_limit,
        stale_after,
        seal,
        asker,
        kubernetes,
        nats,
        process,
    } = Command::parse();
    watcher.watcher_memory_limit = watcher.watcher_memory_limit.or(memory_limit);
    watcher.stale_after = stale_after;
    process::run("watcher", &process, |service| async move {
        watcher.keys = seal.keys().await?;
        watcher.asker_keys = asker.keys().await?;
        let (keys, asker_keys) = (watcher.keys.clone(), watcher.asker_keys.clone());
        let client = kubernetes.client().await?;
        let bus = Arc::new(NatsBus::connect(nats.config("watcher")).await?);
        let shared = Arc::clone(&bus) as Arc<dyn Bus>;
        let run = anteroom_watcher::run(watcher, shared, client, service);
        let work = Box::pin(asker.following(asker_keys, run));
        let ended = seal.following(keys, work).await;
        bus.close().await;
        ended
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn every_option_is_documented() {
        let page = include_str!("../../../docs/options.md");
        let command = super::Command::command();
        let missing = anteroom_runtime::testing::undocumented(&command, page);
        assert!(missing.is_empty(), "not in docs/options.md: {missing:#?}");
    }
}
