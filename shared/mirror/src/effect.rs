//! What a machine wants done.

use anteroom_model::{Revision, ViewId};

use crate::{RereadCause, machine::SharedView};

/// What has to happen outside.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A view came.
    Added(ViewId, SharedView),
    /// A view went.
    Removed(ViewId),
    /// Where this view stands has changed.
    Changed(ViewId),
    /// Where every view stands may have changed.
    AllChanged,
    /// A writer was heard: views may have become fresh.
    Heard,
    /// A delta of this view was taken in, or was known already.
    Delta {
        /// Whose.
        view: ViewId,
        /// Whether it changed anything.
        changed: bool,
    },
    /// A record could not be read.
    Undecodable {
        /// Where it stands.
        revision: Revision,
        /// Whose it is, where that can be told.
        view: Option<ViewId>,
    },
    /// The view's bodies cannot be opened, for this reason.
    Unopened(ViewId, String),
    /// The view's objects were freed.
    Evicted(ViewId),
    /// The log has to be read for this view alone.
    Load(ViewId),
    /// That reader is done, or not wanted any more.
    LoadEnded(ViewId),
    /// A record on its way was superseded before it was read.
    Hole,
    /// The view's digest proves that it misses something.
    DigestMismatch(ViewId),
    /// The log has to be read from its start again.
    AskAgain(RereadCause),
}
