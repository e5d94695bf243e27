//! What passes between the book, those who hand changes in, and the writer.

use std::time::Instant;

use anteroom_model::{Epoch, Failure, ObjectKey, ResourceVersion, ViewId, ViewRecord, ViewState};
use anteroom_wire::envelope::Record;
use tracing::Span;

use super::marks::Width;

/// Whose tenure of which view a change belongs to. A change of an earlier tenure is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tenure {
    /// The view.
    pub view: ViewId,
    /// The epoch in which it is written.
    pub epoch: Epoch,
}

/// An object that was brought to a view.
#[derive(Clone, Debug)]
pub(crate) struct Brought {
    /// Which.
    pub key: ObjectKey,
    /// In which version.
    pub version: ResourceVersion,
    /// By which list; `None`: by an event.
    pub by: Option<Width>,
    /// When.
    pub since: Instant,
    /// The span of its change.
    pub span: Span,
}

/// What is known of a view without its objects.
#[derive(Clone, Debug)]
pub(crate) struct ViewStats {
    /// The view.
    pub view: ViewId,
    /// What the last control record in the log says, if there is one of this tenure.
    pub told: Option<ViewState>,
    /// Why the source cannot be heard right now.
    pub trouble: Option<Failure>,
    /// Objects at the source.
    pub objects: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Changes that wait to be written.
    pub pending: usize,
    /// Objects without a name that were passed over since the last list began.
    pub skipped: u64,
    /// When the source was last heard from.
    pub heard: Option<Instant>,
    /// How old its news in the log is; `u64::MAX` where it was never heard from.
    pub news_age_ms: u64,
}

#[derive(Debug)]
pub(super) enum Item {
    Change {
        tenure: Tenure,
        key: ObjectKey,
    },
    Control {
        tenure: Tenure,
        state: ViewState,
        version: ResourceVersion,
    },
    Dropped(Box<ViewRecord>),
    Purge(ViewId),
}

/// What to do with the log next.
#[derive(Debug)]
pub(crate) enum Work {
    /// Append these.
    Append(Batch),
    /// Remove what the log has of this view.
    Purge(ViewId),
}

/// Records to be appended together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Each with the span of the change that it carries.
    pub records: Vec<(Record, Span)>,
    /// Bytes of their bodies.
    pub body_bytes: usize,
}
