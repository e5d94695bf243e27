//! What has to be written to the log, and in which order. Pure.
//!
//! One queue for all views: changes and control records leave it in the order in which they came,
//! except that a change takes the place of an older one of its key. A control record is made when
//! it leaves, so it speaks of exactly what stands before it in the log.

mod report;
mod writing;

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use anteroom_model::{
    Digest, Epoch, Failure, ObjectKey, ResourceVersion, Revision, SourceInfo, ViewId, ViewRecord,
    ViewState,
    limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, MESSAGE_BYTES_MAX},
};
use anteroom_wire::envelope::{Record, check_put};
use bytes::Bytes;
use tracing::Span;

use super::{
    change::Queued,
    ledger::{self, Ledger},
    marks::Width,
    work::{Batch, Brought, Item, Tenure, ViewStats, Work},
};

/// Bodies that wait to be written, over all views of a group: enough that the next batch is there when
/// one is written, and little beside the keys of what a list reads again. At the limit whoever reads
/// from the API server waits, and the API server with it: it may then end a watch, which a list
/// repairs.
pub(super) const PENDING_BYTES_MAX: usize = BATCH_BYTES_MAX / 2;

/// How soon a control record follows changes, so that readers can compare digests.
const CONTROL_AFTER_CHANGE: Duration = Duration::from_secs(10);

/// How often a view's control record is written when nothing changes.
const CONTROL_WITHOUT_CHANGE: Duration = Duration::from_secs(60);

/// Changes that wait for more of them: so many are worth a batch of their own.
pub(super) const GATHERED_MAX: usize = BATCH_MESSAGES_MAX / 8;

/// What is known of a view when it is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening {
    /// See [`ViewRecord::origin`]; `None`: the view begins now.
    pub origin: Option<Epoch>,
    /// See [`ViewRecord::age_max_ms`].
    pub age_max_ms: Option<u64>,
}

/// Everything that has to be written.
#[derive(Debug)]
pub(crate) struct Book {
    term: u32,
    generation: u32,
    views: HashMap<ViewId, Ledger>,
    queue: VecDeque<Item>,
    pending_bytes: usize,
    pending_bytes_max: usize,
    message_bytes_max: usize,
    /// Work was handed out and is not done.
    at_work: bool,
}

impl Book {
    /// Nothing to write, in this term.
    pub(crate) fn new(term: u32) -> Self {
        Self {
            term,
            generation: 0,
            views: HashMap::new(),
            queue: VecDeque::new(),
            pending_bytes: 0,
            pending_bytes_max: PENDING_BYTES_MAX,
            message_bytes_max: MESSAGE_BYTES_MAX,
            at_work: false,
        }
    }

    /// Begins to keep a view, of which the log has `seed`.
    pub(crate) fn open(
        &mut self,
        info: SourceInfo,
        seed: HashMap<ObjectKey, ResourceVersion>,
    ) -> Tenure {
        self.open_with(info, seed, Opening::default())
    }

    /// As [`Book::open`], with what else its control records say.
    pub(crate) fn open_with(
        &mut self,
        info: SourceInfo,
        seed: HashMap<ObjectKey, ResourceVersion>,
        opening: Opening,
    ) -> Tenure {
        let tenure = Tenure {
            view: info.source.view_id(),
            epoch: self.next_epoch(),
        };
        let Opening { origin, age_max_ms } = opening;
        let ledger = Ledger::new(info, tenure.epoch, seed, origin, age_max_ms);
        self.views.insert(tenure.view.clone(), ledger);
        self.control(&tenure, ViewState::Syncing, ResourceVersion::default());
        tenure
    }

    /// Frees a view everywhere.
    pub(crate) fn close(&mut self, view: &ViewId) {
        if let Some(mut ledger) = self.views.remove(view) {
            let version = ledger.version.clone();
            self.pending_bytes -= ledger.renew(ledger.epoch);
            self.free(ledger.record(view.clone(), ViewState::Dropped, version));
        }
    }

