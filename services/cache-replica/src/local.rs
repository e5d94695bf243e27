//! A replica as its own process asks it: by calls of functions. It says at once that a query takes long.
//!
//! - One that holds views for its process alone has no address and sends no heartbeats. Replicas hold each of these views
//!   too, and are asked where it does not answer. So it pins nothing, and nobody counts on it: a policy is ready only
//!   once a replica serves its views. It has no keys.
//! - Where a replica that serves others is in the process that asks, all its views are local.
//!
//! Sealed views, those of Secrets, are never local. Of views that are chosen, nor are those that only policies of namespaces need.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::{Bus, LogScope};
use anteroom_mirror::{
    ChangeMarks, ContentStamp, Mirror, MirrorConfig, MirrorMetrics, ViewHandle, ViewSet,
};
use anteroom_model::{DesiredView, FactError, SourceKind, ViewId, system};
use anteroom_runtime::Service;
use anteroom_wire::{
    body,
    query::{self, QueryOutcome, QueryRequest, RPC_BYTES_MAX},
};
use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    Args,
    answer::{Answerer, with_reason},
    deadline::Deadline,
    memory::{DesiredOptions, Keeper, Limited, ViewUsage, ViewUsages},
    metrics::{MemoryMetrics, QueryMetrics},
    references::References,
    sealed,
    shares::Patterns,
};

/// The name of a local replica in answers, records and traces.
const NAME: &str = "local";

/// The most local views of a process. The log's server looks at two subjects for each of them, for each record.
const VIEWS_MAX: usize = 32;

/// Evaluations that may have a thread at once. The process has other work, and replicas evaluate most that takes long.
const WORKERS: usize = 2;

/// Slices of large views that are looked through at once.
const SCAN_LANES: usize = 1;

/// Options of a local replica.
#[derive(Clone, Debug)]
pub struct LocalArgs {
    /// The views that are local, in the format of a replica's `--views`.
    pub views: Vec<String>,
    /// The bytes that views, indexes and results may take.
    pub memory_limit: u64,
    /// The age of a view's last news above which the view is stale.
    pub age_max_ms: u64,
}

/// A state of what the watcher says of views. No two states are the same.
pub type OptionsState = ContentStamp;

/// A replica as its own process asks it.
#[derive(Debug)]
pub struct LocalReplica {
    mirror: Arc<Mirror>,
    answerer: Arc<Answerer>,
    uses: Arc<ViewUsages>,
    /// The views that this process chose; `None`: the replica serves other processes too, with all its views.
    chosen: Option<ChosenViews>,
}

/// The views that a replica holds for its process alone.
#[derive(Debug)]
struct ChosenViews {
    patterns: Patterns,
    memory_limit: u64,
    /// The views that it answers for, read or not.
    held: RwLock<HashMap<ViewId, Arc<ViewUsage>>>,
}

impl LocalReplica {
    /// Begins to follow the log, until `stop`. It holds no view before [`LocalReplica::hold`]. Must be called within a
    /// tokio runtime.
    pub fn start(local: &LocalArgs, bus: Arc<dyn Bus>, stop: &CancellationToken) -> Arc<Self> {
        let args = Args {
            replica_id: Some(NAME.to_owned()),
            age_max_ms: local.age_max_ms,
            memory_limit: Some(local.memory_limit),
            workers: Some(WORKERS),
            scan_lanes: Some(SCAN_LANES),
            ..Args::default()
        };
        let config = MirrorConfig {
            age_max_ms: local.age_max_ms,
            ..MirrorConfig::default()
        };
        let mirror = Mirror::start(
            bus,
            LogScope::Views(followed(&[])),
            config,
            MirrorMetrics::default(),
            stop,
        );
        // Nobody serves these metrics: alerts are about replicas, and the process counts its own queries.
        let metrics = QueryMetrics::register(&Service::new(NAME).metrics);
        let references = Arc::new(References::default());
        Arc::new(Self {
            mirror: Arc::new(mirror),
            answerer: Arc::new(Answerer::new(args.name(), &args, metrics, references)),
            uses: Arc::new(ViewUsages::new()),
            chosen: Some(ChosenViews {
                patterns: Patterns::new(&local.views),
                memory_limit: local.memory_limit,
                held: RwLock::default(),
            }),
        })
    }

