//! Streams below and above TLS: few and large reads of the socket, and one write for an answer.
//!
//! TLS is read 4 KB at a time, and whatever is written at once becomes a record and a system call of its
//! own. Over HTTP/2 many reviews come at once, and an answer is two frames; several answers may be ready.
//!
//! Connections are limited, and one that brings nothing for long is closed, whatever it is in the middle of. One that
//! brings no review soon is closed too: see [`connections`](super::connections).

use std::{
    future::{Future as _, Ready, ready},
    io, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready as or_pending},
    time::Duration,
};

use anteroom_model::ErrorCode;
use axum_server::{
    accept::Accept,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use futures::{FutureExt as _, future::BoxFuture};
use hyper::body::Incoming;
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader, BufWriter, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tower::Service;

use super::connections::{Connection, Connections, PROOF_TIMEOUT};
use crate::metrics::WebhookMetrics;

/// Bytes of one read of the socket: some reviews of usual size.
const READ_BYTES: usize = 16 * 1024;

/// Bytes of one write: as many as fit into a record of TLS.
const WRITE_BYTES: usize = 16 * 1024;

/// The silence after which a connection is closed, at the latest after twice that time. It is longer than an API
/// server keeps an idle connection (90 s), so that no connection is closed while it is used again.
const QUIET_MAX: Duration = Duration::from_secs(120);

/// Connections with TLS.
#[derive(Clone, Debug)]
pub(super) struct Acceptor {
    tls: RustlsAcceptor<BufferedTcp>,
    connections: Connections,
    metrics: WebhookMetrics,
}

impl Acceptor {
    pub(super) fn new(config: RustlsConfig, metrics: WebhookMetrics) -> Self {
        let tls = RustlsAcceptor::new(config).handshake_timeout(PROOF_TIMEOUT);
        Self {
            tls: tls.acceptor(BufferedTcp),
            connections: Connections::default(),
            metrics,
        }
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for Acceptor {
    type Stream = CoalescingStream<<RustlsAcceptor<BufferedTcp> as Accept<TcpStream, S>>::Stream>;
    type Service = OnConnection<S>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, OnConnection<S>)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let peer = stream.peer_addr().map(|address| address.ip());
        let connection = match peer.map(|peer| self.connections.admit(peer)) {
            Ok(Ok(connection)) => Arc::new(connection),
            Ok(Err(not_taken)) => {
                self.metrics.review_error(ErrorCode::BUSY);
                return ready(Err(io::Error::other(not_taken))).boxed();
            }
            Err(error) => return ready(Err(error)).boxed(),
        };
        let (accepting, closing) = (self.tls.accept(stream, service), connection.closing());
        let accepted = async move {
            let accepted = closing.run_until_cancelled(accepting).await;
            let (stream, service) = accepted.unwrap_or_else(|| Err(closed()))?;
            let stream = CoalescingStream::new(stream, Arc::clone(&connection));
            let service = OnConnection {
                connection,
                service,
            };
            Ok((stream, service))
        };
        accepted.boxed()
    }
}

/// A service for the requests of one connection.
#[derive(Clone, Debug)]
pub(super) struct OnConnection<S> {
    connection: Arc<Connection>,
    service: S,
}

impl<S> OnConnection<S> {
    /// Returns the connection.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl<S> Service<http::Request<Incoming>> for OnConnection<S>
where
    S: Service<http::Request<Incoming>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Incoming>) -> S::Future {
        request
            .extensions_mut()
            .insert(Arc::clone(&self.connection));
        self.service.call(request)
    }
}

/// The error of a connection that was closed in favour of a new connection.
fn closed() -> io::Error {
    io::Error::other("closed for another connection, before a review came by it")
}

/// Connections without Nagle's delay, and with large reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct BufferedTcp;

impl<S> Accept<TcpStream, S> for BufferedTcp {
    type Stream = BufReader<TcpStream>;
    type Service = S;
    type Future = Ready<io::Result<(Self::Stream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let prepared = stream.set_nodelay(true);
        let stream = BufReader::with_capacity(READ_BYTES, stream);
        ready(prepared.map(|()| (stream, service)))
    }
}

/// A stream that collects writes until a flush, and ends once it was quiet for too long.
///
/// The stream claims not to write vectors, though TLS does. HTTP/2 then copies small bodies behind their headers, and
/// flushes all ready answers once, not one after the other.
#[derive(Debug)]
pub(super) struct CoalescingStream<S> {
    stream: BufWriter<S>,
    quiet: Quiet,
    connection: Arc<Connection>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S: AsyncWrite> CoalescingStream<S> {
    fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self {
            closing: Box::pin(connection.closing().cancelled_owned()),
            connection,
            stream: BufWriter::with_capacity(WRITE_BYTES, stream),
            quiet: Quiet::new(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for CoalescingStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            self.quiet.heard = true;
            return Poll::Ready(read);
        }
        if self.closing.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(closed()));
        }
        let is_proven = self.connection.is_proven();
        self.quiet.poll(is_proven, cx).map(Err)
    }
}