    /// Frees a view that this tenure never opened: `record` is the last that the log has of it, or
    /// that it should have.
    pub(crate) fn free(&mut self, mut record: ViewRecord) {
        record.epoch = self.next_epoch();
        record.state = ViewState::Dropped;
        record.objects = 0;
        record.digest = Digest::default();
        let view = record.view.clone();
        self.queue.push_back(Item::Dropped(Box::new(record)));
        self.queue.push_back(Item::Purge(view));
    }

    /// A list of the view begins. Afresh, it is a new tenure. Returns its number.
    pub(crate) fn begin_list(&mut self, tenure: &mut Tenure, afresh: bool) -> u32 {
        self.begin_list_of(tenure, (Width::Own, ""), afresh)
    }

    /// As [`Book::begin_list`], by a watch of this width and namespace (empty: all).
    pub(crate) fn begin_list_of(
        &mut self,
        tenure: &mut Tenure,
        (list, namespace): (Width, &str),
        afresh: bool,
    ) -> u32 {
        if self.ledger(tenure).is_none() {
            return 0;
        }
        if afresh {
            let epoch = self.next_epoch();
            if let Some(ledger) = self.views.get_mut(&tenure.view) {
                self.pending_bytes -= ledger.renew(epoch);
                tenure.epoch = epoch;
            }
            self.control(tenure, ViewState::Syncing, ResourceVersion::default());
        }
        self.ledger(tenure)
            .map_or(0, |ledger| ledger.begin_list(list, namespace, afresh))
    }

    /// Whether two watches bring the same objects for a while.
    pub(crate) fn set_overlap(&mut self, tenure: &Tenure, overlap: bool) {
        if let Some(ledger) = self.ledger(tenure) {
            ledger.set_overlap(overlap);
        }
    }

    /// Whether the object is wanted in any version. Then it counts as seen.
    pub(crate) fn touch(&mut self, tenure: &Tenure, key: &ObjectKey) -> bool {
        self.ledger(tenure).is_some_and(|ledger| ledger.touch(key))
    }

    /// Whether the object is wanted in any version.
    pub(crate) fn holds(&self, tenure: &Tenure, key: &ObjectKey) -> bool {
        let ledger = self.views.get(&tenure.view);
        ledger.is_some_and(|ledger| ledger.epoch == tenure.epoch && ledger.holds(key))
    }

    /// As [`Book::is_known_by`], of a view that has one list.
    pub(crate) fn is_known(
        &mut self,
        tenure: &Tenure,
        key: &ObjectKey,
        version: &ResourceVersion,
    ) -> bool {
        self.is_known_by(tenure, key, version, Some(Width::Own))
    }

    /// See [`Ledger::is_known`]; `by` as in [`Brought::by`].
    pub(crate) fn is_known_by(
        &mut self,
        tenure: &Tenure,
        key: &ObjectKey,
        version: &ResourceVersion,
        by: Option<Width>,
    ) -> bool {
        self.ledger(tenure)
            .is_some_and(|ledger| ledger.is_known(key, version, by))
    }

    /// The object is now this, in a view that has one list.
    pub(crate) fn put(
        &mut self,
        tenure: &Tenure,
        key: ObjectKey,
        version: ResourceVersion,
        body: Bytes,
        now: Instant,
        span: Span,
    ) {
        let brought = Brought {
            key,
            version,
            by: Some(Width::Own),
            since: now,
            span,
        };
        self.bring(tenure, brought, Ok(body));
    }

    /// The object is now this; or it is there and, for this reason, cannot be published: then the
    /// view fails until it changes.
    pub(crate) fn bring(&mut self, tenure: &Tenure, brought: Brought, body: Result<Bytes, String>) {
        let body = body.and_then(|body| self.writable(&tenure.view, &brought, body));
        let Some(ledger) = self.ledger(tenure) else {
            return;
        };
        match body {
            Ok(body) => {
                let key = brought.key.clone();
                let (queued, grown) = ledger.put(brought, body);
                self.queued(tenure, key, queued, grown);
            }
            Err(problem) => ledger.set_unusable(brought, problem),
        }
        self.object_changed(tenure);
    }

