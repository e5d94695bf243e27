//! Streams below and above TLS: few and large reads of the socket, and one write for an answer.
//!
//! TLS is read 4 KB at a time, and whatever is written at once becomes a record and a system call of its
//! own. Over HTTP/2 many reviews come at once, and an answer is two frames; several answers may be ready.
//!
//! Connections are limited, and one that brings nothing for long is closed, whatever it is in the middle of.

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
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader, BufWriter, ReadBuf},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};

use crate::metrics::WebhookMetrics;

/// Bytes of one read of the socket: some reviews of usual size.
const READ_BYTES: usize = 16 * 1024;

/// Bytes of one write: as many as fit into a record of TLS.
const WRITE_BYTES: usize = 16 * 1024;

/// A connection that brings nothing for so long is closed, at the latest once as much has passed again.
/// Longer than an API server keeps an idle one (90 s), so that none is closed while it is taken up again.
const QUIET_MAX: Duration = Duration::from_secs(120);

/// Connections with TLS.
#[derive(Clone, Debug)]
pub(super) struct Acceptor {
    tls: RustlsAcceptor<Below>,
    places: Arc<Semaphore>,
    metrics: WebhookMetrics,
}

impl Acceptor {
    pub(super) fn new(config: RustlsConfig, places: usize, metrics: WebhookMetrics) -> Self {
        Self {
            tls: RustlsAcceptor::new(config).acceptor(Below),
            places: Arc::new(Semaphore::new(places)),
            metrics,
        }
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for Acceptor {
    type Stream = Together<<RustlsAcceptor<Below> as Accept<TcpStream, S>>::Stream>;
    type Service = S;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.metrics.review_error(ErrorCode::BUSY);
            let full = io::Error::other("there are as many connections as this webhook takes");
            return ready(Err(full)).boxed();
        };
        let accepted = self.tls.accept(stream, service);
        let above = |(stream, service)| (Together::new(stream, place), service);
        accepted.map(|accepted| accepted.map(above)).boxed()
    }
}

/// Connections without Nagle's delay, and with large reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Below;

impl<S> Accept<TcpStream, S> for Below {
    type Stream = BufReader<TcpStream>;
    type Service = S;
    type Future = Ready<io::Result<(Self::Stream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let prepared = stream.set_nodelay(true);
        let stream = BufReader::with_capacity(READ_BYTES, stream);
        ready(prepared.map(|()| (stream, service)))
    }
}

/// Writes together what is written until it is flushed, and ends once it has been quiet for too long.
///
/// It says that it does not write vectors, though TLS does: HTTP/2 then copies small bodies behind their
/// heads, and flushes all answers that are ready once, not one after the other.
#[derive(Debug)]
pub(super) struct Together<S> {
    stream: BufWriter<S>,
    quiet: Quiet,
    _place: OwnedSemaphorePermit,
}

impl<S: AsyncWrite> Together<S> {
    fn new(stream: S, place: OwnedSemaphorePermit) -> Self {
        Self {
            stream: BufWriter::with_capacity(WRITE_BYTES, stream),
            quiet: Quiet::new(),
            _place: place,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Together<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            self.quiet.heard = true;
            return Poll::Ready(read);
        }
        self.quiet.poll(cx).map(Err)
    }
}

/// Detects a connection that brings nothing for long. Its timer is set once in [`QUIET_MAX`], not for each request.
#[derive(Debug)]
struct Quiet {
    heard: bool,
    timer: Pin<Box<Sleep>>,
}

impl Quiet {
    fn new() -> Self {
        Self {
            heard: false,
            timer: Box::pin(sleep(QUIET_MAX)),
        }
    }

    /// Ready once nothing has come for too long.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        loop {
            or_pending!(self.timer.as_mut().poll(cx));
            if !mem::take(&mut self.heard) {
                return Poll::Ready(io::ErrorKind::TimedOut.into());
            }
            self.timer.as_mut().reset(Instant::now() + QUIET_MAX);
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Together<S> {
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

    fn place() -> OwnedSemaphorePermit {
        let places = Arc::new(Semaphore::new(1));
        places.try_acquire_owned().unwrap()
    }

    /// Half a head is never followed by the rest, and nobody keeps its connection for that.
    #[tokio::test(start_paused = true)]
    async fn a_connection_that_brings_nothing_is_closed() {
        let (mut client, server) = duplex(64);
        let mut stream = Together::new(server, place());
        let begun = Instant::now();
        let mut head = [0; 64];
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

    #[tokio::test]
    async fn connections_are_limited_and_those_that_are_refused_are_counted() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
        let metrics = anteroom_runtime::Service::new("webhook").metrics;
        let own = WebhookMetrics::registered(&metrics);
        let acceptor = Acceptor::new(RustlsConfig::from_config(Arc::new(config)), 1, own);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut accepted = Vec::new();
        for _ in 0..2 {
            let _client = TcpStream::connect(address).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            accepted.push(acceptor.accept(stream, ()));
        }
        let refused = accepted.pop().unwrap().await.unwrap_err();
        assert!(refused.to_string().contains("as many connections"));
        let counted = "anteroom_admission_review_errors_total{code=\"AR205\"} 1";
        assert!(metrics.encode().contains(counted), "{}", metrics.encode());
        // The first has its place until it ends.
        drop(accepted);
        assert_eq!(acceptor.places.available_permits(), 1);
    }

    #[tokio::test]
    async fn parts_that_are_flushed_together_are_one_write() {
        let mut stream = Together::new(Writes::default(), place());
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
