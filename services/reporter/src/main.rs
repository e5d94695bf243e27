//! `anteroom-reporter`: the reporter as a process of its own.

use std::{process::ExitCode, sync::Arc};

use anteroom_bus::{
    Bus,
    nats::{NatsArgs, NatsBus},
};
use anteroom_engine::FilterArgs;
use anteroom_reporter::Args;
use anteroom_runtime::{
    kubernetes::KubernetesArgs,
    process::{self, ProcessArgs},
};
use anteroom_seal::AskerArgs;
use clap::Parser;

/// Scans existing objects with the policies, from views, and writes PolicyReports and Events.
#[derive(Parser)]
#[command(name = "anteroom-reporter", version)]
struct Cli {
    #[command(flatten)]
    reporter: Args,
    #[command(flatten, next_help_heading = "Reporter")]
    filters: FilterArgs,
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
    let Cli {
        mut reporter,
        filters,
        asker,
        kubernetes,
        nats,
        process,
    } = Cli::parse();
    reporter.resource_filters = filters.resource_filters;
    process::run("reporter", &process, |service| async move {
        reporter.asker_keys = asker.keys().await?;
        let keys = reporter.asker_keys.clone();
        let client = kubernetes.client().await?;
        let bus = Arc::new(NatsBus::connect(nats.config("reporter")).await?);
        let shared = Arc::clone(&bus) as Arc<dyn Bus>;
        let run = anteroom_reporter::run(reporter, shared, client, service);
        let ended = asker.following(keys, run).await;
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
        let command = super::Cli::command();
        let missing = anteroom_runtime::testing::undocumented(&command, page);
        assert!(missing.is_empty(), "not in docs/options.md: {missing:#?}");
    }
}
