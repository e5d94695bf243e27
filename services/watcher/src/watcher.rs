//! The service: stands by for every group of views, leads it, and begins again.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Bus, LogSize, LogStorage};
use anteroom_mirror::MirrorMetrics;
use anteroom_model::{Group, ObjectKey};
use anteroom_runtime::{Service, backoff::Backoff, supervise::Tasks};
use anteroom_seal::Keys;
use kube::Client;
use tokio::sync::watch;

use crate::{
    args::Args,
    checks::Checks,
    coordinator::{Options, PolicyWriters, SecretsReaders},
    feeds::FeedOptions,
    gateway::{
        calls::{API_CALL_BYTES_MAX, Caller, Services},
        live::{self, LiveArgs, LiveChecks, LiveMetrics, LiveTools},
    },
    log_writer::{
        desired_state::DesiredStateReader, index::Index, lead::Campaign, members::Members,
        publish::End,
    },
    metrics::WatcherMetrics,
    source::apiserver::ApiServer,
    term::{self, Context, TermOutcome},
};

/// The interval at which the API server is asked for its version.
const REACH_INTERVAL: Duration = Duration::from_secs(5);

/// The largest answer to that question.
const VERSION_BYTES_MAX: usize = 64 * 1024;

/// The interval at which groups without a leader are looked for.
const LEAD_INTERVAL: Duration = Duration::from_millis(500);

/// The interval at which it is looked how large the log is, in milliseconds. Where that cannot be known, it is
/// looked again after [`SIZE_RETRY_MS`] and then ever later.
const SIZE_INTERVAL_MS: u64 = 2_000;
const SIZE_RETRY_MS: u64 = 50;

/// Runs the watcher until shutdown is asked for.
///
/// Neither the API server nor the bus need be there: it waits for them, and its readiness says so.
///
/// # Errors
/// If one of its tasks ended by itself, which none should.
pub async fn run(
    args: Args,
    bus: Arc<dyn Bus>,
    client: Client,
    service: Service,
) -> anyhow::Result<()> {
    let (index, index_reader) = Index::new();
    let (live, asker_keys) = (args.live.clone(), args.asker_keys.clone());
    let context = context(args, Arc::clone(&bus), client, index, &service);
    let tasks = Tasks::new(context.shutdown.clone());
    let own = context.clone();
    tasks.spawn_until_shutdown("members", async move {
        own.members.run(&*own.bus).await;
    });
    let own = context.clone();
    tasks.spawn_until_shutdown("desired state", async move {
        own.desired_state.run(&*own.bus).await;
    });
    tasks.spawn_until_shutdown("size of the log", measure(context.clone()));
    tasks.spawn_until_shutdown("index of the log", async move {
        index_reader.run(&*bus).await;
    });
    spawn_live(&tasks, &context, &service, live, asker_keys);
    tasks.spawn_until_shutdown("API server check", reach(context.clone()));
    tasks.spawn_until_shutdown("leadership check", led(context.clone()));
    for group in Group::all() {
        tasks.spawn(
            format!("terms of group {group}"),
            terms(context.clone(), group),
        );
    }
    tasks.spawn("withdrawal", async move {
        context.shutdown.triggered().await;
        context.members.withdraw(&*context.bus).await;
        Ok(())
    });
    tasks.join().await
}

/// Returns what the terms of all groups share.
fn context(
    args: Args,
    bus: Arc<dyn Bus>,
    client: Client,
    index: Index,
    service: &Service,
) -> Context {
    let api = ApiServer::new(client);
    let api_call_bytes_max = args
        .api_call_bytes_max
        .and_then(|bytes| usize::try_from(bytes).ok())
        .unwrap_or(API_CALL_BYTES_MAX);
    let services = Services {
        trusted: args.trusted_service.clone(),
    };
    let caller = Caller::new(api.clone(), api_call_bytes_max, Arc::new(services));
    Context {
        bus,
        api,
        metrics: WatcherMetrics::register(&service.metrics),
        checks: Arc::new(Checks::new(&service.readiness)),
        shutdown: service.shutdown.clone(),
        members: Members::new(&args.holder()),
        index,
        desired_state: DesiredStateReader::new(),
        log_size: watch::Sender::new(LogSize::default()),
        log_faults: watch::Sender::new(None),
        feeds: FeedOptions {
            memory_bytes_max: args.watcher_memory_limit,
            namespace_log_bytes_max: Some(args.namespace_log_bytes_max),
            stale_after: args.stale_after,
            reference_idle_after: args.reference_idle_after,
            keys: args.keys,
            ..FeedOptions::default()
        },
        coordinator: Options {
            cache_api_calls: args.cache_api_calls,
            background_scans: args.background_scans,
            secrets: Arc::new(SecretsReaders(args.allow_secrets)),
            writers: Arc::new(PolicyWriters(match args.shadow {
                true => Vec::new(),
                false => args.allow_writes,
            })),
            reads_exceptions: args.exception_namespace.is_some(),
            is_shadow: args.shadow,
        },
        caller,
        exception_namespace: args.exception_namespace.map(Into::into),
    }
}

