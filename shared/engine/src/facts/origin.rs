//! The origin of an answer, for the decision's record.

use anteroom_model::{ErrorCode, Revision, ViewId};
use anteroom_wire::{live::LiveReply, query::QueryReply};
use serde::{Serialize, Serializer, ser::SerializeMap};

/// The origin of an answer. In the record, `from` is `view`, `fallback` (last-good data) or `live`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A view, in a replica.
    View {
        /// The view.
        view: ViewId,
        /// The replica that answered.
        replica: String,
        /// The log that it follows.
        incarnation: String,
        /// The view's position in that log.
        revision: Revision,
        /// The resource version that the view had there.
        version: String,
        /// The age of the view's news.
        age_ms: u64,
        /// Objects in the view.
        objects: u64,
        /// Objects that the queries of the request were evaluated over.
        examined: u64,
        /// The replica does not serve the view now: last-good data of an age that the reader accepts.
        last_good: bool,
    },
    /// The API server or a service, through a watcher.
    Live {
        /// The watcher that read.
        watcher: String,
        /// The age of the answer.
        age_ms: u64,
        /// The fact was read for somebody else at the same time.
        shared: bool,
        /// The read was of Secrets.
        secret: bool,
        /// The error of the view that was asked before.
        fallback_from: Option<ErrorCode>,
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
            objects: reply.objects,
            examined: reply.examined,
            last_good,
        }
    }

    pub(super) fn live(reply: &LiveReply) -> Self {
        Self::Live {
            watcher: reply.watcher.clone(),
            age_ms: reply.age_ms,
            shared: reply.shared,
            secret: reply.secret,
            fallback_from: None,
        }
    }

    /// Notes, of a live read, the error of a view that led to it.
    pub(super) fn fallback_from(&mut self, by: Option<ErrorCode>) {
        if let Self::Live { fallback_from, .. } = self {
            *fallback_from = by;
        }
    }

    /// Returns whether it is a live read of Secrets.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self, Self::Live { secret: true, .. })
    }

    /// The revision of a view's answer; 0 otherwise.
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
                objects: _,
                examined: _,
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
                secret: _,
                fallback_from,
            } => {
                record.serialize_entry("from", "live")?;
                record.serialize_entry("watcher", watcher)?;
                record.serialize_entry("ageMs", age_ms)?;
                if *shared {
                    record.serialize_entry("shared", shared)?;
                }
                if let Some(code) = fallback_from {
                    record.serialize_entry("viewError", code.as_str())?;
                }
            }
        }
        record.end()
    }
}
