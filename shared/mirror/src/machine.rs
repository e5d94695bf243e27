//! The state machine of a mirror: events in, effects out.
//!
//! Pure: no task, no clock, no bus. The log's events and the writer's beats come in with the moment
//! at which they came; what has to happen outside comes back as [`MirrorEffect`]s.

mod ages;
mod loads;
mod records;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use anteroom_bus::{LogEvent, LogScope, RestartCause};
use anteroom_model::{
    Delta, Epoch, Failure, Group, Incarnation, Op, Revision, ViewId, ViewRecord, ViewState,
};
use anteroom_wire::{beat::Beat, body, envelope::Record};
use bytes::Bytes;
use parking_lot::RwLock;

use crate::{
    ContentStamp, HeldViewFilter, MirrorConfig, RereadCause,
    beat_delay::BeatDelays,
    effect::MirrorEffect,
    freshness::Moment,
    mirrored_view::{MirroredView, RecordSource},
    reread::Rereads,
};
use loads::{LOADS_MAX, Loads};

/// A view as readers and the machine share it. The lock is never held across an await.
pub(crate) type SharedView = Arc<RwLock<MirroredView>>;

/// Logs that are remembered after they were left.
const LOGS_LEFT_MAX: usize = 4;

/// The mode in which the log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Nothing has arrived from it yet.
    Unheard,
    /// From its start to its end.
    FromStart,
    /// From where it was out of reach to its end.
    Resuming,
    /// Records are read as they are appended.
    Live,
}

/// The whole of a mirror, but for tasks and clocks.
#[derive(Debug)]
pub(crate) struct Machine {
    config: MirrorConfig,
    scope: LogScope,
    views: BTreeMap<ViewId, SharedView>,
    hold: HeldViewFilter,
    /// Views that are not held, and views whose control record the log has lost, each with the last record of it that was
    /// passed over.
    unheld: BTreeMap<ViewId, Revision>,
    /// Views that are read by themselves.
    loads: Loads,
    incarnation: Incarnation,
    /// Logs that were read before the present log, the latest last: leaders that have not noticed the change still
    /// send beats about them.
    left: VecDeque<Incarnation>,
    reading: Reading,
    /// Every record in scope up to this position has been read, or was superseded by a later record.
    position: Revision,
    /// The furthest position of this log that was ever read, also before the log lost its last records.
    furthest: Revision,
    /// Times that the log ended before what was read.
    shortened: u64,
    /// The last position of a superseded record; 0: what superseded records has been read.
    hole: Revision,
    /// Everything up to this position is in what is served, itself or what superseded it. It stands still while records
    /// that superseded others are on their way, and while the log is read from its start.
    complete_to: Revision,
    /// The last position at which a record could not be read, in this reading of the log, and its view
    /// was unknown.
    unreadable: Option<Revision>,
    /// The log was read to its end at least once.
    caught_up_once: bool,
    /// The last change of any view's content.
    changes: u64,
    /// The term of each group's writer: beats of an earlier one come from somebody who may not write
    /// the group any more.
    terms: BTreeMap<Group, u32>,
    /// Groups of which only beats of earlier terms come, and since when.
    earlier: BTreeMap<Group, Moment>,
    /// The delays of the writers' beats.
    delays: BeatDelays,
    /// When the last event of the log came; `None` while it is out of reach.
    progress: Option<Moment>,
    /// A beat named a position that was not read then, and when that was.
    ahead: Option<(Revision, Moment)>,
    /// Some view has a beat that waits for its position to be read.
    behind: bool,
    /// The last moment at which the process ran again after it stood still.
    woke: Option<Moment>,
    /// When all views were last looked at, none was lost or unproven, and only objects have changed
    /// since.
    healthy: bool,
    rereads: Rereads,
}

impl Machine {
    pub(crate) fn new(scope: LogScope, config: MirrorConfig) -> Self {
        Self {
            rereads: Rereads::new(&config),
            hold: config.hold.clone(),
            unheld: BTreeMap::new(),
            loads: Loads::default(),
            config,
            scope,
            views: BTreeMap::new(),
            incarnation: Incarnation::default(),
            left: VecDeque::new(),
            reading: Reading::Unheard,
            position: Revision(0),
            furthest: Revision(0),
            shortened: 0,
            hole: Revision(0),
            complete_to: Revision(0),
            unreadable: None,
            caught_up_once: false,
            changes: 0,
            terms: BTreeMap::new(),
            earlier: BTreeMap::new(),
            delays: BeatDelays::default(),
            progress: None,
            ahead: None,
            behind: false,
            woke: None,
            healthy: false,
        }
    }

    pub(crate) fn position(&self) -> Revision {
        self.position
    }

