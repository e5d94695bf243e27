//! The coordinator's mind: what entries, policies and the API server say goes in; what is wanted,
//! records of the system views and statuses come out. One task owns all of it.

mod enforce;
mod entries;
mod exceptions;
mod kinds;
mod own;
mod policies;
mod retained;
mod rights;
mod scans;
mod tell;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use anteroom_bus::{Beats, Bus, Scope};
use anteroom_model::{Dependent, EntryKind, EntryState, Failure, Incarnation};
use anteroom_wire::{beat::Beat, replica_beat::ReplicaBeat, webhook_beat::WebhookBeat};
use tokio::sync::{mpsc, watch};

use crate::{
    board::Board,
    calls::{Caller, Calls},
    checks::Checks,
    conditions::Ready,
    discovery::{Catalog, follow::Discovery},
    feeds::Share,
    left::Left,
    metrics::WatcherMetrics,
    permits::{self, CacheApiCalls, SecretsReaders},
    publish::Publisher,
    reflect::Note,
    registry::{Effect, EntryId, Event, Referred, Registry},
    resolve::{Resolution, resolve_reference},
    status::StatusWriter,
    webhooks::Webhooks,
};
use enforce::Standing;
use entries::EntryFeed;
use exceptions::ExceptionFeed;
use own::OwnViews;
use policies::{PolicyFeed, PolicyId};
pub(crate) use rights::Rights;

/// How often it is looked what the passing of time has changed.
const TICK: Duration = Duration::from_secs(1);

/// Every so many ticks, every status is looked at: ages grow by themselves.
const LOOK_TICKS: u32 = 5;

/// Statuses that are looked at in one tick; where there are more, the others follow in the next.
const LOOKS_PER_TICK: usize = 2_000;

/// Reasons that a change of what the API server serves may remove.
const AWAITED: [&str; 4] = [
    "AmbiguousResource",
    "GroupUnavailable",
    "NotWatchable",
    "ResourceNotFound",
];

/// The reason of a view that the API server forbids.
const FORBIDDEN: &str = "Forbidden";

/// Where a note comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// `CachedContextEntry` or `GlobalContextEntry`.
    Entries(EntryKind),
    /// `ClusterPolicy`.
    ClusterPolicies,
    /// `Policy`.
    Policies,
    /// `PolicyException`.
    Exceptions,
}

/// What the controller works with.
#[derive(Clone)]
pub(crate) struct Tools {
    /// Where the views' state is read.
    pub bus: Arc<dyn Bus>,
    /// Which log is written.
    pub incarnation: Incarnation,
    /// Writes the log.
    pub publisher: Publisher,
    /// Says what is served.
    pub discovery: Discovery,
    /// Tells authors.
    pub status: StatusWriter,
    /// Makes API calls.
    pub caller: Caller,
    /// Counts.
    pub metrics: WatcherMetrics,
    /// Says what is waited for.
    pub checks: Arc<Checks>,
    /// Which calls of policies are kept.
    pub cache_api_calls: CacheApiCalls,
    /// Views are kept for background scans.
    pub background_scans: bool,
    /// Who may read Secrets.
    pub secrets: Arc<SecretsReaders>,
    /// What it takes of the process's memory.
    pub memory: Arc<Share>,
    /// Exceptions are read. Otherwise there are none.
    pub reads_exceptions: bool,
    /// What may be written, and as whom.
    pub rights: Rights,
}