    /// What the bus would never take is no change that waits: everything behind it would wait for ever.
    fn writable(&self, view: &ViewId, brought: &Brought, body: Bytes) -> Result<Bytes, String> {
        let Brought { key, version, .. } = brought;
        match check_put(view, key, version, body.len(), self.message_bytes_max) {
            Ok(()) => Ok(body),
            Err(error) => {
                let (key, bytes) = (ledger::shown(key), body.len());
                tracing::error!(%view, key, bytes, %error, "object cannot be written to the log");
                Err(error.to_string())
            }
        }
    }

    /// The object is gone.
    pub(crate) fn delete(
        &mut self,
        tenure: &Tenure,
        key: &ObjectKey,
        version: ResourceVersion,
        now: Instant,
        span: Span,
    ) {
        let Some(ledger) = self.ledger(tenure) else {
            return;
        };
        let (queued, grown) = ledger.delete(key, version, now, span);
        self.queued(tenure, key.clone(), queued, grown);
        self.object_changed(tenure);
    }

    /// All that a namespace (empty: all of them) has for the view is known up to this version, since
    /// an event in it said so: a watch that is behind brings nothing of it back.
    pub(crate) fn is_up_to(&mut self, tenure: &Tenure, namespace: &str, version: &ResourceVersion) {
        if let Some(ledger) = self.ledger(tenure) {
            ledger.raise_floor(namespace, version);
        }
    }

    /// An object without a name was passed over.
    pub(crate) fn skipped(&mut self, tenure: &Tenure) {
        if let Some(ledger) = self.ledger(tenure) {
            ledger.skipped += 1;
        }
    }

    /// The list is complete at `version`: what it did not have is deleted, and the view is synced
    /// once all of that is in the log.
    pub(crate) fn listed(&mut self, tenure: &Tenure, version: &ResourceVersion, now: Instant) {
        let begun = self.ledger(tenure).map(|ledger| ledger.last_list());
        let list = (Width::Own, "");
        self.swept(tenure, begun.unwrap_or_default(), list, version, now);
        self.heard(tenure, Some(version.clone()), now);
        self.complete(tenure);
    }

    /// The list `begun` of this width and namespace (empty: all) is complete at `version`: what it
    /// did not have is deleted. Says whether it counts: one of an earlier history says nothing.
    pub(crate) fn swept(
        &mut self,
        tenure: &Tenure,
        begun: u32,
        list: (Width, &str),
        version: &ResourceVersion,
        now: Instant,
    ) -> bool {
        let ledger = self.ledger(tenure);
        let Some(unseen) = ledger.and_then(|ledger| ledger.unseen(begun, list, version)) else {
            return false;
        };
        for key in unseen {
            // Whatever the version is worth: the list is the proof.
            let Some(ledger) = self.ledger(tenure) else {
                return false;
            };
            let (queued, grown) = ledger.remove(&key, version.clone(), now, Span::none());
            self.queued(tenure, key, queued, grown);
        }
        true
    }

    /// Everything of the view was listed: it is synced.
    pub(crate) fn complete(&mut self, tenure: &Tenure) {
        let state = self.ledger(tenure).map(|ledger| ledger.state_when_listed());
        if let Some(state) = state {
            self.tell(tenure, state);
        }
    }

    /// The source was heard from.
    pub(crate) fn heard(
        &mut self,
        tenure: &Tenure,
        version: Option<ResourceVersion>,
        now: Instant,
    ) {
        let Some(ledger) = self.ledger(tenure) else {
            return;
        };
        ledger.heard = Some(now);
        ledger.trouble = None;
        // Of two watches, one may be behind.
        let older = |version: &ResourceVersion| {
            version.compare(&ledger.version) == Some(std::cmp::Ordering::Less)
        };
        if let Some(version) = version.filter(|version| !older(version)) {
            ledger.version = version;
        }
    }

