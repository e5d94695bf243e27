//! The values of an evaluation.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use crate::node::{Node, Number, Shape};

mod borrowed;
mod compare;
mod json;
mod text;
mod walk;

pub use borrowed::Borrowed;
pub(crate) use compare::STRING_BYTES_PER_STEP;
pub use json::VALUE_DEPTH_MAX;
pub(crate) use json::{JsonText, NoJson, too_deep};
pub use text::{json_text, json_text_within};
pub(crate) use walk::{Elements, Entries};

/// A value: borrowed from the document, from a literal or from a parameter as long as nothing was
/// computed, else scalars, and arrays and objects of values. A clone is cheap.
#[derive(Clone, Debug)]
pub enum Value<'a, N> {
    /// The value `null`.
    Null,
    /// A computed boolean.
    Bool(bool),
    /// A computed number.
    Number(Number),
    /// A computed string, or a key.
    String(Text<'a>),
    /// Something that was there before the evaluation, of any type.
    Borrowed(Borrowed<'a, N>),
    /// A built array.
    Array(Rc<Array<'a, N>>),
    /// A built object.
    Object(Rc<Object<'a, N>>),
}

/// A string, borrowed or shared.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// From the document or the expression.
    Borrowed(&'a str),
    /// A computed text.
    Shared(Rc<str>),
}

/// The elements of a built array.
#[derive(Debug)]
pub struct Array<'a, N> {
    elements: Vec<Value<'a, N>>,
    depth: u32,
}

/// The entries of a built object.
#[derive(Debug)]
pub struct Object<'a, N> {
    /// Sorted by key, each key once.
    entries: Vec<(Text<'a>, Value<'a, N>)>,
    depth: u32,
}

impl<'a, N> Array<'a, N> {
    pub(crate) fn new(elements: Vec<Value<'a, N>>) -> Self {
        let depth = 1 + elements.iter().map(Value::built_depth).max().unwrap_or(0);
        Array { elements, depth }
    }

    /// The elements in order.
    pub fn elements(&self) -> &[Value<'a, N>] {
        &self.elements
    }
}

impl<'a, N> Object<'a, N> {
    /// Builds an object; the last of equal keys wins.
    pub(crate) fn new(mut entries: Vec<(Text<'a>, Value<'a, N>)>) -> Self {
        // Reversed, so that the stable sort leaves the last of equal keys first, and it is kept.
        entries.reverse();
        entries.sort_by(|(left, _), (right, _)| left.cmp(right));
        entries.dedup_by(|(later, _), (kept, _)| **later == **kept);
        let depth = 1 + entries
            .iter()
            .map(|(_, value)| value.built_depth())
            .max()
            .unwrap_or(0);
        Object { entries, depth }
    }

    /// The entries, sorted by key.
    pub fn entries(&self) -> &[(Text<'a>, Value<'a, N>)] {
        &self.entries
    }

    /// The value under `name`.
    pub fn get(&self, name: &str) -> Option<&Value<'a, N>> {
        let place = self
            .entries
            .binary_search_by(|(key, _)| (**key).cmp(name))
            .ok()?;
        self.entries.get(place).map(|(_, value)| value)
    }
}

impl<N> Value<'_, N> {
    /// The levels of built arrays and objects, which is what dropping and writing a value recurse
    /// through besides the documents themselves.
    pub(crate) fn built_depth(&self) -> u32 {
        match self {
            Value::Array(array) => array.depth,
            Value::Object(object) => object.depth,
            _ => 0,
        }
    }
}

impl<'a, N: Node<'a>> Value<'a, N> {
    /// A node of the document.
    pub fn document(node: N) -> Self {
        Value::Borrowed(Borrowed::Document(node))
    }

    /// A value that outlives the evaluation: a literal, a parameter.
    pub fn json(value: &'a serde_json::Value) -> Self {
        Value::Borrowed(Borrowed::Json(value))
    }

    /// Returns the type of the value, with the content of a scalar or the size of a collection.
    pub fn shape(&self) -> Shape<'_> {
        match self {
            Value::Null => Shape::Null,
            Value::Bool(boolean) => Shape::Bool(*boolean),
            Value::Number(number) => Shape::Number(*number),
            Value::String(text) => Shape::String(text),
            Value::Borrowed(node) => node.shape(),
            Value::Array(array) => Shape::Array(array.elements.len()),
            Value::Object(object) => Shape::Object(object.entries.len()),
        }
    }

    /// Returns whether it is null.
    pub fn is_null(&self) -> bool {
        matches!(self.shape(), Shape::Null)
    }

    /// Returns whether JMESPath takes it for true: all but null, `false`, and the empty string, array and
    /// object.
    pub fn is_truthy(&self) -> bool {
        match self.shape() {
            Shape::Null => false,
            Shape::Bool(boolean) => boolean,
            Shape::Number(_) => true,
            Shape::String(string) => !string.is_empty(),
            Shape::Array(length) | Shape::Object(length) => length > 0,
        }
    }

    /// The string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        match self.shape() {
            Shape::String(string) => Some(string),
            _ => None,
        }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self.shape() {
            Shape::Bool(boolean) => Some(boolean),
            _ => None,
        }
    }

    /// Returns the field `name` of an object; `None` for a different value or a missing field.
    pub fn field(&self, name: &str) -> Option<Self> {
        match self {
            Value::Borrowed(node) => node.field(name).map(Value::Borrowed),
            Value::Object(object) => object.get(name).cloned(),
            _ => None,
        }
    }

    /// Returns the element at `index` of an array; `None` for a different value or a missing element.
    pub fn element(&self, index: usize) -> Option<Self> {
        match self {
            Value::Borrowed(node) => node.element(index).map(Value::Borrowed),
            Value::Array(array) => array.elements.get(index).cloned(),
            _ => None,
        }
    }

    /// The elements, if this is an array; else nothing.
    pub fn elements(&self) -> impl Iterator<Item = Self> {
        Elements::new(self)
    }

    /// The entries, if this is an object; else nothing.
    pub fn entries(&self) -> impl Iterator<Item = (Text<'a>, Self)> {
        Entries::new(self)
    }
}

impl Shape<'_> {
    /// The name of the type, as `type()` gives it.
    pub fn type_name(self) -> &'static str {
        match self {
            Shape::Null => "null",
            Shape::Bool(_) => "boolean",
            Shape::Number(_) => "number",
            Shape::String(_) => "string",
            Shape::Array(_) => "array",
            Shape::Object(_) => "object",
        }
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self)
    }
}
