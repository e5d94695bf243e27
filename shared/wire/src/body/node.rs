//! A body as a document to evaluate over, read in place.

use anteroom_jmespath::{Node, Number, Shape};

use super::format::{ValueHead, head, key, skip};

/// A cursor at one value of a body. Two words, `Copy`, and nothing is parsed ahead.
///
/// Made for bytes that [`validate`](super::validate) has let in. Over other bytes it is safe all the
/// same: what is malformed, or not a value of JSON, reads as null.
#[derive(Clone, Copy, Debug)]
pub struct BodyNode<'a> {
    /// Begins with the value; what follows it is not ours.
    bytes: &'a [u8],
}

impl<'a> BodyNode<'a> {
    /// A cursor at the value with which `bytes` begins.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The text, if this is a string.
    pub fn as_str(self) -> Option<&'a str> {
        match self.shape() {
            Shape::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value's own bytes: a body in its own right. Empty if they are malformed.
    pub fn body(self) -> &'a [u8] {
        match skip(self.bytes) {
            Some(rest) => &self.bytes[..self.bytes.len() - rest.len()],
            None => &[],
        }
    }
}

impl<'a> Node<'a> for BodyNode<'a> {
    type Elements = Elements<'a>;
    type Entries = Entries<'a>;

    #[inline]
    fn shape(self) -> Shape<'a> {
        match head(self.bytes) {
            Some((ValueHead::Bool(value), _)) => Shape::Bool(value),
            Some((ValueHead::U64(value), _)) => Shape::Number(Number::U64(value)),
            Some((ValueHead::I64(value), _)) => Shape::Number(Number::I64(value)),
            Some((ValueHead::F64(value), _)) if value.is_finite() => {
                Shape::Number(Number::F64(value))
            }
            Some((ValueHead::Str(text), _)) => {
                std::str::from_utf8(text).map_or(Shape::Null, Shape::String)
            }
            Some((ValueHead::Array(values), _)) => Shape::Array(values),
            Some((ValueHead::Map(pairs), _)) => Shape::Object(pairs),
            Some((ValueHead::Nil | ValueHead::F64(_) | ValueHead::Foreign, _)) | None => {
                Shape::Null
            }
        }
    }

    #[inline]
    fn field(self, name: &str) -> Option<Self> {
        let (ValueHead::Map(pairs), mut rest) = head(self.bytes)? else {
            return None;
        };
        for _ in 0..pairs {
            let (found, value) = key(rest)?;
            if found == name.as_bytes() {
                return Some(Self::new(value));
            }
            rest = skip(value)?;
        }
        None
    }

    fn element(self, index: usize) -> Option<Self> {
        self.elements().nth(index)
    }

    #[inline]
    fn elements(self) -> Elements<'a> {
        match head(self.bytes) {
            Some((ValueHead::Array(left), rest)) => Elements { left, rest },
            _ => Elements { left: 0, rest: &[] },
        }
    }

    #[inline]
    fn entries(self) -> Entries<'a> {
        match head(self.bytes) {
            Some((ValueHead::Map(left), rest)) => Entries { left, rest },
            _ => Entries { left: 0, rest: &[] },
        }
    }
}

/// The elements of an array.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    left: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for Elements<'a> {
    type Item = BodyNode<'a>;

    #[inline]
    fn next(&mut self) -> Option<BodyNode<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let node = BodyNode::new(self.rest);
        self.left = self.left.checked_sub(1)?;
        self.rest = after(self.left, self.rest);
        Some(node)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

/// The entries of an object.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    left: usize,
    rest: &'a [u8],
}

impl<'a> Entries<'a> {
    /// The next entry: its name, and its value's own bytes. `None`: there is none, or it is malformed.
    pub fn next_bytes(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let left = self.left.checked_sub(1)?;
        let (name, value) = key(self.rest)?;
        let rest = skip(value)?;
        (self.left, self.rest) = (left, rest);
        Some((name, &value[..value.len() - rest.len()]))
    }

    /// Skips the next entry if its name and value have exactly these bytes; returns whether the entry was skipped.
    pub fn pass(&mut self, name: &[u8], value: &[u8]) -> bool {
        // No value begins as another does and goes on.
        let rest = match (self.left, key(self.rest)) {
            (1.., Some((found, rest))) if found == name => rest.strip_prefix(value),
            _ => None,
        };
        if let Some(rest) = rest {
            self.left -= 1;
            self.rest = rest;
        }
        rest.is_some()
    }

    /// The number of values that are left.
    pub fn left(&self) -> usize {
        self.left
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a str, BodyNode<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let (name, value) = key(self.rest)?;
        let name = std::str::from_utf8(name).ok()?;
        self.rest = after(self.left, value);
        Some((name, BodyNode::new(value)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left))
    }
}

/// Returns the bytes after `value`, which are the next of `left` values. The last value has none
/// after it, so it is not walked.
#[inline]
fn after(left: usize, value: &[u8]) -> &[u8] {
    if left == 0 {
        return &[];
    }
    skip(value).unwrap_or(&[])
}
