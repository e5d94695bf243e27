//! The webhook: decides AdmissionReviews by the policies, and asks the replicas for facts.
//!
//! ```text
//! log ──▶ catalog (entries, kinds, policies) ─┬─────────────▶ registration ──▶ API server
//!                                             ▼
//! API server ── AdmissionReview ──▶ server ─▶ decide ◀─ facts ◀── replicas
//!                                             ▼
//! API server ◀────────────────────── response ◀ verdict
//! ```
//!
//! - `review`: what the API server sends; what is wrong with it.
//! - `ready`: whether what the policies need is there.
//! - `policies`: which policies concern a request.
//! - `decide`: takes a request through them; `facts` asks the replicas; `verdict` decides.
//! - `response`: what the API server and its users are told.
//! - `registration`: the two webhook configurations, and the proof that the API server goes by them;
//!   `tls`: the certificate.
//! - `background`: existing objects through the same policies, for whoever reports on them.
//! - `violations`: tells of requests that violate rules.
//! - `beats`: what this webhook says that it enforces.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admission;
mod args;
pub mod background;
mod beats;
mod catalog;
mod decide;
mod exceptions;
mod existing;
mod facts;
mod kinds;
mod metrics;
mod phase;
mod policies;
mod ready;
mod registration;
mod response;
mod review;
mod rule;
mod server;
mod tls;
mod verdict;
mod violations;

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::Bus;
use anteroom_policy::Phase;
use anteroom_runtime::{Check, Service, Shutdown, certs::Certificates, supervise::Tasks};
use anyhow::Context as _;
use axum::{extract::Request, response::Response};
use kube::Client;
use tokio::sync::watch;

pub use args::Args;

use beats::Beats;
use catalog::Catalog;
use decide::Decider;
use existing::Existing;
use facts::Facts;
use metrics::{KyvernoMetrics, WebhookMetrics};
use registration::{Called, Keeper, Registration};
use violations::Violations;

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

/// A running webhook, for whoever has to know where it listens.
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
        tracing::info!(%address, "AdmissionReviews are received");

        let mut metrics = WebhookMetrics::registered(&service.metrics);
        if args.kyverno_metric_names {
            metrics.kyverno = Some(KyvernoMetrics::registered(&service.metrics));
        }
        let tasks = Tasks::new(service.shutdown.clone());
        let certificates = Certificates::new(&service.metrics);
        let (catalogs_in, catalogs) = watch::channel(None::<Arc<Catalog>>);
        let (trust_in, trust) = watch::channel(None);

        let check = service
            .readiness
            .check("policies", "the first read of the log");
        tasks.spawn(
            "policies",
            catalog::follow(
                Arc::clone(&bus),
                service.clone(),
                metrics.clone(),
                catalogs_in,
                check,
            ),
        );

        let check = service
            .readiness
            .check("views", "the policies, which say what is needed");
        tasks.spawn(
            "views",
            ready::keep(
                Arc::clone(&bus),
                catalogs.clone(),
                check,
                service.shutdown.clone(),
            ),
        );

        let check = Arc::new(
            service
                .readiness
                .check("certificate", "a certificate to serve with"),
        );
        let outlet = tls::Outlet {
            certificates: certificates.clone(),
            trust: trust_in,
            check: Arc::clone(&check),
        };
        let source = tls::Source::new(args, kube.as_ref());
        tasks.spawn(
            "certificate",
            tls::keep(source, tls::names(args), outlet, service.shutdown.clone()),
        );
        tasks.spawn(
            "certificate readiness",
            certificate_ready(certificates.clone(), check, service.shutdown.clone()),
        );

        let registration = Registration::new(args);
        let keep = |(client, phase): (Client, Phase)| {
            let (called_in, called) = watch::channel(Called::default());
            let what = match phase {
                Phase::Mutation => "mutating webhook configuration",
                Phase::Validation => "webhook configuration",
            };
            let keeper = Keeper {
                phase,
                client,
                registration: registration.clone(),
                metrics: metrics.clone(),
                check: service.readiness.check(what, "policies and a certificate"),
                called: called_in,
            };
            let keep = keeper.run(catalogs.clone(), trust.clone(), service.shutdown.clone());
            tasks.spawn(what, keep);
            called
        };
        let clients = kube
            .into_iter()
            .flat_map(|client| Phase::ALL.map(|phase| (client.clone(), phase)));
        let called = clients.map(keep).collect();

        let beats = Beats {
            bus: Arc::clone(&bus),
            webhook: args.name(address.port()),
            catalogs: catalogs.clone(),
            called,
        };
        tasks.spawn("beats", beats.run(service.shutdown.clone()));

        let hedge = Duration::from_millis(args.query_hedge_ms);
        let facts = Facts::new(
            Arc::clone(&bus),
            metrics.clone(),
            hedge,
            args.audit_cached_calls,
        );
        if let Some(kyverno) = metrics.kyverno.clone() {
            let told = tell_policies(kyverno, catalogs.clone(), service.shutdown.clone());
            tasks.spawn("metrics of policies", told);
        }
        let decider = Decider::new(catalogs, facts, metrics.clone());
        let (violations, telling) = Violations::new(bus, metrics.clone(), service.shutdown.clone());
        tasks.spawn("violations", telling);
        let (existing, changing) = Existing::new(
            decider.clone(),
            violations.clone(),
            metrics.clone(),
            &args.watcher_user,
            service.shutdown.clone(),
        );
        tasks.spawn("objects that exist", changing);
        let endpoint = server::Endpoint::new(decider, violations, existing, metrics);
        tasks.spawn(
            "server",
            server::serve(
                listener,
                certificates,
                endpoint.clone(),
                service.shutdown.clone(),
            ),
        );
        Ok(Self {
            address,
            trust,
            endpoint,
            tasks,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The authority that its certificate is trusted by, in PEM; `None` until there is one.
    pub fn trust(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.trust.clone()
    }

    /// Answers a request as if it had come by TLS: for whoever measures what a decision costs.
    pub async fn answer(&self, request: Request) -> Response {
        self.endpoint.answer(request).await
    }

    /// Waits until everything has ended, which it does on shutdown.
    pub async fn join(self) -> anyhow::Result<()> {
        self.tasks.join().await
    }
}

/// Tells by Kyverno's names which rules there are.
async fn tell_policies(
    metrics: KyvernoMetrics,
    mut catalogs: catalog::Catalogs,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let stop = shutdown.token();
    let mut told: Option<Arc<policies::PolicySet>> = None;
    loop {
        let policies = catalogs
            .borrow_and_update()
            .as_ref()
            .map(|c| Arc::clone(&c.policies));
        if let Some(policies) = policies {
            let is_told = told
                .as_ref()
                .is_some_and(|told| Arc::ptr_eq(told, &policies));
            if !is_told {
                metrics.policies(&policies);
                told = Some(policies);
            }
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Ok(()) = catalogs.changed() => {}
        }
    }
}

/// Says that there is a certificate, or why there is none yet.
async fn certificate_ready(
    certificates: Certificates,
    check: Arc<Check>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let stop = shutdown.token();
    let mut attempts = certificates.attempts();
    loop {
        let seen = attempts.borrow_and_update().clone();
        match seen.last_error {
            _ if seen.accepted > 0 => check.ready(),
            Some(error) => check.not_ready(error),
            None => {}
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            Ok(()) = attempts.changed() => {}
        }
    }
}