    /// See the field.
    pub(crate) fn complete_to(&self) -> Revision {
        self.complete_to
    }

    /// The log that is read, and the field.
    pub(crate) fn furthest(&self) -> (&Incarnation, Revision) {
        (&self.incarnation, self.furthest)
    }

    /// See the field.
    pub(crate) fn shortened(&self) -> u64 {
        self.shortened
    }

    pub(crate) fn caught_up_once(&self) -> bool {
        self.caught_up_once
    }

    /// The log says something.
    pub(crate) fn log(&mut self, now: Moment, event: LogEvent) -> Vec<MirrorEffect> {
        let mut effects = Vec::new();
        self.progress = Some(now);
        self.healthy &= is_delta(&event);
        match event {
            LogEvent::Restart { incarnation, cause } => {
                self.restart(&incarnation, cause, &mut effects);
                effects.push(MirrorEffect::AllChanged);
            }
            LogEvent::Record { revision, envelope } => {
                match envelope {
                    Ok(envelope) => {
                        self.advance(revision);
                        self.record(now, revision, envelope.record, &mut effects);
                    }
                    Err(unreadable) => {
                        self.advance(revision);
                        self.undecodable(now, revision, unreadable.view, &mut effects);
                    }
                }
                if self.behind && self.reading == Reading::Live && self.hole == Revision(0) {
                    self.reached(now);
                }
            }
            LogEvent::Superseded { before } => {
                self.hole = before;
                if self.scope == LogScope::All {
                    effects.push(MirrorEffect::Hole);
                }
            }
            LogEvent::CaughtUp { revision } => self.caught_up(now, revision, &mut effects),
            LogEvent::Away { .. } => {
                self.away();
                effects.push(MirrorEffect::AllChanged);
            }
        }
        self.repair(now, &mut effects);
        effects
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Moment) -> Vec<MirrorEffect> {
        let mut effects = Vec::new();
        self.healthy = false;
        if self.lags(now) {
            self.rereads.want(RereadCause::Lag);
        }
        self.loads.begin_again(now, self.position, &mut effects);
        self.age(now, &mut effects);
        self.repair(now, &mut effects);
        effects.push(MirrorEffect::AllChanged);
        effects
    }

    fn restart(
        &mut self,
        incarnation: &Incarnation,
        cause: RestartCause,
        effects: &mut Vec<MirrorEffect>,
    ) {
        // Every view is read anew with the others.
        self.loads.end_all(effects);
        self.unheld.clear();
        self.unreadable = None;
        self.rereads.begun();
        let another_log = *incarnation != self.incarnation
            || matches!(
                cause,
                RestartCause::NewIncarnation | RestartCause::Truncated
            );
        if another_log {
            self.leave_for(incarnation);
            self.position = Revision(0);
            self.hole = Revision(0);
            let complete_to = std::mem::take(&mut self.complete_to);
            for kept in self.views.values() {
                kept.write().left_behind(complete_to);
            }
            self.terms.clear();
            self.earlier.clear();
            self.delays.forget_all();
            self.ahead = None;
        }
        self.reading = Reading::FromStart;
        self.shortened += u64::from(cause == RestartCause::Truncated);
        for kept in self.views.values() {
            let mut kept = kept.write();
            kept.restart(incarnation, another_log);
            if cause == RestartCause::Truncated {
                kept.shortened();
            }
        }
    }

    /// Switches to a different log, which may be a restored log.
    fn leave_for(&mut self, incarnation: &Incarnation) {
        let before = std::mem::replace(&mut self.incarnation, incarnation.clone());
        if before != *incarnation {
            self.furthest = Revision(0);
        }
        if self.reading != Reading::Unheard && before != *incarnation {
            self.left.push_back(before);
        }
        self.left.retain(|left| left != incarnation);
        if self.left.len() > LOGS_LEFT_MAX {
            self.left.pop_front();
        }
    }

    fn away(&mut self) {
        self.progress = None;
        if self.reading == Reading::Live {
            self.reading = Reading::Resuming;
        }
        for kept in self.views.values() {
            let mut kept = kept.write();
            if kept.record_source() == RecordSource::Log {
                kept.away();
            }
        }
    }

    /// Takes note of the next record's position.
    fn advance(&mut self, revision: Revision) {
        self.position = self.position.max(revision);
        if self.reading == Reading::Live && self.hole == Revision(0) {
            self.complete_to = self.position;
        }
        self.furthest = self.furthest.max(revision);
        if self.ahead.is_some_and(|(ahead, _)| ahead <= self.position) {
            self.ahead = None;
        }
    }

