//! Requests through one inbox of our own.
//!
//! The client's own `request()` keeps an entry for every request that is never answered, for as long as it
//! lives (nats.rs issue 1617). A caller that times out and hedges would leak. Here an entry goes with the
//! future that waits for it. It also fails at once when the connection is lost: whatever was on its way went
//! with it. One task looks for that, for all that wait.

use std::{collections::HashMap, sync::Arc};

use async_nats::{Client, HeaderMap, Message, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use rand::Rng;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::link::Link;

/// Why a request has no reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// The request never left, for this reason.
    NotSent(String),
    /// The subject has no subscriber. The server says so at once.
    NoResponders,
    /// Not in time.
    TimedOut,
    /// The connection went, and the reply with it, if there was one.
    ConnectionLost,
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotSent(why) => f.write_str(why),
            Self::NoResponders => f.write_str("nobody answers: JetStream is off, or has no leader"),
            Self::TimedOut => f.write_str("no reply in time"),
            Self::ConnectionLost => f.write_str("the connection to NATS was lost"),
        }
    }
}

#[derive(Debug, Default)]
struct PendingReplies {
    /// True once the inbox ended: no reply is delivered any more.
    closed: bool,
    replies: HashMap<u64, Expected>,
}

/// The entry of a request that waits for its reply.
#[derive(Debug)]
struct Expected {
    reply: oneshot::Sender<Message>,
    /// The connection that the request leaves by.
    connects: u64,
}

impl PendingReplies {
    /// Drops the entries of requests that left by another connection than `link`: their replies are
    /// lost.
    fn lose_all_but(&mut self, link: Link) {
        self.replies
            .retain(|_, expected| link.is_up() && expected.connects == link.connects);
    }
}

/// Requests of one client.
#[derive(Clone, Debug)]
pub(super) struct Mux {
    client: Client,
    link: watch::Receiver<Link>,
    /// The subjects of replies are `<inbox>.<number>`.
    inbox: Arc<str>,
    waiting: Arc<Mutex<PendingReplies>>,
}

/// A reply that is waited for. Dropped, nothing of it stays.
#[derive(Debug)]
pub(super) struct Pending {
    id: u64,
    /// The subject that the reply must be sent to.
    pub(super) subject: String,
    reply: oneshot::Receiver<Message>,
    waiting: Arc<Mutex<PendingReplies>>,
}

impl Mux {
    /// Opens the inbox. NATS need not be there yet: the client subscribes when it is, before
    /// anything else is sent.
    pub(super) async fn open(
        client: Client,
        link: watch::Receiver<Link>,
        stop: CancellationToken,
    ) -> Result<Self, async_nats::SubscribeError> {
        let inbox: Arc<str> = client.new_inbox().into();
        let subscriber = client.subscribe(format!("{inbox}.*")).await?;
        let waiting = Arc::new(Mutex::new(PendingReplies::default()));
        let delivery = deliver(subscriber, Arc::clone(&waiting), link.clone(), stop);
        tokio::spawn(delivery);
        Ok(Self {
            client,
            link,
            inbox,
            waiting,
        })
    }

    /// Makes room for one reply.
    pub(super) fn expect(&self) -> Pending {
        let (sender, reply) = oneshot::channel();
        // Clients of one login hear each other's replies. Who can tell the next number has another question's answer
        // sent there.
        let id = rand::rng().random();
        let mut waiting = self.waiting.lock();
        // The link is read under the lock: either the task that fails the waiting requests after a loss sees this
        // request, or this request sees the loss. If the link is down, the request fails here.
        let link = *self.link.borrow();
        if link.is_up() && !waiting.closed {
            let expected = Expected {
                reply: sender,
                connects: link.connects,
            };
            waiting.replies.insert(id, expected);
        }
        Pending {
            id,
            subject: format!("{}.{id}", self.inbox),
            reply,
            waiting: Arc::clone(&self.waiting),
        }
    }

