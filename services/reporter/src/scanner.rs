//! The scan: has the policies judge what changed in the views, or because of new versions of policies.

mod refresh_policies;
mod rescan_trigger;
mod retry;
mod slice;
mod slice_scheduler;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::{Bus, LogScope};
use anteroom_engine::{
    exemptions::ExemptionRules,
    judge::{CatalogSnapshot, Judge, ScannedPolicy},
};
use anteroom_mirror::{ChangeMarks, Changes, HeldViewFilter, Mirror, MirrorConfig, MirrorMetrics};
use anteroom_model::{GroupVersionResource, ObjectKey, ViewId};
use anteroom_runtime::wall_clock;
use anteroom_view::Snapshot;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    rescan_trigger::{Mark, RescanTrigger},
    retry::Retries,
    slice::{FactTimeoutBackoff, ScannedObject, Slice, Tools},
    slice_scheduler::{Candidate, Lane, SliceScheduler},
};
use crate::{
    findings::{Findings, PolicyScan},
    metrics::ReporterMetrics,
    plan::{ScanPlan, Walk},
    result::RuleResult,
    shared::{OwnerKind, SharedFindings, Unsettled},
};

/// The number of objects judged in a slice, before further work has its turn.
const SLICE: usize = 64;

/// The interval at which a walk takes in changed objects. Each time it searches its remaining steps.
const EXTENDED_EVERY: Duration = Duration::from_secs(1);

/// The least time between two scans of all for objects that were left out: one that finds no room after all
/// is not made again and again.
const REOPENED_EVERY: Duration = Duration::from_secs(60);

/// The least time between two looks at the views: changes that come together are taken in together.
const PACE_MIN: Duration = Duration::from_millis(50);

/// The longest time between two looks.
const TICK: Duration = Duration::from_secs(1);

/// The view of each policy's collections, as it was last known.
type Collections = BTreeMap<(ObjectKey, GroupVersionResource), (OwnerKind, Option<ViewId>)>;

/// A walk that waits for its turn.
struct PendingWalk {
    walk: Walk<Snapshot>,
    /// The time when it last took along changed objects.
    extended_at: Instant,
}

/// The scan.
pub(crate) struct Scanner {
    judge: Judge,
    mirror: Mirror,
    shared: SharedFindings,
    metrics: ReporterMetrics,
    plan: ScanPlan<Snapshot>,
    known: Option<CatalogSnapshot>,
    /// The exemptions by which all objects are judged.
    exemptions: Arc<ExemptionRules>,
    policies: BTreeMap<ObjectKey, ScannedPolicy>,
    collections: Collections,
    walks: VecDeque<PendingWalk>,
    under_way: FuturesUnordered<BoxFuture<'static, Slice>>,
    scheduler: SliceScheduler,
    retries: Retries,
    /// The timeouts of policies that may have to wait for facts.
    fact_timeout: HashMap<ObjectKey, FactTimeoutBackoff>,
    rescans: RescanTrigger,
    /// The changes of views, those included that are not held here.
    changes: Changes,
    log_was_read: bool,
    /// The time after which everything is judged anew.
    interval: Duration,
    due: Instant,
    /// The time at which objects that were left out may be taken in again, if there is room.
    reopens_at: Instant,
    /// The writer knows that some are left out.
    told_full: bool,
}

