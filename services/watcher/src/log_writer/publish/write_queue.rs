//! The queue of everything that has to be written to the log, in its order. Pure.
//!
//! One queue for all views. Changes and control records leave it in the order in which they came, except that a
//! change replaces an older one of its key. A control record is made when it leaves the queue, so it describes
//! exactly the records before it in the log.

mod full;
mod quota;
mod report;
mod writing;

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use anteroom_model::{
    Digest, Epoch, Failure, ObjectKey, ResourceVersion, SourceInfo, ViewId, ViewRecord, ViewState,
    limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, MESSAGE_BYTES_MAX},
};
use anteroom_wire::{envelope::check_put, unreadable};
use bytes::Bytes;
use tokio::time::Instant;

use quota::Quotas;

use super::{
    log_space::LogSpace,
    pending::Queued,
    suspends::Suspends,
    view_state::ViewWriteState,
    work::{ChangeOrigin, Incoming, Item, WriteHandle},
};

/// The most bytes of bodies that wait for a write, over all views of a group. That is enough for the next batch to be
/// ready when one is written, and little beside the keys of a list. At the limit, the tasks that read from the API
/// server wait, and so does the API server. It may then end a watch, which a list repairs.
pub(super) const PENDING_BYTES_MAX: usize = BATCH_BYTES_MAX / 2;

/// A control record follows changes so soon, for readers to compare digests.
const CONTROL_AFTER_CHANGE: Duration = Duration::from_secs(10);

/// The interval of a view's control records when nothing changes.
const CONTROL_WITHOUT_CHANGE: Duration = Duration::from_secs(60);

/// The number of waiting changes that is worth a batch at once.
pub(super) const GATHERED_MAX: usize = BATCH_MESSAGES_MAX / 8;

/// Things known of a view when it is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening {
    /// See [`ViewRecord::origin`]; `None`: the view begins now.
    pub origin: Option<Epoch>,
    /// See [`ViewRecord::age_max_ms`].
    pub age_max_ms: Option<u64>,
}

/// The memory of a view, in the order in which views go where memory is short: the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ViewSize {
    /// Only policies of namespaces need the view.
    pub in_quota: bool,
    /// The bytes of its keys and versions, and of bodies that wait to be written.
    pub bytes: u64,
}

/// Everything that has to be written.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    term: u32,
    generation: u32,
    views: HashMap<ViewId, ViewWriteState>,
    queue: VecDeque<Item>,
    pending_bytes: usize,
    pending_bytes_max: usize,
    message_bytes_max: usize,
    log_space: LogSpace,
    quotas: Quotas,
    suspends: Suspends,
    /// Work was handed out and is not done.
    at_work: bool,
}

