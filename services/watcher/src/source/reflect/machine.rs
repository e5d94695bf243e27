//! The life of one watch, pure: an input goes in, the next step comes out.
//!
//! ```text
//!            pages                 events, bookmarks, its end
//!   ┌─────┐ ───────▶ ┌───────┐ ──────────────────────────────┐
//!   │ list│          │ watch │ ◀─────────────────────────────┘
//!   └─────┘ ◀─────── └───────┘ ──▶ ┌───────┐ ──▶ watch again
//!      ▲   410, 4xx,      5xx, lost│ probe │
//!      │   unreadable,       or    └───────┘
//!      │   not a word       silent     │ the history restarted
//!      └───────────────────────────────┘
//! ```
//! After a fault there is a wait, and then the page that failed, or the watch from where it stood.
//!
//! An API server whose etcd was restored accepts a watch from a version of its future, and then says nothing
//! until it gets there. So:
//!
//! - A watch that was accepted is no news.
//! - A watch that was interrupted is resumed only after a probe. The probe shows if the history still reaches that far.
//! - A watch that ended without a word, not even the bookmark before a timeout, is followed by a list.

use std::{cmp::Ordering, time::Duration};

use anteroom_model::{Failure, ResourceVersion};
use anteroom_runtime::backoff::Backoff;

use crate::source::apiserver::Fault;

/// Waits after faults, in milliseconds: as client-go has them.
const BACKOFF_BASE_MS: u64 = 800;
const BACKOFF_MAX_MS: u64 = 30_000;

/// The longest wait before a source is asked for again that the API server forbids: rights that are
/// given back should be seen in seconds, and a refusal costs the API server next to nothing.
const FORBIDDEN_WAIT_MAX_MS: u64 = 5_000;

/// Objects in one page of a list. Halved when a page is larger than is read at once, or slow. Doubled again after a list
/// without slow pages.
pub(super) const PAGE_OBJECTS_MAX: u32 = 500;

/// The objects of a page below which a slow page is not made smaller.
const SLOW_PAGE_OBJECTS_MIN: u32 = 32;

/// Returns the limit of the page to ask for in place of one of `limit` objects; `None`: a smaller page would not help.
pub(super) fn smaller_page(fault: &Fault, limit: u32) -> Option<u32> {
    let limit_min = match fault {
        Fault::TooLarge { .. } => 1,
        Fault::Slow { .. } => SLOW_PAGE_OBJECTS_MIN,
        _ => return None,
    };
    (limit > limit_min).then_some(limit / 2)
}

/// A watch that ended sooner than this without a word is taken for a fault, so that an API server
/// that closes at once is not asked in a loop.
const WATCH_LIFE_MIN: Duration = Duration::from_secs(5);

/// The longest wait before a watch that was ended at once is opened again: events wait for it too.
const CUT_WAIT_MAX: Duration = Duration::from_secs(2);

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReflectorCommand {
    /// Ask for a page. Without a token it is the first one, and then without a resource version:
    /// that is the most recent state, a consistent read.
    List {
        /// The token with which the page before ended.
        token: Option<String>,
        /// Objects in the page.
        limit: u32,
    },
    /// Ask for the first page with one object, only to learn the collection's version.
    Probe,
    /// Watch for changes after this version.
    Watch {
        /// The last version that was heard of.
        from: ResourceVersion,
    },
    /// Wait, then say [`Input::Waited`].
    Wait {
        /// The time to wait.
        wait: Duration,
        /// The wait also ends when the API server serves something new.
        absent: bool,
    },
}

/// An answer, or its absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The page that was asked for.
    Page {
        /// The collection's version.
        version: ResourceVersion,
        /// The token of the next page; `None`: this was the last.
        next: Option<String>,
    },
    /// The API server accepted the watch.
    Opened,
    /// An event.
    Heard {
        /// The version of its object, if there is one. Of an object without one it was made up here.
        version: Option<ResourceVersion>,
    },
    /// A bookmark: the collection's own version.
    Bookmark {
        /// The version; empty if there is none.
        version: ResourceVersion,
    },
    /// The API server ended the watch.
    Ended {
        /// The time for which it was open.
        lived: Duration,
    },
    /// The list, watch or probe failed.
    Failed(Fault),
    /// The wait is over.
    Waited,
    /// A list is wanted, although nothing failed.
    Relist,
}

