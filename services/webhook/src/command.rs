//! The command of the webhook's process: its options, and its start.

use std::{process::ExitCode, sync::Arc};

use anteroom_bus::{
    Bus,
    nats::{NatsArgs, NatsBus},
};
use anteroom_engine::exemptions::Exemptions;
use anteroom_runtime::{
    Service,
    kubernetes::KubernetesArgs,
    process::{self, ProcessArgs},
    units::duration_ms,
};
use anteroom_seal::AskerArgs;

use crate::Args;

/// The options of `anteroom webhook`.
#[derive(clap::Args, Debug)]
pub struct Command {
    #[command(flatten)]
    webhook: Args,
    #[command(flatten)]
    kubernetes: KubernetesArgs,

    /// Run without an API server. The certificate is kept in memory or read from files, and you
    /// maintain the webhook configuration yourself.
    #[arg(
        long,
        env = "ANTEROOM_WITHOUT_API_SERVER",
        conflicts_with = "KubernetesArgs",
        help_heading = "Webhook"
    )]
    without_api_server: bool,

    /// The age of a local view's last news, as in `60s`, above which replicas are asked instead. Use the same value as
    /// the replicas' `--stale-after`.
    #[arg(
        long = "stale-after",
        env = "ANTEROOM_STALE_AFTER",
        default_value = "60s",
        value_parser = duration_ms,
        value_name = "DURATION",
        help_heading = "Webhook"
    )]
    stale_after_ms: u64,

    #[command(flatten)]
    asker: AskerArgs,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    process: ProcessArgs,
}

impl Command {
    /// Runs until it is asked to stop, and returns the exit code of its process.
    pub fn run(self) -> ExitCode {
        let process = self.process.draining(self.webhook.drain_seconds);
        process::run("webhook", &process, |service| self.serve(service))
    }

    async fn serve(self, service: Service) -> anyhow::Result<()> {
        let file = self.webhook.exemption_args.clone();
        let serve = |exemptions| self.serve_by(exemptions, service.clone());
        file.following(&service, serve).await
    }

    async fn serve_by(self, exemptions: Exemptions, service: Service) -> anyhow::Result<()> {
        let mut webhook = self.webhook;
        webhook.exemptions = exemptions;
        webhook.stale_after_ms = self.stale_after_ms;
        webhook.asker_keys = self.asker.keys().await?;
        let keys = webhook.asker_keys.clone();
        // Whether the API server is there is another matter: that is waited for.
        let kube = match self.without_api_server {
            true => None,
            false => Some(self.kubernetes.client().await?),
        };
        let bus = Arc::new(NatsBus::connect(self.nats.config("webhook")).await?);
        let shared = Arc::clone(&bus) as Arc<dyn Bus>;
        let run = crate::run(webhook, shared, kube, service);
        let served = self.asker.following(keys, run).await;
        bus.close().await;
        served
    }
}
