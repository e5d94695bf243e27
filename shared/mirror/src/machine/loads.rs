//! Views that are read by themselves.
//!
//! A view comes back (it was evicted, it is held from now on, its bodies can be opened now, or it misses
//! something) without the whole log being read again. A second reader of the log reads this view alone, from
//! its start. Meanwhile the main reader passes over the view's records and remembers the last one. Once the
//! second reader has come to the log's end, and as far as that record, the view holds every record that the
//! main reader will not bring any more. A record that both bring is a repeat, which is known by its position.
//! So the view is handed over to the main reader in one step, and nothing is lost.
//!
//! If the main reader begins again, it reads every view from its start, and the others are
//! stopped.
//!
//! A second reader knows nothing of the log's past. Where it meets the log's end before what the main reader had
//! read, the log has lost records, or a server is late. The main reader decides which; until then, what was read is
//! not taken over, and is read again every so often.

use std::time::Duration;

use super::*;

/// The most views that are read alone at a time; further views wait. With more views to repair, a read of the whole
/// log costs less.
pub(super) const LOADS_MAX: usize = 4;

/// The wait before a view is read again whose reader met an end of the log that cannot be.
pub(super) const EARLY_END_WAIT: Duration = Duration::from_secs(2);

/// The progress of the reader of one view.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) incarnation: Incarnation,
    pub(super) reading: Reading,
    pub(super) position: Revision,
    /// It may have passed superseded records: what superseded them is on its way.
    lags: bool,
    /// The main reader's position when this reader began: the main reader's log does not end before it.
    end_min: Revision,
    /// The log seemed to end before `end_min`, and the view is read again then.
    again_at: Option<Moment>,
}

impl Load {
    fn new(end_min: Revision) -> Self {
        Self {
            incarnation: Incarnation::default(),
            reading: Reading::Unheard,
            position: Revision(0),
            lags: false,
            end_min,
            again_at: None,
        }
    }
}

/// Loads, and views that wait for one.
#[derive(Debug, Default)]
pub(super) struct Loads {
    pub(super) running: BTreeMap<ViewId, Load>,
    waiting: VecDeque<ViewId>,
}

impl Loads {
    /// The position up to which the view was read by its own reader; 0 before that has come to the
    /// log's end, and while it lags.
    pub(super) fn position(&self, id: &ViewId) -> Revision {
        let load = self.running.get(id);
        let live = load.filter(|load| load.reading == Reading::Live && !load.lags);
        live.map_or(Revision(0), |load| load.position)
    }

    pub(super) fn want(&mut self, id: &ViewId) {
        if !self.running.contains_key(id) && !self.waiting.contains(id) {
            self.waiting.push_back(id.clone());
        }
    }

    /// Ends the reader of this view, and begins one that waits. `read` as in [`Loads::begin`].
    pub(super) fn end(&mut self, id: &ViewId, read: Revision, effects: &mut Vec<MirrorEffect>) {
        self.waiting.retain(|waiting| waiting != id);
        if self.running.remove(id).is_some() {
            effects.push(MirrorEffect::LoadEnded(id.clone()));
        }
        self.begin(read, effects);
    }

    pub(super) fn end_all(&mut self, effects: &mut Vec<MirrorEffect>) {
        self.waiting.clear();
        for (id, _) in std::mem::take(&mut self.running) {
            effects.push(MirrorEffect::LoadEnded(id));
        }
    }

    /// Begins as many readers as may run. The main reader has read up to `read`.
    pub(super) fn begin(&mut self, read: Revision, effects: &mut Vec<MirrorEffect>) {
        while self.running.len() < LOADS_MAX
            && let Some(id) = self.waiting.pop_front()
        {
            self.running.insert(id.clone(), Load::new(read));
            effects.push(MirrorEffect::Load(id));
        }
    }

    /// Begins anew where the log seemed to end too early. `read` as in [`Loads::begin`].
    pub(super) fn begin_again(
        &mut self,
        now: Moment,
        read: Revision,
        effects: &mut Vec<MirrorEffect>,
    ) {
        for (id, load) in &mut self.running {
            if load.again_at.is_some_and(|at| at <= now) {
                *load = Load::new(read);
                effects.push(MirrorEffect::Load(id.clone()));
            }
        }
    }
}

