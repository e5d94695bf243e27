//! The elements and entries of any value.

use crate::node::Node;
use crate::value::{Text, Value, borrowed};

/// The elements of an array; none of what is not one.
pub(crate) enum Elements<'v, 'a, N: Node<'a>> {
    Built(std::slice::Iter<'v, Value<'a, N>>),
    Borrowed(borrowed::Elements<'a, N>),
}

impl<'v, 'a, N: Node<'a>> Elements<'v, 'a, N> {
    pub(crate) fn new(value: &'v Value<'a, N>) -> Self {
        match value {
            Value::Borrowed(node) => Elements::Borrowed(node.elements()),
            Value::Array(array) => Elements::Built(array.elements.iter()),
            _ => Elements::Built([].iter()),
        }
    }
}

impl<'a, N: Node<'a>> Iterator for Elements<'_, 'a, N> {
    type Item = Value<'a, N>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Elements::Built(values) => values.next().cloned(),
            Elements::Borrowed(nodes) => nodes.next().map(Value::Borrowed),
        }
    }
}

/// The entries of an object; none of what is not one.
pub(crate) enum Entries<'v, 'a, N: Node<'a>> {
    Built(std::slice::Iter<'v, (Text<'a>, Value<'a, N>)>),
    Borrowed(borrowed::Entries<'a, N>),
}

impl<'v, 'a, N: Node<'a>> Entries<'v, 'a, N> {
    pub(crate) fn new(value: &'v Value<'a, N>) -> Self {
        match value {
            Value::Borrowed(node) => Entries::Borrowed(node.entries()),
            Value::Object(object) => Entries::Built(object.entries.iter()),
            _ => Entries::Built([].iter()),
        }
    }
}

impl<'a, N: Node<'a>> Iterator for Entries<'_, 'a, N> {
    type Item = (Text<'a>, Value<'a, N>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Entries::Built(entries) => entries.next().cloned(),
            Entries::Borrowed(nodes) => nodes
                .next()
                .map(|(name, node)| (Text::Borrowed(name), Value::Borrowed(node))),
        }
    }
}
