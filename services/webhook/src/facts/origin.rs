//! What an answer was read from, for the decision's record.

use anteroom_model::{ErrorCode, Revision, ViewId};
use anteroom_wire::{live::LiveReply, query::QueryReply};
use serde::{Serialize, Serializer, ser::SerializeMap};

/// What an answer was read from. In the record, `from` is `view`, `fallback` (last-good data) or `live`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A view, in a replica.
    View {
        view: ViewId,
        replica: String,
        incarnation: String,
        revision: Revision,
        version: String,
        age_ms: u64,
        /// The replica does not serve the view now: last-good data of an age that the reader accepts.
        last_good: bool,
    },
    /// The API server or a service, through a watcher.
    Live {
        watcher: String,
        age_ms: u64,
        shared: bool,
        sealed: bool,
        /// What the view said that was asked before.
        turned_back: Option<ErrorCode>,
    },
}

impl Origin {
    pub(super) fn view(view: &ViewId, reply: &QueryReply, last_good: bool) -> Self {
        Self::View {
            view: view.clone(),
            replica: reply.replica.clone(),
            incarnation: reply.incarnation.0.clone(),
            revision: reply.revision,
            version: reply.version.0.clone().into(),
            age_ms: reply.age_ms,
            last_good,
        }
    }

    pub(super) fn live(reply: &LiveReply) -> Self {
        Self::Live {
            watcher: reply.watcher.clone(),
            age_ms: reply.age_ms,
            shared: reply.shared,
            sealed: reply.sealed,
            turned_back: None,
        }
    }

    /// Of a live read: which error of a view led to it.
    pub(super) fn turned_back(&mut self, by: Option<ErrorCode>) {
        if let Self::Live { turned_back, .. } = self {
            *turned_back = by;
        }
    }

    /// Whether it is a live read that travelled sealed.
    pub(super) fn was_sealed(&self) -> bool {
        matches!(self, Self::Live { sealed: true, .. })
    }

    /// Of a view's answer; 0 otherwise.
    pub(super) fn revision(&self) -> Revision {
        match self {
            Self::View { revision, .. } => *revision,
            Self::Live { .. } => Revision::default(),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut record = serializer.serialize_map(None)?;
        match self {
            Self::View {
                view,
                replica,
                incarnation,
                revision,
                version,
                age_ms,
                last_good,
            } => {
                let from = if *last_good { "fallback" } else { "view" };
                record.serialize_entry("from", from)?;
                record.serialize_entry("view", view.as_str())?;
                record.serialize_entry("incarnation", incarnation)?;
                record.serialize_entry("revision", &revision.0)?;
                record.serialize_entry("resourceVersion", version)?;
                record.serialize_entry("ageMs", age_ms)?;
                record.serialize_entry("replica", replica)?;
            }
            Self::Live {
                watcher,
                age_ms,
                shared,
                sealed: _,
                turned_back,
            } => {
                record.serialize_entry("from", "live")?;
                record.serialize_entry("watcher", watcher)?;
                record.serialize_entry("ageMs", age_ms)?;
                if *shared {
                    record.serialize_entry("shared", shared)?;
                }
                if let Some(code) = turned_back {
                    record.serialize_entry("viewError", code.as_str())?;
                }
            }
        }
        record.end()
    }
}