    /// Returns a replica that serves others too.
    pub(crate) fn serving_others(
        mirror: Arc<Mirror>,
        answerer: Arc<Answerer>,
        uses: Arc<ViewUsages>,
    ) -> Self {
        Self {
            mirror,
            answerer,
            uses,
            chosen: None,
        }
    }

    /// Returns a receiver of the mirrored views, whatever their state.
    pub fn views(&self) -> watch::Receiver<ViewSet> {
        self.mirror.views()
    }

    /// Keeps indexes up with their views, and the views within the memory limit, until `stop`. A replica that serves
    /// others does so itself.
    ///
    /// # Errors
    /// The views are kept within the limit no more.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) -> anyhow::Result<()> {
        let Some(chosen) = &self.chosen else {
            stop.cancelled().await;
            return Ok(());
        };
        let evaluator = Arc::clone(self.answerer.evaluator());
        let keeper = Keeper {
            mirror: Arc::clone(&self.mirror),
            uses: Arc::clone(&self.uses),
            evaluator: Arc::clone(&evaluator),
            metrics: MemoryMetrics::register(&Service::new(NAME).metrics),
            replica: NAME.to_owned(),
            limit: Some(chosen.memory_limit),
            limited: Limited::LocalViews,
            moved: BTreeMap::new(),
            desired: DesiredOptions::default(),
        };
        let indexes = evaluator.derived().run(stop.clone());
        let ((), kept) = tokio::join!(indexes, keeper.run(stop));
        kept
    }

    /// Waits until the options of views are known: before, no view is held.
    pub async fn options_known(&self) {
        let desired_views = system::desired_views();
        loop {
            let mut marks = ChangeMarks::set(&self.mirror, |view| *view == desired_views);
            if self.options_state().is_some() {
                return;
            }
            marks.passed().await;
        }
    }

    /// Returns the state of what the watcher says of views: when it changes, others may be local. `None`: it is not known.
    pub fn options_state(&self) -> Option<OptionsState> {
        let desired = self.mirror.view(&system::desired_views())?;
        let content = desired.read(Some(u64::MAX), |_, position| position.content);
        content.ok()
    }

    /// Answers from now on for those of these views that may be local, and for no others. New views are read from the
    /// log beside the others. Does nothing where none has changed. A replica that serves others holds its views anyway.
    pub fn hold<'v>(&self, views: impl Iterator<Item = &'v ViewId>) {
        let Some(chosen) = &self.chosen else {
            return;
        };
        let mut wanted: Vec<&ViewId> = views
            .filter(|view| may_be_local(view) && chosen.patterns.hold(view))
            .collect();
        wanted.sort_unstable_by(|one, other| rank(one).cmp(&rank(other)));
        wanted.dedup();
        let Some(mut wanted) = self.needed_by_the_cluster(wanted) else {
            return;
        };
        let are_too_many = wanted.len() > VIEWS_MAX;
        wanted.truncate(VIEWS_MAX);
        let mut held = chosen.held.write();
        let has_new = wanted.iter().any(|view| !held.contains_key(*view));
        if !has_new && wanted.len() == held.len() {
            return;
        }
        let usage = |view: &&ViewId| ((*view).clone(), self.uses.get_or_create(view));
        *held = wanted.iter().map(usage).collect();
        drop(held);
        self.mirror.follow(followed(&wanted));
        tracing::info!(views = wanted.len(), "local views changed");
        if are_too_many {
            tracing::warn!(
                views_max = VIEWS_MAX,
                "more views match --local-views than may be local: replicas are asked for the others; name fewer views"
            );
        }
    }

    /// Returns the first of these views that not only policies of namespaces need, one more than may be local. Tenants make
    /// as many of the others as they like, and choose their names. `None`: nobody knows yet who needs them.
    fn needed_by_the_cluster<'v>(&self, views: Vec<&'v ViewId>) -> Option<Vec<&'v ViewId>> {
        let desired = self.mirror.view(&system::desired_views())?;
        let needed = desired.read(Some(u64::MAX), |desired, _| {
            let is_needed = |view: &&ViewId| {
                let record = desired.get("", view.as_str());
                let desired =
                    record.and_then(|record| body::decode::<DesiredView>(record.body()).ok());
                desired.is_some_and(|desired| !desired.options.in_quota)
            };
            let needed = views.into_iter().filter(is_needed);
            needed.take(VIEWS_MAX + 1).collect()
        });
        needed.ok()
    }

    /// Returns true if the view is local, whether it answers or not.
    pub fn holds(&self, view: &ViewId) -> bool {
        match &self.chosen {
            Some(chosen) => chosen.held.read().contains_key(view),
            None => may_be_local(view) && self.mirror.view(view).is_some(),
        }
    }

    /// Answers a request at once; `None`: one of its queries takes long, or the view is not yet where the request
    /// demands it to be. A view that is not fresh does not answer here, whatever age the request accepts.
    pub fn answer_at_once(
        &self,
        view: &ViewId,
        request: &QueryRequest,
        time: Duration,
    ) -> Option<QueryOutcome> {
        match self.find(view, request) {
            Err(error) => Some(Err(error)),
            Ok((handle, usage)) => {
                let deadline = Deadline::after(time);
                let request = request.clone();
                let outcome = self.answerer.answer_at_once(&handle, request, deadline)?;
                Some(limited(outcome, &usage))
            }
        }
    }

    /// Answers a request within this time, on threads of its own where that takes long.
    ///
    /// # Errors
    /// The view does not answer; the query takes too much, or too long.
    pub async fn answer(
        &self,
        view: &ViewId,
        request: &QueryRequest,
        time: Duration,
    ) -> QueryOutcome {
        let (handle, usage) = self.find(view, request)?;
        let deadline = Deadline::after(time);
        // What its values take is counted where they were made.
        let outcome = self.answerer.outcome(&handle, request.clone(), 0, deadline);
        limited(outcome.await, &usage)
    }

    /// Returns the memory that views, indexes and results take.
    pub fn bytes(&self) -> u64 {
        let evaluator = self.answerer.evaluator();
        self.mirror.bytes() + evaluator.derived().bytes() + evaluator.cached_bytes()
    }

    /// Returns a view that a request may be answered from, and notes its use.
    fn find(
        &self,
        view: &ViewId,
        request: &QueryRequest,
    ) -> Result<(ViewHandle, Arc<ViewUsage>), FactError> {
        query::check(request).map_err(|error| FactError::RequestInvalid {
            message: error.to_string(),
        })?;
        let not_here = || FactError::NotSynced {
            view: view.as_str().to_owned(),
            state: "not local".to_owned(),
        };
        let usage = match &self.chosen {
            Some(chosen) => chosen.held.read().get(view).cloned(),
            None => may_be_local(view).then(|| self.uses.get_or_create(view)),
        };
        let usage = usage.filter(|usage| !usage.is_sealed());
        let usage = usage.ok_or_else(not_here)?;
        usage.used();
        let handle = self.mirror.view(view).ok_or_else(not_here)?;
        Ok((handle, usage))
    }
}

