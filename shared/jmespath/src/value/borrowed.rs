//! Values from before the evaluation.

use crate::node::{Node, Shape};

type Json<'a> = &'a serde_json::Value;

/// A node of the document, or of a literal or parameter, which are JSON whatever the document is
/// made of. Itself a [`Node`], so that no one has to tell them apart.
#[derive(Clone, Copy, Debug)]
pub enum Borrowed<'a, N> {
    /// From the document.
    Document(N),
    /// From a literal or a parameter.
    Json(&'a serde_json::Value),
}

impl<'a, N: Node<'a>> Node<'a> for Borrowed<'a, N> {
    type Elements = Elements<'a, N>;
    type Entries = Entries<'a, N>;

    fn shape(self) -> Shape<'a> {
        match self {
            Borrowed::Document(node) => node.shape(),
            Borrowed::Json(value) => value.shape(),
        }
    }

    fn field(self, name: &str) -> Option<Self> {
        match self {
            Borrowed::Document(node) => node.field(name).map(Borrowed::Document),
            Borrowed::Json(value) => value.field(name).map(Borrowed::Json),
        }
    }

    fn element(self, index: usize) -> Option<Self> {
        match self {
            Borrowed::Document(node) => node.element(index).map(Borrowed::Document),
            Borrowed::Json(value) => value.element(index).map(Borrowed::Json),
        }
    }

    fn elements(self) -> Self::Elements {
        match self {
            Borrowed::Document(node) => Elements::Document(node.elements()),
            Borrowed::Json(value) => Elements::Json(value.elements()),
        }
    }

    fn entries(self) -> Self::Entries {
        match self {
            Borrowed::Document(node) => Entries::Document(node.entries()),
            Borrowed::Json(value) => Entries::Json(value.entries()),
        }
    }
}

/// The elements of a [`Borrowed`] array.
pub enum Elements<'a, N: Node<'a>> {
    /// From the document.
    Document(N::Elements),
    /// From a literal or a parameter.
    Json(<Json<'a> as Node<'a>>::Elements),
}

impl<'a, N: Node<'a>> Iterator for Elements<'a, N> {
    type Item = Borrowed<'a, N>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Elements::Document(nodes) => nodes.next().map(Borrowed::Document),
            Elements::Json(values) => values.next().map(Borrowed::Json),
        }
    }
}

/// The entries of a [`Borrowed`] object.
pub enum Entries<'a, N: Node<'a>> {
    /// From the document.
    Document(N::Entries),
    /// From a literal or a parameter.
    Json(<Json<'a> as Node<'a>>::Entries),
}

impl<'a, N: Node<'a>> Iterator for Entries<'a, N> {
    type Item = (&'a str, Borrowed<'a, N>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Entries::Document(nodes) => nodes
                .next()
                .map(|(name, node)| (name, Borrowed::Document(node))),
            Entries::Json(values) => values
                .next()
                .map(|(name, value)| (name, Borrowed::Json(value))),
        }
    }
}
