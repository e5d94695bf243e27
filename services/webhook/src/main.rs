//! The webhook, over NATS.

use std::{process::ExitCode, sync::Arc};

use anteroom_bus::{
    Bus,
    nats::{NatsArgs, NatsBus},
};
use anteroom_runtime::{Service, kubernetes::KubernetesArgs, process};
use anteroom_seal::AskerArgs;
use anteroom_webhook::Args;
use clap::Parser;

/// Answers AdmissionReviews by the policies, and queries the cache replicas for facts.
#[derive(Debug, Parser)]
#[command(name = "anteroom-webhook", version)]
struct Cli {
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

    #[command(flatten)]
    asker: AskerArgs,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    process: process::ProcessArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let process = cli.process.clone();
    process::run("webhook", &process, |service| serve(cli, service))
}

async fn serve(mut cli: Cli, service: Service) -> anyhow::Result<()> {
    cli.webhook.asker_keys = cli.asker.keys().await?;
    let keys = cli.webhook.asker_keys.clone();
    // Whether the API server is there is another matter: that is waited for.
    let kube = match cli.without_api_server {
        true => None,
        false => Some(cli.kubernetes.client().await?),
    };
    let bus = Arc::new(NatsBus::connect(cli.nats.config("webhook")).await?);
    let shared = Arc::clone(&bus) as Arc<dyn Bus>;
    let run = anteroom_webhook::run(cli.webhook, shared, kube, service);
    let served = cli.asker.following(keys, run).await;
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
