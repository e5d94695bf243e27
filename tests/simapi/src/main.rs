//! Runs the simulated API server until it is told to end.

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
#[allow(
    clippy::print_stderr,
    reason = "a tool for the terminal says where it listens"
)]
async fn main() -> anyhow::Result<()> {
    let sim = anteroom_simapi::Args::parse().start().await?;
    eprintln!("serving a simulated Kubernetes API on {}", sim.url());
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    sim.shutdown().await;
    Ok(())
}
