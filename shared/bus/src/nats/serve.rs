//! The server side of an address: a subscription in its queue group.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use anteroom_model::FactError;
use anteroom_wire::{WireError, call, query};
use async_nats::{HeaderMap, Message, Subject, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, future::BoxFuture};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{ClientState, append, link};
use crate::{Address, BusError, Call, Incoming, Serving, contract::Reply};

/// Returns the queue group of an address: each call reaches one of its members.
fn queue_group(at: &Address) -> &'static str {
    match at {
        Address::View(_) | Address::Fallback(_) | Address::Replica { .. } => "replicas",
        Address::Live | Address::Write | Address::Status => "watchers",
    }
}

/// Refusals that may be under way at once. One more is not sent, and its caller times out.
pub(super) const REFUSALS_MAX: usize = 64;

/// The time limit of the wait until the server has confirmed a subscription or its end.
const ECHO_TIMEOUT: Duration = Duration::from_secs(2);

/// The number of messages that [`leave`] sends with its unsubscribe. The server cannot parse it,
/// and unsubscribes at once.
const UNSUBSCRIBE_NOW: u64 = 9_999_999_999;

pub(super) async fn serve(shared: Arc<ClientState>, at: &Address) -> Result<Serving, BusError> {
    let unavailable = |error: &dyn std::fmt::Display| BusError::Unavailable {
        message: error.to_string(),
    };
    let subscriber = shared
        .client
        .queue_subscribe(shared.subject(at), queue_group(at).to_owned())
        .await
        .map_err(|error| unavailable(&error))?;
    // Once the server has answered, the subscription holds: callers may be told of it.
    if shared.link.borrow().is_up() {
        echo(&shared).await;
    }
    let drain = shared.closed.child_token();
    let ends = Box::pin(drain.clone().cancelled_owned());
    let member = QueueMember {
        shared,
        ends,
        stage: Stage::Taking(subscriber),
    };
    Ok(Serving {
        incoming: member.boxed(),
        drain,
    })
}

/// A subscription in a queue group. The reader of its calls polls it: a task in between would cost
/// each call a turn, and often one on another thread.
struct QueueMember {
    shared: Arc<ClientState>,
    /// Drained, or the bus was closed.
    ends: Pin<Box<WaitForCancellationFutureOwned>>,
    stage: Stage,
}

enum Stage {
    Taking(Subscriber),
    Leaving(BoxFuture<'static, Subscriber>),
    /// The subscription has ended: calls that had arrived before are still delivered.
    Emptying(Subscriber),
    Over,
}

impl Stream for QueueMember {
    type Item = Result<Incoming, WireError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let member = &mut *self;
        loop {
            if member.shared.closed.is_cancelled() {
                member.stage = Stage::Over;
            }
            member.stage = match &mut member.stage {
                Stage::Over => return Poll::Ready(None),
                Stage::Taking(subscriber) => match member.ends.as_mut().poll(cx) {
                    Poll::Pending => match ready!(subscriber.poll_next_unpin(cx)) {
                        None => Stage::Over,
                        Some(message) => match incoming(&member.shared, message) {
                            None => continue,
                            taken => return Poll::Ready(taken),
                        },
                    },
                    Poll::Ready(()) => match std::mem::replace(&mut member.stage, Stage::Over) {
                        Stage::Taking(subscriber) => {
                            Stage::Leaving(leave(subscriber, Arc::clone(&member.shared)).boxed())
                        }
                        other => other,
                    },
                },
                Stage::Leaving(leaving) => Stage::Emptying(ready!(leaving.poll_unpin(cx))),
                Stage::Emptying(subscriber) => match subscriber.poll_next_unpin(cx) {
                    // The task has used up its turn; the queue may not be empty.
                    Poll::Pending if !tokio::task::coop::has_budget_remaining() => {
                        return Poll::Pending;
                    }
                    Poll::Pending | Poll::Ready(None) => Stage::Over,
                    Poll::Ready(Some(message)) => match incoming(&member.shared, message) {
                        None => continue,
                        taken => return Poll::Ready(taken),
                    },
                },
            };
        }
    }
}

/// The beginnings of subjects that replies are sent to: inboxes of services, and replies to another account, which the
/// server makes. A caller names the subject, and the server does not check that the caller may publish there.
const REPLY_PREFIXES: [&str; 2] = ["_INBOX", "_R_."];

