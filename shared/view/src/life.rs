//! The life of a view: a pure state machine.
//!
//! Two questions, kept apart: what a reader gets ([`LifeState`]), and what becomes of the log's records
//! ([`Log`]).
//!
//! **A view that answers always answers from a state that was complete at one position of the log.** Records
//! may lead through states which never were. The log may be read again from its start, or further after an
//! interruption, where only the last record of each object is left. Or a new writer publishes the differences
//! that it found, in no order. Wherever such records may come, they are gathered beside what is served. That
//! goes on being served as what it is: complete at its own position, and growing old. What was gathered takes
//! its place in one step, once the log has been read to its end *and* the view's control record says that it is
//! complete.
//!
//! Every pair of state and event is listed in `life/table.txt`, which a test holds against the code.

use anteroom_model::{Failure, ViewState};

/// The state of a view, which decides what a reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LifeState {
    /// Nothing: the log has not been read to its end, or says nothing of the view, or what was held
    /// turned out to be incomplete.
    Unsynced,
    /// Nothing: the writer has not published the whole source yet.
    Syncing,
    /// The view answers with complete and fresh data.
    Synced,
    /// Answers to readers that accept the age of its news. It was complete, and is too old for
    /// readers that name no age.
    Stale,
    /// The error of the source, or the reason why the log's records of it cannot be read here.
    Failed(Failure),
    /// Nothing: its objects were freed to save memory.
    Evicted,
    /// Nothing: nobody depends on it any more.
    Dropped,
}

impl LifeState {
    /// Returns true if there are objects to answer from.
    pub fn answers(&self) -> bool {
        matches!(self, Self::Synced | Self::Stale)
    }

    /// For people, and as a label: lower case.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unsynced => "unsynced",
            Self::Syncing => "syncing",
            Self::Synced => "synced",
            Self::Stale => "stale",
            Self::Failed(_) => "failed",
            Self::Evicted => "evicted",
            Self::Dropped => "dropped",
        }
    }
}

/// The use that is made of the log's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// The log is on its way to its end: records are gathered, and mean nothing before.
    Reading,
    /// Every record takes effect as it comes.
    Live,
    /// Records are gathered beside what is served, until the writer says that they are complete.
    Rebuilding,
    /// Something is missing: records are passed over until the log is read again.
    Lost,
    /// Nothing is held, on purpose: records are passed over until somebody has the log read for this
    /// view.
    Passed,
}

/// An event in the life of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The log is read again from its start.
    Restart,
    /// The log is out of reach. It will be read further, not again, unless [`Event::Restart`] comes.
    Away,
    /// The end of the log was reached, where the view's last control record said this.
    CaughtUp(Option<&'a ViewState>),
    /// A control record said this.
    Control(&'a ViewState),
    /// Something is missing: a digest differs without excuse, or a record could not be read.
    Broken {
        /// The doubt reaches the data that is served. It does not where records were gathered from the
        /// log's start on.
        served: bool,
    },
    /// The age of the data was compared with the limit.
    Aged {
        /// The age is over the limit.
        over: bool,
    },
    /// The view's memory is wanted back.
    Evict,
    /// The log's records of the view cannot be read here, as where its bodies are sealed with a key
    /// that is not known: readers get the reason.
    Fail(&'a Failure),
}

/// An effect of a step on the store, or on the reader of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreEffect {
    /// No effect.
    None,
    /// Gather into an empty state from now on, beside what is served.
    StageEmpty,
    /// Gather into a copy of what is served, beside it.
    StageCopy,
    /// The gathered objects replace the served objects.
    Install,
    /// Free all objects.
    Free,
    /// Free what was gathered, and have the log read again.
    AskRestart,
}

/// The state machine of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The state, which decides the answers to readers.
    pub state: LifeState,
    /// The use that is made of records.
    pub log: Log,
}

impl Life {
    /// A view met while the log is being read.
    pub fn reading() -> Self {
        Self::new(LifeState::Unsynced, Log::Reading)
    }

    /// A view that waits for the log to be read for it.
    pub fn waiting() -> Self {
        Self::new(LifeState::Unsynced, Log::Passed)
    }

    /// A view whose very first record comes while the log is followed live: nothing of it can have
    /// been missed.
    pub fn live() -> Self {
        Self::new(LifeState::Unsynced, Log::Live)
    }

    fn new(state: LifeState, log: Log) -> Self {
        Self { state, log }
    }