/// One term of it.
pub(crate) struct Controller {
    /// When the term began.
    begun: Instant,
    rights: Rights,
    tools: Tools,
    registry: Registry,
    catalog: Option<Arc<Catalog>>,
    /// How often it was read.
    catalogs_read: u64,
    cached: EntryFeed,
    global: EntryFeed,
    cluster_policies: PolicyFeed,
    policies: PolicyFeed,
    exceptions: ExceptionFeed,
    /// The policies that read an entry.
    readers: HashMap<EntryId, BTreeSet<PolicyId>>,
    /// Whose UID is whose.
    by_uid: HashMap<Dependent, PolicyId>,
    own: OwnViews,
    /// What the log has of views that were not begun in this term.
    left: Left,
    calls: Calls,
    board: Board,
    webhooks: Webhooks,
    /// There has been no webhook for long.
    webhooks_away: bool,
    /// The policies that are in force, or could be but for the webhooks.
    standings: HashMap<PolicyId, Standing>,
    /// Those that are not in force yet.
    unenforced: BTreeSet<PolicyId>,
    /// What authors were told of entries.
    ready: HashMap<EntryId, Ready>,
    /// Of which something changed since authors were told.
    dirty: Dirty,
    ticks: u32,
    /// Entries whose statuses are still to be looked at.
    looks: Vec<EntryId>,
    /// Entries, policies and catalog were all read once: what nobody wants now is dropped.
    settled: bool,
}

#[derive(Debug, Default)]
struct Dirty {
    entries: BTreeSet<EntryId>,
    policies: BTreeSet<PolicyId>,
}

/// What is heard of views by others than the API server.
struct Ears {
    log: anteroom_bus::Follower,
    beats: Option<Beats<Beat>>,
    replicas: Option<Beats<ReplicaBeat>>,
    webhooks: Option<Beats<WebhookBeat>>,
}

impl Controller {
    /// At the start of a term, with what the log has.
    pub(crate) fn new(tools: Tools, mut left: Left) -> Self {
        let calls = Calls::new(
            tools.caller.clone(),
            tools.publisher.clone(),
            tools.metrics.clone(),
        );
        Self {
            begun: Instant::now(),
            own: OwnViews::open(&tools.publisher, &mut left),
            rights: tools.rights.clone(),
            tools,
            registry: Registry::default(),
            catalog: None,
            catalogs_read: 0,
            cached: EntryFeed::new(EntryKind::Cached),
            global: EntryFeed::new(EntryKind::Global),
            cluster_policies: PolicyFeed::new("ClusterPolicy", "clusterpolicies"),
            policies: PolicyFeed::new("Policy", "policies"),
            exceptions: ExceptionFeed::default(),
            readers: HashMap::new(),
            by_uid: HashMap::new(),
            left,
            calls,
            board: Board::default(),
            webhooks: Webhooks::default(),
            webhooks_away: false,
            standings: HashMap::new(),
            unenforced: BTreeSet::new(),
            ready: HashMap::new(),
            dirty: Dirty::default(),
            ticks: 0,
            looks: Vec::new(),
            settled: false,
        }
    }

    /// Works until the term ends.
    ///
    /// # Errors
    /// Where a part of it ended by itself, which none should.
    pub(crate) async fn run(
        mut self,
        mut notes: mpsc::Receiver<(Feed, Note)>,
    ) -> anyhow::Result<()> {
        if let Some(record) = self.tools.cache_api_calls.record() {
            self.own_entry(&record);
        }
        if !self.tools.reads_exceptions {
            self.no_exceptions();
        }
        let mut catalog = self.tools.discovery.catalog.subscribe();
        let mut ears = Ears {
            log: self.tools.bus.follow(Scope::Controls),
            beats: None,
            replicas: None,
            webhooks: None,
        };
        let mut written = self.tools.publisher.written();
        let mut tick = tokio::time::interval(TICK);
        catalog.mark_changed();
        let (mut found, mut user) = (self.rights.found.clone(), self.rights.user.clone());
        self.writer_found();
        loop {
            tokio::select! {
                note = notes.recv() => match note {
                    Some((feed, note)) => self.note(feed, note),
                    None => return Ok(()),
                },
                ended = self.calls.watch() => return ended.map(|never| match never {}),
                Ok(()) = catalog.changed() => self.discovered(&mut catalog),
                Some(event) = ears.log.next() => self.board.log(event),
                Some(beat) = next(&mut ears.beats) => self.board.beat(beat, Instant::now()),
                Some(beat) = next(&mut ears.replicas) => self.replica(beat, Instant::now()),
                Some(beat) = next(&mut ears.webhooks) => self.webhook_heard(beat),
                Ok(()) = written.changed(), if !self.unenforced.is_empty() => self.log_written(),
                Ok(()) = found.changed() => self.rights_found(),
                Ok(()) = user.changed() => {
                    self.writer_found();
                    self.settle();
                }
                _ = tick.tick() => self.tick(&mut ears).await,
            }
            if notes.is_empty() {
                self.tell();
            }
        }
    }

