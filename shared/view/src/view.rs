//! A view, with its reaction to each event of the log.

use anteroom_model::{Delta, FactError, Failure, Revision, ViewId, ViewRecord, ViewState};

use crate::{
    Applied, Event, Ignored, Life, LifeState, Log, Read, Snapshot, Store, StoreEffect, ViewBytes,
    store::Draft,
};

/// The live copy of one source.
///
/// Whoever follows the log calls, in the log's order, one method for each of its events. Where one
/// returns [`StoreEffect::AskRestart`], the log has to be read again for this view; the other effects
/// have been carried out already.
#[derive(Clone, Debug)]
pub struct View {
    id: ViewId,
    life: Life,
    /// The served state, shared with snapshots. A change copies the changed parts if a snapshot holds them, so long
    /// reads delay neither the log nor further reads.
    served: Draft,
    gathered: Gathered,
}

/// The records that do not take effect as they come.
#[derive(Clone, Debug)]
enum Gathered {
    /// Records take effect as they come.
    No,
    /// Records go into a new, empty state, from the log's start on.
    FromScratch(Box<Draft>),
    /// Records go into a copy of the served state, which the first record makes.
    ToCopy,
    /// Records go into this copy of the served state.
    Copied(Box<Draft>),
}

impl Gathered {
    fn store(&self) -> Option<&Store> {
        match self {
            Self::FromScratch(store) | Self::Copied(store) => Some(store),
            Self::No | Self::ToCopy => None,
        }
    }
}

impl View {
    /// A view met while the log is being read.
    pub fn reading(id: ViewId) -> Self {
        Self::new(id, Life::reading())
    }

    /// A view that waits for the log to be read for it.
    pub fn waiting(id: ViewId) -> Self {
        Self::new(id, Life::waiting())
    }

    /// A view whose very first record comes while the log is followed live.
    pub fn live(id: ViewId) -> Self {
        Self::new(id, Life::live())
    }

    fn new(id: ViewId, life: Life) -> Self {
        Self {
            id,
            life,
            served: Draft::default(),
            gathered: Gathered::No,
        }
    }

    /// The log is read again from its start.
    pub fn restart(&mut self) -> StoreEffect {
        self.step(Event::Restart)
    }

    /// The log is out of reach.
    pub fn away(&mut self) -> StoreEffect {
        self.step(Event::Away)
    }

    /// The end of the log was reached: what was not delivered since the start is not there.
    pub fn caught_up(&mut self) -> StoreEffect {
        let said = self.standing_state();
        self.step(Event::CaughtUp(said.as_ref()))
    }

    /// The state of the last control record, as far as it still holds.
    fn standing_state(&self) -> Option<ViewState> {
        let followed = self.followed();
        let record = followed.record()?;
        // Objects newer than a drop mean that the view is desired again. This reader may have been skipped past the
        // writer's first record.
        let begun_again = record.state == ViewState::Dropped
            && followed
                .objects()
                .any(|object| object.epoch() > record.epoch);
        Some(match begun_again {
            true => ViewState::Syncing,
            false => record.state.clone(),
        })
    }

    /// A delta stands at `revision` of the log.
    pub fn apply<B: AsRef<[u8]>>(&mut self, revision: Revision, delta: &Delta<B>) -> Applied {
        if matches!(self.life.log, Log::Lost | Log::Passed) {
            return Applied::Ignored(Ignored::NotFollowing);
        }
        if self.is_of_a_later_epoch(delta) {
            // A reader that lags may have been skipped over its writer's first word.
            self.step(Event::Control(&ViewState::Syncing));
        }
        self.make_copy();
        match &mut self.gathered {
            Gathered::FromScratch(store) | Gathered::Copied(store) => {
                let twin = self.served.get(&delta.key.namespace, &delta.key.name);
                store.apply(revision, delta, twin)
            }
            Gathered::No | Gathered::ToCopy => self.served.apply(revision, delta, None),
        }
    }