    fn caught_up(&mut self, now: Moment, revision: Revision, effects: &mut Vec<MirrorEffect>) {
        if self.reading == Reading::FromStart && revision < self.position {
            // The follower began anew, so it could not know that the log ended later before.
            let log = self.incarnation.clone();
            self.restart(&log, RestartCause::Truncated, effects);
            effects.push(MirrorEffect::AskAgain(RereadCause::Shortened));
            return;
        }
        self.position = self.position.max(revision);
        self.furthest = self.furthest.max(revision);
        // Nothing is on its way any more, so what was superseded has been replaced.
        self.hole = Revision(0);
        let before = self.complete_to;
        if self.reading == Reading::Live {
            self.complete_to = self.position;
            self.reached(now);
            effects.push(MirrorEffect::Heard);
            return;
        }
        self.ahead = None;
        let from_start = self.reading == Reading::FromStart;
        self.reading = Reading::Live;
        self.caught_up_once = true;
        let (read, unreadable) = (self.position, self.unreadable);
        let mut unknown = Vec::new();
        for (id, kept) in &self.views {
            match kept.read().record_source() {
                RecordSource::Log => {}
                RecordSource::None if from_start && kept.read().seen() == Revision(0) => {
                    unknown.push(id.clone());
                    continue;
                }
                RecordSource::Alone | RecordSource::None => continue,
            }
            let content = next(&mut self.changes);
            changing(now, before, id, kept, effects, |kept| {
                kept.caught_up(now, read, unreadable, content);
            });
        }
        self.complete_to = self.position;
        for id in unknown {
            self.forget(&id, effects);
        }
        self.hand_over_all(now, effects);
        self.reached(now);
        effects.push(MirrorEffect::AllChanged);
    }

    /// Has the log read again where some view cannot become whole otherwise: for the view alone at
    /// first, and whole if that does not help, or costs less.
    fn repair(&mut self, now: Moment, effects: &mut Vec<MirrorEffect>) {
        // Else each change of an object would cost a look at every view.
        let ailing = match self.healthy {
            true => Vec::new(),
            false => self.ailing(now),
        };
        let alone = self.rereads.is_first()
            && !ailing.is_empty()
            && ailing.len() <= LOADS_MAX
            && ailing
                .iter()
                .all(|(_, source)| *source == RecordSource::Log)
            && self.unreadable.is_none();
        match self.rereads.due(now) {
            Some(
                RereadCause::DigestMismatch | RereadCause::Undecodable | RereadCause::Shortened,
            ) if alone => {
                self.rereads.begun();
                for (id, _) in ailing {
                    self.want_load(&id, effects);
                }
            }
            Some(cause) => effects.push(MirrorEffect::AskAgain(cause)),
            None => {}
        }
    }

    /// Views that miss something, or may.
    fn ailing(&mut self, now: Moment) -> Vec<(ViewId, RecordSource)> {
        let mut ailing = Vec::new();
        if self.reading != Reading::Live {
            return ailing;
        }
        for (id, kept) in &self.views {
            let kept = kept.read();
            let is_read = kept.record_source() == RecordSource::Log || self.is_being_read(id);
            if !is_read {
                continue;
            }
            if kept.is_lost() {
                self.rereads.want(match kept.is_ahead_of_log(now) {
                    true => RereadCause::Shortened,
                    false => RereadCause::DigestMismatch,
                });
            } else if kept.is_unproven() {
                self.rereads.want(RereadCause::Undecodable);
            } else {
                continue;
            }
            ailing.push((id.clone(), kept.record_source()));
        }
        self.healthy = ailing.is_empty();
        ailing
    }
}

/// Returns true for a change of an object: by that alone no view is lost or unproven.
fn is_delta(event: &LogEvent) -> bool {
    let LogEvent::Record { envelope, .. } = event else {
        return false;
    };
    let envelope = envelope.as_deref();
    envelope.is_ok_and(|envelope| matches!(envelope.record, Record::Delta { .. }))
}

fn next(changes: &mut u64) -> ContentStamp {
    *changes += 1;
    ContentStamp(*changes)
}

/// Changes a view, and tells if that proves that it misses something. A view that is complete from
/// now on is stale from now on, unless there is news of it. `complete_to` is the machine's, of what is served.
fn changing(
    now: Moment,
    complete_to: Revision,
    id: &ViewId,
    kept: &SharedView,
    effects: &mut Vec<MirrorEffect>,
    change: impl FnOnce(&mut MirroredView),
) {
    let mut kept = kept.write();
    let was_lost = kept.is_lost();
    change(&mut kept);
    if !kept.is_live() {
        kept.left_behind(complete_to);
    }
    if kept.has_aged(now) {
        kept.age(now);
    }
    if kept.is_lost() && !was_lost && !kept.is_ahead_of_log(now) {
        effects.push(MirrorEffect::DigestMismatch(id.clone()));
    }
}

#[cfg(test)]
mod tests;
