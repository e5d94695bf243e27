//! The scan: takes what changed in the views, or in the policies, through the policies.

mod learn;
mod retry;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::{Bus, Scope};
use anteroom_mirror::{Hold, Mirror, MirrorConfig, MirrorMetrics};
use anteroom_model::{GroupVersionResource, ObjectKey, ViewId};
use anteroom_policy::RuleOutcome;
use anteroom_view::{Object, Snapshot};
use anteroom_webhook::background::{Judge, Known, Scanned};
use futures::{StreamExt as _, future::select_all, stream};
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::retry::Retries;
use crate::{
    book::Finder,
    desk::{Desk, Kind},
    metrics::ReporterMetrics,
    plan::{Plan, Step, Walk},
    result::{RuleResult, Subject},
};

/// Objects that are judged in one go, before anything else gets its turn.
const SLICE: usize = 64;

/// Objects that are judged side by side: while one waits for facts, others go on.
const AT_ONCE: usize = 16;

/// Every so many slices, one is of a walk over all objects, be there changes or not.
const TURN_OF_ALL: u64 = 4;

/// The least time between two looks at the views: changes that come together are taken in together.
const PACE_MIN: Duration = Duration::from_millis(50);

/// The longest time between two looks.
const TICK: Duration = Duration::from_secs(1);

/// The view of each policy's collections, as it was last known.
type Collections = BTreeMap<(ObjectKey, GroupVersionResource), (Kind, Option<ViewId>)>;

/// What was found of one object.
enum Found {
    Gone(String),
    Judged(Subject, Vec<(ObjectKey, RuleResult)>),
    /// It cannot be read, or is no object of the API.
    Unreadable,
}

/// The scan.
pub(crate) struct Scanner {
    judge: Judge,
    mirror: Mirror,
    desk: Desk,
    metrics: ReporterMetrics,
    plan: Plan<Snapshot>,
    known: Option<Known>,
    policies: BTreeMap<ObjectKey, Scanned>,
    collections: Collections,
    walks: VecDeque<Walk<Snapshot>>,
    /// Counts slices.
    turn: u64,
    retries: Retries,
    /// How often everything is judged anew.
    interval: Duration,
    due: Instant,
}

impl Scanner {
    /// Begins to mirror views; which ones, the policies say.
    pub(crate) fn new(
        bus: Arc<dyn Bus>,
        judge: Judge,
        desk: Desk,
        metrics: ReporterMetrics,
        interval: Duration,
        mirrored: MirrorMetrics,
        stop: &CancellationToken,
    ) -> Self {
        let config = MirrorConfig {
            hold: Hold::new(|_| false),
            ..MirrorConfig::default()
        };
        let mirror = Mirror::start(bus, Scope::All, config, mirrored, stop);
        Self {
            judge,
            mirror,
            desk,
            metrics,
            plan: Plan::default(),
            known: None,
            policies: BTreeMap::new(),
            collections: BTreeMap::new(),
            walks: VecDeque::new(),
            turn: 0,
            retries: Retries::default(),
            interval,
            due: Instant::now() + interval,
        }
    }