    /// A control record stands at `revision` of the log. One of an earlier epoch means nothing.
    pub fn control(&mut self, revision: Revision, record: ViewRecord) -> StoreEffect {
        if matches!(self.life.log, Log::Lost | Log::Passed)
            || !self.followed().accepts(revision, &record)
        {
            return StoreEffect::None;
        }
        if self.is_completed_by(&record) {
            return self.complete(revision, record);
        }
        // First the step: a record that says *syncing* is not part of what goes on being served.
        let effect = self.step(Event::Control(&record.state));
        self.make_copy();
        match &mut self.gathered {
            Gathered::FromScratch(store) | Gathered::Copied(store) => {
                store.control(revision, record);
            }
            Gathered::No | Gathered::ToCopy => {
                self.served.control(revision, record);
            }
        }
        effect
    }

    /// Returns true if this record says that what was gathered from the log's start on is complete.
    fn is_completed_by(&self, record: &ViewRecord) -> bool {
        let from_scratch = matches!(self.gathered, Gathered::FromScratch(_));
        from_scratch && self.life.log == Log::Rebuilding && record.state == ViewState::Synced
    }

    /// Puts the gathered objects in the place of what is served, or throws them away if they are not those of which the
    /// record has the digest.
    fn complete(&mut self, revision: Revision, record: ViewRecord) -> StoreEffect {
        let (objects, digest) = (record.objects, record.digest);
        let Gathered::FromScratch(store) = &mut self.gathered else {
            return StoreEffect::None;
        };
        store.control(revision, record);
        if store.len() as u64 != objects || store.digest() != digest {
            return self.broken();
        }
        self.step(Event::Control(&ViewState::Synced))
    }

    /// Something is missing: see [`Event::Broken`].
    pub fn broken(&mut self) -> StoreEffect {
        // A copy has every fault of what it was copied from.
        let served = !matches!(self.gathered, Gathered::FromScratch(_));
        self.step(Event::Broken { served })
    }

    /// Tells it if its data is now too old for readers that name no age.
    pub fn aged(&mut self, over: bool) -> StoreEffect {
        self.step(Event::Aged { over })
    }

    /// Frees the objects, and refuses readers until the log is read again for this view.
    pub fn evict(&mut self) -> StoreEffect {
        self.step(Event::Evict)
    }

    /// The log's records of it cannot be read here: frees the objects, and gives readers the reason
    /// until the log is read again for this view.
    pub fn fail(&mut self, failure: &Failure) -> StoreEffect {
        self.step(Event::Fail(failure))
    }

    /// Its name.
    pub fn id(&self) -> &ViewId {
        &self.id
    }

    /// The state, which decides the answers to readers.
    pub fn state(&self) -> &LifeState {
        &self.life.state
    }

    /// The use that is made of the log's records.
    pub fn log(&self) -> Log {
        self.life.log
    }

    /// The state that follows the log: to be compared with the control record that was just handed
    /// in. It differs from what is served while records are gathered.
    pub fn followed(&self) -> &Store {
        self.gathered.store().unwrap_or(&self.served)
    }

    /// The objects that [`View::read`] lets readers see, if it does; also for metrics and accounting.
    pub fn served(&self) -> &Store {
        &self.served
    }

    /// Its size: the objects that are served, and those that are gathered beside them. Objects of both
    /// count once.
    pub fn bytes(&self) -> ViewBytes {
        self.served.bytes().plus(self.staged_bytes())
    }

    /// The size of the objects that are gathered, without those that are served too.
    pub fn staged_bytes(&self) -> ViewBytes {
        let gathered = self.gathered.store();
        gathered.map(Store::own_bytes).unwrap_or_default()
    }

