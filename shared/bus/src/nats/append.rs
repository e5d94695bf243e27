//! Writing: the lease, and batches that hold only while the lease is ours.
//!
//! A batch is an atomic one (ADR-50): every message names the batch and its place in it, the last one
//! commits. The fence is the pair of headers on the first message that makes the whole conditional on
//! the last sequence of another subject, the lease's. A single record is a plain publish with the
//! same two headers.

use std::time::Duration;

use anteroom_model::{Revision, limits::MESSAGE_BYTES_MAX};
use anteroom_wire::envelope::{self, Envelope};
use async_nats::{HeaderMap, Message, jetstream};
use bytes::Bytes;
use rand::Rng;
use serde_json::Value;
use tokio::time::Instant;

use super::{ClientState, api, api::code, mux::Unanswered};
use crate::{AppendError, BusError, Fence};

/// The time limit of a batch, its retries included. After it, it is unknown whether the batch was
/// written.
const APPEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause before a batch that met another one under way is sent again.
const RETRY_DELAY_MAX: Duration = Duration::from_millis(25);

const EXPECTED_SEQUENCE: &str = "Nats-Expected-Last-Subject-Sequence";
const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
const BATCH_ID: &str = "Nats-Batch-Id";
const BATCH_SEQUENCE: &str = "Nats-Batch-Sequence";
const BATCH_COMMIT: &str = "Nats-Batch-Commit";
const TTL: &str = "Nats-TTL";

/// A message to be stored.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    subject: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Stored {
    fn of(envelope: &Envelope, shared: &ClientState) -> Result<Self, BusError> {
        let encoded =
            envelope::encode(envelope, &shared.subjects).map_err(|error| BusError::Refused {
                message: error.to_string(),
            })?;
        let mut headers = HeaderMap::new();
        for (name, value) in encoded.headers {
            headers.insert(name, value.as_str());
        }
        if let Some(ttl) = encoded.ttl {
            headers.insert(TTL, format!("{}s", ttl.as_secs()).as_str());
        }
        Ok(Self {
            subject: encoded.subject,
            headers,
            body: encoded.body,
        })
    }

    /// Makes this message conditional on `subject` still being at `fence`.
    fn fenced(&mut self, subject: &str, fence: Fence) {
        self.headers
            .insert(EXPECTED_SEQUENCE, fence.at.to_string().as_str());
        self.headers.insert(EXPECTED_SUBJECT, subject);
    }

    fn check(&self, bytes_max: usize) -> Result<(), BusError> {
        let headers_bytes: usize = self
            .headers
            .iter()
            .flat_map(|(name, values)| {
                let name: &[u8] = name.as_ref();
                let name_bytes = name.len();
                values
                    .iter()
                    .map(move |value| name_bytes + value.as_str().len() + 4)
            })
            .sum();
        let bytes = "NATS/1.0\r\n\r\n".len() + headers_bytes + self.body.len();
        if bytes > bytes_max {
            return Err(BusError::TooLarge { bytes, bytes_max });
        }
        Ok(())
    }
}

/// The largest message that may be sent now.
pub(super) fn message_bytes_max(shared: &ClientState) -> usize {
    MESSAGE_BYTES_MAX.min(shared.client.max_payload())
}

/// Appends all of `batch`, or nothing.
pub(super) async fn append(
    shared: &ClientState,
    lease_subject: &str,
    fence: Fence,
    batch: &[Envelope],
) -> Result<Revision, AppendError> {
    let mut messages = batch
        .iter()
        .map(|envelope| Stored::of(envelope, shared))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(first) = messages.first_mut() {
        first.fenced(lease_subject, fence);
    }
    if messages.len() > 1 {
        number(&mut messages);
    }
    let bytes_max = message_bytes_max(shared);
    messages
        .iter()
        .try_for_each(|message| message.check(bytes_max))?;
    store(shared, messages).await
}

/// Writes the lease if its subject is still at `expected`.
pub(super) async fn store_lease(
    shared: &ClientState,
    subject: String,
    body: Bytes,
    expected: Option<Fence>,
) -> Result<Revision, AppendError> {
    let expected = expected.map_or(0, |fence| fence.at.0);
    let mut headers = HeaderMap::new();
    headers.insert(EXPECTED_SEQUENCE, expected.to_string().as_str());
    let lease = Stored {
        subject,
        headers,
        body,
    };
    store(shared, vec![lease]).await
}

