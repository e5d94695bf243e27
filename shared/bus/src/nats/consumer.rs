//! One pass over the log: a consumer on the server, and the pulls that empty it.
//!
//! Memory stays bounded because nothing arrives that was not asked for: one pull at a time, of so
//! many records and bytes. What is lost nonetheless (the client drops a message when a subscription's
//! queue is full) is seen as a gap in the consumer's own count, or from its heartbeats.

use std::time::Duration;

use anteroom_model::{Revision, limits::MESSAGE_BYTES_MAX};
use async_nats::{Client, Message, Subscriber};
use futures::StreamExt;
use rand::Rng;
use serde_json::json;
use tokio::time::Instant;

use super::api::Api;
use crate::BusError;

/// How long the server waits before it ends an unfilled pull.
const PULL_EXPIRES: Duration = Duration::from_secs(20);

/// The server says that it lives this often while it has nothing to deliver.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Without a word for this long, the consumer is gone. Left alone, the client's own consumers took
/// 15 s to notice a restarted server.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Bytes asked for at a time; at least one record of any size fits.
const PULL_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// The server forgets a consumer that nobody pulls from.
const INACTIVE_MAX: Duration = Duration::from_secs(60);

/// What to read.
#[derive(Debug)]
pub(super) struct Pass {
    /// Subjects; never empty, which would mean all.
    pub(super) filters: Vec<String>,
    /// The first position.
    pub(super) from: Revision,
    /// Without bodies.
    pub(super) headers_only: bool,
    /// Records asked for at a time.
    pub(super) pull_records: usize,
}

/// One record, as it came.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) revision: Revision,
    /// Records that wait behind it.
    pub(super) pending: u64,
    pub(super) message: Message,
}

/// Why a pass cannot go on. Another one can, from the same position.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Records were lost on the way.
    Gap(String),
    /// The consumer is gone, or cannot be reached.
    Gone(String),
}

/// A consumer on the server with its inbox here.
#[derive(Debug)]
pub(super) struct Consumer {
    client: Client,
    name: String,
    next_subject: String,
    inbox: String,
    messages: Subscriber,
    pull_records: usize,
    pulls: u64,
    /// Records that the current pull may still bring.
    remaining: usize,
    /// Records delivered so far, as the server counts them.
    delivered: u64,
    heard: Instant,
}