    /// The source cannot be heard right now.
    pub(crate) fn troubled(&mut self, tenure: &Tenure, failure: Failure) {
        if let Some(ledger) = self.ledger(tenure) {
            ledger.trouble = Some(failure);
        }
    }

    /// The source cannot be read.
    pub(crate) fn refused(&mut self, tenure: &Tenure, failure: Failure) {
        let Some(ledger) = self.ledger(tenure) else {
            return;
        };
        ledger.trouble = None;
        self.tell(tenure, ViewState::Failed { failure });
    }

    /// Whether more may be handed in.
    pub(crate) fn has_room(&self) -> bool {
        self.pending_bytes < self.pending_bytes_max
    }

    /// Whether what waits may wait a little for more: few changes, and nothing that says where a view
    /// stands, for which somebody may be waiting.
    pub(crate) fn may_gather(&self) -> bool {
        let few = 1..=GATHERED_MAX;
        let changes = |item| matches!(item, &Item::Change { .. });
        few.contains(&self.queue.len()) && self.has_room() && self.queue.iter().all(changes)
    }

    /// Takes no more than this of bodies that wait, if it is less than [`PENDING_BYTES_MAX`].
    pub(crate) fn limit_pending(&mut self, bytes_max: usize) {
        self.pending_bytes_max = bytes_max.min(PENDING_BYTES_MAX);
    }

    /// Objects whose messages would be larger cannot be published.
    pub(crate) fn limit_messages(&mut self, bytes_max: usize) {
        self.message_bytes_max = bytes_max;
    }

    /// Bytes that all of this takes, and the view that takes most of them.
    pub(crate) fn memory(&self) -> (u64, Option<(ViewId, u64)>) {
        let views = self
            .views
            .iter()
            .map(|(view, ledger)| (view, ledger.memory()));
        let (mut all, mut largest) = (0, None);
        for (view, bytes) in views {
            all += bytes;
            if largest.as_ref().is_none_or(|(_, most)| *most < bytes) && !view.is_system() {
                largest = Some((view.clone(), bytes));
            }
        }
        (all, largest)
    }

    /// Whether everything is written.
    pub(crate) fn is_done(&self) -> bool {
        self.queue.is_empty() && !self.at_work
    }

    fn next_epoch(&mut self) -> Epoch {
        self.generation = self.generation.saturating_add(1);
        Epoch::new(self.term, self.generation)
    }

    fn ledger(&mut self, tenure: &Tenure) -> Option<&mut Ledger> {
        let ledger = self.views.get_mut(&tenure.view)?;
        (ledger.epoch == tenure.epoch).then_some(ledger)
    }

    fn queued(&mut self, tenure: &Tenure, key: ObjectKey, queued: Queued, grown: isize) {
        self.pending_bytes = self.pending_bytes.saturating_add_signed(grown);
        if queued == Queued::New {
            let tenure = tenure.clone();
            self.queue.push_back(Item::Change { tenure, key });
        }
    }

    fn control(&mut self, tenure: &Tenure, state: ViewState, version: ResourceVersion) {
        let tenure = tenure.clone();
        self.queue.push_back(Item::Control {
            tenure,
            state,
            version,
        });
    }

    /// An object came, went or changed: it may be the one that the view lacked, or lacks now.
    fn object_changed(&mut self, tenure: &Tenure) {
        let state = self
            .ledger(tenure)
            .and_then(|ledger| ledger.state_after_object());
        if let Some(state) = state {
            self.tell(tenure, state);
        }
    }

    fn tell(&mut self, tenure: &Tenure, state: ViewState) {
        let Some(ledger) = self.ledger(tenure) else {
            return;
        };
        if ledger.state != state {
            ledger.state = state.clone();
            let version = ledger.version.clone();
            self.control(tenure, state, version);
        }
    }
}

#[cfg(test)]
mod tests;
