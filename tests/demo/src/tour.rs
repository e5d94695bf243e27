//! The guided tour: five things that can be done to a running system, and what comes of each.

mod ask;
mod steps;
mod transcript;

use anteroom_wire::tap::FactRead;

pub(crate) use self::{steps::Tour, transcript::Transcript};

/// A stop of the tour. Each can be played again and again, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask for a host that a different Ingress owns.
    Take,
    /// Delete the owner, and ask again.
    Free,
    /// Stop the watcher until facts are too old, and start it again.
    StopWatcher,
    /// Have the API server's watches say nothing until facts are too old.
    StallWatches,
    /// Add a policy whose query no index answers.
    Scan,
}

impl Step {
    /// All, in the order of their keys.
    pub(crate) const ALL: [Self; 5] = [
        Self::Take,
        Self::Free,
        Self::StopWatcher,
        Self::StallWatches,
        Self::Scan,
    ];

    /// The step of a key, `1` to `5`.
    pub(crate) fn of_key(key: char) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.key() == key)
    }

    pub(crate) fn key(self) -> char {
        match self {
            Self::Take => '1',
            Self::Free => '2',
            Self::StopWatcher => '3',
            Self::StallWatches => '4',
            Self::Scan => '5',
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Take => "Take a taken host",
            Self::Free => "Free it",
            Self::StopWatcher => "Stop the watcher",
            Self::StallWatches => "Stall the API server's watches",
            Self::Scan => "Add a policy that scans",
        }
    }

    /// The page that says more.
    fn page(self) -> &'static str {
        match self {
            Self::Take => "docs/operators.md, What is decided now",
            Self::Free => "docs/context.md",
            Self::StopWatcher => "docs/errors.md, AR104",
            Self::StallWatches => "docs/ready.md, When facts are missing",
            Self::Scan => "docs/checks.md, decisions-scans",
        }
    }
}

/// What a fact rests on, without what differs from run to run but for its age.
fn fact_text(fact: &FactRead) -> String {
    let read = &fact.read;
    format!(
        "{}: looked at {} of {} objects, {} s old",
        read.entry,
        read.examined,
        read.objects,
        read.age_ms.div_ceil(100) as f64 / 10.0
    )
}

#[cfg(test)]
mod tests;