/// Returns true if a view may be local. Secrets never are. System views are the watcher's words, which a webhook follows
/// anyway. Objects that are referenced by name are there only while replicas say that somebody reads them.
fn may_be_local(view: &ViewId) -> bool {
    match view.source_kind() {
        SourceKind::Collection | SourceKind::ApiCall => !sealed::is_secret(view),
        SourceKind::Objects | SourceKind::System => false,
    }
}

/// The place of a view among those that may be local: views of whole types first.
fn rank(view: &ViewId) -> (bool, &str) {
    let name = view.as_str();
    (name.contains('~'), name)
}

/// The views of the log that are read: these, and what the watcher says of their options.
fn followed(views: &[&ViewId]) -> Vec<ViewId> {
    let options = std::iter::once(system::desired_views());
    options.chain(views.iter().copied().cloned()).collect()
}

/// Adds the limit to the error of an evicted view, and refuses a reply that a replica could not send.
fn limited(outcome: QueryOutcome, usage: &ViewUsage) -> QueryOutcome {
    let reply = outcome.map_err(|error| with_reason(error, usage))?;
    let bytes: usize = reply.results.iter().flatten().map(Bytes::len).sum();
    if bytes > RPC_BYTES_MAX {
        return Err(FactError::BudgetExceeded {
            message: format!("the results take {bytes} bytes, and {RPC_BYTES_MAX} are the most"),
        });
    }
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use anteroom_mirror::testing::ViewWriter;
    use anteroom_model::{Collection, GroupVersionResource, Source, SourceInfo};

    use super::*;

    #[test]
    fn secrets_system_views_and_references_are_never_local() {
        for (view, expected) in [
            ("ingresses.v1.networking.k8s.io", true),
            ("ingresses.v1.networking.k8s.io~0123456789abcdef", true),
            ("apicall:0123456789abcdef", true),
            ("secrets.v1.example.com", true),
            ("secrets.v1", false),
            ("secrets.v1~0123456789abcdef", false),
            ("secrets.v1~objects", false),
            ("configmaps.v1~objects", false),
        ] {
            assert_eq!(may_be_local(&ViewId::new(view)), expected, "{view}");
        }
        assert!(!may_be_local(&system::policies()));
    }

    #[tokio::test(start_paused = true)]
    async fn only_views_that_match_a_pattern_are_held() {
        let local = LocalArgs {
            views: vec!["*.networking.k8s.io".to_owned(), "services.v1".to_owned()],
            memory_limit: 64 << 20,
            age_max_ms: 60_000,
        };
        let bus: Arc<dyn Bus> = Arc::new(anteroom_bus::local::LocalBus::new());
        let mut writer = ViewWriter::new(Arc::clone(&bus)).await;
        let mut views = Vec::new();
        for (group, plural, in_quota, expected) in [
            ("networking.k8s.io", "ingresses", false, true),
            ("networking.k8s.io", "networkpolicies", true, false),
            ("", "services", false, true),
            ("", "secrets", false, false),
            ("", "pods", false, false),
        ] {
            let gvr = GroupVersionResource::new(group, "v1", plural);
            let view = writer.open(SourceInfo {
                source: Source::Collection(Collection::all(gvr)),
                kind: plural.to_owned(),
                namespaced: true,
            });
            writer.desire(&view, in_quota).await;
            views.push((view, expected));
        }
        // The watcher has not said who needs it.
        views.push((ViewId::new("ipaddresses.v1.networking.k8s.io"), false));
        let replica = LocalReplica::start(&local, bus, &CancellationToken::new());
        let hold_all = || replica.hold(views.iter().map(|(view, _)| view));
        hold_all();
        assert!(views.iter().all(|(view, _)| !replica.holds(view)));
        let beats = async {
            loop {
                writer.beat().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            () = replica.options_known() => {}
            () = beats => {}
        }
        hold_all();
        for (view, expected) in &views {
            assert_eq!(replica.holds(view), *expected, "{view}");
        }
        replica.hold(std::iter::empty());
        assert!(views.iter().all(|(view, _)| !replica.holds(view)));
    }

    #[test]
    fn views_of_whole_types_come_first() {
        let mut views = ["a.v1~0", "z.v1", "b.v1"].map(ViewId::new);
        views.sort_by(|one, other| rank(one).cmp(&rank(other)));
        assert_eq!(
            views.map(|view| view.to_string()),
            ["b.v1", "z.v1", "a.v1~0"]
        );
    }
}
