//! A record of the log, as it stands on the wire.

use std::time::Duration;

use anteroom_model::{
    Delta, Epoch, ObjectKey, Op, ResourceVersion, ViewId, ViewRecord,
    limits::{OBJECT_BYTES_MAX, TOMBSTONE_TTL_MS},
};
use bytes::Bytes;

use crate::{
    PROTOCOL_VERSION, WireError, body, escape, header,
    subject::{self, SUBJECT_BYTES_MAX, Subject, Subjects},
    unreadable::{self, DOCUMENT_BYTES_MAX},
};

pub use crate::header::TraceContext;

/// One record of the log.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "control records are few, and an envelope that waits is boxed"
)]
pub enum Record {
    /// A change of one object of a view. The body is compact MessagePack, see [`crate::body`],
    /// sealed, see [`body::is_sealed`], or a stub, see [`crate::unreadable`].
    Delta {
        /// The view that changed.
        view: ViewId,
        /// The change.
        delta: Delta<Bytes>,
    },
    /// The state of a view.
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
    /// The trace of the writer.
    pub trace: Option<TraceContext>,
}

/// A record as the bus stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// The subject.
    pub subject: String,
    /// The message's data except the body, for readers that need no body.
    pub headers: Vec<(&'static str, String)>,
    /// The object's body; of a tombstone, nothing; of a control record, the record.
    pub body: Bytes,
    /// The time for which the log keeps the message; `None`: until a newer message replaces it.
    pub ttl: Option<Duration>,
}

/// A record, as far as subject and headers alone say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordHead {
    /// A change of one object of a view.
    Delta {
        /// The view that changed.
        view: ViewId,
        /// The change; the body is left out.
        delta: Delta<()>,
    },
    /// The state of a view, which only the body says.
    Control(ViewId),
}

/// The largest sealed body: an open one, and what the seal adds.
const SEALED_BYTES_MAX: usize = OBJECT_BYTES_MAX + 1024;

/// The most bytes that a message has beside a body and a version: the other headers, traces and what a bus
/// adds for batches and fences included.
pub const HEADERS_BYTES_MAX: usize = 8 * 1024;

const PUT: &str = "put";
const DELETE: &str = "delete";
const CONTROL: &str = "control";

/// Checks that a put of this object can be written, in a cluster of any name, to a bus that takes messages of
/// so many bytes.
///
/// # Errors
/// [`WireError::Limit`].
pub fn check_put(
    view: &ViewId,
    key: &ObjectKey,
    version: &ResourceVersion,
    body_bytes: usize,
    message_bytes_max: usize,
) -> Result<(), WireError> {
    subject::check_object(view, key)?;
    let version_bytes = escape::token_bytes(version.as_str());
    let bytes = body_bytes.saturating_add(version_bytes + HEADERS_BYTES_MAX);
    body::within("bytes of a message", bytes, message_bytes_max)
}

/// A record as the bus stores it. The body of a put is taken as it is: [`body::encode_json`] made
/// it.
///
/// # Errors
/// [`WireError::Limit`] if the subject is longer than [`SUBJECT_BYTES_MAX`].
pub fn encode(envelope: &Envelope, subjects: &Subjects) -> Result<Encoded, WireError> {
    let mut headers = vec![(header::PROTOCOL, PROTOCOL_VERSION.to_string())];
    let (subject, body, ttl) = match &envelope.record {
        Record::Delta { view, delta } => {
            let (op, body, ttl) = match &delta.op {
                Op::Put(body) => (PUT, body.clone(), None),
                Op::Delete => (
                    DELETE,
                    Bytes::new(),
                    Some(Duration::from_millis(TOMBSTONE_TTL_MS)),
                ),
            };
            headers.push((header::OP, op.into()));
            headers.push((header::EPOCH, delta.epoch.to_string()));
            headers.push((header::VERSION, escape::escape(delta.version.as_str())));
            (subjects.object(view, &delta.key), body, ttl)
        }
        Record::Control(record) => {
            headers.push((header::OP, CONTROL.into()));
            (subjects.control(&record.view), body::encode(record)?, None)
        }
    };
    body::within("bytes of a subject", subject.len(), SUBJECT_BYTES_MAX)?;
    header::push_trace(envelope.trace.as_ref(), &mut headers);
    Ok(Encoded {
        subject,
        headers,
        body,
        ttl,
    })
}

