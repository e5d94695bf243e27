//! Keeps a real cluster with a running system, for trying things by hand: prints where its kubeconfig
//! is, and ends at SIGINT or SIGTERM.

use anteroom_e2e::{cluster::Identity, world::World};
use clap::Parser;

/// Runs a real kube-apiserver, etcd, nats-server and every service, until it is interrupted.
#[derive(Parser)]
#[command(
    after_help = "Example:\n  cargo run -p anteroom-e2e --bin up\n  kubectl --kubeconfig … get cachedcontextentries"
)]
struct Args {
    /// A reporter too.
    #[arg(long)]
    reporter: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Args { reporter } = Args::parse();
    let mut world = match reporter {
        true => World::start_reporting().await?,
        false => World::start().await?,
    };
    world.system.ready().await?;
    let kubeconfig = world.cluster.kubeconfig_file(Identity::Admin)?;
    say(&format!("KUBECONFIG={}", kubeconfig.display()));
    say(&format!("logs in {}", world.folder.path().display()));
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminated.recv() => {}
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "what it is run for")]
fn say(line: &str) {
    println!("{line}");
}
