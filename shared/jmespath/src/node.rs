//! The document under evaluation: a borrowed node, whatever it is made of.

/// A number exactly as it came: an integer never becomes a float on its way.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// A negative integer, or any integer that was written as signed.
    I64(i64),
    /// A non-negative integer.
    U64(u64),
    /// A float. Never NaN or infinite: those have no place in JSON.
    F64(f64),
}

/// The type of a node, with the content of a scalar or the size of a collection.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'a> {
    /// The value `null`.
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(&'a str),
    /// An array of this many elements.
    Array(usize),
    /// An object of this many entries.
    Object(usize),
}

/// A borrowed node of a document that lives for `'a`.
///
/// The evaluator reads documents through this alone. So one evaluator runs over MessagePack bytes in place,
/// over a `serde_json::Value`, and over a whole view that was never put together into one document. A node is a
/// cursor: small and `Copy`.
pub trait Node<'a>: Copy {
    /// The elements of an array, in order.
    type Elements: Iterator<Item = Self>;
    /// The entries of an object, in its own order.
    type Entries: Iterator<Item = (&'a str, Self)>;

    /// The type of this node.
    fn shape(self) -> Shape<'a>;

    /// Returns the field `name` of an object; `None` for a different node or a missing field.
    fn field(self, name: &str) -> Option<Self>;

    /// Returns the element at `index` of an array; `None` for a different node or a missing element.
    fn element(self, index: usize) -> Option<Self>;

    /// The elements, if this is an array; else nothing.
    fn elements(self) -> Self::Elements;

    /// The entries, if this is an object; else nothing.
    fn entries(self) -> Self::Entries;
}

mod json;
mod skipped;

pub use skipped::{SkippedValues, count_skipped, uncounted};
