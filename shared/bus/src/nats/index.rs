//! The index of the log: keys and versions without bodies.
//!
//! Two passes: the control records whole, which are few, then the objects' headers.
//!
//! # When it is complete
//! Each pass brings all that stood at or before the head that was asked for first. Records come in the log's
//! order, so the record at the head, or the first behind it, is the proof. So a log that never stands still is
//! read as soon as another. What stood before the head and was superseded meanwhile is behind it, where a pass
//! need not come. The head is not before a lease that was taken here. So nothing is missing of a group whose
//! lease the reader took before, since nobody else writes it. Of other groups, whatever their writers touched
//! meanwhile may be missing.

use std::time::Duration;

use anteroom_model::{Epoch, Op, ResourceVersion, Revision, ViewId, ViewRecord};
use anteroom_wire::{
    envelope::{self, Envelope, Record, RecordHead},
    subject::Subject,
};
use async_nats::{HeaderMap, Message};
use tokio::time::{Instant, timeout_at};

use super::{
    ClientState,
    api::End,
    consumer::{Consumer, ConsumerEvent, Lost, Pass},
    earlier::believe,
};
use crate::{BusError, LogIndex, position::is_at_end};

/// The time limit of reading the whole index. 200,000 objects were read in 2.4 s, bodies included.
const INDEX_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads the index of all views.
pub(super) async fn read(shared: &ClientState) -> Result<LogIndex, BusError> {
    let deadline = Instant::now() + INDEX_TIMEOUT;
    let end = believed_end(shared).await?;
    let mut index = LogIndex {
        incarnation: end.head.incarnation.clone(),
        ..LogIndex::default()
    };
    let controls = Reading::of_controls(shared, &end, deadline);
    controls
        .each(|message| {
            if let Some(record) = view_record(shared, message) {
                index.note_term(record.epoch);
                index.views.insert(record.view.clone(), record);
            }
        })
        .await?;
    let objects = Reading {
        filter: shared.subjects.every_object(),
        headers_only: true,
        ..controls
    };
    objects
        .each(|message| note(shared, message, &mut index))
        .await?;
    Ok(index)
}

async fn believed_end(shared: &ClientState) -> Result<End, BusError> {
    let end = shared.api.end().await?;
    let is_replicated = end.is_replicated;
    let lease = shared.last_lease(&end.head.incarnation);
    let head = believe(&mut shared.earlier.lock(), end, lease, Instant::now())?;
    Ok(End {
        head,
        is_replicated,
    })
}

/// A pass over the log's contents at its `end`.
struct Reading<'a> {
    shared: &'a ClientState,
    end: &'a End,
    deadline: Instant,
    filter: String,
    headers_only: bool,
}

impl<'a> Reading<'a> {
    fn of_controls(shared: &'a ClientState, end: &'a End, deadline: Instant) -> Self {
        Self {
            shared,
            end,
            deadline,
            filter: shared.subjects.controls(),
            headers_only: false,
        }
    }

