//! The watches of one group: from the desired views and references to the objects in the log.
//!
//! | module | content |
//! |---|---|
//! | `type_feed` | one type: its views, references and watches |
//! | `plan`, `assign`, `join` | which watches run; which view hears which; joining a running watch |
//! | `hub`, `member`, `running_watch`, `index` | the state: type, view, watch, views by key |
//! | `shared_hub` | the lock of a type's state, and the order in which it and the write queue are locked |
//! | `sink`, `labels`, `held_events` | a watch's events on their way to the views, or held back |
//! | `references`, `reads` | objects followed one by one; the pace of single reads |
//! | `memory`, `metrics` | the memory of all feeders; the watches that are planned |

//!
//! ## Starting over
//!
//! A view starts over in one of five ways, each of which opens a new epoch. The first four have the same names
//! in these modules and in the write queue.
//!
//! | verb | when | objects known of the log | `Member::since` | changes that wait | lists |
//! |---|---|---|---|---|---|
//! | `reread` | bodies have to be sealed otherwise | stay; each is written again | version that its watches brought | dropped | its watches list again; an older list than `since` does not count |
//! | `restart_history` | the source was restored | stay; each is written again | empty | dropped | all watches of the type list again; the next list counts |
//! | `switch_watches` | the plan has other watches for it | stay; differences are written | version that its watches brought | kept, in the new epoch | its new watches list, or its own list is read beside them |
//! | `resume_after_full` | the log has room again | forgotten: the log has none | as `reread` | none | as `reread` |
//! | `resume_after_shed` | the memory limit has room again | as in a new view: it is closed and opened again | empty | none | its watches list again |

mod assign;
mod held_events;
mod hub;
mod index;
mod join;
mod labels;
mod member;
mod memory;
mod metrics;
mod plan;
mod reads;
mod references;
mod running_watch;
mod shared_hub;
mod sink;
mod type_feed;

use std::{collections::HashMap, sync::Arc, time::Duration};

use anteroom_model::{
    DesiredView, GroupVersionResource, ObjectKey, ObjectReference, Source, SourceInfo, ViewId,
    ViewOptions,
};
use anteroom_seal::Keys;
use tokio::time::Instant;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Interval,
};

use crate::{
    log_writer::{
        log_snapshot::LogSnapshot,
        publish::{Opening, Publisher, ViewSize, WriteQueue},
    },
    source::{apiserver::ApiServer, metrics::SourceMetrics},
};
pub(crate) use memory::{LIMIT_MIN, Memory, MemoryAccount};
use memory::{MemoryStep, Usage};
pub(crate) use metrics::FeedMetrics;
use type_feed::{AssignOutcome, Done, TypeFeed};

/// The time from the first change of the desired views to the next plan of the watches. The plan takes in all changes
/// of that time. If four times the duration of the last plan is longer, that time is used.
const PLAN_DEBOUNCE: Duration = Duration::from_millis(10);

/// The interval at which idle references and memory are looked at.
const TICK: Duration = Duration::from_secs(1);

/// The parts that a feeder works with.
#[derive(Clone)]
pub(crate) struct FeedTools {
    /// The API server.
    pub api: ApiServer,
    /// The writer of the log.
    pub publisher: Publisher,
    /// Counts planned watches.
    pub metrics: FeedMetrics,
    /// Counts the objects and events of the watches.
    pub source_metrics: SourceMetrics,
    /// Changes whenever the API server begins or ceases to serve something.
    pub served: watch::Sender<()>,
    /// Its options.
    pub options: FeedOptions,
}

