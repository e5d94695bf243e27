//! One pass over the log: a consumer on the server, and the pulls that empty it.
//!
//! Memory stays bounded because nothing arrives that was not asked for: one pull at a time, of so
//! many records and bytes. What is lost nonetheless (the client drops a message when a subscription's
//! queue is full) is seen as a gap in the consumer's own count, or from its heartbeats.
//!
//! # When everything has been read
//! Not when a record says that none is pending behind it. The server takes a superseded record off that count
//! within the write that supersedes it. The new record is added from a queue, later. In between, an object that
//! has just moved to the log's end is in neither. (Measured: about one first read in three under writes was
//! told "none pending" while objects were missing.) So it is a hint, and one of these is the proof:
//! - The log's last position, asked *after* a record arrived, is that record's own: records appear
//!   only at the end, and the consumer has passed everything before.
//! - A heartbeat. The server sends one only when its read has met the log's end, and it says at which
//!   position that was.

use std::{pin::Pin, time::Duration};

use anteroom_model::{Revision, limits::MESSAGE_BYTES_MAX};
use async_nats::{Client, Message, Subscriber};
use futures::StreamExt;
use rand::Rng;
use serde_json::json;
use tokio::time::{Instant, Sleep};

use super::api::{Api, code};
use crate::BusError;

/// The time after which the server ends an unfilled pull.
const PULL_EXPIRES: Duration = Duration::from_secs(20);

/// The interval of the server's heartbeats while it has nothing to deliver.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// The silence after which the consumer counts as gone. The client library's own consumers took 15
/// s to notice a restarted server.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// Bytes asked for at a time; at least one record of any size fits.
const PULL_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// The time after which the server deletes a consumer that receives no pull.
const INACTIVE_MAX: Duration = Duration::from_secs(60);

/// The configuration of one pass: the subjects, the first position, and the size of a pull.
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

/// One result of [`Consumer::next`].
#[derive(Debug)]
pub(super) enum ConsumerEvent {
    /// The next record.
    Record(Delivered),
    /// The server has met the log's end there, and has delivered everything in scope before it.
    Idle { scanned: Revision },
}

/// A delivered record.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) revision: Revision,
    /// True if the server counts no pending record behind this one: a hint (see the module's text).
    pub(super) maybe_last: bool,
    pub(super) message: Message,
}

/// The reason why a pass cannot go on. A new pass may resume at the same position.
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
    config: serde_json::Value,
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
    /// Ends when the consumer may have been silent for too long: one timer for all messages, set anew
    /// only when it ends.
    silence: Pin<Box<Sleep>>,
}

