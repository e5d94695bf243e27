//! The parts of the MessagePack format that reading in place needs: a value's head, and skipping.
//!
//! Nothing here trusts a byte: whatever is malformed or cut short is `None`.

use anteroom_jmespath::{
    count_skipped,
    json_memory::{list_bytes, object_bytes, text_bytes},
};

/// The first part of a value: a scalar whole, or what a container holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueHead<'a> {
    Nil,
    Bool(bool),
    U64(u64),
    I64(i64),
    F64(f64),
    /// Not yet known to be UTF-8.
    Str(&'a [u8]),
    /// Elements follow.
    Array(usize),
    /// So many pairs of key and value follow.
    Map(usize),
    /// Binary data or an extension, neither of which a body may hold.
    Foreign,
}

/// The head of the value at the start of `bytes`, and what follows it. A container that claims more
/// elements than there are bytes left is malformed, so a count is never larger than the input.
#[inline]
pub(super) fn head(bytes: &[u8]) -> Option<(ValueHead<'_>, &[u8])> {
    let (&marker, rest) = bytes.split_first()?;
    match marker {
        0x00..=0x7f => Some((ValueHead::U64(u64::from(marker)), rest)),
        0x80..=0x8f => map(usize::from(marker & 0x0f), rest),
        0x90..=0x9f => array(usize::from(marker & 0x0f), rest),
        0xa0..=0xbf => string(usize::from(marker & 0x1f), rest),
        0xc0 => Some((ValueHead::Nil, rest)),
        0xc2 => Some((ValueHead::Bool(false), rest)),
        0xc3 => Some((ValueHead::Bool(true), rest)),
        0xca => number(rest, |b| ValueHead::F64(f64::from(f32::from_be_bytes(b)))),
        0xcb => number(rest, |b| ValueHead::F64(f64::from_be_bytes(b))),
        0xcc => number(rest, |b| ValueHead::U64(u64::from(u8::from_be_bytes(b)))),
        0xcd => number(rest, |b| ValueHead::U64(u64::from(u16::from_be_bytes(b)))),
        0xce => number(rest, |b| ValueHead::U64(u64::from(u32::from_be_bytes(b)))),
        0xcf => number(rest, |b| ValueHead::U64(u64::from_be_bytes(b))),
        0xd0 => number(rest, |b| ValueHead::I64(i64::from(i8::from_be_bytes(b)))),
        0xd1 => number(rest, |b| ValueHead::I64(i64::from(i16::from_be_bytes(b)))),
        0xd2 => number(rest, |b| ValueHead::I64(i64::from(i32::from_be_bytes(b)))),
        0xd3 => number(rest, |b| ValueHead::I64(i64::from_be_bytes(b))),
        0xd9 => length8(rest).and_then(|(n, rest)| string(n, rest)),
        0xda => length16(rest).and_then(|(n, rest)| string(n, rest)),
        0xdb => length32(rest).and_then(|(n, rest)| string(n, rest)),
        0xdc => length16(rest).and_then(|(n, rest)| array(n, rest)),
        0xdd => length32(rest).and_then(|(n, rest)| array(n, rest)),
        0xde => length16(rest).and_then(|(n, rest)| map(n, rest)),
        0xdf => length32(rest).and_then(|(n, rest)| map(n, rest)),
        0xe0..=0xff => Some((ValueHead::I64(i64::from(marker as i8)), rest)),
        0xc1 => None,
        0xc4..=0xc9 | 0xd4..=0xd8 => skip(bytes).map(|rest| (ValueHead::Foreign, rest)),
    }
}

/// The string at the start of `bytes` and what follows it: [`head`] for a key, most of which are
/// shorter than 32 bytes.
#[inline]
pub(super) fn key(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&marker, rest) = bytes.split_first()?;
    if marker & 0xe0 == 0xa0 {
        return rest.split_at_checked(usize::from(marker & 0x1f));
    }
    match head(bytes)? {
        (ValueHead::Str(key), rest) => Some((key, rest)),
        _ => None,
    }
}

/// Returns the memory that the JSON value of these bytes takes. Of malformed bytes, some number. Values stand one behind
/// the other, so nothing is recursed into.
pub(super) fn json_bytes(mut bytes: &[u8]) -> u64 {
    let mut memory = 0;
    while let Some((value, rest)) = head(bytes) {
        memory += match value {
            ValueHead::Str(text) => text_bytes(text.len()),
            ValueHead::Array(elements) => list_bytes(elements),
            ValueHead::Map(pairs) => object_bytes(pairs),
            _ => 0,
        };
        bytes = rest;
    }
    memory
}

/// Returns what follows the value at the start of `bytes`. Containers are walked, not recursed into.
#[inline]
pub(super) fn skip(bytes: &[u8]) -> Option<&[u8]> {
    let mut at = 0_usize;
    // Values still to be skipped. It cannot overflow: `at` grows with every value, and a value adds
    // less than 2³³.
    let mut pending = 1_usize;
    let mut values = 0;
    while pending != 0 {
        // `at` may have run past the end here: that is noticed now, or at the very end.
        let step = STEPS[usize::from(*bytes.get(at)?)];
        values += 1;
        at += usize::from(step.bytes);
        pending = pending - 1 + usize::from(step.values);
        if step.length_bytes != 0 {
            let (more_bytes, more_values) = long(bytes, at, step)?;
            at += more_bytes;
            pending += more_values;
        }
    }
    count_skipped(values);
    bytes.get(at..)
}