    /// Scans until it is dropped.
    ///
    /// # Errors
    /// Where the bus was closed.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let begun = Instant::now();
            if let Some(known) = self.judge.known().filter(|known| self.is_news(known)) {
                self.learn(known);
            }
            self.plan_walks();
            self.tell_settled();
            let Some(walk) = self.next_walk() else {
                tokio::time::sleep_until(begun + PACE_MIN).await;
                tokio::select! {
                    biased;
                    () = self.mirror.ended() => anyhow::bail!("the bus was closed"),
                    () = self.judge.changed() => {}
                    () = views_changed(&self.mirror) => {}
                    () = tokio::time::sleep(TICK) => {}
                }
                continue;
            };
            self.advance(walk).await;
            // Judging without facts never waits.
            tokio::task::yield_now().await;
        }
    }

    fn plan_walks(&mut self) {
        let now = Instant::now();
        if now >= self.due {
            self.due = now + self.interval;
            self.plan.anew(|_| true);
        }
        let mirror = &self.mirror;
        // Last-good data, whatever its age: what was true of an object is told until more is known.
        let state = |id: &ViewId| {
            let view = mirror.view(id)?;
            Some(view.snapshot(Some(u64::MAX)).ok()?.0)
        };
        self.walks.extend(self.plan.walks(state));
        for finder in self.retries.due(now) {
            let objects = self.desk.look(|book| book.errors_of(&finder));
            if objects.is_empty() {
                self.retries.done(&finder);
                continue;
            }
            match self.plan.again(&finder, &objects) {
                Some(walk) => self.walks.push_back(walk),
                // It is on its way, and comes to these objects too, or will be due again.
                None => self.retries.later(&finder, now),
            }
        }
    }

    /// What changed comes first, but for every so many slices: what is judged as a whole goes on too.
    fn next_walk(&mut self) -> Option<Walk<Snapshot>> {
        self.turn = self.turn.wrapping_add(1);
        let is_turn_of_all = self.turn.is_multiple_of(TURN_OF_ALL);
        let next = self
            .walks
            .iter()
            .position(|walk| walk.is_of_all() == is_turn_of_all);
        self.walks.remove(next.unwrap_or_default())
    }

    /// One slice of a walk, which then waits for its next turn.
    async fn advance(&mut self, mut walk: Walk<Snapshot>) {
        let finders = self.plan.on(&walk);
        if finders.is_empty() {
            return self.plan.arrived(walk); // Nobody waits for what it would find.
        }
        let steps = walk.take(SLICE);
        self.metrics.judged(steps.len());
        let found = self.find(&finders, steps).await;
        let failed = self.desk.write(|book| {
            let mut failed: BTreeSet<&Finder> = BTreeSet::new();
            let now_s = Timestamp::now().as_second();
            for found in found {
                match found {
                    Found::Gone(uid) => finders.iter().for_each(|f| book.forget(&uid, f)),
                    Found::Judged(subject, results) => {
                        for finder in &finders {
                            let own = results.iter().filter(|(key, _)| *key == finder.policy);
                            let own: Vec<_> = own.map(|(_, result)| result.clone()).collect();
                            if own.iter().any(RuleResult::is_error) {
                                failed.insert(finder);
                            }
                            book.put(&subject, finder, own, now_s);
                        }
                    }
                    Found::Unreadable => self.metrics.unreadable(),
                }
            }
            self.metrics.objects(book.len());
            failed
        });
        let now = Instant::now();
        failed
            .iter()
            .for_each(|finder| self.retries.put(finder, now));
        match walk.left() {
            0 => self.plan.arrived(walk),
            _ => self.walks.push_back(walk),
        }
    }

    async fn find(&self, finders: &[Finder], steps: Vec<Step<Object>>) -> Vec<Found> {
        let Some(known) = &self.known else {
            return Vec::new();
        };
        let policies: Vec<Scanned> = finders
            .iter()
            .filter_map(|finder| self.policies.get(&finder.policy).cloned())
            .collect();
        let policies = &*policies;
        let finding = stream::iter(steps).map(|step| async move {
            match step {
                Step::Forget(uid) => Found::Gone(uid),
                Step::Judge(object) => self.look_at(known, policies, &object).await,
            }
        });
        // In order: what is gone may come again.
        finding.buffered(AT_ONCE).collect().await
    }

    async fn look_at(&self, known: &Known, policies: &[Scanned], object: &Object) -> Found {
        let Ok(value) = anteroom_wire::body::to_json(object.body()) else {
            return Found::Unreadable;
        };
        let Some(subject) = Subject::of(&value) else {
            return Found::Unreadable;
        };
        let judged = Box::pin(self.judge.judge(known, policies, value)).await;
        let mut results = Vec::with_capacity(judged.len());
        for judged in judged {
            let policy = self.policies.get(&judged.policy).and_then(Scanned::policy);
            let outcome: &RuleOutcome = &judged.outcome;
            let result = policy.and_then(|p| RuleResult::of(p, &judged.rule, outcome));
            if let Some(result) = result {
                self.metrics.result(result.outcome);
                results.push((judged.policy, result));
            }
        }
        Found::Judged(subject, results)
    }

    /// Says of which kinds not everything was judged yet: of those no report is taken for left over.
    fn tell_settled(&mut self) {
        if self.known.is_none() {
            return;
        }
        let unsettled: BTreeSet<&Finder> = self.plan.unsettled().collect();
        let is_unsettled = |policy: &ObjectKey, view: &Option<ViewId>| {
            view.as_ref().is_none_or(|view| {
                let finder = Finder {
                    policy: policy.clone(),
                    view: view.clone(),
                };
                unsettled.contains(&finder)
            })
        };
        let kinds = self.collections.iter();
        let kinds = kinds.filter(|((policy, _), (_, view))| is_unsettled(policy, view));
        let kinds: BTreeSet<Kind> = kinds.map(|(_, (kind, _))| kind.clone()).collect();
        self.metrics.unsettled(kinds.len());
        self.desk.settle(kinds);
    }
}

/// Waits until any view may have changed.
async fn views_changed(mirror: &Mirror) {
    let mut views = mirror.views();
    let handles: Vec<_> = views.borrow_and_update().values().cloned().collect();
    let mut changes = Vec::with_capacity(handles.len() + 1);
    for view in handles {
        let mut status = view.status();
        changes.push(Box::pin(async move {
            // An error means that the view is gone, and then the set of views changes.
            if status.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }));
    }
    let any = async {
        match changes.is_empty() {
            true => std::future::pending().await,
            false => drop(select_all(changes).await),
        }
    };
    tokio::select! {
        Ok(()) = views.changed() => {}
        () = any => {}
    }
}