/// News for the keeper of the objects, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReflectorEffect {
    /// A list begins.
    Begin {
        /// The source's history restarted: a version known from before says nothing now.
        afresh: bool,
    },
    /// Here come the objects of the page.
    Deliver,
    /// The list is complete at this version: objects that it did not bring are gone.
    Listed(ResourceVersion),
    /// The source cannot be read.
    Refused(Failure),
    /// The source cannot be heard right now; known objects stay valid, and grow old.
    Troubled(Failure),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    List { token: Option<String>, begun: bool },
    Probe { from: ResourceVersion },
    Watch { from: ResourceVersion, heard: bool },
}

/// The state of one watch.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    phase: Phase,
    wait: Option<Duration>,
    /// The last fault was that there is no such resource.
    absent: bool,
    backoff: Backoff,
    /// The newest version that was ever heard of.
    newest: ResourceVersion,
    page_limit: u32,
    /// A page of the list was slow, or too large to be read at once.
    has_shrunk: bool,
    /// The last watch was refused: there is a list once one is open. A list before that is announced
    /// only then, or the view would flap between synced and failed.
    watch_refused: bool,
    unannounced: Option<ResourceVersion>,
}

impl Machine {
    /// Begins with a list. `newest` is the version at which the source was left before, if it is
    /// known.
    pub(super) fn new(newest: ResourceVersion) -> Self {
        Self {
            phase: Phase::List {
                token: None,
                begun: false,
            },
            wait: None,
            absent: false,
            backoff: Backoff::new(BACKOFF_BASE_MS, BACKOFF_MAX_MS),
            newest,
            page_limit: PAGE_OBJECTS_MAX,
            has_shrunk: false,
            watch_refused: false,
            unannounced: None,
        }
    }

    /// Returns the next thing to do.
    pub(super) fn command(&self) -> ReflectorCommand {
        match (&self.wait, &self.phase) {
            (Some(wait), _) => ReflectorCommand::Wait {
                wait: *wait,
                absent: self.absent,
            },
            (None, Phase::List { token, .. }) => ReflectorCommand::List {
                token: token.clone(),
                limit: self.page_limit,
            },
            (None, Phase::Probe { .. }) => ReflectorCommand::Probe,
            (None, Phase::Watch { from, .. }) => ReflectorCommand::Watch { from: from.clone() },
        }
    }

    /// Takes an input, and returns its effects. `random` is any number, evenly distributed.
    pub(super) fn step(&mut self, input: Input, random: u64) -> Vec<ReflectorEffect> {
        match input {
            Input::Page { version, next } => self.page(version, next),
            Input::Opened => self.opened(),
            Input::Heard { version } => {
                self.heard(version.filter(is_of_the_source), random);
                Vec::new()
            }
            Input::Bookmark { version } => {
                let version = Some(version).filter(|version| !version.is_empty());
                self.heard(version, random);
                Vec::new()
            }
            Input::Ended { lived } => {
                self.ended(lived, random);
                Vec::new()
            }
            Input::Failed(fault) => self.failed(&fault, random),
            Input::Waited => {
                self.wait = None;
                Vec::new()
            }
            Input::Relist => {
                self.relist();
                Vec::new()
            }
        }
    }

    fn opened(&mut self) -> Vec<ReflectorEffect> {
        if !std::mem::take(&mut self.watch_refused) {
            return Vec::new();
        }
        if let Some(version) = self.unannounced.take() {
            return vec![ReflectorEffect::Listed(version)];
        }
        self.relist();
        Vec::new()
    }

    fn heard(&mut self, version: Option<ResourceVersion>, random: u64) {
        let Phase::Watch { from, heard } = &mut self.phase else {
            return;
        };
        *heard = true;
        let Some(version) = version else { return };
        if version.compare(from) == Some(Ordering::Less) {
            self.relist();
            self.wait = Some(self.backoff.next(random));
            return;
        }
        from.clone_from(&version);
        self.newest = version;
        self.backoff.reset();
    }

    fn ended(&mut self, lived: Duration, random: u64) {
        let Phase::Watch { heard, .. } = &mut self.phase else {
            return;
        };
        let heard = std::mem::take(heard);
        if lived < WATCH_LIFE_MIN {
            if !heard {
                let wait = self.backoff.next(random);
                self.wait = Some(wait.min(CUT_WAIT_MAX));
            }
        } else if !heard {
            self.relist();
        }
    }