/// Options of a feeder, as the command line has them.
#[derive(Clone, Debug)]
pub(crate) struct FeedOptions {
    /// `--stale-after`: a watch that was silent for this long counts as dead.
    pub stale_after: Duration,
    /// `--reference-idle-after`: an object with a watch of its own loses it after this long without a reader.
    pub reference_idle_after: Duration,
    /// `--watcher-memory-limit`: the most bytes that the state of all views may take; `None`: there is no limit.
    pub memory_bytes_max: Option<u64>,
    /// `--namespace-log-bytes-max`: bytes of the log that views which only policies of one namespace read may
    /// take in each group; `None`: there is no limit.
    pub namespace_log_bytes_max: Option<u64>,
    /// The memory of the whole process.
    pub memory: Memory,
    /// The keys that Secrets are sealed with.
    pub keys: Keys,
}

impl Default for FeedOptions {
    fn default() -> Self {
        Self {
            stale_after: Duration::from_secs(60),
            reference_idle_after: Duration::from_secs(10 * 60),
            memory_bytes_max: None,
            namespace_log_bytes_max: None,
            memory: Memory::default(),
            keys: Keys::none(),
        }
    }
}

/// Runs the watches of one group for one term. Every method but [`Feeder::drive`] only notes the wish; the work is
/// done while `drive` is awaited.
pub(crate) struct Feeder {
    tools: FeedTools,
    /// Views of the log that were not started in this term.
    inherited: LogSnapshot,
    types: HashMap<GroupVersionResource, TypeFeed>,
    views: HashMap<ViewId, DesiredView>,
    tasks: JoinSet<Done>,
    /// A watch asks for a new plan.
    planned: Arc<Notify>,
    ticks: Interval,
    /// The time since which the plan is outdated, and how long the last one took.
    dirty: Option<Instant>,
    took: Duration,
    rotated: watch::Receiver<u64>,
    memory: memory::MemoryAccount,
    /// All desired views are known.
    settled: bool,
    /// Times that watches of a type were planned.
    #[cfg(test)]
    plans: u64,
}

impl Feeder {
    /// Returns a feeder at the start of a term, with the group's state in the log.
    pub(crate) fn new(tools: FeedTools, inherited: LogSnapshot) -> Self {
        let FeedOptions {
            memory_bytes_max,
            namespace_log_bytes_max,
            memory,
            keys,
            ..
        } = &tools.options;
        tools
            .publisher
            .with(|queue| queue.limit_namespaces(*namespace_log_bytes_max));
        if let Some(bytes_max) = memory_bytes_max {
            let pending_max = usize::try_from(bytes_max / 4).unwrap_or(usize::MAX);
            tools
                .publisher
                .with(|queue| queue.limit_pending(pending_max));
        }
        Self {
            rotated: keys.changes(),
            memory: memory.account(),
            tools,
            inherited,
            types: HashMap::new(),
            views: HashMap::new(),
            tasks: JoinSet::new(),
            planned: Arc::default(),
            ticks: tokio::time::interval(TICK),
            dirty: None,
            took: Duration::ZERO,
            settled: false,
            #[cfg(test)]
            plans: 0,
        }
    }

    /// The view is desired, or its options changed.
    pub(crate) fn desire(&mut self, view: &ViewId, desired: DesiredView) {
        let Some(gvr) = desired.info.gvr().cloned() else {
            return; // The coordinator's own.
        };
        let before = self.views.insert(view.clone(), desired.clone());
        let DesiredView { info, options } = desired;
        if let Some(before) = before {
            if before.options.sealed != options.sealed {
                self.changed_type(&gvr, &info).seal(view, options.sealed);
            }
            let quotas = |options: &ViewOptions| (options.in_quota, options.namespaces_limited);
            if quotas(&before.options) != quotas(&options) {
                let publisher = &self.tools.publisher;
                publisher.with(|queue| set_quotas(queue, view, &options));
            }
            return;
        }
        self.start(view, &gvr, info, &options);
    }

