//! `anteroom console`: pages about a running system, in a browser.
//!
//! It listens on a loopback address and has no login: who can reach that address on this machine may look. It logs in to NATS as
//! an operator, so it can read no object. Decisions are looked at only while somebody reads a page.
//!
//! | module | content |
//! |---|---|
//! | `listen` | what is heard over NATS, kept for the pages |
//! | `http` | requests, and the headers of answers |
//! | `pages` | the pages, from what was heard. Pure |
//! | `rows` | their tables. Pure |

mod http;
mod listen;
mod pages;
mod rows;

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
};

use anteroom_bus::{Bus, nats::NatsArgs};
use anteroom_runtime::{Service, telemetry::TelemetryArgs};
use anyhow::{Context as _, bail};
use clap::Args;

use self::listen::Console;
use crate::{operator::connection, output::print};

#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Show a running system in a browser: decisions, denials with their reasons, views, policies, checks.\n\n\
        It listens on this machine alone, and needs the operator's login to NATS. It can change nothing, and reads no object.",
    after_help = "Examples:\n  \
        kubectl -n anteroom port-forward service/nats 4222 &\n  \
        anteroom console --nats-url tls://localhost:4222 --nats-nkey-file seed --nats-ca-file ca.crt\n\n\
        Exit codes: 0 stopped, 1 failed, 2 wrong usage."
)]
pub(crate) struct ConsoleArgs {
    /// Serve the pages on this loopback address.
    #[arg(
        long,
        env = "ANTEROOM_CONSOLE_ADDRESS",
        default_value = "127.0.0.1:8700"
    )]
    listen_address: SocketAddr,

    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// Runs `anteroom console`.
pub(crate) async fn run(args: ConsoleArgs, service: Service) -> anyhow::Result<()> {
    let listener = bind(args.listen_address)?;
    let bus = connection::connect(&args.nats).await?;
    print(&format!("http://{}/", listener.local_addr()?))?;
    let stop = service.shutdown.token();
    let served = serve(listener, Arc::clone(&bus), args.nats.cluster.clone());
    let served = stop.run_until_cancelled(served).await;
    bus.close().await;
    served.unwrap_or(Ok(()))
}

/// Listens on a loopback address.
///
/// # Errors
/// The address is no loopback address, or is taken.
pub fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    if !address.ip().is_loopback() {
        bail!(
            "--listen-address {address}: the console has no login, so it serves a loopback address alone, as 127.0.0.1:8700"
        );
    }
    let listener = TcpListener::bind(address);
    listener.with_context(|| format!("--listen-address {address}"))
}

/// Serves the pages of a system until the connection to NATS is closed.
///
/// # Errors
/// The listener cannot be used, or the bus is closed.
pub async fn serve(
    listener: TcpListener,
    bus: Arc<dyn Bus>,
    cluster: String,
) -> anyhow::Result<()> {
    let console = Console::new(cluster);
    tokio::select! {
        listened = listen::listen(&bus, &console) => listened,
        served = http::serve(listener, console.clone()) => served,
    }
}