impl WriteQueue {
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
            log_space: LogSpace::default(),
            quotas: Quotas::default(),
            suspends: Suspends::default(),
            at_work: false,
        }
    }

    /// Begins to keep a view, of which the log has `seed`.
    pub(crate) fn open(
        &mut self,
        info: SourceInfo,
        seed: HashMap<ObjectKey, ResourceVersion>,
    ) -> WriteHandle {
        self.open_with(info, seed, Opening::default())
    }

    /// Begins to keep a view like [`WriteQueue::open`], with `opening` for the view's control records.
    pub(crate) fn open_with(
        &mut self,
        info: SourceInfo,
        seed: HashMap<ObjectKey, ResourceVersion>,
        opening: Opening,
    ) -> WriteHandle {
        let handle = WriteHandle {
            view: info.source.view_id(),
            epoch: self.next_epoch(),
        };
        let Opening { origin, age_max_ms } = opening;
        let view = ViewWriteState::new(info, handle.epoch, seed, origin, age_max_ms);
        self.views.insert(handle.view.clone(), view);
        self.control(&handle, ViewState::Syncing, ResourceVersion::default());
        handle
    }

    /// Frees a view everywhere.
    pub(crate) fn close(&mut self, view: &ViewId) {
        self.set_in_quota(view, false);
        if let Some(mut state) = self.views.remove(view) {
            let version = state.version.clone();
            self.pending_bytes -= state.drop_pending();
            self.free(state.record(view.clone(), ViewState::Dropped, version));
        }
    }

    /// Writes `record` as the view's `Dropped` record in a new epoch, and then purges the view. `record` is the log's
    /// last control record of a view that this term never opened, or a closed view's final record.
    pub(crate) fn free(&mut self, mut record: ViewRecord) {
        record.epoch = self.next_epoch();
        record.state = ViewState::Dropped;
        record.objects = 0;
        record.digest = Digest::default();
        let view = record.view.clone();
        self.queue.push_back(Item::Dropped(Box::new(record)));
        self.queue.push_back(Item::Purge(view));
    }

    /// Begins a list of the view and returns its number.
    pub(crate) fn begin_list(&mut self, handle: &WriteHandle) -> u32 {
        self.view(handle).map_or(0, ViewWriteState::begin_list)
    }

    /// Opens a new epoch in which every object is written again, as the next lists bring it, whatever version is known.
    pub(crate) fn reread(&mut self, handle: &mut WriteHandle) {
        if self.view(handle).is_none() {
            return;
        }
        let epoch = self.next_epoch();
        if let Some(view) = self.views.get_mut(&handle.view) {
            self.pending_bytes -= view.reread(epoch);
            handle.epoch = epoch;
        }
        self.control(handle, ViewState::Syncing, ResourceVersion::default());
    }

    /// Opens a new epoch that keeps the known objects, because the view changes its watches. Readers go on with these
    /// objects until the lists of the new watches are complete, and then take over the differences. Writes under the
    /// earlier handle are ignored.
    pub(crate) fn switch_watches(&mut self, handle: &mut WriteHandle) {
        if self.view(handle).is_none() {
            return;
        }
        let epoch = self.next_epoch();
        let Some(view) = self.views.get_mut(&handle.view) else {
            return;
        };
        let waiting = view.switch_watches(epoch);
        handle.epoch = epoch;
        let (state, version) = (view.state.clone(), view.version.clone());
        self.control(handle, state, version);
        for key in waiting {
            let handle = handle.clone();
            self.queue.push_back(Item::Change { handle, key });
        }
    }

    /// Returns whether the source has the object in any version. Then the list counts it as brought.
    pub(crate) fn touch(&mut self, handle: &WriteHandle, key: &ObjectKey) -> bool {
        self.view(handle).is_some_and(|view| view.touch(key))
    }

    /// Returns whether this version of the object is known already. Then it counts as brought by the list.
    pub(crate) fn is_known(
        &mut self,
        handle: &WriteHandle,
        key: &ObjectKey,
        version: &ResourceVersion,
    ) -> bool {
        self.view(handle)
            .is_some_and(|view| view.is_known(key, version))
    }

    /// Returns whether a list shows the object in a version that it cannot have there: see
    /// [`ViewWriteState::contradicts`].
    pub(crate) fn contradicts(
        &self,
        handle: &WriteHandle,
        key: &ObjectKey,
        version: &ResourceVersion,
        known_to: &ResourceVersion,
        listed_at: &ResourceVersion,
    ) -> bool {
        let view = self.views.get(&handle.view);
        let view = view.filter(|view| view.accepted_epoch == handle.epoch);
        view.is_some_and(|view| view.contradicts(key, version, known_to, listed_at))
    }

    /// Takes the object's present state.
    pub(crate) fn put(
        &mut self,
        handle: &WriteHandle,
        key: ObjectKey,
        version: ResourceVersion,
        body: Bytes,
        now: Instant,
        origin: ChangeOrigin,
    ) {
        let incoming = Incoming {
            key,
            version,
            since: now,
            origin,
        };
        self.upsert(handle, incoming, body);
    }

    /// Takes the object's present state. For an object that the bus would refuse, a stub is written.
    pub(crate) fn upsert(&mut self, handle: &WriteHandle, incoming: Incoming, body: Bytes) {
        let Some(body) = self.writable(&handle.view, &incoming, body) else {
            return self.skipped(handle);
        };
        let Some(view) = self.view(handle) else {
            return;
        };
        let key = incoming.key.clone();
        let (queued, grown) = view.put(incoming, body);
        self.queued(handle, key, queued, grown);
    }

    /// Returns the body, or a stub in the place of one that the bus would never take: everything behind it would
    /// wait for ever. `None`: the key itself is too long, which no key of [`ObjectKey::of`] is.
    fn writable(&self, view: &ViewId, incoming: &Incoming, body: Bytes) -> Option<Bytes> {
        let Incoming { key, version, .. } = incoming;
        let check = |bytes| check_put(view, key, version, bytes, self.message_bytes_max);
        let Err(error) = check(body.len()) else {
            return Some(body);
        };
        tracing::error!(
            %view,
            %key,
            bytes = body.len(),
            %error,
            "object not written to the log: queries that could see it fail; make it smaller, or raise `max_payload` \
             of NATS"
        );
        let stub = unreadable::stub(&format!("it is too large: {error}"), None);
        check(stub.len()).is_ok().then_some(stub)
    }

    /// Deletes the object, unless a newer version is known.
    pub(crate) fn delete(
        &mut self,
        handle: &WriteHandle,
        key: &ObjectKey,
        version: ResourceVersion,
        now: Instant,
        origin: ChangeOrigin,
    ) {
        let Some(view) = self.view(handle).filter(|view| view.holds(key)) else {
            return;
        };
        let (queued, grown) = view.delete(key, version, now, origin);
        self.queued(handle, key.clone(), queued, grown);
    }

    /// An object without a name, or with a key that is too long, was passed over.
    pub(crate) fn skipped(&mut self, handle: &WriteHandle) {
        if let Some(view) = self.view(handle) {
            view.skip();
        }
    }

    /// Ends the last list that began, over the whole view, at `version`. Objects that the list did not bring are
    /// deleted, and the view is synced once all deletions are in the log.
    pub(crate) fn listed(&mut self, handle: &WriteHandle, version: &ResourceVersion, now: Instant) {
        let list = self.view(handle).map(|view| view.last_list());
        self.sweep(handle, list.unwrap_or_default(), "", version, now);
        self.mark_fresh(handle, Some(version.clone()), now);
        self.complete(handle);
    }

    /// Deletes the objects that the list with this number did not bring, of a namespace (empty: all). The list is
    /// complete at `version`.
    pub(crate) fn sweep(
        &mut self,
        handle: &WriteHandle,
        list: u32,
        namespace: &str,
        version: &ResourceVersion,
        now: Instant,
    ) {
        let view = self.view(handle);
        let unseen = view.map(|view| view.unseen(list, namespace, version));
        for key in unseen.unwrap_or_default() {
            // Whatever the version is worth: the list is the proof.
            let Some(view) = self.view(handle) else {
                return;
            };
            let (queued, grown) = view.remove(&key, version.clone(), now, ChangeOrigin::List);
            self.queued(handle, key, queued, grown);
        }
    }

    /// Everything of the view was listed: it is synced.
    pub(crate) fn complete(&mut self, handle: &WriteHandle) {
        let state = self.view(handle).map(|view| {
            view.measured();
            view.end_list();
            view.state_when_listed()
        });
        if let Some(state) = state {
            self.set_reported_state(handle, state);
        }
    }

    /// The source was heard from.
    pub(crate) fn mark_fresh(
        &mut self,
        handle: &WriteHandle,
        version: Option<ResourceVersion>,
        now: Instant,
    ) {
        let Some(view) = self.view(handle) else {
            return;
        };
        view.freshness.note_news(now);
        view.trouble = None;
        // A watch that a view joined may be behind the view's own list.
        let older = |version: &ResourceVersion| {
            version.compare(&view.version) == Some(std::cmp::Ordering::Less)
        };
        if let Some(version) = version.filter(|version| !older(version)) {
            view.version = version;
        }
    }

    /// The source cannot be heard right now.
    pub(crate) fn troubled(&mut self, handle: &WriteHandle, failure: Failure) {
        if let Some(view) = self.view(handle) {
            view.trouble = Some(failure);
        }
    }

    /// The source cannot be read.
    pub(crate) fn refused(&mut self, handle: &WriteHandle, failure: Failure) {
        let Some(view) = self.view(handle) else {
            return;
        };
        view.trouble = None;
        self.set_reported_state(handle, ViewState::Failed { failure });
    }

    /// Returns whether more may be handed in.
    pub(crate) fn has_room(&self) -> bool {
        self.pending_bytes < self.pending_bytes_max
    }

    /// Returns whether the queue may wait a little for more changes: it has few changes and no control record, for
    /// which a reader may be waiting.
    pub(crate) fn may_gather(&self) -> bool {
        let few = 1..=GATHERED_MAX;
        let changes = |item| matches!(item, &Item::Change { .. });
        few.contains(&self.queue.len()) && self.has_room() && self.queue.iter().all(changes)
    }

    /// Limits the bytes of waiting bodies to this, if it is less than [`PENDING_BYTES_MAX`].
    pub(crate) fn limit_pending(&mut self, bytes_max: usize) {
        self.pending_bytes_max = bytes_max.min(PENDING_BYTES_MAX);
    }

    /// Limits messages: stubs are written in place of objects whose messages would be larger.
    pub(crate) fn limit_messages(&mut self, bytes_max: usize) {
        self.message_bytes_max = bytes_max;
    }

    /// Returns the bytes that all views take, and the size of the view that goes first where memory is short.
    pub(crate) fn memory(&self) -> (u64, Option<(ViewId, ViewSize)>) {
        let all = self.views.values().map(ViewWriteState::memory).sum();
        let sizes = self.views.iter().map(|(view, state)| {
            let bytes = state.memory();
            (
                view,
                ViewSize {
                    in_quota: state.in_quota,
                    bytes,
                },
            )
        });
        let may_go = sizes.filter(|(view, size)| size.bytes > 0 && !view.is_system());
        let first = may_go.max_by_key(|(_, size)| *size);
        (all, first.map(|(view, size)| (view.clone(), size)))
    }

    /// Returns the bytes that the view takes.
    pub(crate) fn memory_of(&self, view: &ViewId) -> u64 {
        self.views.get(view).map_or(0, ViewWriteState::memory)
    }

    /// Returns whether the view is written in this term.
    pub(crate) fn writes(&self, view: &ViewId) -> bool {
        self.views.contains_key(view)
    }

    /// Returns whether the view's source is being read, so that nothing is known of its state.
    pub(crate) fn is_syncing(&self, view: &ViewId) -> bool {
        let view = self.views.get(view);
        view.is_some_and(|view| view.state == ViewState::Syncing)
    }

    /// Returns whether everything is written.
    pub(crate) fn is_done(&self) -> bool {
        self.queue.is_empty() && !self.at_work
    }

    fn next_epoch(&mut self) -> Epoch {
        self.generation = self.generation.saturating_add(1);
        Epoch::new(self.term, self.generation)
    }

    fn view(&mut self, handle: &WriteHandle) -> Option<&mut ViewWriteState> {
        let view = self.views.get_mut(&handle.view)?;
        (view.accepted_epoch == handle.epoch).then_some(view)
    }

    fn queued(&mut self, handle: &WriteHandle, key: ObjectKey, queued: Queued, grown: isize) {
        self.pending_bytes = self.pending_bytes.saturating_add_signed(grown);
        if queued == Queued::New {
            let handle = handle.clone();
            self.queue.push_back(Item::Change { handle, key });
        }
    }

    fn control(&mut self, handle: &WriteHandle, state: ViewState, version: ResourceVersion) {
        let handle = handle.clone();
        self.queue.push_back(Item::Control {
            handle,
            state,
            version,
        });
    }

    /// Queues a control record with the view's state, if the state changed.
    fn set_reported_state(&mut self, handle: &WriteHandle, state: ViewState) {
        let Some(view) = self.view(handle) else {
            return;
        };
        if view.state != state {
            view.state = state.clone();
            let version = view.version.clone();
            self.control(handle, state, version);
        }
    }
}

#[cfg(test)]
mod tests;
