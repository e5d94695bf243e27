//! The effects of the machine on the world outside.

use anteroom_model::{Revision, ViewId};

use crate::{RereadCause, machine::SharedView};

/// An effect of the machine on the world outside.
#[derive(Debug)]
pub(crate) enum MirrorEffect {
    /// A view came.
    Added(ViewId, SharedView),
    /// A view went.
    Removed(ViewId),
    /// The status of this view has changed.
    Changed(ViewId),
    /// The status of every view may have changed.
    AllChanged,
    /// A writer was heard: views may have become fresh.
    Heard,
    /// A delta of this view was taken in, or was known already.
    Delta {
        /// The view of the object.
        view: ViewId,
        /// The delta changed the object.
        changed: bool,
    },
    /// A record could not be read.
    Undecodable {
        /// The position of the record.
        revision: Revision,
        /// The view of the record, where that can be told.
        view: Option<ViewId>,
    },
    /// The view's bodies cannot be opened, for this reason.
    Unopened(ViewId, String),
    /// The view's objects were freed.
    Evicted(ViewId),
    /// The log has to be read for this view alone.
    Load(ViewId),
    /// The reader of one view is done, or not wanted any more.
    LoadEnded(ViewId),
    /// A record on its way was superseded before it was read.
    Hole,
    /// The view's digest proves that a record is missing.
    DigestMismatch(ViewId),
    /// The log has to be read from its start again.
    AskAgain(RereadCause),
}