    /// One step.
    #[must_use]
    pub fn step(self, event: Event<'_>) -> (Self, StoreEffect) {
        match event {
            Event::Restart => self.restart(),
            Event::Away => self.away(),
            Event::CaughtUp(said) => self.caught_up(said),
            Event::Control(said) => self.control(said),
            Event::Broken { served } => self.broken(served),
            Event::Aged { over } => self.aged(over),
            Event::Evict => self.passed(LifeState::Evicted),
            Event::Fail(failure) => self.passed(LifeState::Failed(failure.clone())),
        }
    }

    fn restart(self) -> (Self, StoreEffect) {
        if self.state.answers() {
            return (Self::new(self.state, Log::Reading), StoreEffect::StageEmpty);
        }
        let state = match self.state {
            // What the writer last said is forgotten with everything else.
            LifeState::Syncing => LifeState::Unsynced,
            other => other,
        };
        (Self::new(state, Log::Reading), StoreEffect::Free)
    }

    fn away(self) -> (Self, StoreEffect) {
        match self.log {
            Log::Live if self.state.answers() => {
                (Self::new(self.state, Log::Reading), StoreEffect::StageCopy)
            }
            // Nobody reads what is held, or it is gathered aside already.
            Log::Live | Log::Reading | Log::Rebuilding => {
                (Self::new(self.state, Log::Reading), StoreEffect::None)
            }
            Log::Lost | Log::Passed => (self, StoreEffect::None),
        }
    }

    fn caught_up(self, said: Option<&ViewState>) -> (Self, StoreEffect) {
        if self.log != Log::Reading {
            return (self, StoreEffect::None);
        }
        match said {
            Some(ViewState::Synced) => (
                Self::new(self.state.synced(), Log::Live),
                StoreEffect::Install,
            ),
            Some(ViewState::Failed { failure }) => (
                Self::new(LifeState::Failed(failure.clone()), Log::Live),
                StoreEffect::Install,
            ),
            Some(ViewState::Dropped) => {
                (Self::new(LifeState::Dropped, Log::Live), StoreEffect::Free)
            }
            Some(ViewState::Syncing) | None if self.state.answers() => {
                (Self::new(self.state, Log::Rebuilding), StoreEffect::None)
            }
            Some(ViewState::Syncing) => (
                Self::new(LifeState::Syncing, Log::Live),
                StoreEffect::Install,
            ),
            None => (
                Self::new(LifeState::Unsynced, Log::Live),
                StoreEffect::Install,
            ),
        }
    }

    fn control(self, said: &ViewState) -> (Self, StoreEffect) {
        if matches!(self.log, Log::Reading | Log::Lost | Log::Passed) {
            // The end of the log will tell.
            return (self, StoreEffect::None);
        }
        let settled = match self.log {
            Log::Rebuilding => StoreEffect::Install,
            _ => StoreEffect::None,
        };
        match said {
            ViewState::Synced => (Self::new(self.state.synced(), Log::Live), settled),
            ViewState::Failed { failure } => (
                Self::new(LifeState::Failed(failure.clone()), Log::Live),
                settled,
            ),
            ViewState::Dropped => (Self::new(LifeState::Dropped, Log::Live), StoreEffect::Free),
            ViewState::Syncing if self.log == Log::Rebuilding => (self, StoreEffect::None),
            ViewState::Syncing if self.state.answers() => (
                Self::new(self.state, Log::Rebuilding),
                StoreEffect::StageCopy,
            ),
            ViewState::Syncing => (Self::new(LifeState::Syncing, Log::Live), StoreEffect::None),
        }
    }

    fn broken(self, served: bool) -> (Self, StoreEffect) {
        if self.log == Log::Passed {
            return (self, StoreEffect::None);
        }
        let state = match self.state {
            LifeState::Synced | LifeState::Stale if served || self.log == Log::Live => {
                LifeState::Unsynced
            }
            LifeState::Syncing => LifeState::Unsynced,
            other => other,
        };
        (Self::new(state, Log::Lost), StoreEffect::AskRestart)
    }

    fn aged(self, over: bool) -> (Self, StoreEffect) {
        let state = match self.state {
            LifeState::Synced if over => LifeState::Stale,
            LifeState::Stale if !over => LifeState::Synced,
            other => other,
        };
        (Self::new(state, self.log), StoreEffect::None)
    }

    fn passed(self, state: LifeState) -> (Self, StoreEffect) {
        match self.state {
            LifeState::Dropped => (self, StoreEffect::None),
            _ => (Self::new(state, Log::Passed), StoreEffect::Free),
        }
    }
}

impl LifeState {
    /// Complete now. Only news makes a stale view fresh, and a control record brings none.
    fn synced(self) -> Self {
        match self {
            Self::Stale => Self::Stale,
            _ => Self::Synced,
        }
    }
}

#[cfg(test)]
mod tests;