    async fn tick(&mut self, ears: &mut Ears) {
        if ears.beats.is_none() {
            ears.beats = self.tools.bus.beats().await.ok();
        }
        if ears.replicas.is_none() {
            ears.replicas = self.tools.bus.replica_beats().await.ok();
        }
        if ears.webhooks.is_none() {
            ears.webhooks = self.tools.bus.webhook_beats().await.ok();
            self.webhooks.listen(Instant::now());
        }
        if !self.settled {
            self.settle(); // What it waits for may not come.
        }
        self.webhooks_tick(Instant::now());
        self.board.tick(Instant::now());
        self.tools.memory.keeps(self.registry.len());
        self.ticks = self.ticks.wrapping_add(1);
        if self.looks.is_empty() && self.ticks.is_multiple_of(LOOK_TICKS) {
            self.looks
                .extend(self.cached.ids().chain(self.global.ids()));
        }
        let looks = self.looks.len().saturating_sub(LOOKS_PER_TICK);
        self.dirty.entries.extend(self.looks.drain(looks..));
        let waits = self.waits_for_api();
        let eager = &self.tools.discovery.eager;
        if waits && !eager.swap(waits, Ordering::Relaxed) {
            self.tools.discovery.nudge.notify_one();
        }
        eager.store(waits, Ordering::Relaxed);
    }

    fn replica(&mut self, beat: ReplicaBeat, now: Instant) {
        for (view, age_ms) in &beat.ages_ms {
            if let Some(good) = now.checked_sub(Duration::from_millis(*age_ms)) {
                self.calls.was_good(view, good);
            }
        }
        self.board.replica(beat, now);
        self.served_may_be();
    }

    fn note(&mut self, feed: Feed, note: Note) {
        match feed {
            Feed::Entries(kind) => self.entry_note(kind, note),
            Feed::ClusterPolicies | Feed::Policies => self.policy_note(feed, note),
            Feed::Exceptions => self.exception_note(note),
        }
    }

    fn discovered(&mut self, catalog: &mut watch::Receiver<Option<Arc<Catalog>>>) {
        let Some(catalog) = catalog.borrow_and_update().clone() else {
            return;
        };
        self.publish_kinds(&catalog);
        self.catalogs_read += 1;
        self.dirty.policies.extend(self.unenforced.iter().cloned());
        let changed = self.catalog.as_ref() != Some(&catalog);
        self.catalog = Some(catalog);
        if changed {
            let entries = self
                .cached
                .roster
                .values()
                .chain(self.global.roster.values());
            let entries: Vec<_> = entries.cloned().collect();
            entries.iter().for_each(|entry| self.resolve(entry));
            let references: Vec<_> = self.registry.references().cloned().collect();
            for reference in references {
                self.resolve_reference(&reference);
            }
            self.scans_again();
        }
        self.settle();
    }

    /// Whether something may begin to be served that an entry waits for.
    fn waits_for_api(&self) -> bool {
        self.registry.entries().any(|record| match &record.state {
            EntryState::Invalid { failure } => AWAITED.contains(&failure.reason.as_str()),
            EntryState::Bound(_) => false,
        })
    }

    fn resolve_reference(&mut self, referred: &Referred) {
        let resolution = self.meaning(referred);
        if let Some(resolution) = resolution {
            self.apply(Event::Reference(referred.name.clone(), resolution));
        }
    }

