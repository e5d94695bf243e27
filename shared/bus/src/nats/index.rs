//! What the log holds, without bodies.

use anteroom_model::{Epoch, Op, ResourceVersion, Revision, ViewId, ViewRecord};
use anteroom_wire::{
    envelope::{self, Head, Record},
    subject::Subject,
};
use async_nats::{HeaderMap, jetstream::message::StreamMessage};
use tokio::time::{Instant, timeout_at};

use super::{
    Shared,
    consumer::{Consumer, Lost, Pass, Step},
};
use crate::{BusError, LogIndex};

/// How long the whole index may take: 200,000 objects were read in 2.4 s, bodies included.
const INDEX_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

pub(super) async fn read(shared: &Shared) -> Result<LogIndex, BusError> {
    let head = shared.api.head().await?;
    let mut index = LogIndex {
        incarnation: head.incarnation,
        ..LogIndex::default()
    };
    let controlled = read_heads(shared, head.last, &mut index).await?;
    for view in controlled {
        if let Some((_, record)) = control(shared, &view).await? {
            index.views.insert(view, record);
        }
    }
    Ok(index)
}

/// Reads every record's subject and headers; the views that have a control record. The log stood at
/// `wanted` before.
async fn read_heads(
    shared: &Shared,
    wanted: Revision,
    index: &mut LogIndex,
) -> Result<Vec<ViewId>, BusError> {
    let pass = Pass {
        // The lease too, though it is no record: then the last record is the log's last position.
        filters: shared.subjects.stream_subjects(),
        from: Revision(1),
        headers_only: true,
        pull_records: shared.config.pull_records_max,
    };
    let deadline = Instant::now() + INDEX_TIMEOUT;
    let mut controlled = Vec::new();
    if wanted == Revision(0) {
        return Ok(controlled);
    }
    let (mut consumer, _) = Consumer::create(&shared.client, &shared.api, &pass).await?;
    loop {
        let delivered = match timeout_at(deadline, consumer.next()).await {
            Ok(Ok(Step::Record(delivered))) => delivered,
            Ok(Ok(Step::Idle { scanned })) if scanned >= wanted => return Ok(controlled),
            Ok(Ok(Step::Idle { .. })) => continue,
            Ok(Err(Lost::Gap(message) | Lost::Gone(message))) => {
                return Err(BusError::Unavailable { message });
            }
            Err(_) => {
                let message = format!("the index was not read within {INDEX_TIMEOUT:?}");
                return Err(BusError::Unavailable { message });
            }
        };
        let message = delivered.message;
        let headers = message.headers.as_ref();
        note(shared, &message.subject, headers, index, &mut controlled);
        if delivered.maybe_last && shared.api.head().await?.last == delivered.revision {
            return Ok(controlled);
        }
    }
}

fn note(
    shared: &Shared,
    subject: &str,
    headers: Option<&HeaderMap>,
    index: &mut LogIndex,
    controlled: &mut Vec<ViewId>,
) {
    match envelope::decode_head(subject, |name| header(headers, name), &shared.subjects) {
        Ok(Head::Delta { view, delta }) => {
            if delta.op == Op::Put(()) {
                let version = (delta.epoch, delta.version);
                index
                    .objects
                    .entry(view)
                    .or_default()
                    .insert(delta.key, version);
            }
        }
        Ok(Head::Control(view)) => controlled.push(view),
        Err(error) => match shared.subjects.parse(subject) {
            Ok(Subject::Lease(_, _)) => {}
            Ok(Subject::Object { view, key }) => {
                tracing::warn!(subject, %error, "a record that cannot be read");
                // A version that no source has, so that the writer replaces it or removes it.
                let version = (Epoch(0), ResourceVersion::default());
                index.objects.entry(view).or_default().insert(key, version);
            }
            _ => tracing::warn!(subject, %error, "a record that cannot be read"),
        },
    }
}

/// A view's control record with its position. One that cannot be read counts as none: the writer
/// writes a new one.
pub(super) async fn control(
    shared: &Shared,
    view: &ViewId,
) -> Result<Option<(Revision, ViewRecord)>, BusError> {
    let subject = shared.subjects.control(view);
    let Some(stored) = shared.api.last(&subject).await? else {
        return Ok(None);
    };
    let StreamMessage {
        subject,
        headers,
        payload,
        sequence,
        ..
    } = stored;
    let header = |name: &str| header(Some(&headers), name);
    match envelope::decode(&subject, header, payload, &shared.subjects) {
        Ok(envelope::Envelope {
            record: Record::Control(record),
            ..
        }) => Ok(Some((Revision(sequence), record))),
        Ok(_) => Ok(None),
        Err(error) => {
            tracing::warn!(%view, %error, "a control record that cannot be read");
            Ok(None)
        }
    }
}

fn header<'h>(headers: Option<&'h HeaderMap>, name: &str) -> Option<&'h str> {
    headers?.get(name).map(|value| value.as_str())
}
