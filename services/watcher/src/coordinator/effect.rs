//! The effects that the coordinator's pure parts ask for, in order. [`Controller`] carries them out.
//!
//! [`Controller`]: super::controller::Controller

use std::sync::Arc;

use anteroom_model::{Failure, ObjectKey, ResourceVersion, SourceInfo, ViewId};
use bytes::Bytes;
use serde::Serialize;
use tokio::time::Instant;
use tracing::Span;

use super::status::writer::{DesiredStatus, StatusOwner};
use crate::{
    gateway::{calls::CallSpec, rights::Need},
    log_writer::publish::ChangeOrigin,
    source::reflect::content_version,
};

/// An effect that the coordinator asks for.
#[derive(Debug)]
pub(super) enum CoordinatorEffect {
    /// Write to a system view.
    Write(SystemView, Write),
    /// Make the call at intervals, and no other for its view.
    StartCall(SourceInfo, Arc<CallSpec>),
    /// Cease to make the call of this view.
    StopCall(ViewId),
    /// Readers report that the answer of this call that they still hold was good at this moment.
    AnswerAgeReported(ViewId, Instant),
    /// Bring the object's status up to this.
    SetStatus(StatusOwner, Box<DesiredStatus>),
    /// Forget the status of a deleted object.
    ForgetStatus(StatusOwner),
    /// Ask whether the watcher has all of the rights.
    NeedRights(Vec<Need>),
    /// Ask the API server again for the kinds that it serves.
    Rediscover,
    /// Report for readiness the reason why entries are not all known; `None`: they are.
    EntriesWait(Option<String>),
    /// Report the same of policies.
    PoliciesWait(Option<String>),
    /// Free the views of earlier terms that no dependent needs in this term.
    FreeInherited,
}

/// A view that the coordinator writes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemView {
    /// Entries, declared and implicit.
    Entries,
    /// Policies of both kinds.
    Policies,
    /// Exceptions to policies.
    Exceptions,
    /// The kinds that the API server serves.
    Kinds,
    /// Views that feeders have to write.
    DesiredViews,
    /// Objects that feeders follow by name.
    References,
}

/// A change of a system view.
#[derive(Debug)]
pub(super) enum Write {
    /// The record is now this, by an event of this span.
    Put(Record, Span),
    /// The record is gone.
    Delete(ObjectKey, ChangeOrigin),
    /// The view gets exactly these records.
    Replace(Vec<Record>),
    /// All records are known: further records of an earlier term are deleted.
    Listed,
    /// The source of the records was heard from at this moment.
    Heard(Instant),
    /// An object without a name was passed over.
    Skipped,
    /// The source cannot be read.
    Refused(Failure),
    /// The source cannot be heard right now.
    Troubled(Failure),
}

/// A record of a system view. Its version is a hash of its body, so an equal one is not written again.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The key in its view.
    pub key: ObjectKey,
    /// The hash of `body`.
    pub version: ResourceVersion,
    /// The value as MessagePack.
    pub body: Bytes,
}

impl Record {
    /// Encodes a record. If that fails, logs an error and returns `None`. A record has a few hundred bytes of plain
    /// fields, so it does not fail.
    pub(super) fn encode(key: ObjectKey, value: &impl Serialize) -> Option<Self> {
        match anteroom_wire::body::encode(value) {
            Ok(body) => Some(Self {
                key,
                version: content_version(&body),
                body,
            }),
            Err(error) => {
                tracing::error!(
                    %key,
                    %error,
                    "record of a system view not encoded: readers keep its last version; please report this bug"
                );
                None
            }
        }
    }
}

impl Write {
    /// Returns the write of a record, within the current span.
    pub(super) fn put(record: Record) -> Self {
        let span = tracing::info_span!("publish", otel.kind = "producer", key = %record.key);
        Self::Put(record, span)
    }

    /// Returns the deletion of a record, within the current span.
    pub(super) fn delete(key: ObjectKey) -> Self {
        let span = tracing::info_span!("publish", otel.kind = "producer", %key);
        Self::Delete(key, ChangeOrigin::Event(span))
    }
}