    /// What a reference means; `None`: nobody knows yet what is served.
    fn meaning(&self, referred: &Referred) -> Option<Resolution> {
        let Referred { reference, name } = referred;
        let resolution = resolve_reference(reference, self.catalog.as_ref()?);
        let id = (EntryKind::Implicit, name.clone());
        let mut policies = self.registry.dependents(&id);
        let allowed = |policy: &Dependent| {
            let policy = self.by_uid.get(policy);
            policy.is_some_and(|policy| policy.may_read_secrets(&self.tools.secrets))
        };
        // What is shared with other policies is never of Secrets, whoever else was allowed to.
        let may = reference.may_be_secrets() && policies.all(allowed);
        Some(permits::without_secrets(resolution, may))
    }

    fn apply(&mut self, event: Event) {
        let mut effects = VecDeque::from(self.registry.apply(event));
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Want(wanted) => self.want(&wanted),
                Effect::Unwant(view) => self.own_wanted_gone(&view),
                Effect::Call(info, spec) => {
                    let view = info.source.view_id();
                    if self.calls.runs(&view) {
                        self.calls.stop(&view); // It is made otherwise now.
                    }
                    let left = self.left.take(&view);
                    self.calls.start(info, spec, left);
                }
                Effect::EndCall(view) => self.calls.stop(&view),
                Effect::Refer(reference) => self.own_reference(&reference),
                Effect::Unrefer(reference) => self.own_reference_gone(&reference),
                Effect::Publish(record) => self.own_entry(&record),
                Effect::Remove((kind, name)) => self.own_entry_gone(kind, &name),
                Effect::Resolve(referred) => {
                    if let Some(resolution) = self.meaning(&referred) {
                        let event = Event::Reference(referred.name, resolution);
                        effects.extend(self.registry.apply(event));
                    }
                }
                Effect::Changed(id) => {
                    if id.0 == EntryKind::Implicit {
                        let policies = self.registry.dependents(&id);
                        let policies = policies.filter_map(|uid| self.by_uid.get(uid));
                        self.dirty.policies.extend(policies.cloned());
                    }
                    effects.extend(self.joined(&id));
                    self.dirty.entries.insert(id);
                }
            }
        }
    }

    /// An entry that is not to be asked for again joins a view that is forbidden already: nothing
    /// changes of the view, so nothing would tell.
    fn joined(&mut self, id: &EntryId) -> Vec<Effect> {
        let view = self.registry.joined_and_stops(id);
        let failure = view.and_then(|view| self.board.failure(view));
        match (view.cloned(), failure.cloned()) {
            (Some(view), Some(failure)) if failure.reason == FORBIDDEN => {
                self.registry.apply(Event::Forbidden(view, failure))
            }
            _ => Vec::new(),
        }
    }

    /// Entries that are not to be asked for again let go of a view that is forbidden.
    fn forbidden(&mut self, view: anteroom_model::ViewId, failure: Failure) {
        if failure.reason == FORBIDDEN {
            self.apply(Event::Forbidden(view, failure));
        }
    }

    /// Once it is known what is wanted, what is not is freed.
    fn settle(&mut self) {
        let known = self.cached.is_known()
            && self.global.is_known()
            && self.cluster_policies.is_known()
            && self.policies.is_known()
            && self.exceptions.is_known;
        if !known || self.catalog.is_none() || self.awaits_writer() {
            return;
        }
        self.own_listed();
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        for record in self.left.drain() {
            tracing::info!(view = %record.view, "view of an earlier term freed: nobody needs it");
            self.tools.publisher.with(|book| book.free(record));
        }
    }
}

/// The next beat; `None`: the bus was closed, or it is not listened to yet.
async fn next<T: Clone>(beats: &mut Option<Beats<T>>) -> Option<T> {
    let beat = beats.as_mut()?.next().await;
    if beat.is_none() {
        *beats = None;
    }
    beat
}
