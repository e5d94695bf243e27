//! A view in the mirror: its objects, and their freshness. A single lock guards both, so that readers never see one
//! without the other. Nothing here waits or reads a clock.

mod reading;

use anteroom_model::{Delta, Failure, Group, Incarnation, Revision, ViewId, ViewRecord, ViewState};
use anteroom_view::{Applied, LifeState, Log, StoreEffect, View};
use bytes::Bytes;

use crate::{
    ContentStamp, MirrorConfig,
    freshness::{Freshness, Moment},
    proof::{DigestComparison, Proof},
};

/// The reader whose records a view takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordSource {
    /// The log's reader, which brings every view.
    Log,
    /// The view's own reader, which may still have to begin: see `machine::loads`.
    Alone,
    /// No reader: the view was freed, or cannot be read here.
    None,
}

/// One view as the mirror keeps it.
#[derive(Debug)]
pub(crate) struct MirroredView {
    record_source: RecordSource,
    /// The last record of it that the log's reader brought, whether it was taken in or passed over.
    seen: Revision,
    /// Up to here nobody can have seen that a record was superseded on its way.
    hole_min: Revision,
    /// The last position at which a record of it could not be read, in this reading of the log.
    unreadable: Option<Revision>,
    age_max_ms: u64,
    beat_silence_max_ms: u64,
    view: View,
    /// The log that is read now.
    incarnation: Incarnation,
    /// The log from which the served objects were read.
    served_from: Incarnation,
    /// The position up to which they are complete, where they take in no records of the log's reader; `None`: they do.
    left_complete_to: Option<Revision>,
    content: ContentStamp,
    /// The position of the writer's last control record of the view, if no delta stands behind it.
    claimed_at: Option<Revision>,
    /// The last position of this log at which the digests agreed.
    agreed_at: Revision,
    /// The log was read to its end, and has objects of the view without a control record.
    is_left_over: bool,
    /// The log has lost records that were read: of what it has left, the view takes over nothing that was said before
    /// this term.
    term_min: Option<u32>,
    /// Terms of its group have begun anew since something was installed.
    began_anew: bool,
    proof: Proof,
    /// The term whose digest the objects of the log contradicted, when they were last read from its start; `None`: they did
    /// not, or a later term has spoken since.
    contradicted: Option<u32>,
    freshness: Freshness,
    /// The group of its writer, once the writer has said what the view is.
    group: Option<Group>,
    /// When that writer was last heard from.
    heard_at: Option<Moment>,
}

impl MirroredView {
    /// A view that is met while the log is read.
    pub(crate) fn reading(id: ViewId, incarnation: Incarnation, config: &MirrorConfig) -> Self {
        Self::new(View::reading(id), incarnation, Revision(0), config)
    }

    /// A view that comes while the log is followed live, just behind `position`.
    pub(crate) fn live(
        id: ViewId,
        incarnation: Incarnation,
        position: Revision,
        config: &MirrorConfig,
    ) -> Self {
        Self::new(View::live(id), incarnation, position, config)
    }

    /// A view that waits for a reader of its own. The log's reader has passed over its records up to
    /// `seen`.
    pub(crate) fn waiting(
        id: ViewId,
        incarnation: Incarnation,
        seen: Revision,
        config: &MirrorConfig,
    ) -> Self {
        Self {
            record_source: RecordSource::Alone,
            seen,
            ..Self::new(View::waiting(id), incarnation, Revision(0), config)
        }
    }

    fn new(view: View, incarnation: Incarnation, since: Revision, config: &MirrorConfig) -> Self {
        Self {
            record_source: RecordSource::Log,
            seen: Revision(0),
            hole_min: Revision(0),
            unreadable: None,
            age_max_ms: config.age_max_ms,
            beat_silence_max_ms: config.beat_silence_max_ms,
            view,
            served_from: incarnation.clone(),
            incarnation,
            left_complete_to: None,
            content: ContentStamp::default(),
            claimed_at: None,
            agreed_at: Revision(0),
            is_left_over: false,
            term_min: None,
            began_anew: false,
            proof: Proof::Complete(since),
            contradicted: None,
            freshness: Freshness::default(),
            group: None,
            heard_at: None,
        }
    }