impl Consumer {
    /// Makes a consumer; with it, the number of records that wait for it.
    pub(super) async fn create(
        client: &Client,
        api: &Api,
        pass: &Pass,
    ) -> Result<(Self, u64), BusError> {
        let name = format!("r-{:016x}", rand::rng().random::<u64>());
        let config = json!({
            "name": name,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": pass.from.0.max(1),
            "ack_policy": "none",
            "replay_policy": "instant",
            "filter_subjects": pass.filters,
            "headers_only": pass.headers_only,
            "num_replicas": 1,
            "mem_storage": true,
            "inactive_threshold": nanos(INACTIVE_MAX),
        });
        let waiting = api.create_consumer(&name, &config).await?;
        let inbox = client.new_inbox();
        let messages = client
            .subscribe(format!("{inbox}.*"))
            .await
            .map_err(|error| BusError::Unavailable {
                message: error.to_string(),
            })?;
        let consumer = Self {
            client: client.clone(),
            next_subject: api.next_subject(&name),
            name,
            inbox,
            messages,
            pull_records: pass.pull_records,
            pulls: 0,
            remaining: 0,
            delivered: 0,
            heard: Instant::now(),
        };
        Ok((consumer, waiting))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Records delivered so far, as the server counts them.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The next record. May be dropped and called again without losing one.
    pub(super) async fn next(&mut self) -> Result<Delivered, Lost> {
        loop {
            if self.remaining == 0 {
                self.pull().await?;
            }
            let silence = self.heard + SILENCE_MAX;
            let message = tokio::time::timeout_at(silence, self.messages.next())
                .await
                .map_err(|_| Lost::Gone(format!("no heartbeat for {SILENCE_MAX:?}")))?
                .ok_or_else(|| Lost::Gone("the client was closed".to_owned()))?;
            self.heard = Instant::now();
            match Arrival::of(&message)? {
                Arrival::Record(at) => {
                    self.count(at.delivered)?;
                    self.remaining -= 1;
                    return Ok(Delivered {
                        revision: at.revision,
                        pending: at.pending,
                        message,
                    });
                }
                Arrival::Heartbeat { delivered } if delivered > self.delivered => {
                    return Err(self.gap(delivered));
                }
                Arrival::Heartbeat { .. } => {}
                // The end of a pull before this one may come late.
                Arrival::PullEnded if *message.subject == *self.pull_subject() => {
                    self.remaining = 0;
                }
                Arrival::PullEnded => {}
            }
        }
    }

    fn count(&mut self, delivered: u64) -> Result<(), Lost> {
        if delivered != self.delivered + 1 {
            return Err(self.gap(delivered));
        }
        self.delivered = delivered;
        Ok(())
    }

    fn gap(&self, delivered: u64) -> Lost {
        Lost::Gap(format!(
            "record {delivered} of this pass came after record {}: messages were dropped on the way",
            self.delivered
        ))
    }

    fn pull_subject(&self) -> String {
        format!("{}.{}", self.inbox, self.pulls)
    }

    async fn pull(&mut self) -> Result<(), Lost> {
        let request = json!({
            "batch": self.pull_records,
            "max_bytes": PULL_BYTES_MAX,
            "expires": nanos(PULL_EXPIRES),
            "idle_heartbeat": nanos(HEARTBEAT),
        });
        self.pulls += 1;
        self.client
            .publish_with_reply(
                self.next_subject.clone(),
                self.pull_subject(),
                request.to_string().into(),
            )
            .await
            .map_err(|error| Lost::Gone(error.to_string()))?;
        self.remaining = self.pull_records;
        self.heard = Instant::now();
        Ok(())
    }
}

/// The server wants nanoseconds.
fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

/// What a message in a consumer's inbox says.
#[derive(Debug, PartialEq, Eq)]
enum Arrival {
    Record(At),
    Heartbeat { delivered: u64 },
    PullEnded,
}

/// Where a record stands, from the subject that it could be acknowledged at.
#[derive(Debug, PartialEq, Eq)]
struct At {
    revision: Revision,
    delivered: u64,
    pending: u64,
}

impl Arrival {
    fn of(message: &Message) -> Result<Self, Lost> {
        let description = message.description.as_deref().unwrap_or_default();
        match message.status.map(|status| status.as_u16()) {
            None => message
                .reply
                .as_deref()
                .and_then(At::parse)
                .map(Self::Record)
                .ok_or_else(|| Lost::Gone("a record without a position".to_owned())),
            Some(100) => Ok(Self::Heartbeat {
                delivered: message
                    .headers
                    .as_ref()
                    .and_then(|headers| headers.get("Nats-Last-Consumer"))
                    .and_then(|count| count.as_str().parse().ok())
                    .unwrap_or(0),
            }),
            Some(404 | 408) => Ok(Self::PullEnded),
            Some(409) if is_ordinary(description) => Ok(Self::PullEnded),
            Some(503) => Err(Lost::Gone("the consumer is gone".to_owned())),
            Some(status) => Err(Lost::Gone(format!("{status} {description}"))),
        }
    }
}

/// 409 ends a pull that reached its bytes; for other reasons, the consumer ends with it.
fn is_ordinary(description: &str) -> bool {
    let description = description.to_ascii_lowercase();
    description.contains("batch completed") || description.contains("exceeds maxbytes")
}

impl At {
    /// `$JS.ACK.<stream>.<consumer>.<tries>.<position>.<count>.<time>.<pending>`, with domain and
    /// account before the stream, and perhaps a token behind, in the newer form (ADR-15).
    fn parse(reply: &str) -> Option<Self> {
        let tokens: Vec<_> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let numbers = match tokens.len() {
            7 => &tokens[3..],
            9.. => &tokens[5..],
            _ => return None,
        };
        Some(Self {
            revision: Revision(numbers[0].parse().ok()?),
            delivered: numbers[1].parse().ok()?,
            pending: numbers[3].parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_in_both_forms() {
        let expected = Some(At {
            revision: Revision(100),
            delivered: 7,
            pending: 42,
        });
        for reply in [
            "$JS.ACK.log.r-1.1.100.7.1790230470084404000.42",
            "$JS.ACK._.hash.log.r-1.1.100.7.1790230470084404000.42",
            "$JS.ACK.hub.hash.log.r-1.1.100.7.1790230470084404000.42.token",
        ] {
            assert_eq!(At::parse(reply), expected, "{reply}");
        }
        for reply in [
            "",
            "$JS.FC.log.r-1.1.100.7.1.42",
            "$JS.ACK.log.r-1.1.100.7.1",
            "$JS.ACK.a.b.log.r-1.1.100.7.1",
            "$JS.ACK.log.r-1.1.x.7.1.42",
        ] {
            assert_eq!(At::parse(reply), None, "{reply}");
        }
    }

    #[test]
    fn why_a_pull_ends() {
        assert!(is_ordinary("Batch Completed"));
        assert!(is_ordinary("Message Size Exceeds MaxBytes"));
        for gone in ["Consumer Deleted", "Leadership Change", "Server Shutdown"] {
            assert!(!is_ordinary(gone), "{gone}");
        }
    }
}