/// A stored message as a record. `header` looks a header up by its exact name. The body of a put is validated,
/// so that whoever holds it may read it in place. A sealed one is left as it is, and whoever opens it validates
/// what was inside.
///
/// # Errors
/// Any [`WireError`] but [`WireError::Cluster`].
pub fn decode<'h>(
    subject: &str,
    header: impl Fn(&str) -> Option<&'h str>,
    body: Bytes,
    subjects: &Subjects,
) -> Result<Envelope, WireError> {
    let record = match decode_head(subject, &header, subjects)? {
        RecordHead::Delta { view, delta } => Record::Delta {
            view,
            delta: with_body(delta, body)?,
        },
        RecordHead::Control(view) => {
            let record: ViewRecord = body::decode(&body)?;
            if record.view != view {
                return Err(WireError::body("a control record of another view"));
            }
            Record::Control(record)
        }
    };
    Ok(Envelope {
        record,
        trace: header::trace(header),
    })
}

/// Reads a stored message's subject and headers: for a reader that leaves bodies out.
///
/// # Errors
/// [`WireError::Protocol`], [`WireError::Header`], [`WireError::Subject`].
pub fn decode_head<'h>(
    subject: &str,
    header: impl Fn(&str) -> Option<&'h str>,
    subjects: &Subjects,
) -> Result<RecordHead, WireError> {
    header::check_protocol(&header)?;
    let op = header::required(&header, header::OP)?;
    match (subjects.parse(subject)?, op) {
        (Subject::Object { view, key }, PUT) => {
            let delta = delta(key, Op::Put(()), header)?;
            Ok(RecordHead::Delta { view, delta })
        }
        (Subject::Object { view, key }, DELETE) => {
            let delta = delta(key, Op::Delete, header)?;
            Ok(RecordHead::Delta { view, delta })
        }
        (Subject::Control(view), CONTROL) => Ok(RecordHead::Control(view)),
        (Subject::Object { .. } | Subject::Control(_), op) => Err(WireError::Header {
            name: header::OP,
            problem: format!("{op:?} is not an operation of this subject"),
        }),
        _ => Err(WireError::Subject {
            subject: subject.into(),
        }),
    }
}

fn delta<'h>(
    key: ObjectKey,
    op: Op<()>,
    header: impl Fn(&str) -> Option<&'h str>,
) -> Result<Delta<()>, WireError> {
    let version = header::required(&header, header::VERSION)?;
    let version = escape::unescape(version).ok_or_else(|| WireError::Header {
        name: header::VERSION,
        problem: format!("{version:?} is not an escaped resource version"),
    })?;
    Ok(Delta {
        key,
        epoch: epoch(header::required(&header, header::EPOCH)?)?,
        version: ResourceVersion::new(version),
        op,
    })
}

fn with_body(head: Delta<()>, body: Bytes) -> Result<Delta<Bytes>, WireError> {
    let op = match head.op {
        Op::Put(()) => {
            if let Some(document) = unreadable::document(&body) {
                body::within("bytes of a stub", document.len(), DOCUMENT_BYTES_MAX)?;
                body::validate(document)?;
            } else if body::is_sealed(&body) {
                body::within("bytes of a sealed body", body.len(), SEALED_BYTES_MAX)?;
            } else {
                body::validate(&body)?;
            }
            Op::Put(body)
        }
        Op::Delete if body.is_empty() => Op::Delete,
        Op::Delete => return Err(WireError::body("a tombstone with a body")),
    };
    Ok(Delta {
        key: head.key,
        epoch: head.epoch,
        version: head.version,
        op,
    })
}

/// Reads an [`Epoch`] as it displays itself: `term.generation`.
fn epoch(text: &str) -> Result<Epoch, WireError> {
    let parse = || {
        let (term, generation) = text.split_once('.')?;
        Some(Epoch::new(term.parse().ok()?, generation.parse().ok()?))
    };
    parse().ok_or_else(|| WireError::Header {
        name: header::EPOCH,
        problem: format!("{text:?} is not an epoch"),
    })
}

#[cfg(test)]
mod tests;
