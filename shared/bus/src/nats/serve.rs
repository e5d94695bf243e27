//! Serving an address: a place in its queue group.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anteroom_model::FactError;
use anteroom_wire::{WireError, call, query};
use async_nats::{HeaderMap, Message, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Shared, append, link::Link};
use crate::{Address, BusError, Call, Incoming, Serving, contract::Reply};

/// Everybody who serves an address is in its group: each call reaches one of them.
fn queue_group(at: &Address) -> &'static str {
    match at {
        Address::View(_) | Address::Fallback(_) | Address::Replica { .. } => "replicas",
        Address::Live => "watchers",
    }
}

/// Calls that wait for the server here; beyond them, they wait in the client's own queue, and beyond
/// that, they are dropped.
const CALLS_MAX: usize = 1024;

/// How long is waited to hear that the server has taken a place up, or let it go.
const ECHO_TIMEOUT: Duration = Duration::from_secs(2);

/// What [`leave`] sends as the number of messages after which to unsubscribe. See there.
const UNSUBSCRIBE_NOW: u64 = 9_999_999_999;

pub(super) async fn serve(shared: Arc<Shared>, at: &Address) -> Result<Serving, BusError> {
    let unavailable = |error: &dyn std::fmt::Display| BusError::Unavailable {
        message: error.to_string(),
    };
    let subscriber = shared
        .client
        .queue_subscribe(shared.subject(at), queue_group(at).to_owned())
        .await
        .map_err(|error| unavailable(&error))?;
    // Once the server has answered, the subscription holds: whoever is told of this place may call.
    if shared.link.borrow().is_up() {
        echo(&shared).await;
    }
    let (calls, incoming) = mpsc::channel(CALLS_MAX);
    let drain = CancellationToken::new();
    let stop = shared.closed.child_token();
    let place = Place {
        shared,
        subscriber,
        calls,
    };
    let (drained, stopped) = (drain.clone(), stop.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = place.run(&drained) => {}
            () = stopped.cancelled() => {}
        }
    });
    Ok(Serving {
        incoming,
        drain,
        _stop: stop.drop_guard(),
    })
}

struct Place {
    shared: Arc<Shared>,
    subscriber: Subscriber,
    calls: mpsc::Sender<Result<Incoming, WireError>>,
}

impl Place {
    async fn run(mut self, drain: &CancellationToken) {
        loop {
            let message = tokio::select! {
                message = self.subscriber.next() => message,
                () = drain.cancelled() => break,
            };
            let Some(message) = message else { return };
            self.forward(message).await;
        }
        leave(&mut self.subscriber, &self.shared).await;
        while let Some(Some(message)) = self.subscriber.next().now_or_never() {
            self.forward(message).await;
        }
    }

    async fn forward(&self, message: Message) {
        let Some(reply) = message.reply else {
            tracing::debug!(subject = %message.subject, "a call that wants no reply");
            return;
        };
        let reply = NatsReply {
            shared: Arc::clone(&self.shared),
            subject: reply.into_string(),
        };
        let incoming = match read(message.headers.as_ref(), message.payload) {
            Ok(call) => Ok(Incoming {
                call,
                reply: Box::new(reply),
            }),
            Err(error) => {
                self.shared.counters.unreadable();
                reply.refuse(&error).await;
                Err(error)
            }
        };
        // An error says that the server is gone: the caller times out.
        let _ = self.calls.send(incoming).await;
    }
}

/// Leaves the queue group without losing a call that is on its way.
///
/// The client's own `drain()` forgets the subscription at its task's next turn, which any message
/// brings about, and not when the server has answered; every call that comes after is dropped. So the
/// server is made to let go while the client holds on: "unsubscribe after so many messages" makes the
/// client count up to that number, whereas nats-server reads no number of more than nine digits and
/// then unsubscribes at once (`parseSize` and `processUnsub` of `server/util.go` and
/// `server/client.go`). What the server sent until then is on the wire before its answer to what is
/// sent next, so after that echo nothing can come. A server that did read the number would go on
/// sending until the subscription is dropped, and a call of that last moment would be lost, as with
/// the client's own drain: the contract suite would show it.
async fn leave(subscriber: &mut Subscriber, shared: &Shared) {
    if subscriber.unsubscribe_after(UNSUBSCRIBE_NOW).await.is_ok() {
        echo(shared).await;
    }
}

/// Waits until the server has read everything that was sent before, and everything has arrived that
/// it had sent by then. Any question that every service may ask will do; the answer is no matter.
///
/// One question serves everybody who came before it was sent, so that a replica takes thousands of
/// places up in little more time than one.
async fn echo(shared: &Shared) {
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
        tracing::warn!("NATS does not answer: a place in a queue group is not certain");
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
    let head = call::decode(|name| headers?.get(name).map(|value| value.as_str()))?;
    Ok(Call {
        body,
        deadline: head.deadline,
        trace: head.trace,
    })
}

#[derive(Debug)]
struct NatsReply {
    shared: Arc<Shared>,
    subject: String,
}

impl NatsReply {
    /// Tells the caller what it did wrong, in the words of a query's outcome.
    async fn refuse(self, error: &WireError) {
        let outcome = Err(FactError::RequestInvalid {
            message: error.to_string(),
        });
        let sent = match query::encode_outcome(&outcome) {
            Ok(body) => Box::new(self).send(body).await,
            Err(_) => return,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "could not refuse a call");
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
        Link::require_up(*self.shared.link.borrow())?;
        self.shared
            .client
            .publish(self.subject, body)
            .await
            .map_err(|error| BusError::Unavailable {
                message: error.to_string(),
            })
    }
}
