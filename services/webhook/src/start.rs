//! The tasks of a webhook, group by group.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, OnceLock},
    time::Duration,
};

use anteroom_bus::Bus;
use anteroom_cache_replica::{LocalArgs, LocalReplica};
use anteroom_engine::{
    catalog::{self, Catalog, CatalogOutlets, Catalogs, LogPosition},
    decide::Engine,
    facts::{BusFacts, LocalViews},
    mutate_existing::MutateExisting,
    recorder::SharedRecorder,
    violations::Violations,
};
use anteroom_model::ViewId;
use anteroom_policy::Phase;
use anteroom_runtime::{Check, Service, Shutdown, certs::Certificates, supervise::Tasks};
use kube::Client;
use tokio::sync::watch;

use crate::{
    args::Args,
    beats::Beats,
    drain::Drain,
    exempt::Exempt,
    local_views::{self, ReplicaViews},
    metrics::{KyvernoMetrics, WebhookMetrics},
    ready,
    registration::{
        Keeper, KnownConfigurations, PathTokens, ProvenPosition, Registration, lagging_check,
    },
    server,
    tap::{Taps, Teller},
    tls,
};

/// The share of the memory for reviews that is for their facts.
const FACTS_DIVISOR: u64 = 3;

/// The authority that the certificate is trusted by.
type Trust = watch::Receiver<Option<Arc<str>>>;

/// The handles that the tasks are begun with.
pub(crate) struct TaskHandles<'a> {
    args: &'a Args,
    bus: Arc<dyn Bus>,
    /// The service, whose shutdown is the end of the drain.
    service: Service,
    drain: Drain,
    metrics: WebhookMetrics,
    known: KnownConfigurations,
    tokens: PathTokens,
    /// The system views that the log contradicts.
    contradicted: watch::Sender<Vec<ViewId>>,
    pub(crate) tasks: Tasks,
}

impl<'a> TaskHandles<'a> {
    /// Prepares the start; no part runs yet. The tasks of all parts run on for `drains_for` once the process is asked to stop.
    pub(crate) fn new(
        args: &'a Args,
        bus: Arc<dyn Bus>,
        service: &Service,
        drains_for: Duration,
    ) -> Self {
        let drain = Drain::new(&service.shutdown, drains_for);
        let tasks = Tasks::new(drain.stop().clone());
        if let Some(task) = drain.task() {
            tasks.spawn("drain", task);
        }
        let mut metrics = WebhookMetrics::register(&service.metrics);
        if args.kyverno_metric_names {
            metrics.kyverno = Some(KyvernoMetrics::register(&service.metrics));
        }
        Self {
            args,
            bus,
            service: Service {
                shutdown: drain.stop().clone(),
                ..service.clone()
            },
            drain,
            metrics,
            known: KnownConfigurations::default(),
            tokens: PathTokens::default(),
            contradicted: watch::Sender::new(Vec::new()),
            tasks,
        }
    }

    fn shutdown(&self) -> Shutdown {
        self.service.shutdown.clone()
    }

    fn recorder(&self) -> SharedRecorder {
        Arc::new(self.metrics.clone())
    }

    fn bus(&self) -> Arc<dyn Bus> {
        Arc::clone(&self.bus)
    }

    /// Follows the log, and sets readiness once replicas serve the views that policies need.
    pub(crate) fn policies(&self) -> Catalogs {
        let (catalogs_in, catalogs) = watch::channel(None::<Arc<Catalog>>);
        let readiness = &self.service.readiness;
        let check = readiness.check("policies", "the first read of the log");
        let service = self.service.clone();
        let outlets = CatalogOutlets {
            catalogs: catalogs_in,
            contradicted: self.contradicted.clone(),
            check,
        };
        let follow = catalog::follow(self.bus(), service, self.recorder(), outlets);
        self.tasks.spawn("policies", follow);
        let check = readiness.check("views", "the policies, which say what is needed");
        let keep = ready::keep(self.bus(), catalogs.clone(), check, self.shutdown());
        self.tasks.spawn("views", keep);
        catalogs
    }