    /// Checks that a reader that accepts data of `age_max_ms` gets an answer. The data is `age_ms` old;
    /// `u64::MAX`: its age is not known.
    ///
    /// # Errors
    /// The reason why the reader gets none.
    pub fn answerable(&self, age_ms: u64, age_max_ms: u64) -> Result<(), FactError> {
        let not_synced = |state: &str| FactError::NotSynced {
            view: self.id.to_string(),
            state: state.into(),
        };
        match &self.life.state {
            LifeState::Synced | LifeState::Stale if age_ms <= age_max_ms => Ok(()),
            LifeState::Synced | LifeState::Stale if age_ms == u64::MAX => {
                Err(not_synced("no watcher has said yet how old its data is"))
            }
            LifeState::Synced | LifeState::Stale => Err(FactError::Stale {
                view: self.id.to_string(),
                age_ms,
                age_max_ms,
                silent_ms: None,
            }),
            LifeState::Unsynced if self.life.log == Log::Reading => {
                Err(not_synced("its records in the log are still being read"))
            }
            LifeState::Unsynced if self.life.log == Log::Lost => Err(not_synced(
                "a record of the log was missed, so the log is read again",
            )),
            LifeState::Unsynced if self.life.log == Log::Passed => Err(not_synced(
                "it waits for its turn to be loaded from the log",
            )),
            LifeState::Unsynced => Err(not_synced("no watcher has written it to the log yet")),
            LifeState::Syncing => Err(not_synced("the watcher is still listing its source")),
            LifeState::Failed(failure) => Err(FactError::Failed {
                view: self.id.to_string(),
                failure: failure.clone(),
            }),
            LifeState::Evicted => Err(FactError::Evicted {
                view: self.id.to_string(),
                message: match self.life.log {
                    Log::Reading => "it is being loaded again",
                    _ => "it comes back when there is room for it",
                }
                .to_owned(),
            }),
            LifeState::Dropped => Err(not_synced("no entry and no policy needs it any more")),
        }
    }

    /// The objects, for a reader that accepts data of `age_max_ms`. The data is `age_ms` old.
    /// There is no other way to evaluate over a view than this and [`View::snapshot`].
    ///
    /// # Errors
    /// Why there is no answer; never an empty one in its place.
    pub fn read(&self, age_ms: u64, age_max_ms: u64) -> Result<Read<'_>, FactError> {
        self.answerable(age_ms, age_max_ms)?;
        Ok(Read::new(&self.served))
    }

    /// Returns a snapshot, for a reader that does not hold the view while it reads (unlike [`View::read`]). A
    /// change of the view copies the part that it changes if a snapshot is still held then.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn snapshot(&self, age_ms: u64, age_max_ms: u64) -> Result<Snapshot, FactError> {
        self.answerable(age_ms, age_max_ms)?;
        Ok(Snapshot::new(self.served.snapshot()))
    }

    fn step(&mut self, event: Event<'_>) -> StoreEffect {
        // Left behind for a moment only; a step cannot fail.
        let life = std::mem::replace(&mut self.life, Life::reading());
        let (life, effect) = life.step(event);
        self.life = life;
        match effect {
            StoreEffect::None => {}
            StoreEffect::StageEmpty => self.gathered = Gathered::FromScratch(Box::default()),
            StoreEffect::StageCopy => self.gathered = Gathered::ToCopy,
            StoreEffect::Install => self.install(),
            StoreEffect::Free => {
                self.served = Draft::default();
                self.gathered = Gathered::No;
            }
            StoreEffect::AskRestart => self.gathered = Gathered::No,
        }
        effect
    }

    fn install(&mut self) {
        match std::mem::replace(&mut self.gathered, Gathered::No) {
            Gathered::FromScratch(store) | Gathered::Copied(store) => self.served = *store,
            Gathered::No | Gathered::ToCopy => {}
        }
        self.served.settle();
    }

    /// Returns true if the first change of a writer's epoch comes before its first control record,
    /// while records take effect at once: the change is one of several that belong together.
    fn is_of_a_later_epoch<B>(&self, delta: &Delta<B>) -> bool {
        let record = self.served.record();
        self.life.log == Log::Live
            && self.life.state.answers()
            && record.is_some_and(|record| delta.epoch > record.epoch)
    }

    /// Makes the copy that records are gathered into, now that there is one to gather.
    fn make_copy(&mut self) {
        if matches!(self.gathered, Gathered::ToCopy) {
            self.gathered = Gathered::Copied(Box::new(self.served.writable_copy()));
        }
    }
}

#[cfg(test)]
mod tests;