/// Detects a connection that brings no review at first, or nothing for long. Its timer is set once in [`QUIET_MAX`], not for
/// each request.
#[derive(Debug)]
struct Quiet {
    heard: bool,
    timer: Pin<Box<Sleep>>,
}

impl Quiet {
    fn new() -> Self {
        Self {
            heard: false,
            timer: Box::pin(sleep(PROOF_TIMEOUT)),
        }
    }

    /// Ready once nothing has come for too long, or no review in the first time.
    fn poll(&mut self, is_proven: bool, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            or_pending!(self.timer.as_mut().poll(cx));
            if !is_proven || !mem::take(&mut self.heard) {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.timer.as_mut().reset(Instant::now() + QUIET_MAX);
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescingStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use http::Version;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Keeps what each write brought.
    #[derive(Default)]
    struct Writes(Vec<Vec<u8>>);

    impl AsyncWrite for Writes {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.push(buf.to_vec());
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn connection() -> Arc<Connection> {
        let peer = std::net::Ipv4Addr::LOCALHOST.into();
        Arc::new(Connections::default().admit(peer).unwrap())
    }

    /// Half a head is never followed by the rest, and nobody keeps its connection for that.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_brings_nothing_is_closed() {
        let (mut client, server) = duplex(64);
        let connection = connection();
        connection.prove(Version::HTTP_11);
        let mut stream = CoalescingStream::new(server, connection);
        let begun = Instant::now();
        let mut head = [0; 64];
        client.write_all(b"POST /val").await.unwrap();
        assert_eq!(stream.read(&mut head).await.unwrap(), 9);
        for _ in 0..3 {
            let written = async {
                tokio::time::sleep(QUIET_MAX - Duration::from_secs(1)).await;
                client.write_all(b"POST /val").await
            };
            let (read, written) = tokio::join!(stream.read(&mut head), written);
            assert_eq!((read.unwrap(), written.is_ok()), (9, true));
        }
        let heard_at = Instant::now();
        assert!(heard_at - begun > QUIET_MAX * 2, "what speaks stays");
        let error = stream.read(&mut head).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(heard_at.elapsed() <= QUIET_MAX * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_review_is_closed_soon_however_much_it_brings() {
        let (mut client, server) = duplex(64);
        let mut stream = CoalescingStream::new(server, connection());
        let begun = Instant::now();
        let speaks = async {
            loop {
                client.write_all(b"PING").await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let reads = async {
            let mut head = [0; 64];
            loop {
                if let Err(error) = stream.read(&mut head).await {
                    break error;
                }
            }
        };
        let error = tokio::select! {
            error = reads => error,
            () = speaks => unreachable!("it never ends"),
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), PROOF_TIMEOUT);
    }

    #[tokio::test]
    async fn a_connection_that_makes_place_for_another_is_closed_at_once() {
        let (_client, server) = duplex(64);
        let connection = connection();
        let closing = connection.closing();
        let mut stream = CoalescingStream::new(server, connection);
        let mut head = [0; 64];
        let (read, ()) = tokio::join!(stream.read(&mut head), async { closing.cancel() });
        assert!(read.unwrap_err().to_string().contains("closed for another"));
    }

    #[tokio::test]
    async fn a_handshake_that_makes_place_for_another_connection_ends() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
        let metrics = anteroom_runtime::Service::new("webhook").metrics;
        let own = WebhookMetrics::register(&metrics);
        let acceptor = Acceptor::new(RustlsConfig::from_config(Arc::new(config)), own);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut clients, mut accepted) = (Vec::new(), Vec::new());
        // The limit of an address in this state, exceeded by 1.
        for _ in 0..9 {
            clients.push(TcpStream::connect(address).await.unwrap());
            let (stream, _) = listener.accept().await.unwrap();
            accepted.push(acceptor.accept(stream, ()));
        }
        let first = accepted.remove(0).await;
        assert!(
            first
                .err()
                .unwrap()
                .to_string()
                .contains("closed for another")
        );
        assert!(accepted.pop().unwrap().now_or_never().is_none());
    }

    #[tokio::test]
    async fn parts_that_are_flushed_together_are_one_write() {
        let mut stream = CoalescingStream::new(Writes::default(), connection());
        assert!(!stream.is_write_vectored());
        for part in [b"head".as_slice(), b"body", b"head", &[b'x'; 2_000]] {
            assert_eq!(stream.write(part).await.unwrap(), part.len());
        }
        assert!(stream.stream.get_ref().0.is_empty());
        stream.flush().await.unwrap();
        stream.write_all(b"last").await.unwrap();
        stream.shutdown().await.unwrap();
        let lengths: Vec<usize> = stream.stream.get_ref().0.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2_012, 4]);
    }
}