    /// Keeps a certificate.
    pub(crate) fn certificate(&self, kube: Option<&Client>) -> (Certificates, Trust) {
        let certificates = Certificates::new(&self.service.metrics);
        let (trust_in, trust) = watch::channel(None);
        let readiness = &self.service.readiness;
        let check = Arc::new(readiness.check("certificate", "a certificate to serve with"));
        let outlet = tls::CertificateChannels {
            certificates: certificates.clone(),
            trust: trust_in,
            tokens: self.tokens.clone(),
            check: Arc::clone(&check),
        };
        let source = tls::Source::new(self.args, kube);
        let keep = tls::keep(source, tls::names(self.args), outlet, self.shutdown());
        self.tasks.spawn("certificate", keep);
        let ready = certificate_ready(certificates.clone(), check, self.shutdown());
        self.tasks.spawn("certificate readiness", ready);
        (certificates, trust)
    }

    /// Keeps the two configurations, if this webhook registers itself.
    pub(crate) fn registration(
        &self,
        kube: Option<Client>,
        catalogs: &Catalogs,
        trust: &Trust,
    ) -> Vec<watch::Receiver<ProvenPosition>> {
        let registration = Registration::new(self.args);
        if let Some(client) = &kube {
            let readiness = &self.service.readiness;
            let check = readiness.check("left behind", "the bus");
            let name = self.args.webhook_configuration.clone();
            let (client, bus, stop) = (client.clone(), self.bus(), self.shutdown());
            let keep = lagging_check::keep(client, name, bus, catalogs.clone(), check, stop);
            self.tasks.spawn("left behind", keep);
        }
        let keep = |(client, phase): (Client, Phase)| {
            let (proven_in, proven) = watch::channel(ProvenPosition::default());
            let what = match phase {
                Phase::Mutation => "mutating webhook configuration",
                Phase::Validation => "webhook configuration",
            };
            let readiness = &self.service.readiness;
            let keeper = Keeper {
                phase,
                client,
                bus: self.bus(),
                registration: registration.clone(),
                exemptions: self.args.exemptions.clone(),
                known: self.known.clone(),
                tokens: self.tokens.clone(),
                metrics: self.metrics.clone(),
                check: readiness.check(what, "policies and a certificate"),
                proven: proven_in,
            };
            let keep = keeper.run(catalogs.clone(), trust.clone(), self.shutdown());
            self.tasks.spawn(what, keep);
            proven
        };
        let clients = kube
            .into_iter()
            .flat_map(|client| Phase::ALL.map(|phase| (client.clone(), phase)));
        clients.map(keep).collect()
    }

    /// Publishes the position up to which this webhook enforces the log.
    pub(crate) fn beats(
        &self,
        address: SocketAddr,
        catalogs: &Catalogs,
        proven: Vec<watch::Receiver<ProvenPosition>>,
    ) {
        let beats = Beats {
            bus: self.bus(),
            webhook: self.args.name(address.port()),
            catalogs: catalogs.clone(),
            proven,
            furthest: LogPosition::default(),
            contradicted: self.contradicted.subscribe(),
        };
        self.tasks.spawn("beats", beats.run(self.shutdown()));
    }

