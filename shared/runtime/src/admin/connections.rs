//! The admin server's connections: few, and each for one request. So whoever reaches the port takes neither memory nor
//! file descriptors from the work, and keeps no probe out.
//!
//! | too many | what goes |
//! |---|---|
//! | connections of one address | the oldest of these |
//! | connections | the oldest of the address that has most of them |

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::{AbortHandle, Id, JoinSet},
    time::{sleep, timeout},
};

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;

/// Connections of one address at once.
const CONNECTIONS_OF_PEER_MAX: usize = 16;

/// Time for the head of the request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the request and its answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of the request's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The pause after a connection could not be accepted, as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers connections for ever.
pub(super) async fn serve(listener: &TcpListener, router: &Router) -> Infallible {
    let mut open = OpenConnections::default();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let taken = accepted.map(|(stream, peer)| take(stream, peer, router, &mut open, &mut tasks));
                if let Err(error) = taken
                    && !is_of_peer(&error)
                {
                    tracing::warn!(%error, "the admin server could not accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
                // A connection's task runs once before others can take its place.
                tokio::task::yield_now().await;
            }
            Some(ended) = tasks.join_next_with_id() => {
                open.remove(ended.map_or_else(|error| error.id(), |(id, ())| id));
            }
        }
    }
}

/// Returns whether the connection's peer caused the error, so that the next connection may be accepted.
fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    let kind = error.kind();
    [ConnectionAborted, ConnectionRefused, ConnectionReset].contains(&kind)
}

/// Serves one more connection. If there are too many, closes another one first.
fn take(
    stream: TcpStream,
    peer: SocketAddr,
    router: &Router,
    open: &mut OpenConnections,
    tasks: &mut JoinSet<()>,
) {
    let peer = peer.ip().to_canonical();
    open.make_room(peer);
    let router = router.clone();
    let task = tasks.spawn(async move {
        if let Err(error) = answer(stream, router).await {
            tracing::debug!(%error, "a connection of the admin server failed");
        }
    });
    open.0.push(OpenConnection { peer, task });
}

/// Answers one request.
async fn answer(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
) -> io::Result<()> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        // An idle connection would take a place, and a scrape opens another one within a millisecond.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let answered = timeout(CONNECTION_TIMEOUT, connection).await?;
    answered.map_err(io::Error::other)
}

/// The open connections, in the order in which they were opened.
#[derive(Debug, Default)]
struct OpenConnections(Vec<OpenConnection>);

#[derive(Debug)]
struct OpenConnection {
    peer: IpAddr,
    task: AbortHandle,
}

impl OpenConnections {
    fn make_room(&mut self, peer: IpAddr) {
        let peers: Vec<_> = self.0.iter().map(|open| open.peer).collect();
        if let Some(at) = to_close(&peers, peer) {
            self.0.remove(at).task.abort();
        }
    }

    fn remove(&mut self, task: Id) {
        self.0.retain(|open| open.task.id() != task);
    }
}

/// Returns which connection goes for one more of `peer`. `open` are the peers of all, in the order of opening.
fn to_close(open: &[IpAddr], peer: IpAddr) -> Option<usize> {
    let mut by_peer: BTreeMap<IpAddr, usize> = BTreeMap::new();
    for peer in open {
        *by_peer.entry(*peer).or_default() += 1;
    }
    let most = by_peer.values().copied().max().unwrap_or(0);
    let own = by_peer.get(&peer).copied().unwrap_or(0);
    if own >= CONNECTIONS_OF_PEER_MAX {
        return open.iter().position(|of| *of == peer);
    }
    // Several addresses may have most: the oldest connection of any goes.
    let is_crowded = |of: &IpAddr| by_peer.get(of) == Some(&most);
    (open.len() >= CONNECTIONS_MAX)
        .then(|| open.iter().position(is_crowded))
        .flatten()
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::Instant,
    };

    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn router() -> Router {
        Router::new().route("/livez", get(|| async { "x".repeat(100_000) }))
    }

    /// A connection that is answered, and the time after which it ends.
    fn connection() -> (DuplexStream, impl Future<Output = (Duration, bool)>) {
        let (client, server) = duplex(1_024);
        let begun = Instant::now();
        let ended = async move {
            let answered = answer(server, router()).await;
            (begun.elapsed(), answered.is_ok())
        };
        (client, ended)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_closed_after_one_answer() {
        let (mut client, ended) = connection();
        let asks = async {
            let head = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
            client.write_all(head).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let (answer, ended) = tokio::join!(asks, ended);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.len() > 100_000);
        assert_eq!(ended, (Duration::ZERO, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_does_not_come_is_given_up() {
        for part in ["", "GET /livez HTTP/1.1\r\nHost"] {
            let (mut client, ended) = connection();
            client.write_all(part.as_bytes()).await.unwrap();
            assert_eq!(ended.await, (HEAD_TIMEOUT, false), "{part}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_is_given_up() {
        let (mut client, ended) = connection();
        let head = b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";
        client.write_all(head).await.unwrap();
        assert_eq!(ended.await, (CONNECTION_TIMEOUT, false));
    }

    #[test]
    fn the_oldest_of_the_address_with_most_connections_goes() {
        let of = |counts: &[(u8, usize)]| -> Vec<IpAddr> {
            let open = counts
                .iter()
                .flat_map(|(last, count)| vec![peer(*last); *count]);
            open.collect()
        };
        let single: Vec<_> = (1..=64).map(peer).collect();
        for (open, next, expected) in [
            (of(&[]), 1, None),
            (of(&[(1, 15)]), 1, None),
            (of(&[(2, 1), (1, 16)]), 1, Some(1)),
            (of(&[(1, 16), (2, 16), (3, 16), (4, 15)]), 5, None),
            (
                of(&[(5, 1), (1, 15), (2, 16), (3, 16), (4, 16)]),
                5,
                Some(16),
            ),
            (single, 65, Some(0)),
        ] {
            assert_eq!(to_close(&open, peer(next)), expected, "{open:?}");
        }
    }
}
