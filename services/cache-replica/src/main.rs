//! The cache replica, over NATS.

use std::{process::ExitCode, sync::Arc};

use anteroom_bus::{
    Bus,
    nats::{NatsArgs, NatsBus},
};
use anteroom_cache_replica::Args;
use anteroom_runtime::{Service, process};
use anteroom_seal::{AskerArgs, SealArgs};
use clap::Parser;

/// Builds every view from the log on NATS, and answers queries next to the data.
#[derive(Debug, Parser)]
#[command(name = "anteroom-cache-replica", version)]
struct Cli {
    #[command(flatten)]
    replica: Args,
    #[command(flatten)]
    seal: SealArgs,
    #[command(flatten)]
    asker: AskerArgs,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    process: process::ProcessArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Cli {
        process,
        nats,
        replica,
        seal,
        asker,
    } = cli;
    process::run("cache-replica", &process, |service| {
        serve(nats, replica, (seal, asker), service)
    })
}

async fn serve(
    nats: NatsArgs,
    mut replica: Args,
    (seal, asker): (SealArgs, AskerArgs),
    service: Service,
) -> anyhow::Result<()> {
    replica.keys = seal.keys().await?;
    replica.asker_keys = asker.keys().await?;
    let (keys, asker_keys) = (replica.keys.clone(), replica.asker_keys.clone());
    let bus = Arc::new(NatsBus::connect(nats.config("cache-replica")).await?);
    let run = anteroom_cache_replica::run(replica, Arc::clone(&bus) as Arc<dyn Bus>, service);
    let served = seal.following(keys, asker.following(asker_keys, run)).await;
    bus.close().await;
    served
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn every_option_is_documented() {
        let page = include_str!("../../../docs/options.md");
        let command = super::Cli::command();
        let missing = anteroom_runtime::testing::undocumented(&command, page);
        assert!(missing.is_empty(), "not in docs/options.md: {missing:#?}");
    }
}