    fn start(
        &mut self,
        view: &ViewId,
        gvr: &GroupVersionResource,
        info: SourceInfo,
        options: &ViewOptions,
    ) {
        let inherited = self.inherited.take(view);
        tracing::info!(%view, known = inherited.objects.len(), "view started");
        let opening = Opening {
            origin: inherited.origin,
            age_max_ms: None,
        };
        let handle = self.tools.publisher.with(|queue| {
            inherited
                .unpurged
                .into_iter()
                .for_each(|record| queue.free(record));
            let handle = queue.open_with(info.clone(), inherited.objects, opening);
            set_quotas(queue, view, options);
            handle
        });
        let feed = self.changed_type(gvr, &info);
        feed.inherit_version(inherited.version);
        match info.source {
            Source::Collection(collection) => feed.view(handle, &collection, options.sealed),
            Source::Objects { .. } => feed.objects(handle, options.sealed),
            // They have no type, so no feeder is asked for them.
            Source::ApiCall { .. } | Source::System { .. } => {}
        }
    }

    /// The view is not desired any more.
    pub(crate) fn undesire(&mut self, view: &ViewId) {
        let Some(desired) = self.views.remove(view) else {
            return;
        };
        tracing::info!(%view, "view stopped: nobody needs it any more");
        self.memory.forget(view);
        if let Some(gvr) = desired.info.gvr() {
            self.changed_type(gvr, &desired.info).forget(view);
        }
        self.tools.publisher.with(|queue| queue.close(view));
    }

    /// The object is referenced, or counts otherwise in the quota of its namespace. Its view is desired too, before or
    /// after.
    pub(crate) fn refer(&mut self, reference: &ObjectReference) {
        let now = Instant::now();
        self.dirty.get_or_insert(now);
        let hub = &self.type_feed(&reference.gvr).hub;
        hub.locked(|hub, queue| {
            let ObjectReference {
                object, in_quota, ..
            } = reference;
            hub.references.refer(object, *in_quota, now, queue);
        });
    }

    /// The object is not referenced any more.
    pub(crate) fn unrefer(&mut self, reference: &ObjectReference) {
        if let Some(feed) = self.types.get_mut(&reference.gvr)
            && feed.unrefer(&reference.object)
        {
            self.dirty.get_or_insert_with(Instant::now);
        }
    }

    /// A referenced object was read, or a reader asked for one that is idle.
    pub(crate) fn read(&mut self, view: &ViewId, object: &ObjectKey) {
        let Some(gvr) = self.views.get(view).and_then(|wanted| wanted.info.gvr()) else {
            return;
        };
        if let Some(feed) = self.types.get_mut(gvr)
            && feed.hub.lock().references.wake(object, Instant::now())
        {
            feed.needs_plan = true;
            self.dirty.get_or_insert_with(Instant::now);
        }
    }

    /// Notes that all desired views are known: views that only the log has are freed.
    pub(crate) fn settled(&mut self) {
        self.settled = true;
        for record in self.inherited.drain() {
            tracing::info!(view = %record.view, "view of an earlier term freed: nobody needs it");
            self.tools.publisher.with(|queue| queue.free(record));
        }
        self.types.values_mut().for_each(TypeFeed::settle);
    }