    /// The log is read again from its start. What is served goes on being served as what it is:
    /// complete at its own position, and growing old.
    ///
    /// Starts anew. An evicted view stays evicted; one that could not be opened is tried again.
    pub(crate) fn restart(&mut self, incarnation: &Incarnation, another_log: bool) {
        self.seen = Revision(0);
        if *self.view.state() == LifeState::Evicted && self.record_source == RecordSource::None {
            self.incarnation = incarnation.clone();
            return;
        }
        self.record_source = RecordSource::Log;
        self.begin(incarnation, another_log);
    }

    /// The served objects take in no records from now on. They are complete up to `complete_to`.
    pub(crate) fn left_behind(&mut self, complete_to: Revision) {
        self.left_complete_to.get_or_insert(complete_to);
    }

    /// Its own reader has everything up to `position`, and may lag from there on.
    pub(crate) fn complete_alone(&mut self, position: Revision) {
        if self.is_live() {
            self.left_complete_to = Some(position);
        }
    }

    /// Does the same as [`MirroredView::restart`], for a reader of its own.
    pub(crate) fn restart_alone(&mut self, incarnation: &Incarnation) {
        let another_log = *incarnation != self.incarnation;
        self.begin(incarnation, another_log);
    }

    fn begin(&mut self, incarnation: &Incarnation, another_log: bool) {
        self.unreadable = None;
        self.is_left_over = false;
        if another_log {
            self.hole_min = Revision(0);
            self.incarnation = incarnation.clone();
            self.agreed_at = Revision(0);
            self.contradicted = None;
            self.freshness.forget_positions();
            self.term_min = None;
        }
        self.claimed_at = None;
        self.view.restart();
    }

    /// The log ends before what was read of it. Its last records are lost, and what it says of the view is an older state
    /// than the one that is served. A writer that begins a term compares the log with the source. Where nothing is served,
    /// the older state will be, and is as old as the next beat says.
    pub(crate) fn shortened(&mut self) {
        let served = self.view.served().record();
        self.term_min = served.map(|record| record.epoch.term().saturating_add(1));
        if served.is_none() {
            self.freshness.forget();
        }
    }

    /// Returns true if the log ends before what is served of it, for this view. A log keeps each view's last control record,
    /// so it has lost some. Who had not read the log further than it goes now is not told so.
    fn has_gone_back(&self) -> bool {
        let (served, found) = (self.view.served(), self.view.followed());
        self.served_from == self.incarnation
            && found.revision() < served.revision()
            && self.unreadable.is_none()
            && !self.began_anew
    }

    /// Terms of its group have begun anew: the log cannot say any more what is younger.
    pub(crate) fn terms_began_anew(&mut self) {
        self.term_min = None;
        self.began_anew = true;
    }

    /// Returns true if the log has only an older state of the view than the one that is served, which is still young
    /// enough.
    pub(crate) fn is_ahead_of_log(&self, now: Moment) -> bool {
        let record = self.view.followed().record();
        let is_said_since = |term_min| record.is_some_and(|said| said.epoch.term() >= term_min);
        let ahead = self
            .term_min
            .is_some_and(|term_min| !is_said_since(term_min));
        ahead && !self.is_over_age(now)
    }

    /// The reader whose records it takes in.
    pub(crate) fn record_source(&self) -> RecordSource {
        self.record_source
    }

    /// See the field.
    pub(crate) fn seen(&self) -> Revision {
        self.seen
    }

    /// The log's reader has brought a record of it that stands at `revision`.
    pub(crate) fn see(&mut self, revision: Revision) {
        self.seen = self.seen.max(revision);
    }

    /// Frees the view, whose memory is wanted back.
    pub(crate) fn evict(&mut self) {
        self.view.evict();
        self.freed();
    }

    /// The log's records of it cannot be read here.
    pub(crate) fn fail(&mut self, failure: &Failure) {
        self.view.fail(failure);
        self.freed();
    }

    fn freed(&mut self) {
        self.record_source = RecordSource::None;
        self.proof = Proof::Complete(Revision(0));
        self.contradicted = None;
        self.claimed_at = None;
        self.freshness.forget_positions();
    }

    /// Returns true if it was freed because it could not be opened.
    pub(crate) fn is_unopened(&self) -> bool {
        self.record_source == RecordSource::None
            && matches!(self.view.state(), LifeState::Failed(_))
    }

    /// A reader of its own is to bring its records from now on.
    pub(crate) fn read_alone(&mut self) {
        self.record_source = RecordSource::Alone;
        self.freshness.forget_positions();
    }