/// Numbers the messages of an atomic batch.
fn number(messages: &mut [Stored]) {
    let id = format!("{:032x}", rand::rng().random::<u128>());
    for (index, message) in messages.iter_mut().enumerate() {
        message.headers.insert(BATCH_ID, id.as_str());
        message
            .headers
            .insert(BATCH_SEQUENCE, (index + 1).to_string().as_str());
    }
    if let Some(last) = messages.last_mut() {
        last.headers.insert(BATCH_COMMIT, "1");
    }
}

/// Sends, and sends again while another write is in the way, under one deadline.
async fn store(shared: &ClientState, messages: Vec<Stored>) -> Result<Revision, AppendError> {
    let deadline = Instant::now() + APPEND_TIMEOUT;
    loop {
        shared.link.borrow().require_up()?;
        let refused = match attempt(shared, messages.clone(), deadline).await {
            Ok(revision) => return Ok(revision),
            Err(Refusal::Final(error)) => return Err(error),
            Err(Refusal::InTheWay(error)) => error,
        };
        let delay = RETRY_DELAY_MAX.mul_f64(rand::rng().random_range(0.2..=1.0));
        if Instant::now() + delay >= deadline {
            return Err(AppendError::Bus(api::refusal(&refused)));
        }
        tokio::time::sleep(delay).await;
    }
}

enum Refusal {
    Final(AppendError),
    /// Nothing was written; the same may be sent again.
    InTheWay(jetstream::Error),
}

async fn attempt(
    shared: &ClientState,
    messages: Vec<Stored>,
    deadline: Instant,
) -> Result<Revision, Refusal> {
    let first = shared.mux.expect();
    let last = shared.mux.expect();
    let count = messages.len();
    let send = async {
        for (index, message) in messages.into_iter().enumerate() {
            let Stored {
                subject,
                headers,
                body,
            } = message;
            let client = &shared.client;
            let reply = if index + 1 == count {
                Some(last.subject.clone())
            } else {
                (index == 0).then(|| first.subject.clone())
            };
            match reply {
                Some(reply) => {
                    client
                        .publish_with_reply_and_headers(subject, reply, headers, body)
                        .await?;
                }
                None => client.publish_with_headers(subject, headers, body).await?,
            }
        }
        Ok::<_, async_nats::PublishError>(())
    };
    match tokio::time::timeout_at(deadline, send).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(Refusal::Final(unknown(&error.to_string()))),
        Err(_) => return Err(Refusal::Final(unknown("the batch was not sent in time"))),
    }
    let stored = match last.wait(deadline).await {
        Ok(reply) => outcome(&reply),
        Err(why) => return Err(Refusal::Final(unanswered(shared, why).await)),
    };
    let Err(error) = stored else {
        return stored.map_err(|_| Refusal::Final(unknown("no acknowledgement")));
    };
    // A batch refused at its start ends as incomplete, and only its first reply has the reason.
    let why = first.wait(Instant::now()).await.ok();
    let why = why.and_then(|reply| outcome(&reply).err().flatten());
    Err(match why.or(error) {
        Some(error) => refusal(error),
        None => Refusal::Final(unknown("the acknowledgement cannot be decoded")),
    })
}

/// Decodes the reply to a publish: the position of the last message, or the server's refusal;
/// `None` where the reply holds neither.
fn outcome(reply: &Message) -> Result<Revision, Option<jetstream::Error>> {
    let reply: Value = serde_json::from_slice(&reply.payload).map_err(|_| None)?;
    if let Some(error) = reply.get("error") {
        return Err(serde_json::from_value(error.clone()).ok());
    }
    let sequence = reply.get("seq").and_then(Value::as_u64);
    sequence.map(Revision).ok_or(None)
}

fn refusal(error: jetstream::Error) -> Refusal {
    match error.error_code().0 {
        code::WRONG_LAST_SEQUENCE => Refusal::Final(AppendError::Fenced),
        code::WRONG_LAST_SEQUENCE_IN_FLIGHT | code::BATCHES_IN_FLIGHT => Refusal::InTheWay(error),
        _ => Refusal::Final(AppendError::Bus(api::refusal(&error))),
    }
}

async fn unanswered(shared: &ClientState, why: Unanswered) -> AppendError {
    match why {
        // Nobody took it. Why not is worth a question: no log, or no leader.
        Unanswered::NoResponders => match shared.api.head().await {
            Err(error) => AppendError::Bus(error),
            Ok(_) => AppendError::Bus(BusError::Unavailable {
                message: why.to_string(),
            }),
        },
        Unanswered::NotSent(message) => AppendError::Bus(BusError::Unavailable { message }),
        Unanswered::TimedOut | Unanswered::ConnectionLost => unknown(&why.to_string()),
    }
}

fn unknown(message: &str) -> AppendError {
    AppendError::Unknown {
        message: message.to_owned(),
    }
}
