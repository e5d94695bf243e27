//! Request and reply in one process.

use std::{future::pending, sync::Arc};

use anteroom_wire::WireError;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use tokio::sync::{
    mpsc::{self, error::TrySendError},
    oneshot,
};
use tokio_util::sync::CancellationToken;

use super::{hub::Hub, link::Link};
use crate::{Address, BusError, Call, Incoming, RequestError, Serving, batch, contract::Reply};

/// Asks a server of `to`. If the call or the reply is lost, the future is pending for ever: the caller sets the
/// timeout.
pub(super) async fn ask(
    hub: &Arc<Hub>,
    link: &Arc<Link>,
    to: &Address,
    call: Call,
) -> Result<Bytes, RequestError> {
    batch::check_message(call.body.len())?;
    link.require_up().map_err(RequestError::NotSent)?;
    if hub.choose(to).is_none() {
        return Err(RequestError::NoResponders);
    }
    if hub.happens(|chances| chances.call_lost) {
        return pending().await;
    }
    hub.delay().await;
    let reply = send(hub, link, to, call).await?;
    let Ok(body) = reply.await else {
        return pending().await;
    };
    hub.delay().await;
    if hub.happens(|chances| chances.reply_lost) || !link.is_up() {
        return pending().await;
    }
    Ok(body)
}

/// Hands the call to a server; the receiver gets its reply.
async fn send(
    hub: &Arc<Hub>,
    link: &Arc<Link>,
    to: &Address,
    mut call: Call,
) -> Result<oneshot::Receiver<Bytes>, RequestError> {
    loop {
        let server = hub.choose(to).ok_or(RequestError::NoResponders)?;
        let (sender, receiver) = oneshot::channel();
        let reply = LocalReply {
            sender,
            server: Arc::clone(&server.link),
            caller: Arc::clone(link),
        };
        let incoming = Incoming {
            call,
            reply: Box::new(reply),
        };
        match server.calls.try_send(Ok(incoming)) {
            Ok(()) => return Ok(receiver),
            Err(TrySendError::Full(_)) => {
                tracing::warn!(
                    address = ?to,
                    "call dropped: the server's queue is full; the caller runs into its deadline"
                );
                return pending().await;
            }
            // The server left between the choice and the sending, so a new server is chosen.
            Err(TrySendError::Closed(Ok(incoming))) => call = incoming.call,
            Err(TrySendError::Closed(Err(_))) => return Err(RequestError::NoResponders),
        }
    }
}

#[derive(Debug)]
struct LocalReply {
    sender: oneshot::Sender<Bytes>,
    server: Arc<Link>,
    caller: Arc<Link>,
}

#[async_trait]
impl Reply for LocalReply {
    async fn send(self: Box<Self>, body: Bytes) -> Result<(), BusError> {
        batch::check_message(body.len())?;
        self.server.require_up()?;
        if self.caller.is_up() {
            // An error means only that the caller has given up.
            let _ = self.sender.send(body);
        }
        Ok(())
    }
}

/// Joins the queue group of `at`.
pub(super) fn serve(hub: Arc<Hub>, link: &Arc<Link>, at: &Address) -> Serving {
    let (calls, mut incoming): (_, mpsc::Receiver<Result<Incoming, WireError>>) =
        mpsc::channel(hub.options.calls_max);
    let id = hub.join(at, link, calls);
    let drain = CancellationToken::new();
    let stop = link.closed.child_token();
    tokio::spawn({
        let (drain, stop, at) = (drain.clone(), stop.clone(), at.clone());
        async move {
            tokio::select! {
                () = drain.cancelled() => {}
                () = stop.cancelled() => {}
            }
            // Gives up the only sender: what is buffered still arrives, then the end.
            hub.leave(&at, id);
        }
    });
    // Dropping the stream leaves the queue group.
    let stop = stop.drop_guard();
    let incoming = stream::poll_fn(move |cx| {
        let _held = &stop;
        incoming.poll_recv(cx)
    });
    Serving {
        incoming: incoming.boxed(),
        drain,
    }
}
