//! The replica: a mirror of every view, and an endpoint for each.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_bus::{Bus, Connection, LogScope};
use anteroom_mirror::{Mirror, MirrorMetrics, MirrorReadiness, ViewHandle, ViewSet};
use anteroom_model::ViewId;
use anteroom_runtime::{Check, Service, supervise::Tasks};
use anteroom_seal::Keys;
use anyhow::bail;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    Args,
    answer::Answerer,
    beats::Beats,
    endpoint::ViewEndpoint,
    local::LocalReplica,
    memory::{DesiredOptions, Keeper, Limited, ViewUsages},
    metrics::{MemoryMetrics, QueryMetrics},
    references::References,
    shares, waiting,
};

/// Mirrors every view and answers for each, until shutdown is asked for; then drains: returns once
/// every call that was on its way has been answered. The bus stays open.
///
/// # Errors
/// A part of the replica has ended without a request to end.
pub async fn run(args: Args, bus: Arc<dyn Bus>, service: Service) -> anyhow::Result<()> {
    Box::pin(run_and_show(args, bus, service, drop)).await
}

/// Does the same as [`run`], and shows the replica to its process: `anteroom serve` asks it without a bus, and the
/// simulation compares the digests of its views with the log's.
///
/// # Errors
/// As [`run`].
pub async fn run_and_show(
    args: Args,
    bus: Arc<dyn Bus>,
    service: Service,
    show: impl FnOnce(Arc<LocalReplica>) + Send,
) -> anyhow::Result<()> {
    args.check()?;
    let replica = args.name();
    tracing::info!(replica, "replica started");
    let metrics = QueryMetrics::register(&service.metrics);
    let mirrored = MirrorMetrics::register(&service.metrics);
    // The mirror lives until every endpoint is closed: calls that are drained still read its views.
    let living = CancellationToken::new();
    let mirror = start_mirror(&args, &bus, &mirrored, &living);
    let connection = bus.connection();
    let beats_bus = Arc::clone(&bus);
    let references = Arc::new(References::default());
    let answerer = Arc::new(Answerer::new(
        replica.clone(),
        &args,
        metrics.clone(),
        Arc::clone(&references),
    ));
    let evaluator = Arc::clone(answerer.evaluator());
    let uses = Arc::new(ViewUsages::new());
    show(Arc::new(LocalReplica::serving_others(
        Arc::clone(&mirror),
        Arc::clone(&answerer),
        Arc::clone(&uses),
    )));
    let endpoints = Endpoints {
        bus,
        answerer,
        uses: Arc::clone(&uses),
        replica: replica.clone(),
        metrics: metrics.clone(),
        service: service.clone(),
        open: BTreeMap::new(),
        running: JoinSet::new(),
    };
    let tasks = Tasks::new(service.shutdown.clone());
    let stop = service.shutdown.token();
    let check = service.readiness.check("log", "the first read of the log");
    tasks.spawn(
        "readiness",
        readiness(Arc::clone(&mirror), connection, check, stop.clone()),
    );
    tasks.spawn("mirror", {
        let (mirror, stop) = (Arc::clone(&mirror), stop.clone());
        async move {
            tokio::select! {
                () = stop.cancelled() => Ok(()),
                () = mirror.ended() => bail!("the bus was closed"),
            }
        }
    });
    // Endpoints close once the last beat has said that nobody should call this replica any more.
    let closing = CancellationToken::new();
    let beats = Beats {
        bus: beats_bus,
        replica,
        mirror: Arc::clone(&mirror),
        mirrored,
        references,
        bytes_max: args.memory_limit,
        metrics,
        leaving: closing.clone().drop_guard(),
    };
    if args.replication_factor > 0 {
        spawn_shares(&tasks, args.replication_factor, &beats, &service);
    }
    tasks.spawn(
        "keys",
        reopen(Arc::clone(&mirror), args.keys.clone(), stop.clone()),
    );
    let keeper = Keeper {
        mirror: Arc::clone(&mirror),
        uses,
        evaluator,
        metrics: MemoryMetrics::register(&service.metrics),
        replica: beats.replica.clone(),
        limit: args.memory_limit,
        limited: Limited::Process(service.readiness.check("memory", "the first look at it")),
        moved: BTreeMap::new(),
        desired: DesiredOptions::default(),
    };
    spawn_memory(&tasks, keeper, &stop);
    tasks.spawn("beats", beats.run(stop));
    tasks.spawn("endpoints", endpoints.run(mirror, closing));
    let ended = tasks.join().await;
    living.cancel();
    ended
}

/// Starts the mirror of all views.
fn start_mirror(
    args: &Args,
    bus: &Arc<dyn Bus>,
    metrics: &MirrorMetrics,
    living: &CancellationToken,
) -> Arc<Mirror> {
    Arc::new(Mirror::start(
        Arc::clone(bus),
        LogScope::All,
        args.mirror(),
        metrics.clone(),
        living,
    ))
}

