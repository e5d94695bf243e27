//! The listener, and each connection from its begin to its end.
//!
//! A connection that was kept may bring a review at any moment, so none is closed while the webhook [drains](crate::drain).
//! Its client is told to leave instead, as soon as the protocol lets the webhook say so:
//!
//! | | HTTP/1.1 | HTTP/2 |
//! |---|---|---|
//! | the webhook says | `Connection: close`, with the next answer | GOAWAY, at once |
//! | on a new connection | with the first answer | once a review has come |
//! | reviews that the client posted before it heard that | none: one answer comes after the other | are decided |
//!
//! HTTP/1.1 has no word for a connection that is idle. Such a connection is closed once the drain is over.

use std::{pin::pin, sync::Arc, time::Duration};

use axum_server::accept::Accept as _;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{Endpoint, HEADER_BYTES_MAX, STREAMS_MAX, connections::Connection, stream::Acceptor};
use crate::drain::Drain;

/// The wait after a connection could not be accepted, as where the process has too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Connections that are accepted after the drain, since they waited for that. With more, somebody floods the listener.
const LATE_CONNECTIONS_MAX: usize = 128;

/// Limit for answering the reviews that were received, once the webhook has drained.
const FINISH_MAX: Duration = Duration::from_secs(15);

/// Serves connections until the webhook has drained, and then until all received requests are answered.
pub(super) async fn serve(
    listener: TcpListener,
    acceptor: Acceptor,
    endpoint: Endpoint,
    drain: Drain,
) {
    let http = Arc::new(http());
    let mut connections = JoinSet::new();
    let mut late = 0;
    while late < LATE_CONNECTIONS_MAX {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            stream = accept(&listener) => {
                late += usize::from(drain.stop().is_triggered());
                let (acceptor, endpoint) = (acceptor.clone(), endpoint.clone());
                let (http, drain) = (Arc::clone(&http), drain.clone());
                connections.spawn(connection(stream, acceptor, endpoint, http, drain));
            }
            // The last branch: a connection that still waits to be accepted would be reset.
            () = drain.stop().triggered() => break,
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if timeout(FINISH_MAX, ended).await.is_err() {
        let open = connections.len();
        tracing::warn!(
            open,
            "connections closed with reviews that were not decided in time"
        );
    }
}

/// Returns the protocols of a connection, with their limits.
fn http() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    let mut http = builder.http1();
    http.max_buf_size(HEADER_BYTES_MAX);
    let mut http = builder.http2();
    http.max_header_list_size(HEADER_BYTES_MAX as u32);
    http.max_concurrent_streams(STREAMS_MAX);
    builder
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(_) => sleep(ACCEPT_RETRY).await,
        }
    }
}

/// Serves one connection to its end.
async fn connection(
    stream: TcpStream,
    acceptor: Acceptor,
    endpoint: Endpoint,
    http: Arc<Builder<TokioExecutor>>,
    drain: Drain,
) {
    let Ok((stream, service)) = acceptor.accept(stream, endpoint).await else {
        return;
    };
    let connection = Arc::clone(service.connection());
    let serving = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut serving = pin!(serving);
    tokio::select! {
        biased;
        // Errors are those of the client, which has gone.
        _ = serving.as_mut() => return,
        () = leaving(&connection, &drain) => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// Waits until a connection has to take no more requests: over HTTP/2 from the drain on, over HTTP/1.1 from its end on.
///
/// A client that reads GOAWAY before it has posted anything would try other connections, and give up after some. So
/// a new connection is left open for its first review.
async fn leaving(connection: &Connection, drain: &Drain) {
    let drains = async {
        drain.begun().await;
        connection.used_http2().await;
    };
    tokio::select! {
        () = drains => {}
        () = drain.stop().triggered() => {}
    }
}