    fn page(&mut self, version: ResourceVersion, next: Option<String>) -> Vec<ReflectorEffect> {
        let begun = match &self.phase {
            Phase::List { begun, .. } => *begun,
            Phase::Probe { from } => {
                if version.compare(from) == Some(Ordering::Less) {
                    self.relist();
                } else {
                    // The API server answers: however often it cuts watches, events wait no longer.
                    self.backoff.reset();
                    self.phase = Phase::Watch {
                        from: from.clone(),
                        heard: false,
                    };
                }
                return Vec::new();
            }
            Phase::Watch { .. } => return Vec::new(), // Nobody asked.
        };
        let mut effects = Vec::new();
        if !begun {
            let afresh = version.compare(&self.newest) == Some(Ordering::Less);
            effects.push(ReflectorEffect::Begin { afresh });
        }
        effects.push(ReflectorEffect::Deliver);
        if next.is_some() {
            self.phase = Phase::List {
                token: next,
                begun: true,
            };
            return effects;
        }
        if !std::mem::take(&mut self.has_shrunk) {
            // What was large or slow may be gone. If it is not, one page of the next list is asked for in vain.
            self.page_limit = PAGE_OBJECTS_MAX.min(self.page_limit * 2);
        }
        self.newest = version.clone();
        self.phase = Phase::Watch {
            from: version.clone(),
            heard: false,
        };
        if self.watch_refused {
            self.unannounced = Some(version);
        } else {
            effects.push(ReflectorEffect::Listed(version));
        }
        effects
    }

    fn failed(&mut self, fault: &Fault, random: u64) -> Vec<ReflectorEffect> {
        let failure = fault.failure();
        let watching = matches!(self.phase, Phase::Watch { .. });
        let listing = matches!(self.phase, Phase::List { .. });
        self.absent = matches!(fault, Fault::Refused { code: 404, .. });
        match fault {
            // In a healthy watch, it is simply the next list's turn; a second time in a row is not.
            Fault::Gone { .. } => {
                let first = watching && self.backoff.attempt() == 0;
                self.relist();
                let wait = self.backoff.next(random);
                self.wait = (!first).then_some(wait);
                Vec::new()
            }
            // A watch that is refused is asked for again by itself: nobody could follow up a list, and
            // that may be of thousands.
            Fault::Refused { code, .. } => {
                self.watch_refused = watching;
                if !watching {
                    self.relist();
                }
                let max_ms = match code {
                    403 => FORBIDDEN_WAIT_MAX_MS,
                    _ => BACKOFF_MAX_MS,
                };
                self.wait = Some(self.backoff.next_within(random, max_ms));
                vec![ReflectorEffect::Refused(failure)]
            }
            Fault::Throttled { after, .. } => {
                let own = self.backoff.next(random);
                self.wait = Some(after.map_or(own, |after| after.max(own)));
                vec![ReflectorEffect::Troubled(failure)]
            }
            Fault::TooLarge { .. } if listing && self.page_limit > 1 => {
                self.make_pages_smaller(fault);
                Vec::new()
            }
            Fault::Slow { .. } if listing => {
                self.make_pages_smaller(fault);
                self.wait = Some(self.backoff.next(random));
                vec![ReflectorEffect::Troubled(failure)]
            }
            Fault::TooLarge { .. } | Fault::Unreadable { .. } => {
                self.relist();
                self.wait = Some(self.backoff.next(random));
                vec![ReflectorEffect::Troubled(failure)]
            }
            Fault::Server { .. }
            | Fault::Transport { .. }
            | Fault::Silent { .. }
            | Fault::Slow { .. } => {
                if let Phase::Watch { from, .. } = &self.phase {
                    self.phase = Phase::Probe { from: from.clone() };
                }
                self.wait = Some(self.backoff.next(random));
                vec![ReflectorEffect::Troubled(failure)]
            }
        }
    }

    fn make_pages_smaller(&mut self, fault: &Fault) {
        self.has_shrunk = true;
        self.page_limit = smaller_page(fault, self.page_limit).unwrap_or(self.page_limit);
    }

    fn relist(&mut self) {
        self.has_shrunk = false;
        self.unannounced = None;
        self.phase = Phase::List {
            token: None,
            begun: false,
        };
    }
}

/// Returns whether the API server made the version: one that was made up here means nothing to it.
pub(super) fn is_of_the_source(version: &ResourceVersion) -> bool {
    version.compare(version).is_some()
}

#[cfg(test)]
mod tests;
