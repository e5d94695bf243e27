//! The service: for every group of views, stands by, leads, and begins again.

use std::{sync::Arc, time::Duration};

use anteroom_bus::Bus;
use anteroom_mirror::MirrorMetrics;
use anteroom_model::Group;
use anteroom_runtime::Service;
use anyhow::{Context as _, bail};
use kube::Client;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    apiserver::ApiServer,
    args::Args,
    calls::{API_CALL_BYTES_MAX, Caller},
    checks::Checks,
    feeds::FeedOptions,
    index::Index,
    lead::Campaign,
    live::{self, LiveMetrics, LiveTools},
    members::Members,
    metrics::WatcherMetrics,
    permits::SecretsReaders,
    publish::End,
    term::{self, Outcome, Setting},
    wants::WantsReader,
};

/// How often it is looked whether the API server answers.
const REACH_INTERVAL: Duration = Duration::from_secs(5);

/// The largest answer to that.
const VERSION_BYTES_MAX: usize = 64 * 1024;

/// How often it is looked whether every group is led.
const LEAD_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the watcher until shutdown is asked for.
///
/// Neither the API server nor the bus need be there: it waits for them, and its readiness says so.
///
/// # Errors
/// Where a part of it ended by itself, which none should.
pub async fn run(
    args: Args,
    bus: Arc<dyn Bus>,
    client: Client,
    service: Service,
) -> anyhow::Result<()> {
    let (index, index_reader) = Index::new();
    let setting = Setting {
        bus: Arc::clone(&bus),
        api: ApiServer::new(client),
        metrics: WatcherMetrics::register(&service.metrics),
        checks: Arc::new(Checks::new(&service.readiness)),
        shutdown: service.shutdown.clone(),
        members: Members::new(&args.holder()),
        index,
        wants: WantsReader::new(),
        feeds: FeedOptions {
            memory_bytes_max: args.watcher_memory_limit,
            stale_after: args.stale_after,
            reference_idle_after: args.reference_idle_after,
            keys: args.keys,
            ..FeedOptions::default()
        },
        cache_api_calls: args.cache_api_calls,
        background_scans: args.background_scans,
        api_call_bytes_max: args
            .api_call_bytes_max
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(API_CALL_BYTES_MAX),
        secrets: Arc::new(SecretsReaders(args.allow_secrets)),
        exception_namespace: args.exception_namespace.map(Into::into),
    };
    let mut parts = JoinSet::new();
    let of = setting.clone();
    parts.spawn(async move { of.members.run(&*of.bus).await });
    let of = setting.clone();
    parts.spawn(async move { of.wants.run(&*of.bus).await });
    parts.spawn(async move { index_reader.run(&*bus).await });
    let secrets = Arc::clone(&setting.secrets);
    let live = LiveTools {
        bus: Arc::clone(&setting.bus),
        caller: Caller::new(setting.api.clone(), setting.api_call_bytes_max),
        metrics: LiveMetrics::register(&service.metrics),
        mirrored: MirrorMetrics::registered(&service.scope("live").metrics),
        watcher: setting.members.me().to_owned(),
        args: args.live,
        may_read_secrets: Arc::new(move |namespace: &str, name: &str| {
            secrets.allows_policy(namespace, name)
        }),
    };
    let check = service.readiness.check(
        "live-reads",
        "the policies to be read, and a place on the bus",
    );
    let stop = setting.shutdown.token();
    let live = tokio::spawn(async move { live::serve(live, check, stop).await });
    let live = AbortOnDropHandle::new(live);
    parts.spawn(reach(setting.clone()));
    parts.spawn(led(setting.clone()));
    let mut groups = JoinSet::new();
    for group in Group::all() {
        groups.spawn(terms(setting.clone(), group));
    }
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = groups.join_next() => match ended {
                None => {
                    // It drains by itself.
                    return live.await.context("live reads panicked");
                }
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => return Err(error),
                Some(Err(panic)) => bail!("a part of the watcher panicked: {panic}"),
            },
            Some(ended) = parts.join_next() => match ended {
                Ok(()) => bail!("a part of the watcher ended by itself"),
                Err(panic) => bail!("a part of the watcher panicked: {panic}"),
            },
            () = setting.shutdown.triggered(), if !stopping => {
                stopping = true;
                setting.members.withdraw(&*setting.bus).await;
            }
        }
    }
}

/// Stands by for one group, leads it, and begins again.
async fn terms(setting: Setting, group: Group) -> anyhow::Result<()> {
    let Setting {
        bus,
        checks,
        metrics,
        shutdown,
        members,
        ..
    } = &setting;
    let mut term_seen = 0;
    loop {
        checks.stands_by(group);
        metrics.leads(group, None);
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
        tracing::info!(%group, term = term_seen, holder = members.me(), "leading");
        checks.leads(group);
        metrics.leads(group, Some(term_seen));
        match Box::pin(term::lead(&setting, &leadership)).await? {
            Outcome::Shutdown => return Ok(()),
            Outcome::HandedOver => tracing::info!(%group, "handed over"),
            Outcome::Over(End::Fenced) => tracing::warn!(%group, "another watcher leads now"),
            Outcome::Over(End::LogRemade) => {
                tracing::warn!(%group, "the log was made anew: everything is written again");
            }
            Outcome::Over(End::TooLarge) => {
                tracing::warn!(%group, "the bus takes smaller messages: what is larger is looked for");
            }
        }
    }
}

/// Keeps saying whether the API server answers: a watcher that cannot reach it leads only what nobody
/// else would.
async fn reach(setting: Setting) {
    loop {
        match setting.api.get("/version", VERSION_BYTES_MAX).await {
            Ok(_) => {
                setting.checks.api.ready();
                setting.members.stand(true);
            }
            Err(fault) => {
                let waits = format!("the API server: {fault}");
                setting.checks.api.not_ready(waits);
                setting.members.stand(false);
            }
        }
        tokio::time::sleep(REACH_INTERVAL).await;
    }
}

/// Keeps saying whether every group is led, here or elsewhere.
async fn led(setting: Setting) {
    let check = &setting.checks.lead;
    loop {
        match setting.members.leaderless().as_slice() {
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
