//! The webhook: decides AdmissionReviews by the policies, and asks the replicas for facts.
//!
//! ```text
//! log ──▶ engine: catalog (entries, kinds, policies) ─┬─────────────▶ registration ──▶ API server
//!                                                     ▼
//! API server ── AdmissionReview ──▶ server ──▶ engine: decide ◀─ facts ◀── replicas
//!                                                     ▼
//! API server ◀──────────────────────────────────── response
//! ```
//!
//! | module | content |
//! |---|---|
//! | `review`, `response` | an AdmissionReview; the answer to it |
//! | `server`, `tls` | HTTPS; the certificate |
//! | `exempt` | requests that no policy is asked about |
//! | `admission` | the admission of policies and exceptions themselves |
//! | `local_views` | views of this process, which are asked before replicas |
//! | `ready` | whether replicas serve the views that policies need |
//! | `registration` | webhook configurations, and proof that they are used |
//! | `violations` | violations that are published for the reporter |
//! | `tap` | decisions as operators see them |
//! | `beats` | the position up to which this webhook enforces the log |
//! | `drain` | the end: reviews are decided until everybody knows |
//! | `start`, `args`, `command`, `metrics` | tasks; options; the process; metrics |
//!
//! `anteroom_engine` decides: it knows the policies, and asks the replicas for facts.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admission;
mod args;
mod beats;
mod command;
mod drain;
mod exempt;
mod local_views;
mod metrics;
mod ready;
mod registration;
mod response;
mod review;
mod server;
mod start;
mod tap;
mod tls;
mod violations;

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::Bus;
use anteroom_runtime::{Service, supervise::Tasks};
use anyhow::Context as _;
use axum::{extract::Request, response::Response};
use kube::Client;
use tokio::sync::watch;

#[doc(hidden)]
pub mod fuzzing;

pub use args::Args;
pub use command::Command;

use start::TaskHandles;

/// Runs the webhook until shutdown. `kube` is for our own certificate and webhook configuration;
/// without it the certificate lives in this process, and nothing is registered.
pub async fn run(
    args: Args,
    bus: Arc<dyn Bus>,
    kube: Option<Client>,
    service: Service,
) -> anyhow::Result<()> {
    Webhook::start(&args, bus, kube, &service)?.join().await
}

/// A running webhook, with the address on which it listens.
#[derive(Debug)]
pub struct Webhook {
    address: SocketAddr,
    trust: watch::Receiver<Option<Arc<str>>>,
    endpoint: server::Endpoint,
    tasks: Tasks,
}

impl Webhook {
    /// Listens and begins. Must be called within a tokio runtime.
    pub fn start(
        args: &Args,
        bus: Arc<dyn Bus>,
        kube: Option<Client>,
        service: &Service,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(args.listen_address)
            .with_context(|| format!("--listen-address {}", args.listen_address))?;
        listener.set_nonblocking(true).context("the listener")?;
        let address = listener.local_addr().context("the listener's address")?;
        tracing::info!(%address, "webhook started: AdmissionReviews are received");

        let drains_for = Duration::from_secs(args.drain_seconds);
        let parts = TaskHandles::new(args, bus, service, drains_for);
        let catalogs = parts.policies();
        let (certificates, trust) = parts.certificate(kube.as_ref());
        let registers = kube.is_some();
        let called = parts.registration(kube, &catalogs, &trust);
        parts.beats(address, &catalogs, called);
        let endpoint = parts.decisions(catalogs, registers, address);
        parts.server(listener, certificates, &endpoint);
        let tasks = parts.tasks;
        Ok(Self {
            address,
            trust,
            endpoint,
            tasks,
        })
    }

    /// Begins without a listener and a certificate: requests come through [`Webhook::answer`], and nothing is
    /// registered. Must be called within a tokio runtime. The webhook does not drain, because its caller knows when
    /// the process stops.
    pub fn in_process(args: &Args, bus: Arc<dyn Bus>, service: &Service) -> Self {
        let parts = TaskHandles::new(args, bus, service, Duration::ZERO);
        let catalogs = parts.policies();
        parts.beats(args.listen_address, &catalogs, Vec::new());
        let endpoint = parts.decisions(catalogs, false, args.listen_address);
        Self {
            address: args.listen_address,
            trust: watch::channel(None).1,
            endpoint,
            tasks: parts.tasks,
        }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The authority that its certificate is trusted by, in PEM; `None` until there is one.
    pub fn trust(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.trust.clone()
    }

    /// Answers a request as if it had come by TLS, for measurements of a decision's cost.
    pub async fn answer(&self, request: Request) -> Response {
        self.endpoint.answer(request).await
    }

    /// Waits until everything has ended, which it does once the webhook has drained.
    pub async fn join(self) -> anyhow::Result<()> {
        self.tasks.join().await
    }
}
