//! A record of the log, as it stands on the wire.

use anteroom_model::{Delta, ViewId, ViewRecord};
use bytes::Bytes;

/// W3C `traceparent` (and `tracestate`) of whoever wrote a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// As in the W3C Trace Context recommendation; empty: not traced.
    pub traceparent: String,
    /// Vendor data; empty: none.
    pub tracestate: String,
}

/// One record of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A change of one object of a view. The body is compact MessagePack, see [`crate::body`].
    Delta {
        /// The view that changed.
        view: ViewId,
        /// How.
        delta: Delta<Bytes>,
    },
    /// Where a view stands.
    Control(ViewRecord),
}

impl Record {
    /// The view that the record is about.
    pub fn view(&self) -> &ViewId {
        match self {
            Self::Delta { view, .. } => view,
            Self::Control(record) => &record.view,
        }
    }
}

/// A record with what travels beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// The record.
    pub record: Record,
    /// Who wrote it, for traces.
    pub trace: Option<TraceContext>,
}