impl Consumer {
    /// Makes a consumer; with it, the number of records that wait for it, which is exact if the log's
    /// last position is the same after as before.
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
            config,
            inbox,
            messages,
            pull_records: pass.pull_records,
            pulls: 0,
            remaining: 0,
            delivered: 0,
            heard: Instant::now(),
            silence: Box::pin(tokio::time::sleep(SILENCE_MAX)),
        };
        Ok((consumer, waiting))
    }

    /// Returns true if the server has another consumer by this name. Whoever has the same login hears the name and may change
    /// the consumer. Records are missing then that heartbeats count as delivered.
    pub(super) fn is_changed(&self, api: &Api) -> impl Future<Output = bool> + Send + use<> {
        let (api, name, config) = (api.clone(), self.name.clone(), self.config.clone());
        async move {
            // The server makes no other consumer where this one stands, and says so if they differ.
            let made = api.create_consumer(&name, &config).await;
            made.is_err_and(|error| error.code() == Some(code::CONSUMER_EXISTS))
        }
    }

    /// Returns the next record, or the log's end. The future may be dropped without losing
    /// anything.
    pub(super) async fn next(&mut self) -> Result<ConsumerEvent, Lost> {
        loop {
            if self.remaining == 0 {
                self.pull().await?;
            }
            let message = self.message().await?;
            match Arrival::of(&message)? {
                Arrival::Record(at) => {
                    self.count(at.delivered)?;
                    self.remaining -= 1;
                    return Ok(ConsumerEvent::Record(Delivered {
                        revision: at.revision,
                        maybe_last: at.pending == 0,
                        message,
                    }));
                }
                Arrival::Heartbeat { delivered, .. } if delivered > self.delivered => {
                    return Err(self.gap(delivered));
                }
                Arrival::Heartbeat { scanned, .. } => return Ok(ConsumerEvent::Idle { scanned }),
                // The end of a pull before this one may come late.
                Arrival::PullEnded if *message.subject == *self.pull_subject() => {
                    self.remaining = 0;
                }
                Arrival::PullEnded => {}
            }
        }
    }

    async fn message(&mut self) -> Result<Message, Lost> {
        loop {
            tokio::select! {
                biased;
                message = self.messages.next() => {
                    self.heard = Instant::now();
                    return message.ok_or_else(|| Lost::Gone("the client was closed".to_owned()));
                }
                () = &mut self.silence => {
                    let until = self.heard + SILENCE_MAX;
                    if until <= Instant::now() {
                        return Err(Lost::Gone(format!(
                            "the consumer sent no heartbeat for {SILENCE_MAX:?}"
                        )));
                    }
                    self.silence.as_mut().reset(until);
                }
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

/// A message in a consumer's inbox, decoded.
#[derive(Debug, PartialEq, Eq)]
enum Arrival {
    Record(DeliveryPosition),
    Heartbeat { delivered: u64, scanned: Revision },
    PullEnded,
}

/// The position and counts of a delivered record, parsed from its acknowledge subject.
#[derive(Debug, PartialEq, Eq)]
struct DeliveryPosition {
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
                .and_then(DeliveryPosition::parse)
                .map(Self::Record)
                .ok_or_else(|| Lost::Gone("a record has no position".to_owned())),
            Some(100) => Ok(Self::Heartbeat {
                delivered: number(message, "Nats-Last-Consumer"),
                scanned: Revision(number(message, "Nats-Last-Stream")),
            }),
            Some(404 | 408) => Ok(Self::PullEnded),
            Some(409) if is_ordinary(description) => Ok(Self::PullEnded),
            Some(503) => Err(Lost::Gone(
                "the consumer does not exist any more".to_owned(),
            )),
            Some(status) => Err(Lost::Gone(format!(
                "the server ended a pull: {status} {description}"
            ))),
        }
    }
}

/// A header's number; 0, which proves nothing, if there is none.
fn number(message: &Message, header: &str) -> u64 {
    let headers = message.headers.as_ref();
    headers
        .and_then(|headers| headers.get(header))
        .and_then(|value| value.as_str().parse().ok())
        .unwrap_or(0)
}

/// Returns whether status 409 ends the pull alone, whose batch or bytes are complete. Any further reason ends the
/// consumer too.
fn is_ordinary(description: &str) -> bool {
    let description = description.to_ascii_lowercase();
    description.contains("batch completed") || description.contains("exceeds maxbytes")
}

impl DeliveryPosition {
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
    fn a_position_is_read_from_both_forms_of_a_reply_subject() {
        let expected = Some(DeliveryPosition {
            revision: Revision(100),
            delivered: 7,
            pending: 42,
        });
        for reply in [
            "$JS.ACK.log.r-1.1.100.7.1790230470084404000.42",
            "$JS.ACK._.hash.log.r-1.1.100.7.1790230470084404000.42",
            "$JS.ACK.hub.hash.log.r-1.1.100.7.1790230470084404000.42.token",
        ] {
            assert_eq!(DeliveryPosition::parse(reply), expected, "{reply}");
        }
        for reply in [
            "",
            "$JS.FC.log.r-1.1.100.7.1.42",
            "$JS.ACK.log.r-1.1.100.7.1",
            "$JS.ACK.a.b.log.r-1.1.100.7.1",
            "$JS.ACK.log.r-1.1.x.7.1.42",
        ] {
            assert_eq!(DeliveryPosition::parse(reply), None, "{reply}");
        }
    }

    #[test]
    fn a_pull_ends_in_order_only_for_ordinary_statuses() {
        assert!(is_ordinary("Batch Completed"));
        assert!(is_ordinary("Message Size Exceeds MaxBytes"));
        for gone in ["Consumer Deleted", "Leadership Change", "Server Shutdown"] {
            assert!(!is_ordinary(gone), "{gone}");
        }
    }
}