    /// Sends a request and waits for its reply, the connection's end or `deadline`.
    pub(super) async fn request(
        &self,
        subject: impl Into<Subject>,
        headers: Option<HeaderMap>,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Message, Unanswered> {
        let link = *self.link.borrow();
        link.require_up()
            .map_err(|error| Unanswered::NotSent(error.to_string()))?;
        let mut pending = self.expect();
        let reply = Subject::from(std::mem::take(&mut pending.subject));
        let subject = subject.into();
        let send = async {
            match headers {
                Some(headers) => {
                    self.client
                        .publish_with_reply_and_headers(subject, reply, headers, body)
                        .await
                }
                None => self.client.publish_with_reply(subject, reply, body).await,
            }
        };
        match tokio::time::timeout_at(deadline, send).await {
            Err(_) => return Err(Unanswered::TimedOut),
            Ok(Err(error)) => return Err(Unanswered::NotSent(error.to_string())),
            Ok(Ok(())) => {}
        }
        pending.wait(deadline).await
    }

    /// Requests that wait for a reply.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.lock().replies.len()
    }
}

impl Pending {
    /// Waits for the reply, the connection's end or `deadline`.
    pub(super) async fn wait(mut self, deadline: Instant) -> Result<Message, Unanswered> {
        let message = tokio::select! {
            // A reply that is already here counts, whatever happened since.
            biased;
            message = &mut self.reply => message.map_err(|_| Unanswered::ConnectionLost)?,
            () = tokio::time::sleep_until(deadline) => return Err(Unanswered::TimedOut),
        };
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return Err(Unanswered::NoResponders);
        }
        Ok(message)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.waiting.lock().replies.remove(&self.id);
    }
}

/// Hands out replies, and the news that there will be none.
async fn deliver(
    mut inbox: Subscriber,
    waiting: Arc<Mutex<PendingReplies>>,
    mut link: watch::Receiver<Link>,
    stop: CancellationToken,
) {
    loop {
        let news = {
            let ended = std::pin::pin!(hand_out(&mut inbox, &waiting));
            tokio::select! {
                // What has arrived counts, whatever happened since.
                biased;
                () = ended => None,
                changed = link.changed() => Some(changed),
                () = stop.cancelled() => None,
            }
        };
        match news {
            Some(Ok(())) => {
                let mut waiting = waiting.lock();
                let now = *link.borrow_and_update();
                waiting.lose_all_but(now);
            }
            // The client was closed, which is a loss too.
            Some(Err(_)) | None => break,
        }
    }
    // Whoever still waits, or comes to, learns that there will be no reply.
    let mut waiting = waiting.lock();
    waiting.closed = true;
    waiting.replies.clear();
}

/// Hands out replies until there are no more.
async fn hand_out(inbox: &mut Subscriber, waiting: &Mutex<PendingReplies>) {
    while let Some(message) = inbox.next().await {
        let id = message
            .subject
            .rsplit('.')
            .next()
            .and_then(|id| id.parse().ok());
        let expected = id.and_then(|id: u64| waiting.lock().replies.remove(&id));
        if let Some(expected) = expected {
            // An error says that its reader has just given up.
            let _ = expected.reply.send(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use async_nats::ConnectOptions;

    use super::*;

    #[tokio::test]
    async fn no_reply_subject_tells_the_next_one() {
        // Nobody listens there: nothing is sent.
        let options = ConnectOptions::new().retry_on_initial_connect();
        let client = options.connect("127.0.0.1:9").await.unwrap();
        let (_up, link) = watch::channel(Link::down());
        let mux = Mux::open(client, link, CancellationToken::new())
            .await
            .unwrap();
        let ids: Vec<u64> = (0..100).map(|_| mux.expect().id).collect();
        let near = |pair: &&[u64]| pair[0].abs_diff(pair[1]) < 1 << 32;
        assert_eq!(ids.windows(2).filter(near).count(), 0, "{ids:?}");
    }
}
