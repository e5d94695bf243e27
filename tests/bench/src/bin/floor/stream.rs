//! The stream above TLS, as our own webhook has it: answers that are ready together are one write.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};

/// A stream that collects writes until a flush. It does not take vectors, as our own webhook's stream does not: HTTP/2 then
/// flushes all ready answers at once.
#[derive(Debug)]
pub(crate) struct Collecting<S>(BufWriter<S>);

impl<S: AsyncWrite> Collecting<S> {
    pub(crate) fn new(bytes: usize, stream: S) -> Self {
        Self(BufWriter::with_capacity(bytes, stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Collecting<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Collecting<S> {
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