    /// Returns true if its own reader, at `position`, has brought all that the log's reader has passed
    /// over.
    pub(crate) fn is_followed_to(&self, position: Revision) -> bool {
        let follows = matches!(self.view.log(), Log::Live | Log::Rebuilding);
        follows && position >= self.seen
    }

    /// The log's reader brings its records from now on. The other one was at `position`;
    /// `unreadable` as in [`MirroredView::caught_up`].
    pub(crate) fn hand_over(&mut self, position: Revision, unreadable: Option<Revision>) {
        self.record_source = RecordSource::Log;
        self.hole_min = position;
        if self.is_live() {
            self.left_complete_to = None;
        }
        self.freshness.forget_positions();
        if unreadable.is_some_and(|at| at > self.agreed_at) {
            self.proof = Proof::Unproven;
        }
    }

    /// The log is out of reach.
    pub(crate) fn away(&mut self) {
        self.view.away();
    }

    /// Applies a change; returns whether the view's content changed.
    pub(crate) fn delta(
        &mut self,
        revision: Revision,
        delta: &Delta<Bytes>,
        content: ContentStamp,
    ) -> bool {
        if self.is_repeat(revision) {
            return false;
        }
        self.claimed_at = None;
        let changed = !matches!(self.view.apply(revision, delta), Applied::Ignored(_));
        if changed {
            self.content = content;
        }
        changed
    }

    /// Takes in where the view stands at its source. `hole` as in [`DigestComparison::hole`].
    pub(crate) fn control(
        &mut self,
        revision: Revision,
        record: ViewRecord,
        hole: Option<Revision>,
        content: ContentStamp,
    ) {
        if self.is_repeat(revision) {
            return;
        }
        let (epoch, synced) = (record.epoch, record.state == ViewState::Synced);
        self.group = Some(Group::of(&record.info.source));
        self.contradicted = self.contradicted.filter(|term| epoch.term() <= *term);
        let effect = self.view.control(revision, record);
        self.installed(effect, content);
        if self.is_lost() {
            self.claimed_at = None;
            return;
        }
        // One of an earlier epoch was not taken in, and claims nothing.
        let held = self.view.followed().record();
        let taken = held.is_some_and(|held| held.epoch == epoch);
        self.claimed_at = (taken && synced).then_some(revision);
        let hole = hole.map(|hole| hole.max(self.hole_min));
        if let Some(comparison) = self.compare(hole)
            && self.view.log() == Log::Live
        {
            self.compared(comparison);
        }
    }

    /// Frees the objects of a view without dependents, although handles of the view may still exist.
    pub(crate) fn drop_content(
        &mut self,
        revision: Revision,
        record: ViewRecord,
        content: ContentStamp,
    ) {
        self.control(revision, record, None, content);
        self.record_source = RecordSource::Log;
        if *self.view.state() != LifeState::Dropped {
            self.view.evict();
        }
    }

    /// Returns true if the record at `revision` has been taken in before.
    pub(crate) fn is_repeat(&self, revision: Revision) -> bool {
        revision <= self.view.followed().revision()
    }

    /// The log has been read to its end, at `read`. `unreadable` is the last position on the way at
    /// which a record could not be read, whosever it was.
    pub(crate) fn caught_up(
        &mut self,
        now: Moment,
        read: Revision,
        unreadable: Option<Revision>,
        content: ContentStamp,
    ) {
        if self.view.log() != Log::Reading {
            return;
        }
        // Nothing is on its way any more, so a difference is a loss. What was gathered is thrown
        // away then, before it takes the place of what is served.
        let comparison = self.compare(Some(Revision(0)));
        let differs = comparison.is_some_and(|comparison| !comparison.agrees());
        // A record that cannot be read here says nothing of the log.
        let is_legible = unreadable.max(self.unreadable).is_none();
        let record = self.view.followed().record();
        self.contradicted = record
            .filter(|_| differs && is_legible)
            .map(|record| record.epoch.term());
        if !differs && self.has_gone_back() && !self.is_over_age(now) {
            self.shortened();
        }
        if differs || self.is_ahead_of_log(now) {
            self.view.broken();
            return;
        }
        self.term_min = None;
        let effect = self.view.caught_up();
        self.installed(effect, content);
        self.proof = match comparison {
            Some(agreed) => {
                self.agreed_at = agreed.at;
                Proof::Complete(read)
            }
            None if unreadable.max(self.unreadable) > Some(self.agreed_at) => Proof::Unproven,
            None => Proof::Complete(read),
        };
        let store = self.view.followed();
        self.is_left_over = store.record().is_none() && !store.is_empty() && self.proof.answers();
    }

