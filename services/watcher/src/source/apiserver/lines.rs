//! The lines of a watch, each of bounded length.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt as _};

use super::Fault;

type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, Fault>> + Send>>;

/// A line of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The line's text, without its end.
    Text(Bytes),
    /// The line was over the limit, and has been skipped.
    TooLong,
}

/// Splits a stream of bytes into lines.
pub(crate) struct Lines {
    chunks: Chunks,
    buffer: BytesMut,
    /// The position from which the next line's end is looked for: everything before was looked through.
    searched: usize,
    /// Inside a line that was over the limit, until its end.
    skipping: bool,
    line_bytes_max: usize,
}

impl Lines {
    pub(super) fn new(chunks: Chunks, line_bytes_max: usize) -> Self {
        Self {
            chunks,
            buffer: BytesMut::new(),
            searched: 0,
            skipping: false,
            line_bytes_max,
        }
    }

    /// The next line that is not empty; `None` at the end. Text after the last line's end is
    /// dropped: it is half an event. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Result<Line, Fault>> {
        loop {
            if let Some(line) = self.take_line() {
                return Some(Ok(line));
            }
            match self.chunks.next().await? {
                Ok(chunk) => self.buffer.extend_from_slice(&chunk),
                Err(fault) => return Some(Err(fault)),
            }
        }
    }

    fn take_line(&mut self) -> Option<Line> {
        loop {
            let end = self.buffer[self.searched..]
                .iter()
                .position(|byte| *byte == b'\n');
            let Some(end) = end.map(|at| at + self.searched) else {
                if self.skipping || self.buffer.len() > self.line_bytes_max {
                    self.skipping = true;
                    self.buffer.clear();
                }
                self.searched = self.buffer.len();
                return None;
            };
            let line = self.buffer.split_to(end + 1).freeze().slice(..end);
            self.searched = 0;
            if std::mem::take(&mut self.skipping) || line.len() > self.line_bytes_max {
                return Some(Line::TooLong);
            }
            if !line.trim_ascii().is_empty() {
                return Some(Line::Text(line));
            }
        }
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines")
            .field("buffered", &self.buffer.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    async fn split(chunks: &[&str], line_bytes_max: usize) -> Vec<Option<String>> {
        let chunks = chunks
            .iter()
            .map(|chunk| Ok(Bytes::copy_from_slice(chunk.as_bytes())));
        let chunks = stream::iter(chunks.collect::<Vec<_>>());
        let mut lines = Lines::new(Box::pin(chunks), line_bytes_max);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await {
            found.push(match line.unwrap() {
                Line::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
                Line::TooLong => None,
            });
        }
        found
    }

    fn text(line: &str) -> Option<String> {
        Some(line.to_owned())
    }

    #[tokio::test]
    async fn lines_are_found_wherever_the_chunks_break() {
        let whole = "{\"a\":1}\n\n{\"b\":2}\r\n{\"half";
        let expected = [text("{\"a\":1}"), text("{\"b\":2}\r")];
        for at in 0..whole.len() {
            let (left, right) = whole.split_at(at);
            assert_eq!(split(&[left, right], 100).await, expected, "broken at {at}");
        }
    }

    #[tokio::test]
    async fn a_line_at_the_limit_is_read_and_one_over_it_is_skipped_alone() {
        let whole = split(&["1234\n12345\n12\n"], 4).await;
        assert_eq!(whole, [text("1234"), None, text("12")]);
        let pieces = split(&["123", "45", "6", "7\n12\n"], 4).await;
        assert_eq!(pieces, [None, text("12")]);
    }
}