impl Scanner {
    /// Starts to mirror the views that the policies name.
    pub(crate) fn new(
        bus: Arc<dyn Bus>,
        judge: Judge,
        shared: SharedFindings,
        metrics: ReporterMetrics,
        interval: Duration,
        mirrored: MirrorMetrics,
        stop: &CancellationToken,
    ) -> Self {
        let changes = Changes::default();
        let config = MirrorConfig {
            hold: HeldViewFilter::new(|_| false),
            changes: Some(changes.clone()),
            ..MirrorConfig::default()
        };
        let mirror = Mirror::start(bus, LogScope::All, config, mirrored, stop);
        Self {
            exemptions: judge.exemptions(),
            judge,
            mirror,
            shared,
            metrics,
            plan: ScanPlan::default(),
            known: None,
            policies: BTreeMap::new(),
            collections: BTreeMap::new(),
            walks: VecDeque::new(),
            under_way: FuturesUnordered::new(),
            scheduler: SliceScheduler::default(),
            retries: Retries::default(),
            fact_timeout: HashMap::new(),
            rescans: RescanTrigger::new(interval),
            changes,
            log_was_read: false,
            interval,
            due: Instant::now() + interval,
            reopens_at: Instant::now(),
            told_full: false,
        }
    }

    /// Scans until it is dropped.
    ///
    /// # Errors
    /// The bus was closed.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let begun = Instant::now();
            let mut marks = ChangeMarks::set(&self.mirror, |_| true);
            if let Some(known) = self.judge.snapshot().filter(|known| self.is_news(known)) {
                self.refresh_policies(known);
            }
            self.look_at_facts(begun);
            self.look_at_exemptions();
            self.plan_walks();
            self.tell_settled();
            self.begin_slices();
            let news = async {
                tokio::time::sleep_until(begun + PACE_MIN).await;
                tokio::select! {
                    () = self.judge.changed() => {}
                    () = marks.passed() => {}
                    () = tokio::time::sleep(TICK) => {}
                }
            };
            tokio::select! {
                biased;
                () = self.mirror.ended() => anyhow::bail!("the bus was closed"),
                Some(slice) = self.under_way.next() => self.take_in(slice),
                () = news => {}
            }
            // Judging without facts never waits.
            tokio::task::yield_now().await;
        }
    }

    /// Policies whose facts changed judge everything anew.
    fn look_at_facts(&mut self, now: Instant) {
        if !self.log_was_read {
            self.log_was_read = self.changes.were_read();
            if self.log_was_read {
                self.rescan_all(|_| true);
            }
            return;
        }
        let (plan, changes) = (&self.plan, &self.changes);
        let mark = |views: &BTreeSet<ViewId>| mark(changes, views);
        let due = self.rescans.due(now, mark, |policy| plan.is_behind(policy));
        for policy in &due {
            tracing::debug!(
                %policy,
                "facts of the policy changed: its objects are scanned again"
            );
            self.metrics.facts_changed();
        }
        if !due.is_empty() {
            self.rescan_all(|policy| due.contains(policy));
        }
        self.metrics.facts_waiting(self.rescans.waiting());
    }

    /// Judges everything anew if filters exempt other objects than before.
    fn look_at_exemptions(&mut self) {
        let now = self.judge.exemptions();
        if Arc::ptr_eq(&now, &self.exemptions) {
            return;
        }
        let is_same = now.filters == self.exemptions.filters;
        self.exemptions = now;
        // Until the log was read, nothing is judged.
        if self.log_was_read && !is_same {
            tracing::info!("exemptions changed: all objects are scanned again");
            self.shared.with(Findings::reopen);
            self.rescan_all(|_| true);
        }
    }

    /// Marks the concerned policies to judge all objects again, by present or newer facts.
    fn rescan_all(&mut self, is_concerned: impl Fn(&ObjectKey) -> bool) {
        self.plan.rescan_all(&is_concerned);
        self.judge_by_new_facts(is_concerned);
    }

    /// Has these policies judge by present or newer facts.
    fn judge_by_new_facts(&mut self, is_concerned: impl Fn(&ObjectKey) -> bool) {
        let changes = &self.changes;
        let expected = self
            .rescans
            .judge(is_concerned, |views| mark(changes, views));
        for (view, (incarnation, revision)) in &expected {
            self.judge.expect(view, incarnation, *revision);
        }
    }

    fn plan_walks(&mut self) {
        // Until then nobody knows how new the facts have to be.
        if !self.log_was_read {
            return;
        }
        let now = Instant::now();
        if now >= self.due {
            self.due = now + self.interval;
            self.shared.with(Findings::reopen);
            self.rescan_all(|_| true);
        } else if now >= self.reopens_at && self.has_room() {
            self.reopens_at = now + REOPENED_EVERY;
            self.rescan_all(|_| true);
        }
        let (mirror, policies) = (&self.mirror, &self.policies);
        let waits = |policy: &ObjectKey| policies.get(policy).is_some_and(ScannedPolicy::may_wait);
        let begun = self.plan.walks(|view| state(mirror, view), waits);
        self.walks.extend(begun.into_iter().map(|walk| PendingWalk {
            walk,
            extended_at: now,
        }));
        for scan in self.retries.due(now) {
            let objects = self.shared.with(|findings| findings.errors_of(&scan));
            if objects.is_empty() {
                self.retries.done(&scan);
                continue;
            }
            match self.plan.rescan_objects(&scan, &objects) {
                Some(walk) => {
                    self.fact_timeout(&scan.policy).regain();
                    self.walks.push_back(PendingWalk {
                        walk,
                        extended_at: now,
                    });
                }
                // It is on its way, and comes to these objects too, or will be due again.
                None => self.retries.later(&scan, now),
            }
        }
    }

    /// Returns whether there is room for objects that were left out, and everybody else was judged.
    fn has_room(&self) -> bool {
        let reopen = |findings: &mut Findings| findings.left_out() > 0 && findings.reopen();
        self.plan.is_current() && self.shared.with(reopen)
    }

    /// Begins slices of the walks that can go on.
    fn begin_slices(&mut self) {
        loop {
            let candidates = self.walks.iter().map(|waiting| Candidate {
                waits: waiting.walk.waits(),
                is_of_all: waiting.walk.is_of_all(),
            });
            let Some((at, lane)) = self.scheduler.next(&candidates) else {
                return;
            };
            match self
                .walks
                .remove(at)
                .and_then(|walk| self.slice(walk, lane))
            {
                Some(slice) => self.under_way.push(slice),
                None => self.scheduler.ended(lane),
            }
        }
    }

    /// Returns the next slice of a walk; `None`: no scan needs the walk's results any more.
    fn slice(&mut self, waiting: PendingWalk, lane: Lane) -> Option<BoxFuture<'static, Slice>> {
        let PendingWalk {
            mut walk,
            mut extended_at,
        } = waiting;
        let now = Instant::now();
        if now.duration_since(extended_at) >= EXTENDED_EVERY {
            extended_at = now;
            if let Some(now) = state(&self.mirror, &walk.view) {
                walk.extend(&now);
            }
        }
        let scans = self.plan.on(&walk);
        let Some(known) = self.known.clone().filter(|_| !scans.is_empty()) else {
            self.plan.finish_walk(walk);
            return None;
        };
        let policies = scans.iter().map(|scan| &scan.policy);
        let fact_timeout = match walk.waits() {
            true => policies
                .clone()
                .next()
                .map(|policy| self.fact_timeout(policy)),
            false => None,
        };
        let policies = policies.filter_map(|policy| self.policies.get(policy).cloned());
        let tools = Tools {
            judge: self.judge.clone(),
            known,
            policies: policies.collect(),
            fact_timeout: fact_timeout.unwrap_or_default(),
            metrics: self.metrics.clone(),
        };
        let steps = walk.take(SLICE);
        self.metrics.judged(steps.len());
        let slice = async move {
            let found = tools.find(steps).await;
            // The object cannot be judged now, and the rest of the walk would fail alike.
            if walk.is_again() && tools.fact_timeout.is_lost() {
                walk.end();
            }
            let waiting = PendingWalk { walk, extended_at };
            Slice {
                waiting,
                lane,
                found,
            }
        };
        Some(slice.boxed())
    }

    /// The timeout of a policy's facts.
    fn fact_timeout(&mut self, policy: &ObjectKey) -> FactTimeoutBackoff {
        self.fact_timeout.entry(policy.clone()).or_default().clone()
    }

    /// Records the findings of a slice. The walk then waits for its next turn.
    fn take_in(&mut self, slice: Slice) {
        let Slice {
            mut waiting,
            lane,
            found,
        } = slice;
        self.scheduler.ended(lane);
        let met = found.iter().filter_map(ScannedObject::object);
        self.plan.note_visited(&mut waiting.walk, met);
        // Some may be gone meanwhile.
        let scans = self.plan.on(&waiting.walk);
        let failed = self.shared.write(|findings| {
            let mut failed: BTreeSet<&PolicyScan> = BTreeSet::new();
            let now_s = wall_clock::now().as_second();
            for found in found {
                match found {
                    ScannedObject::Gone(uid) => {
                        scans.iter().for_each(|f| findings.forget(&uid, f));
                    }
                    ScannedObject::Judged(_, subject, results) => {
                        // Results and scans have the same order.
                        let mut results = results.into_iter().peekable();
                        for scan in &scans {
                            let is_before = |(key, _): &(ObjectKey, _)| *key < scan.policy;
                            while results.next_if(is_before).is_some() {}
                            let is_own = |(key, _): &(ObjectKey, _)| *key == scan.policy;
                            let own = std::iter::from_fn(|| results.next_if(is_own));
                            let own: Vec<_> = own.map(|(_, result)| result).collect();
                            if own.iter().any(RuleResult::is_error) {
                                failed.insert(scan);
                            }
                            findings.put(&subject, scan, own, now_s);
                        }
                    }
                    ScannedObject::Unreadable(_) => self.metrics.count_unreadable(),
                }
            }
            self.metrics.objects(findings.len());
            self.metrics.objects_left_out(findings.left_out());
            self.metrics.findings_bytes(findings.bytes());
            failed
        });
        let now = Instant::now();
        failed.iter().for_each(|scan| self.retries.put(scan, now));
        match waiting.walk.left() {
            0 => self.plan.finish_walk(waiting.walk),
            _ => self.walks.push_back(waiting),
        }
    }

    /// Tells the objects that are not evaluated yet, so that their reports are not taken for left over.
    fn tell_settled(&mut self) {
        if self.known.is_none() {
            return;
        }
        let is_full = self.shared.with(|findings| findings.left_out() > 0);
        // There may be many objects that cannot be read: they are gone through where they may be others.
        if !self.plan.take_unread_changed() && is_full == self.told_full {
            return;
        }
        self.told_full = is_full;
        let mut unsettled = Unsettled {
            is_full,
            ..Unsettled::default()
        };
        for ((policy, _), (kind, view)) in &self.collections {
            let unread = view.as_ref().and_then(|view| {
                let (policy, view) = (policy.clone(), view.clone());
                self.plan.unread_objects(&PolicyScan { policy, view })
            });
            match unread {
                None => drop(unsettled.unseen.insert(kind.clone())),
                Some(keys) => {
                    let keys = keys.into_iter().map(|key| (kind.clone(), key.clone()));
                    unsettled.unread.extend(keys);
                }
            }
        }
        self.metrics.unsettled(unsettled.unseen.len());
        self.metrics.set_unread(unsettled.unread.len());
        self.shared.settle(unsettled);
    }
}

/// Returns the position of the last change of each view.
fn mark(changes: &Changes, views: &BTreeSet<ViewId>) -> Mark {
    let last = |view: &ViewId| Some((view.clone(), changes.last(view)?));
    views.iter().filter_map(last).collect()
}

/// Returns the view's last good data, whatever their age: a report keeps the last known results until there are new
/// ones.
fn state(mirror: &Mirror, view: &ViewId) -> Option<Snapshot> {
    let view = mirror.view(view)?;
    Some(view.snapshot(Some(u64::MAX)).ok()?.0)
}

#[cfg(test)]
mod tests;
