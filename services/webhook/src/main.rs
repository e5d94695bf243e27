//! The webhook, over NATS.

use std::{process::ExitCode, sync::Arc};

use anteroom_bus::{
    Bus,
    nats::{NatsArgs, NatsBus},
};
use anteroom_runtime::{Service, process};
use anteroom_webhook::Args;
use anyhow::Context as _;
use clap::Parser;

/// Bodies of reviews come and go: jemalloc keeps the heap dense.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Decides AdmissionReviews by the policies, and asks the cache replicas for facts.
#[derive(Debug, Parser)]
#[command(name = "anteroom-webhook", version)]
struct Cli {
    #[command(flatten)]
    process: process::ProcessArgs,
    #[command(flatten)]
    nats: NatsArgs,
    #[command(flatten)]
    webhook: Args,

    /// Talk to no API server: the certificate lives in this process (or comes from files), and the
    /// webhook configuration is left to somebody else.
    #[arg(long, env = "ANTEROOM_WITHOUT_API_SERVER")]
    without_api_server: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let process = cli.process.clone();
    process::run("webhook", &process, |service| serve(cli, service))
}

async fn serve(cli: Cli, service: Service) -> anyhow::Result<()> {
    // From the pod's service account, or KUBECONFIG. Whether the API server is there is another
    // matter: that is waited for.
    let kube = match cli.without_api_server {
        true => None,
        false => Some(kube::Client::try_default().await.context(
            "no way to the API server is configured: run in a pod, set KUBECONFIG, or give \
             --without-api-server",
        )?),
    };
    let bus = Arc::new(NatsBus::connect(cli.nats.config("webhook")).await?);
    let served =
        anteroom_webhook::run(cli.webhook, Arc::clone(&bus) as Arc<dyn Bus>, kube, service).await;
    bus.close().await;
    served
}
