//! The command of the reporter's process: its options, and its start.

use std::{process::ExitCode, sync::Arc};

use anteroom_bus::{
    Bus,
    nats::{NatsArgs, NatsBus},
};
use anteroom_engine::exemptions::{ExemptionArgs, Exemptions};
use anteroom_runtime::{
    Service,
    kubernetes::KubernetesArgs,
    process::{self, ProcessArgs},
};
use anteroom_seal::AskerArgs;

use crate::Args;

/// The options of `anteroom reporter`.
#[derive(clap::Args, Debug)]
pub struct Command {
    #[command(flatten)]
    reporter: Args,
    #[command(flatten, next_help_heading = "Reporter")]
    exemptions: ExemptionArgs,
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
        process::run("reporter", &process, |service| self.serve(service))
    }

    async fn serve(self, service: Service) -> anyhow::Result<()> {
        let file = self.exemptions.clone();
        let serve = |exemptions| self.serve_by(exemptions, service.clone());
        file.following(&service, serve).await
    }

    async fn serve_by(self, exemptions: Exemptions, service: Service) -> anyhow::Result<()> {
        let mut reporter = self.reporter;
        reporter.exemptions = exemptions;
        reporter.asker_keys = self.asker.keys().await?;
        let keys = reporter.asker_keys.clone();
        let client = self.kubernetes.client().await?;
        let bus = Arc::new(NatsBus::connect(self.nats.config("reporter")).await?);
        let shared = Arc::clone(&bus) as Arc<dyn Bus>;
        let run = crate::run(reporter, shared, client, service);
        let ended = self.asker.following(keys, run).await;
        bus.close().await;
        ended
    }
}
