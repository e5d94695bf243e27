//! Types that pass between the queue, those who hand changes in, and the writer.

use anteroom_model::{
    Epoch, Failure, ObjectKey, Op, ResourceVersion, ViewId, ViewRecord, ViewState,
};
use anteroom_wire::envelope::Record;
use tokio::time::Instant;
use tracing::Span;

/// The right to write a view in one epoch. A change under a handle of an earlier epoch is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteHandle {
    /// The view.
    pub view: ViewId,
    /// The epoch in which it is written.
    pub epoch: Epoch,
}

/// The way by which a change of a view came.
#[derive(Clone, Debug)]
pub(crate) enum ChangeOrigin {
    /// A list of the view: while it runs, the change may be as old as the source's last word before it.
    List,
    /// An event, with the span of its change: it is as old as itself.
    Event(Span),
    /// The writer's own word, as that a referenced object is pending: it is as old as itself.
    Own,
}

impl ChangeOrigin {
    /// Returns the span in which the change is published.
    pub(super) fn into_span(self) -> Span {
        match self {
            Self::Event(span) => span,
            Self::List | Self::Own => Span::none(),
        }
    }
}

/// An object that is written to a view.
#[derive(Clone, Debug)]
pub(crate) struct Incoming {
    /// The object's key.
    pub key: ObjectKey,
    /// The object's version.
    pub version: ResourceVersion,
    /// The time at which it came.
    pub since: Instant,
    /// The way by which it came.
    pub origin: ChangeOrigin,
}

/// The figures of a view.
#[derive(Clone, Debug)]
pub(crate) struct ViewStats {
    /// The view.
    pub view: ViewId,
    /// The state in the last control record in the log, if there is one of this handle.
    pub reported_state: Option<ViewState>,
    /// The reason why the source cannot be heard right now.
    pub trouble: Option<Failure>,
    /// Objects at the source.
    pub objects: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Bytes of objects that the log has no room for.
    pub refused_bytes: u64,
    /// Changes that wait to be written.
    pub pending: usize,
    /// Objects without a name that were passed over since the last list began.
    pub skipped: u64,
    /// The time at which the source was last heard from.
    pub heard: Option<Instant>,
    /// The age of the view's news in the log; `u64::MAX`: the source was never heard from.
    pub news_age_ms: u64,
}

#[derive(Debug)]
pub(super) enum Item {
    Change {
        handle: WriteHandle,
        key: ObjectKey,
    },
    Control {
        handle: WriteHandle,
        state: ViewState,
        version: ResourceVersion,
    },
    Dropped(Box<ViewRecord>),
    Purge(ViewId),
}

/// The next thing to do with the log.
#[derive(Debug)]
pub(crate) enum Work {
    /// Append these records.
    Append(Batch),
    /// Remove the view's records from the log.
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

impl Batch {
    /// A batch of one record.
    pub(super) fn of(record: Record, span: Span) -> Self {
        let body_bytes = body_bytes(&record);
        Self {
            records: vec![(record, span)],
            body_bytes,
        }
    }

    /// Adds a record.
    pub(super) fn push(&mut self, record: Record, span: Span) {
        self.body_bytes += body_bytes(&record);
        self.records.push((record, span));
    }
}

fn body_bytes(record: &Record) -> usize {
    match record {
        Record::Delta { delta, .. } => match &delta.op {
            Op::Put(body) => body.len(),
            Op::Delete => 0,
        },
        Record::Control(_) => 0,
    }
}
