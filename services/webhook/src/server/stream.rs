//! What lies below TLS and above it: few and large reads of the socket, and one write for an answer.
//!
//! TLS is read 4 KB at a time, and whatever is written at once becomes a record and a system call of its
//! own. Over HTTP/2 many reviews come at once, and an answer is two frames; several answers may be ready.

use std::{
    future::{Ready, ready},
    io,
    pin::Pin,
    task::{Context, Poll},
};

use axum_server::{
    accept::Accept,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader, BufWriter, ReadBuf},
    net::TcpStream,
};

/// What one read of the socket takes at most: some reviews of usual size.
const READ_BYTES: usize = 16 * 1024;

/// What is written at once at most: what fits into a record of TLS.
const WRITE_BYTES: usize = 16 * 1024;

/// Connections with TLS.
#[derive(Clone, Debug)]
pub(super) struct Acceptor(RustlsAcceptor<Below>);

impl Acceptor {
    pub(super) fn new(config: RustlsConfig) -> Self {
        Self(RustlsAcceptor::new(config).acceptor(Below))
    }
}

impl<S: Send + 'static> Accept<TcpStream, S> for Acceptor {
    type Stream = Together<<RustlsAcceptor<Below> as Accept<TcpStream, S>>::Stream>;
    type Service = S;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let accepted = self.0.accept(stream, service);
        let above = |(stream, service)| (Together::new(stream), service);
        accepted.map(move |accepted| accepted.map(above)).boxed()
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

/// Writes together what is written until it is flushed.
///
/// It says that it does not write vectors, though TLS does: HTTP/2 then copies small bodies behind their
/// heads, and flushes all answers that are ready once, not one after the other.
#[derive(Debug)]
pub(super) struct Together<S>(BufWriter<S>);

impl<S: AsyncWrite> Together<S> {
    fn new(stream: S) -> Self {
        Self(BufWriter::with_capacity(WRITE_BYTES, stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Together<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Together<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

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

    #[tokio::test]
    async fn what_is_flushed_together_is_written_together() {
        let mut stream = Together::new(Writes::default());
        assert!(!stream.is_write_vectored());
        for part in [b"head".as_slice(), b"body", b"head", &[b'x'; 2_000]] {
            assert_eq!(stream.write(part).await.unwrap(), part.len());
        }
        assert!(stream.0.get_ref().0.is_empty());
        stream.flush().await.unwrap();
        stream.write_all(b"last").await.unwrap();
        stream.shutdown().await.unwrap();
        let lengths: Vec<usize> = stream.0.get_ref().0.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2_012, 4]);
    }
}