    /// Works for ever. It returns only an error of a task that should not have ended, which ends the term. Dropping
    /// the future loses nothing.
    pub(crate) async fn drive(&mut self) -> anyhow::Error {
        loop {
            let debounce = PLAN_DEBOUNCE.max(self.took * 4);
            let due = self.dirty.map(|since| since + debounce);
            tokio::select! {
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok(Done::Sized(gvr, size)) => self.sized(&gvr, &size),
                    Ok(Done::Joined(gvr)) => self.assign_more(&gvr),
                    Ok(Done::Allowed(gvr, scopes)) => self.allowed(&gvr, &scopes),
                    Ok(Done::Watched(view)) => {
                        return anyhow::anyhow!("the watch of {view} ended by itself");
                    }
                    Err(stopped) if stopped.is_cancelled() => {}
                    Err(panic) => return anyhow::anyhow!("a watch panicked: {panic}"),
                },
                () = self.planned.notified() => self.replan(),
                _ = self.ticks.tick() => self.tick(),
                Ok(()) = self.rotated.changed() => {
                    self.types.values_mut().for_each(TypeFeed::reseal);
                }
                () = until(due) => self.plan(),
            }
        }
    }

    /// Returns the type of a view that changes: its watches are planned anew.
    fn changed_type(&mut self, gvr: &GroupVersionResource, info: &SourceInfo) -> &mut TypeFeed {
        self.dirty.get_or_insert_with(Instant::now);
        let feed = self.type_feed(gvr);
        feed.needs_plan = true;
        if feed.kind.is_empty() {
            feed.kind.clone_from(&info.kind);
        }
        feed
    }

    fn type_feed(&mut self, gvr: &GroupVersionResource) -> &mut TypeFeed {
        let new = || TypeFeed::new(gvr.clone(), self.settled, &self.tools);
        self.types.entry(gvr.clone()).or_insert_with(new)
    }

    fn sized(&mut self, gvr: &GroupVersionResource, size: &type_feed::Size) {
        if let Some(feed) = self.types.get_mut(gvr) {
            feed.take_size(size);
            self.dirty.get_or_insert_with(Instant::now);
        }
    }

    fn allowed(&mut self, gvr: &GroupVersionResource, scopes: &[plan::WatchScope]) {
        if let Some(feed) = self.types.get_mut(gvr)
            && feed.allowed(scopes)
        {
            self.dirty.get_or_insert_with(Instant::now);
        }
    }

    fn replan(&mut self) {
        self.types
            .values_mut()
            .for_each(|feed| feed.needs_plan = true);
        self.dirty.get_or_insert_with(Instant::now);
    }

    fn plan(&mut self) {
        let begun = Instant::now();
        self.dirty = None;
        for feed in self.types.values_mut() {
            let (tools, planned, tasks) = (&self.tools, &self.planned, &mut self.tasks);
            let outcome = match std::mem::take(&mut feed.needs_plan) {
                true => AssignOutcome::ByPlan,
                false => feed.assign_to_running_watch(tools, planned, tasks),
            };
            match outcome {
                AssignOutcome::All => {}
                AssignOutcome::Later => self.dirty = Some(begun),
                AssignOutcome::ByPlan => {
                    #[cfg(test)]
                    {
                        self.plans += 1;
                    }
                    feed.reconcile(tools, planned, tasks);
                    if feed.has_stub_reads() {
                        self.dirty = Some(begun);
                    }
                }
            }
        }
        self.took = begun.elapsed();
    }

    /// A list beside a watch has ended: joins that wait for a free slot begin.
    fn assign_more(&mut self, gvr: &GroupVersionResource) {
        let (tools, planned, tasks) = (&self.tools, &self.planned, &mut self.tasks);
        if let Some(feed) = self.types.get_mut(gvr).filter(|feed| !feed.needs_plan)
            && feed.assign_to_running_watch(tools, planned, tasks) != AssignOutcome::All
        {
            self.dirty.get_or_insert_with(Instant::now);
        }
    }

    /// Does the steps that become due by time alone.
    fn tick(&mut self) {
        let now = Instant::now();
        let FeedTools {
            publisher, options, ..
        } = &self.tools;
        let mut dirty = false;
        for feed in self.types.values_mut() {
            dirty |= feed.tick(options.reference_idle_after, now);
            feed.probe_forbidden(now, &self.tools, &mut self.tasks);
        }
        if dirty {
            self.dirty.get_or_insert_with(Instant::now);
        }
        if let Some(view) = publisher.read(|queue| queue.next_to_resume(now)) {
            self.resume_after_full(&view, now);
        }
        let publisher = &self.tools.publisher;
        if let Some(view) = publisher.read(|queue| queue.next_to_list_for_stubs(now)) {
            self.list_for_stubs(&view, now);
        }
        if let Some(bytes_max) = self.tools.options.memory_bytes_max {
            self.limit_memory(bytes_max, now);
        }
    }

    /// A namespace has room again for objects of a view that are stubs in the log.
    fn list_for_stubs(&mut self, view: &ViewId, now: Instant) {
        let gvr = self.views.get(view).and_then(|wanted| wanted.info.gvr());
        if let Some(feed) = gvr.and_then(|gvr| self.types.get_mut(gvr)) {
            feed.list_for_stubs(view, now);
            self.dirty.get_or_insert_with(Instant::now);
        }
    }

    /// There is room again in the log for a view that was suspended.
    fn resume_after_full(&mut self, view: &ViewId, now: Instant) {
        let gvr = self.views.get(view).and_then(|wanted| wanted.info.gvr());
        if let Some(feed) = gvr.and_then(|gvr| self.types.get_mut(gvr)) {
            feed.resume_after_full(view, now);
            self.dirty.get_or_insert_with(Instant::now);
        }
    }

    /// Stops a view if the memory limit is exceeded, and feeds one again once there is room.
    fn limit_memory(&mut self, bytes_max: u64, now: Instant) {
        let publisher = &self.tools.publisher;
        let (queued, first) = publisher.read(|queue| queue.memory());
        let feeds = self.types.values();
        let bytes = queued + feeds.map(|feed| feed.hub.lock().memory()).sum::<u64>();
        let usage = Usage {
            bytes,
            first,
            // Before all references are known, no view of them is complete.
            can_resume: self.settled,
        };
        match self.memory.step(bytes_max, usage, now) {
            Some(MemoryStep::Shed(view)) => self.shed(&view, bytes_max, now),
            Some(MemoryStep::Resume(view)) => self.resume_after_shed(&view, now),
            None => self.end_resume(now),
        }
    }

    /// The view fails, whole, and the others go on.
    fn shed(&mut self, view: &ViewId, bytes_max: u64, now: Instant) {
        let Some(wanted) = self.views.get(view) else {
            return;
        };
        let Some(feed) = wanted.info.gvr().and_then(|gvr| self.types.get_mut(gvr)) else {
            return;
        };
        feed.forget(view);
        self.dirty.get_or_insert_with(Instant::now);
        let (info, in_quota) = (wanted.info.clone(), wanted.options.in_quota);
        let bytes = self.tools.publisher.with(|queue| {
            let bytes = queue.memory_of(view);
            queue.close(view);
            let handle = queue.open(info, HashMap::new());
            queue.set_in_quota(view, in_quota);
            queue.refused(&handle, memory::failure(bytes, bytes_max));
            bytes
        });
        tracing::error!(
            %view, bytes, bytes_max,
            "view stopped: the memory limit has no room for it; narrow it or raise `--watcher-memory-limit`"
        );
        self.memory.shed(view, ViewSize { in_quota, bytes }, now);
    }

    /// The source of a view that was fed again was read, or refuses to be: the next stopped view may be fed.
    fn end_resume(&self, now: Instant) {
        let publisher = &self.tools.publisher;
        let is_read = |view: &ViewId| publisher.read(|queue| !queue.is_syncing(view));
        if let Some(view) = self.memory.resuming(now).filter(is_read) {
            self.memory.end_resume(&view, now);
        }
    }

    /// There is room again in memory for a view that was stopped.
    fn resume_after_shed(&mut self, view: &ViewId, now: Instant) {
        self.memory.resume(view, now);
        let Some(DesiredView { info, options }) = self.views.get(view).cloned() else {
            return;
        };
        let Some(gvr) = info.gvr().cloned() else {
            return;
        };
        tracing::info!(%view, "view fed again: the memory limit has room for it");
        self.tools.publisher.with(|queue| queue.close(view));
        self.start(view, &gvr, info, &options);
    }
}

/// Counts the view in the quota of its namespace, or limits each namespace in it, as its options say.
fn set_quotas(queue: &mut WriteQueue, view: &ViewId, options: &ViewOptions) {
    queue.set_in_quota(view, options.in_quota);
    queue.limit_each_namespace(view, options.namespaces_limited);
}

async fn until(at: Option<tokio::time::Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