    /// Begins the tasks that follow decisions, and returns the endpoint that decides.
    ///
    /// Returns the service for decisions. `registers`: the webhook writes its configurations at the API server.
    pub(crate) fn decisions(
        &self,
        catalogs: Catalogs,
        registers: bool,
        address: SocketAddr,
    ) -> server::Endpoint {
        let hedge = Duration::from_millis(self.args.query_hedge_ms);
        let (recorder, ratio) = (self.recorder(), self.args.audit_cached_calls);
        let (keys, told) = (self.args.asker_keys.clone(), Arc::clone(&recorder));
        let facts = BusFacts::new(self.bus(), keys, told, hedge, ratio);
        let facts = facts.with_patience(Duration::from_secs(self.args.outage_patience_seconds));
        let memory_bytes = self.args.review_memory_limit;
        let fact_bytes = memory_bytes / FACTS_DIVISOR;
        let mut facts = facts.with_memory(fact_bytes);
        if let Some(replica) = &self.args.replica {
            facts = facts.with_local(Arc::new(ReplicaViews(Arc::clone(replica))));
        } else if !self.args.local_views.is_empty() {
            facts = facts.with_local(self.local_views(&catalogs));
        }
        let engine = Engine::new(catalogs, facts, Arc::clone(&recorder));
        let (violations, telling) =
            Violations::new(self.bus(), Arc::clone(&recorder), self.shutdown());
        self.tasks.spawn("violations", telling);
        let (existing, changing) = MutateExisting::new(
            engine.clone(),
            violations.clone(),
            recorder,
            self.args.watcher_user.as_deref(),
            self.takes_known_clients(),
            self.shutdown(),
        );
        self.tasks.spawn("objects that exist", changing);
        let taps = Taps::new(self.metrics.taps_open.clone());
        let teller = Teller {
            bus: self.bus(),
            taps: taps.clone(),
            webhook: self.args.name(address.port()),
            is_shadow: self.args.shadow,
        };
        self.tasks.spawn("taps", teller.run(self.shutdown()));
        server::Endpoint::new(server::App {
            engine,
            exempt: Exempt::new(self.args.exemptions.clone()),
            violations,
            existing,
            known: self.known.clone(),
            callers: self.callers(registers),
            metrics: self.metrics.clone(),
            taps,
            memory: server::ReviewMemory::new(memory_bytes - fact_bytes),
            receiving: server::Receiving::default(),
            drain: self.drain.clone(),
            is_shadow: self.args.shadow,
        })
    }

    /// Begins to hold the views that are local.
    fn local_views(&self, catalogs: &Catalogs) -> Arc<dyn LocalViews> {
        let local = LocalArgs {
            views: self.args.local_views.clone(),
            memory_limit: self.args.local_views_memory_limit,
            age_max_ms: self.args.stale_after_ms,
        };
        let stop = self.shutdown().token();
        let replica = LocalReplica::start(&local, self.bus(), &stop);
        let run = Arc::clone(&replica).run(stop);
        self.tasks.spawn("local views", run);
        let (catalogs, bytes) = (catalogs.clone(), self.metrics.local_views_bytes.clone());
        let keep = local_views::keep(Arc::clone(&replica), catalogs, bytes, self.shutdown());
        self.tasks.spawn("choice of local views", keep);
        Arc::new(ReplicaViews(Arc::new(OnceLock::from(replica))))
    }

    /// Returns whether every client has to prove its identity.
    fn takes_known_clients(&self) -> bool {
        self.args.clients.client_ca_file.is_some()
    }

    fn callers(&self, registers: bool) -> server::Callers {
        if registers && !self.takes_known_clients() {
            tracing::warn!(
                "callers not authenticated: whoever knows the path in the webhook configurations may send reviews; \
                 set --client-ca-file to ask the API server for its certificate"
            );
        }
        server::Callers {
            tokens: self.tokens.clone(),
            takes_plain_paths: !registers || self.args.allow_plain_paths,
        }
    }

    /// Begins to answer reviews over HTTPS.
    pub(crate) fn server(
        &self,
        listener: TcpListener,
        certificates: Certificates,
        endpoint: &server::Endpoint,
    ) {
        let clients = self.args.clients.clients();
        if let (Some(clients), Some(file)) = (&clients, &self.args.clients.client_ca_file) {
            let (clients, file, stop) = (clients.clone(), file.clone(), self.shutdown().token());
            self.tasks.spawn("client authorities", async move {
                stop.run_until_cancelled(clients.follow(file)).await;
                Ok(())
            });
        }
        let serve = server::serve(listener, certificates, clients, endpoint.clone());
        self.tasks.spawn("server", serve);
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
