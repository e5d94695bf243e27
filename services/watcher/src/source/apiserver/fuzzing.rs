//! Answers of an API server, for fuzz targets.

use bytes::Bytes;
use futures::{FutureExt as _, stream};
use http::Response;

use super::{Fault, Line, Lines};

/// The longest line of a watch here.
const LINE_BYTES_MAX: usize = 1_024;

/// Reads the lines of a watch, and asserts that they are those of the whole text. The first byte of an input is the length
/// of the chunks in which the text comes.
pub(crate) fn lines(input: &[u8]) -> Vec<Bytes> {
    let Some((length, text)) = input.split_first() else {
        return Vec::new();
    };
    let chunks = text.chunks(usize::from(*length).max(1));
    let chunks: Vec<Result<Bytes, Fault>> = chunks
        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
        .collect();
    let mut lines = Lines::new(Box::pin(stream::iter(chunks)), LINE_BYTES_MAX);
    let mut found = Vec::new();
    // Nothing is waited for: all chunks are there.
    while let Some(Some(Ok(line))) = lines.next().now_or_never() {
        found.push(line);
    }
    assert_eq!(found, lines_of(text));
    let texts = found.into_iter().filter_map(|line| match line {
        Line::Text(text) => Some(text),
        Line::TooLong => None,
    });
    texts.collect()
}

fn lines_of(text: &[u8]) -> Vec<Line> {
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    // Text after the last line's end is half an event.
    lines.pop();
    let lines = lines.into_iter().filter_map(|line| match line {
        line if line.len() > LINE_BYTES_MAX => Some(Line::TooLong),
        line if line.trim_ascii().is_empty() => None,
        line => Some(Line::Text(Bytes::copy_from_slice(line))),
    });
    lines.collect()
}

/// Returns the fault of an answer of this status.
pub(crate) fn fault(code: u16, body: &[u8]) -> Option<Fault> {
    let response = Response::builder().status(code).body(()).ok()?;
    let (head, ()) = response.into_parts();
    Some(Fault::from_response(&head, body))
}