/// Bytes and values that a marker with a length field before `at` announces.
fn long(bytes: &[u8], at: usize, step: MarkerLayout) -> Option<(usize, usize)> {
    let field = bytes.get(at.checked_sub(usize::from(step.length_bytes))?..at)?;
    let length = field
        .iter()
        .fold(0_usize, |length, &byte| (length << 8) | usize::from(byte));
    match step.counts {
        Counts::Bytes => Some((length, 0)),
        Counts::TypeAndBytes => Some((1 + length, 0)),
        Counts::Elements => Some((0, length)),
        Counts::Pairs => Some((0, length * 2)),
        Counts::Nothing => None,
    }
}

/// The way to get past a marker.
#[derive(Clone, Copy)]
struct MarkerLayout {
    /// The marker itself, its length field, and its payload where the marker alone tells its size.
    bytes: u8,
    /// Values that follow, where the marker alone tells.
    values: u8,
    /// The size of the length field that ends the step's bytes; 0: none.
    length_bytes: u8,
    /// The unit that the length field counts.
    counts: Counts,
}

#[derive(Clone, Copy)]
enum Counts {
    Nothing,
    Bytes,
    /// An extension's: its type is one byte between the length and the data.
    TypeAndBytes,
    Elements,
    Pairs,
}

/// A table rather than a `match`, since a jump per value is mispredicted most of the time.
static STEPS: [MarkerLayout; 256] = {
    let mut steps = [step(0, 0); 256];
    let mut marker = 0;
    while marker < 256 {
        steps[marker] = step_of(marker as u8);
        marker += 1;
    }
    steps
};

const fn step_of(marker: u8) -> MarkerLayout {
    match marker {
        0x00..=0x7f | 0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => step(1, 0),
        0x80..=0x8f => step(1, (marker & 0x0f) * 2),
        0x90..=0x9f => step(1, marker & 0x0f),
        0xa0..=0xbf => step(1 + (marker & 0x1f), 0),
        // Never used by the format: a length field that counts nothing is malformed.
        0xc1 => long_step(1, 1, Counts::Nothing),
        0xc4 | 0xd9 => long_step(2, 1, Counts::Bytes),
        0xc5 | 0xda => long_step(3, 2, Counts::Bytes),
        0xc6 | 0xdb => long_step(5, 4, Counts::Bytes),
        0xc7 => long_step(2, 1, Counts::TypeAndBytes),
        0xc8 => long_step(3, 2, Counts::TypeAndBytes),
        0xc9 => long_step(5, 4, Counts::TypeAndBytes),
        0xcc | 0xd0 => step(2, 0),
        0xcd | 0xd1 => step(3, 0),
        0xca | 0xce | 0xd2 => step(5, 0),
        0xcb | 0xcf | 0xd3 => step(9, 0),
        0xd4..=0xd8 => step(2 + (1 << (marker - 0xd4)), 0),
        0xdc => long_step(3, 2, Counts::Elements),
        0xdd => long_step(5, 4, Counts::Elements),
        0xde => long_step(3, 2, Counts::Pairs),
        0xdf => long_step(5, 4, Counts::Pairs),
    }
}

const fn step(bytes: u8, values: u8) -> MarkerLayout {
    MarkerLayout {
        bytes,
        values,
        length_bytes: 0,
        counts: Counts::Nothing,
    }
}

const fn long_step(bytes: u8, length_bytes: u8, counts: Counts) -> MarkerLayout {
    MarkerLayout {
        bytes,
        values: 0,
        length_bytes,
        counts,
    }
}

fn string(bytes: usize, rest: &[u8]) -> Option<(ValueHead<'_>, &[u8])> {
    let (text, rest) = rest.split_at_checked(bytes)?;
    Some((ValueHead::Str(text), rest))
}

fn array(values: usize, rest: &[u8]) -> Option<(ValueHead<'_>, &[u8])> {
    (values <= rest.len()).then_some((ValueHead::Array(values), rest))
}

fn map(pairs: usize, rest: &[u8]) -> Option<(ValueHead<'_>, &[u8])> {
    (pairs <= rest.len() / 2).then_some((ValueHead::Map(pairs), rest))
}

fn number<'a, const N: usize>(
    rest: &'a [u8],
    read: impl FnOnce([u8; N]) -> ValueHead<'a>,
) -> Option<(ValueHead<'a>, &'a [u8])> {
    let (bytes, rest) = rest.split_first_chunk()?;
    Some((read(*bytes), rest))
}

fn length8(rest: &[u8]) -> Option<(usize, &[u8])> {
    let (&length, rest) = rest.split_first()?;
    Some((usize::from(length), rest))
}

fn length16(rest: &[u8]) -> Option<(usize, &[u8])> {
    let (bytes, rest) = rest.split_first_chunk()?;
    Some((usize::from(u16::from_be_bytes(*bytes)), rest))
}

fn length32(rest: &[u8]) -> Option<(usize, &[u8])> {
    let (bytes, rest) = rest.split_first_chunk()?;
    Some((usize::try_from(u32::from_be_bytes(*bytes)).ok()?, rest))
}