    /// A record could not be read, and it may have been this view's.
    pub(crate) fn doubted(&mut self) {
        // What is only gathered on the way to the log's end is judged there.
        if matches!(self.view.log(), Log::Live | Log::Rebuilding) {
            self.proof = Proof::Unproven;
        }
    }

    /// A record of it that stands at `revision` could not be read.
    pub(crate) fn note_unreadable(&mut self, revision: Revision) {
        self.unreadable = self.unreadable.max(Some(revision));
        self.doubted();
    }

    /// The group of the view's writer, if known.
    pub(crate) fn group(&self) -> Option<Group> {
        self.group
    }

    /// Returns when the view's writer was last heard from.
    pub(crate) fn heard_at(&self) -> Option<Moment> {
        self.heard_at
    }

    /// Notes that the view's writer was heard from.
    pub(crate) fn note_heard(&mut self, now: Moment) {
        self.heard_at = Some(now);
    }

    /// The writer says that the view's last record stands at `last` and that its news is `age_ms`
    /// old; everything of the log up to `position` has been read, or what superseded it.
    pub(crate) fn beat(&mut self, now: Moment, last: Revision, age_ms: u64, position: Revision) {
        // What is only gathered on the way to the log's end is judged there.
        if matches!(self.view.log(), Log::Live | Log::Rebuilding) {
            let proof = self.proof.beat(last, self.view.followed().revision());
            self.settle_proof(proof);
        }
        if matches!(self.view.log(), Log::Lost | Log::Passed) {
            return; // Nothing is on its way.
        }
        // Gathered objects do not make the served objects any newer.
        let read = match self.view.log() {
            Log::Live => position,
            _ => Revision(0),
        };
        self.freshness.beat(now, last, age_ms, read);
    }

    /// Everything of the log up to `position` has been read, or what superseded it.
    pub(crate) fn reached(&mut self, now: Moment, position: Revision) {
        if self.view.log() == Log::Live {
            self.freshness.reached(now, position);
        }
    }

    /// Returns true if a beat waits for its position to be read.
    pub(crate) fn is_behind(&self) -> bool {
        self.freshness.is_behind()
    }

    fn installed(&mut self, effect: StoreEffect, content: ContentStamp) {
        if matches!(effect, StoreEffect::Install | StoreEffect::Free) {
            self.content = content;
            self.served_from = self.incarnation.clone();
            self.left_complete_to = None;
            self.began_anew = false;
        }
    }

    /// Returns true if what is served takes in what is read.
    pub(crate) fn is_live(&self) -> bool {
        self.view.log() == Log::Live
    }

    /// Compares the state that follows the log with the writer's count and digest.
    fn compare(&self, hole: Option<Revision>) -> Option<DigestComparison> {
        let at = self.claimed_at?;
        let store = self.view.followed();
        let record = store.record()?;
        Some(DigestComparison {
            at,
            difference: store.digest().difference(record.digest),
            counts_agree: store.len() as u64 == record.objects,
            hole,
        })
    }

    fn compared(&mut self, comparison: DigestComparison) {
        if comparison.agrees() {
            self.agreed_at = comparison.at;
            self.contradicted = None;
        }
        let proof = self.proof.compared(comparison);
        self.settle_proof(proof);
    }

    fn settle_proof(&mut self, proof: Proof) {
        self.proof = proof;
        if proof == Proof::Broken {
            self.view.broken();
        }
    }

    /// Returns true if it is incomplete until the log is read again.
    pub(crate) fn is_lost(&self) -> bool {
        self.view.log() == Log::Lost
    }

    /// Returns true if its digest has to agree before it answers.
    pub(crate) fn is_unproven(&self) -> bool {
        self.proof == Proof::Unproven && self.view.state().answers()
    }

    /// Returns true if neither the log nor a reader has any use for it: the log, which was read to its
    /// end, has no control record of it, and its data is too old.
    pub(crate) fn is_forsaken(&self) -> bool {
        let store = self.view.followed();
        let unknown = store.record().is_none() && (store.is_empty() || self.is_left_over);
        let read = matches!(self.view.log(), Log::Live | Log::Rebuilding);
        unknown && read && *self.view.state() != LifeState::Synced
    }

    /// Returns the last position that the log's reader saw of objects without a control record; `None`: there are none.
    pub(crate) fn left_over(&self) -> Option<Revision> {
        self.is_left_over.then_some(self.seen)
    }
}