impl Machine {
    /// The view's memory is wanted back.
    pub(crate) fn evict(&mut self, id: &ViewId) -> Vec<MirrorEffect> {
        let mut effects = Vec::new();
        if let Some(kept) = self.views.get(id) {
            kept.write().evict();
            self.loads.end(id, self.position, &mut effects);
            effects.push(MirrorEffect::Evicted(id.clone()));
            effects.push(MirrorEffect::Changed(id.clone()));
        }
        effects
    }

    /// A view that was freed is wanted again. Nothing happens to any other.
    pub(crate) fn load(&mut self, id: &ViewId) -> Vec<MirrorEffect> {
        let mut effects = Vec::new();
        let passed = |kept: &SharedView| kept.read().record_source() == RecordSource::None;
        if self.views.get(id).is_some_and(passed) {
            self.want_load(id, &mut effects);
        }
        effects
    }

    /// Bodies may be opened now that could not be.
    pub(crate) fn reopen(&mut self) -> Vec<MirrorEffect> {
        let mut effects = Vec::new();
        let unopened = self
            .views
            .iter()
            .filter(|(_, kept)| kept.read().is_unopened());
        let unopened: Vec<_> = unopened.map(|(id, _)| id.clone()).collect();
        for id in unopened {
            self.want_load(&id, &mut effects);
        }
        effects
    }

    /// From now on these views are held: others are freed, and forgotten but for how far their
    /// records have been passed over.
    pub(crate) fn hold(&mut self, hold: HeldViewFilter) -> Vec<MirrorEffect> {
        let mut effects = Vec::new();
        let held = |id: &ViewId| hold.holds(id);
        let gone: Vec<_> = self.views.keys().filter(|id| !held(id)).cloned().collect();
        for id in gone {
            self.loads.end(&id, self.position, &mut effects);
            if let Some(kept) = self.views.remove(&id) {
                kept.write().evict();
                self.unheld.insert(id.clone(), kept.read().seen());
            }
            effects.push(MirrorEffect::Removed(id));
        }
        let come = self.unheld.extract_if(.., |id, _| held(id));
        for (id, seen) in come.collect::<Vec<_>>() {
            self.begin_alone(&id, seen, &mut effects);
        }
        self.hold = hold;
        effects
    }

    /// From now on, the log is read in this scope: the reader begins again, and views outside of it are freed and forgotten.
    pub(crate) fn follow(&mut self, scope: LogScope) -> Vec<MirrorEffect> {
        let mut effects = Vec::new();
        let outside = |id: &&ViewId| !scope.holds(id);
        let gone: Vec<_> = self.views.keys().filter(outside).cloned().collect();
        for id in gone {
            if let Some(kept) = self.views.get(&id) {
                kept.write().evict();
            }
            self.forget(&id, &mut effects);
        }
        self.unheld.retain(|id, _| scope.holds(id));
        self.scope = scope;
        effects
    }

    /// A record comes of a view that was forsaken with objects in the log: a reader of its own brings them.
    pub(super) fn take_up(&mut self, id: &ViewId, effects: &mut Vec<MirrorEffect>) {
        if self.unheld.contains_key(id)
            && self.hold.holds(id)
            && let Some(seen) = self.unheld.remove(id)
        {
            self.begin_alone(id, seen, effects);
        }
    }

    /// Adds a view whose records have been passed over up to `seen`.
    fn begin_alone(&mut self, id: &ViewId, seen: Revision, effects: &mut Vec<MirrorEffect>) {
        let incarnation = self.incarnation.clone();
        let kept = MirroredView::waiting(id.clone(), incarnation, seen, &self.config);
        let kept = Arc::new(RwLock::new(kept));
        self.views.insert(id.clone(), Arc::clone(&kept));
        effects.push(MirrorEffect::Added(id.clone(), kept));
        self.want_load(id, effects);
    }

