//! The status of a view, for readers that wait for it.

use anteroom_model::{Incarnation, ResourceVersion, Revision};
use anteroom_view::LifeState;

/// The status of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewStatus {
    /// The state, which decides the answers to readers.
    pub state: LifeState,
    /// Every record that is read takes effect at once. Otherwise records are gathered beside the data
    /// that is served.
    pub live: bool,
    /// The position of the last record in what it serves.
    pub revision: Revision,
    /// The position up to which what it serves is complete, where that takes in no records of the log's reader.
    pub left_complete_to: Option<Revision>,
    /// Objects in what it serves.
    pub objects: u64,
    /// Its size in memory: bodies, keys, indexes, and the objects that are gathered beside them.
    pub bytes: u64,
    /// The size of the objects that are gathered, without those that are served too.
    pub staged_bytes: u64,
    /// The objects that the log holds, read from its start, are not those of which its writer told the digest. What is missing
    /// comes only if that writer compares the log with the source again.
    pub is_contradicted: bool,
}

impl ViewStatus {
    /// Returns true if every reader gets the truth from it: data that is complete and fresh, or the
    /// very error of its source. Otherwise another mirror had better be asked.
    pub fn serves(&self) -> bool {
        matches!(self.state, LifeState::Synced | LifeState::Failed(_))
    }
}

/// The relation of a log to the data of a view, for a reader that knows a position of that log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedFrom {
    /// The data was read from it.
    This,
    /// The log is being read; until the read is complete, the served data is of the log before.
    ThisSoon,
    /// It was left, or is not known here yet.
    Another,
}

/// The position and age of the data that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPosition {
    /// The log that `revision` is a position of.
    pub incarnation: Incarnation,
    /// The position of the last record in what was read.
    pub revision: Revision,
    /// The source's resource version there, at least.
    pub version: ResourceVersion,
    /// The time since the source was last heard from.
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