/// Starts the live reads and writes.
fn spawn_live(
    tasks: &Tasks,
    context: &Context,
    service: &Service,
    args: LiveArgs,
    asker_keys: Keys,
) {
    let secrets = Arc::clone(&context.coordinator.secrets);
    let writers = Arc::clone(&context.coordinator.writers);
    let live = LiveTools {
        bus: Arc::clone(&context.bus),
        caller: context.caller.clone(),
        metrics: LiveMetrics::register(&service.metrics),
        mirrored: MirrorMetrics::register(&service.scope("live").metrics),
        watcher: context.members.me().to_owned(),
        args,
        may_read_secrets: Arc::new(move |policy: &ObjectKey| secrets.allows_policy(policy)),
        may_write: Arc::new(move |policy: &ObjectKey| writers.allows(policy)),
        asker_keys,
    };
    let check = |name, needs| {
        let waits = format!("the policies, and the subscription for {needs}");
        service.readiness.check(name, waits)
    };
    let checks = LiveChecks {
        reads: check("live-reads", "live reads"),
        writes: check("writes", "writes"),
    };
    let stop = context.shutdown.token();
    tasks.spawn("live reads", async move {
        live::serve(live, checks, stop).await;
        Ok(())
    });
}

/// Stands by for one group, leads it, and begins again.
async fn terms(context: Context, group: Group) -> anyhow::Result<()> {
    let Context {
        bus,
        checks,
        metrics,
        shutdown,
        members,
        ..
    } = &context;
    let mut term_seen = 0;
    loop {
        checks.stands_by(group);
        metrics.log.leads(group, None);
        let campaign = Campaign {
            bus: &**bus,
            group,
            members,
            term_seen,
            bus_check: &checks.bus,
        };
        let leadership = tokio::select! {
            leadership = campaign.win() => leadership,
            () = shutdown.triggered() => return Ok(()),
        };
        term_seen = leadership.term;
        tracing::info!(%group, term = term_seen, holder = members.me(), "leadership started");
        checks.leads(group);
        metrics.log.leads(group, Some(term_seen));
        match Box::pin(term::lead(&context, &leadership)).await? {
            TermOutcome::Shutdown => return Ok(()),
            TermOutcome::HandedOver => tracing::info!(%group, "leadership handed over"),
            TermOutcome::Over(End::Fenced) => tracing::warn!(
                %group,
                "leadership lost: another watcher leads now"
            ),
            TermOutcome::Over(End::LogRemade) => {
                tracing::warn!(
                    %group,
                    "leadership ended: the log was deleted and made again; everything is written again"
                );
            }
            TermOutcome::Over(End::Contradicted) => tracing::warn!(
                %group,
                "leadership ended: the log differs from what was written; the difference is written again"
            ),
            TermOutcome::Over(End::TooLarge) => {
                tracing::warn!(
                    %group,
                    "leadership ended: NATS lowered max_payload; every object is checked against the new limit"
                );
            }
        }
    }
}

/// Keeps readiness and candidacy in step with whether the API server answers: a watcher that cannot reach it leads
/// only groups that no other watcher would lead.
async fn reach(context: Context) {
    loop {
        match context.api.get("/version", VERSION_BYTES_MAX).await {
            Ok(_) => {
                context.checks.api.ready();
                context.members.stand(true);
            }
            Err(fault) => {
                let waits = format!("the API server: {fault}");
                context.checks.api.not_ready(waits);
                context.members.stand(false);
            }
        }
        tokio::time::sleep(REACH_INTERVAL).await;
    }
}

/// Looks every so often how large the log is, and how it is stored.
async fn measure(context: Context) {
    let mut retry = Backoff::new(SIZE_RETRY_MS, SIZE_INTERVAL_MS);
    loop {
        let wait = match context.bus.log_storage().await {
            Ok(LogStorage { size, faults }) => {
                context.metrics.log.size(size);
                context.log_size.send_replace(size);
                context.log_faults.send_replace(Some(faults));
                retry.reset();
                Duration::from_millis(SIZE_INTERVAL_MS)
            }
            Err(_) => retry.next(rand::random()),
        };
        tokio::time::sleep(wait).await;
    }
}

/// Keeps readiness in step with whether every group is led, here or elsewhere.
async fn led(context: Context) {
    let check = &context.checks.lead;
    loop {
        match context.members.leaderless().as_slice() {
            [] => check.ready(),
            groups => {
                let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
                check.not_ready(format!(
                    "groups to be led by a watcher: {}",
                    groups.join(", ")
                ));
            }
        }
        tokio::time::sleep(LEAD_INTERVAL).await;
    }
}