/// Starts the sharing of the views with other replicas: `factor` of them hold each view.
fn spawn_shares(tasks: &Tasks, factor: usize, beats: &Beats, service: &Service) {
    let shares = shares::Keeper {
        bus: Arc::clone(&beats.bus),
        mirror: Arc::clone(&beats.mirror),
        replica: beats.replica.clone(),
        factor,
        check: service.readiness.check("share", "who else there is"),
    };
    tasks.spawn("shares", shares.run(service.shutdown.token()));
}

/// Starts what keeps indexes and views within the memory limit.
fn spawn_memory(tasks: &Tasks, keeper: Keeper, stop: &CancellationToken) {
    let evaluator = Arc::clone(&keeper.evaluator);
    tasks.spawn("indexes", {
        let stop = stop.clone();
        async move {
            evaluator.derived().run(stop).await;
            Ok(())
        }
    });
    tasks.spawn("memory", keeper.run(stop.clone()));
}

/// Opens sealed bodies again that could not be opened, whenever the keys change.
async fn reopen(mirror: Arc<Mirror>, keys: Keys, stop: CancellationToken) -> anyhow::Result<()> {
    let mut changes = keys.changes();
    let changing = async {
        while changes.changed().await.is_ok() {
            mirror.reopen();
        }
        std::future::pending::<()>().await;
    };
    stop.run_until_cancelled(changing).await;
    Ok(())
}

async fn readiness(
    mirror: Arc<Mirror>,
    mut connection: watch::Receiver<Connection>,
    check: Check,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut readiness = mirror.readiness();
    let following = async {
        loop {
            match &*readiness.borrow_and_update() {
                MirrorReadiness::Ready => check.ready(),
                MirrorReadiness::ReadyBut(note) => check.ready_but(match *connection.borrow() {
                    Connection::Up => note.clone(),
                    Connection::Down => format!("the bus is out of reach: {note}"),
                }),
                MirrorReadiness::Waiting(reason) => check.not_ready(match *connection.borrow() {
                    Connection::Up => waiting::with_entries(reason, &mirror),
                    Connection::Down => "the bus, which is out of reach".to_owned(),
                }),
            }
            let changed = tokio::select! {
                changed = readiness.changed() => changed,
                changed = connection.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    };
    stop.run_until_cancelled(following).await;
    Ok(())
}

/// An endpoint for each view, while there is the view.
struct Endpoints {
    bus: Arc<dyn Bus>,
    replica: String,
    answerer: Arc<Answerer>,
    uses: Arc<ViewUsages>,
    metrics: QueryMetrics,
    service: Service,
    open: BTreeMap<ViewId, RunningEndpoint>,
    running: JoinSet<()>,
}

struct RunningEndpoint {
    view: ViewHandle,
    stop: CancellationToken,
}

impl Endpoints {
    async fn run(mut self, mirror: Arc<Mirror>, stop: CancellationToken) -> anyhow::Result<()> {
        let mut views = mirror.views();
        loop {
            let set = Arc::clone(&views.borrow_and_update());
            self.keep_up(&set, &stop);
            let changed = tokio::select! {
                changed = views.changed() => changed.is_ok(),
                Some(ended) = self.running.join_next() => match ended {
                    Ok(()) => true,
                    Err(error) => bail!("the endpoint of a view panicked: {error}"),
                },
                () = stop.cancelled() => false,
            };
            if !changed {
                break;
            }
        }
        for open in self.open.values() {
            open.stop.cancel();
        }
        while self.running.join_next().await.is_some() {}
        Ok(())
    }

    /// Closes the endpoints of removed views, and opens an endpoint for each new view. A view that was dropped and
    /// desired again counts as a new view.
    fn keep_up(&mut self, views: &ViewSet, stop: &CancellationToken) {
        self.open.retain(|id, open| {
            let stays = views.get(id).is_some_and(|view| view.is(&open.view));
            if !stays {
                open.stop.cancel();
            }
            stays
        });
        for (id, view) in views.iter() {
            if !self.open.contains_key(id) {
                let stop = stop.child_token();
                self.running.spawn(self.endpoint(view).run(stop.clone()));
                let view = view.clone();
                self.open.insert(id.clone(), RunningEndpoint { view, stop });
            }
        }
    }

    fn endpoint(&self, view: &ViewHandle) -> ViewEndpoint {
        let name = format!("view {}", view.id());
        ViewEndpoint {
            bus: Arc::clone(&self.bus),
            replica: self.replica.clone(),
            view: view.clone(),
            answerer: Arc::clone(&self.answerer),
            usage: self.uses.get_or_create(view.id()),
            metrics: self.metrics.clone(),
            check: self.service.readiness.check(name, "its address on the bus"),
        }
    }
}