/// A message as a call; one that cannot be read is answered as such. `None`: it wants no reply, or wants it where none is sent.
fn incoming(shared: &Arc<ClientState>, message: Message) -> Option<Result<Incoming, WireError>> {
    let Some(subject) = message.reply else {
        tracing::debug!(subject = %message.subject, "call without a reply subject ignored");
        return None;
    };
    if !REPLY_PREFIXES
        .iter()
        .any(|prefix| subject.starts_with(prefix))
    {
        shared.counters.count_unreadable_call();
        tracing::debug!(subject = %message.subject, reply = %subject, "ignored a call whose reply subject is no inbox");
        return None;
    }
    let reply = NatsReply {
        shared: Arc::clone(shared),
        subject,
    };
    Some(match read(message.headers.as_ref(), message.payload) {
        Ok(call) => Ok(Incoming {
            call,
            reply: Box::new(reply),
        }),
        Err(error) => {
            shared.counters.count_unreadable_call();
            if let Ok(permit) = Arc::clone(&shared.refusals).try_acquire_owned() {
                let refusal = reply.refuse(error.clone());
                tokio::spawn(async move {
                    let _permit = permit;
                    refusal.await;
                });
            }
            Err(error)
        }
    })
}

/// Leaves the queue group without losing a call that is on its way.
///
/// The client's own `drain()` forgets the subscription at its task's next turn, which any message brings about,
/// and not when the server has answered. Every call that comes after is dropped. So the server is made to let
/// go while the client holds on, by "unsubscribe after so many messages". The client counts up to that number.
/// But nats-server reads no number of more than nine digits, and unsubscribes at once (`parseSize` and
/// `processUnsub` of `server/util.go` and `server/client.go`). What the server sent until then is on the wire
/// before its answer to what is sent next, so after that echo nothing can come. A server that did read the
/// number would go on sending until the subscription is dropped. A call of that last moment would be lost, as
/// with the client's own drain: the contract suite would show it.
async fn leave(mut subscriber: Subscriber, shared: Arc<ClientState>) -> Subscriber {
    if subscriber.unsubscribe_after(UNSUBSCRIBE_NOW).await.is_ok() {
        echo(&shared).await;
    }
    subscriber
}

/// Waits until the server has read everything that was sent before, and everything has arrived that
/// it had sent by then. Any question that every service may ask will do; the answer is no matter.
///
/// One question serves all callers that came before it was sent, so that a replica subscribes to
/// thousands of addresses in little more time than to one.
async fn echo(shared: &ClientState) {
    let Echo { begun, turn } = &shared.echo;
    let seen = begun.load(Ordering::Acquire);
    let mut ended = turn.lock().await;
    if *ended > seen {
        // It was begun after this came.
        return;
    }
    let this = begun.fetch_add(1, Ordering::AcqRel) + 1;
    let answered = tokio::time::timeout(ECHO_TIMEOUT, shared.api.info()).await;
    if answered.is_err() {
        tracing::warn!(
            "subscription not confirmed by the NATS server within {ECHO_TIMEOUT:?}: calls may be lost until it \
             answers"
        );
    }
    *ended = this;
}

/// Questions for an echo, numbered.
#[derive(Debug, Default)]
pub(super) struct Echo {
    begun: AtomicU64,
    /// Held while one is under way; the last that has ended.
    turn: tokio::sync::Mutex<u64>,
}

fn read(headers: Option<&HeaderMap>, body: Bytes) -> Result<Call, WireError> {
    let header =
        |name: &str| headers.and_then(|headers| headers.get(name).map(|value| value.as_str()));
    let (head, body) = match call::is_head(header) {
        false => call::take_prefix(body)?,
        true => (call::decode(header)?, body),
    };
    Ok(Call {
        body,
        deadline: head.deadline,
        trace: head.trace,
    })
}

#[derive(Debug)]
struct NatsReply {
    shared: Arc<ClientState>,
    subject: Subject,
}

impl NatsReply {
    /// Tells the caller what it did wrong, in the words of a query's outcome.
    async fn refuse(self, error: WireError) {
        let outcome = Err(FactError::RequestInvalid {
            message: error.to_string(),
        });
        let sent = match query::encode_outcome(&outcome) {
            Ok(body) => Box::new(self).send(body).await,
            Err(_) => return,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "error reply to a call that cannot be decoded not sent");
        }
    }
}

#[async_trait]
impl Reply for NatsReply {
    async fn send(self: Box<Self>, body: Bytes) -> Result<(), BusError> {
        let bytes_max = append::message_bytes_max(&self.shared);
        if body.len() > bytes_max {
            return Err(BusError::TooLarge {
                bytes: body.len(),
                bytes_max,
            });
        }
        // By the client's own state: after an outage a call may come before the link shows the connection
        // that it came by.
        link::require_connected(&self.shared.client)?;
        self.shared
            .client
            .publish(self.subject, body)
            .await
            .map_err(|error| BusError::Unavailable {
                message: error.to_string(),
            })
    }
}