    /// Every record of the pass, and perhaps some that came meanwhile.
    async fn each(&self, mut take: impl FnMut(&Message)) -> Result<(), BusError> {
        let head = &self.end.head;
        if head.last == Revision(0) {
            return Ok(());
        }
        let leases = self.shared.subjects.leases();
        let lease_prefix = leases.trim_end_matches('>').to_owned();
        let pass = Pass {
            // Leases are no part of the index. But the log's last record often is the lease that was just taken, and
            // proves the end without waiting.
            filters: vec![self.filter.clone(), leases],
            from: Revision(1),
            headers_only: self.headers_only,
            pull_records: self.shared.config.pull_records_max,
        };
        let api = &self.shared.api;
        let (mut consumer, waiting) = Consumer::create(&self.shared.client, api, &pass).await?;
        // In a log of one copy that stands still their number is exact, and the end is known without waiting
        // for the server to say that it has met it.
        let exact =
            is_at_end(Revision(0), head.last, self.end.is_replicated) && api.head().await? == *head;
        let mut taken = 0;
        while !(exact && taken >= waiting) {
            match timeout_at(self.deadline, consumer.next()).await {
                Ok(Ok(ConsumerEvent::Record(delivered))) => {
                    taken += 1;
                    if !delivered.message.subject.starts_with(&lease_prefix) {
                        take(&delivered.message);
                    }
                    if delivered.revision >= head.last {
                        break;
                    }
                }
                Ok(Ok(ConsumerEvent::Idle { scanned })) if scanned >= head.last => break,
                Ok(Ok(ConsumerEvent::Idle { .. })) => {}
                Ok(Err(Lost::Gap(message) | Lost::Gone(message))) => {
                    return Err(BusError::Unavailable { message });
                }
                Err(_) => {
                    let message = format!("the index was not read within {INDEX_TIMEOUT:?}");
                    return Err(BusError::Unavailable { message });
                }
            }
        }
        Ok(())
    }
}

/// A control record. One that cannot be read counts as none: the writer writes a new one.
fn view_record(shared: &ClientState, message: &Message) -> Option<ViewRecord> {
    let (headers, body) = (message.headers.as_ref(), message.payload.clone());
    let header = |name: &str| header(headers, name);
    match envelope::decode(&message.subject, header, body, &shared.subjects) {
        Ok(Envelope {
            record: Record::Control(record),
            ..
        }) => Some(record),
        Ok(_) => None,
        Err(error) => {
            let subject = message.subject.as_str();
            tracing::warn!(
                subject,
                %error,
                "control record of a view not decoded: the index leaves the view out"
            );
            None
        }
    }
}

fn note(shared: &ClientState, message: &Message, index: &mut LogIndex) {
    let subject = message.subject.as_str();
    let headers = message.headers.as_ref();
    match envelope::decode_head(subject, |name| header(headers, name), &shared.subjects) {
        Ok(RecordHead::Delta { view, delta }) => {
            index.note_term(delta.epoch);
            if delta.op == Op::Put(()) {
                let version = (delta.epoch, delta.version);
                let of = index.objects.entry(view).or_default();
                of.insert(delta.key, version);
            } else if let Some(of) = index.objects.get_mut(&view) {
                // It was put when this pass came by, and was deleted since.
                of.remove(&delta.key);
            }
        }
        Ok(RecordHead::Control(_)) => {}
        Err(error) => {
            tracing::warn!(
                subject,
                %error,
                "record of an object not decoded: the writer replaces or removes it"
            );
            if let Ok(Subject::Object { view, key }) = shared.subjects.parse(subject) {
                // No source has this version, so the writer replaces or removes the object.
                let version = (Epoch(0), ResourceVersion::default());
                index.objects.entry(view).or_default().insert(key, version);
            }
        }
    }
}

/// A view's control record with its position, asked for by its name.
pub(super) async fn control(
    shared: &ClientState,
    view: &ViewId,
) -> Result<Option<(Revision, ViewRecord)>, BusError> {
    let subject = shared.subjects.control(view);
    let Some(stored) = shared.api.last(&subject).await? else {
        return Ok(None);
    };
    let header = |name: &str| header(Some(&stored.headers), name);
    let decoded = envelope::decode(
        &stored.subject,
        header,
        stored.payload.clone(),
        &shared.subjects,
    );
    match decoded {
        Ok(Envelope {
            record: Record::Control(record),
            ..
        }) => Ok(Some((Revision(stored.sequence), record))),
        Ok(_) => Ok(None),
        Err(error) => {
            tracing::warn!(
                %view,
                %error,
                "control record of the view not decoded: the view counts as not dropped"
            );
            Ok(None)
        }
    }
}

fn header<'h>(headers: Option<&'h HeaderMap>, name: &str) -> Option<&'h str> {
    headers?.get(name).map(|value| value.as_str())
}