    pub(super) fn want_load(&mut self, id: &ViewId, effects: &mut Vec<MirrorEffect>) {
        self.healthy = false;
        let Some(kept) = self.views.get(id) else {
            return;
        };
        kept.write().read_alone();
        self.loads.want(id);
        self.loads.begin(self.position, effects);
        effects.push(MirrorEffect::Changed(id.clone()));
    }

    /// The reader of this view alone says something.
    pub(crate) fn load_log(
        &mut self,
        now: Moment,
        id: &ViewId,
        event: LogEvent,
    ) -> Vec<MirrorEffect> {
        let mut effects = Vec::new();
        self.healthy = false;
        let Some(kept) = self.views.get(id).cloned() else {
            return effects;
        };
        let Some(load) = self.loads.running.get_mut(id) else {
            return effects;
        };
        match event {
            LogEvent::Restart { incarnation, .. } => {
                kept.write().restart_alone(&incarnation);
                *load = Load {
                    incarnation,
                    reading: Reading::FromStart,
                    ..Load::new(load.end_min)
                };
            }
            LogEvent::Record { revision, envelope } => {
                load.position = load.position.max(revision);
                match envelope {
                    Ok(envelope) => self.load_record(now, revision, envelope.record, &mut effects),
                    Err(_) => {
                        kept.write().note_unreadable(revision);
                        effects.push(MirrorEffect::Undecodable {
                            revision,
                            view: Some(id.clone()),
                        });
                    }
                }
            }
            LogEvent::Superseded { .. } => load.lags = true,
            LogEvent::CaughtUp { revision } => {
                load.position = load.position.max(revision);
                let read = load.position;
                if load.incarnation == self.incarnation && read < load.end_min {
                    load.again_at = Some(now + EARLY_END_WAIT);
                } else {
                    load.reading = Reading::Live;
                    load.lags = false;
                    let content = next(&mut self.changes);
                    changing(now, self.complete_to, id, &kept, &mut effects, |kept| {
                        kept.caught_up(now, read, None, content);
                        kept.reached(now, read);
                        kept.complete_alone(read);
                    });
                }
            }
            LogEvent::Away { .. } => {
                if load.reading == Reading::Live {
                    load.reading = Reading::Resuming;
                }
                kept.write().away();
            }
        }
        effects.push(MirrorEffect::Changed(id.clone()));
        self.hand_over(now, id, &mut effects);
        self.repair(now, &mut effects);
        effects
    }

    fn load_record(
        &mut self,
        now: Moment,
        revision: Revision,
        record: Record,
        effects: &mut Vec<MirrorEffect>,
    ) {
        // The main reader takes a view away, since what it brings of the view until then is of the
        // one that was dropped.
        let dropped =
            matches!(&record, Record::Control(record) if record.state == ViewState::Dropped);
        if !dropped {
            self.take_in(now, revision, record, None, effects);
        }
    }

    /// Hands the view over to the main reader, if nothing can be lost between the two.
    pub(super) fn hand_over(&mut self, now: Moment, id: &ViewId, effects: &mut Vec<MirrorEffect>) {
        let (Some(load), Some(kept)) = (self.loads.running.get(id), self.views.get(id)) else {
            return;
        };
        let same_log = self.reading == Reading::Live
            && load.reading == Reading::Live
            && !load.lags
            && load.incarnation == self.incarnation;
        if !same_log || !kept.read().is_followed_to(load.position) {
            return;
        }
        self.healthy = false;
        let (position, unreadable) = (load.position, self.unreadable);
        changing(now, self.complete_to, id, kept, effects, |kept| {
            kept.hand_over(position, unreadable);
        });
        self.loads.end(id, self.position, effects);
        effects.push(MirrorEffect::Changed(id.clone()));
    }

    pub(super) fn hand_over_all(&mut self, now: Moment, effects: &mut Vec<MirrorEffect>) {
        let running: Vec<_> = self.loads.running.keys().cloned().collect();
        for id in running {
            self.hand_over(now, &id, effects);
        }
    }

    /// Returns true if the view's own reader has the log from its start in hand: then missing records
    /// are on their way.
    pub(super) fn is_being_read(&self, id: &ViewId) -> bool {
        let load = self.loads.running.get(id);
        load.is_some_and(|load| load.reading != Reading::Unheard)
    }
}
