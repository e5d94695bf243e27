//! Where a view stands, for whoever waits for it.

use anteroom_model::{Incarnation, ResourceVersion, Revision};
use anteroom_view::State;

/// Where a view stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewStatus {
    /// What a reader gets.
    pub state: State,
    /// Whether every record that is read takes effect at once. Otherwise the view is being built
    /// anew, beside what it serves.
    pub live: bool,
    /// The position of the last record in what it serves.
    pub revision: Revision,
    /// Objects in what it serves.
    pub objects: u64,
    /// What it takes in memory: bodies, keys, indexes, and what is built anew beside them.
    pub bytes: u64,
    /// What of that is being built anew, beyond what it shares with what is served.
    pub staged_bytes: u64,
}

impl ViewStatus {
    /// Whether every reader gets the truth from it: data that is complete and fresh, or the very
    /// error of its source. Otherwise another mirror had better be asked.
    pub fn serves(&self) -> bool {
        matches!(self.state, State::Synced | State::Failed(_))
    }
}

/// What a log is to a view, for whoever has read of it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedFrom {
    /// What is served was read from it.
    This,
    /// It is read now; what is served until it is complete is of the log before it.
    ThisSoon,
    /// It was left, or is not known here yet.
    Another,
}

/// What a read was a read of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPosition {
    /// The log that `revision` is a position of.
    pub incarnation: Incarnation,
    /// The position of the last record in what was read.
    pub revision: Revision,
    /// The source's resource version there, at least.
    pub version: ResourceVersion,
    /// How old the news is.
    pub age_ms: u64,
    /// Objects in the view.
    pub objects: u64,
    /// Equal only for equal content of one view of one mirror: what results may be memoised by.
    pub content: ContentStamp,
}

/// Names one state of a view's content: no two states that a mirror ever held have the same.
///
/// The revision does not do that: a view that was read again from the start may have lost objects
/// without a record of its own, and a control record changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentStamp(pub(crate) u64);
