//! A whole view as one document that is never put together.

use std::collections::btree_set;

use anteroom_jmespath::{Node, Shape};
use anteroom_model::SourceInfo;
use anteroom_wire::body::{BodyNode, Elements, Entries};

use crate::{Object, Store};

/// What the list of a view's objects says of itself, in the API server's words.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListHead {
    /// Fields with a text, in order; none for a view that is not a collection of the API server.
    texts: Vec<(&'static str, Box<str>)>,
    /// The name under which the list offers itself once more, as in `ingresses`.
    plural: Option<Box<str>>,
}

impl ListHead {
    pub(crate) fn of(info: &SourceInfo) -> Self {
        let Some(gvr) = info.gvr() else {
            return Self::default();
        };
        let plural = gvr.resource.as_str();
        Self {
            texts: vec![
                ("apiVersion", gvr.api_version().into()),
                ("kind", format!("{}List", info.kind).into()),
            ],
            // A resource that is called `items` has its list under that name already.
            plural: (plural != ITEMS).then(|| plural.into()),
        }
    }
}

const ITEMS: &str = "items";

/// A place in the document that a view is:
///
/// ```json
/// {
///   "apiVersion": "networking.k8s.io/v1",
///   "kind": "IngressList",
///   "items": [],
///   "ingresses": { "apiVersion": "networking.k8s.io/v1", "kind": "IngressList", "items": [] }
/// }
/// ```
///
/// `items` holds the objects by namespace and name. The list stands once more under its plural, so
/// that `items[...]` and `ingresses | items[...]` read the same. A view that is not a collection of
/// the API server has `items` alone.
#[derive(Clone, Copy, Debug)]
pub struct ViewNode<'a>(Place<'a>);

#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// The document whole.
    Root(&'a Store),
    /// What stands under the plural.
    List(&'a Store),
    Items(&'a Store),
    Text(&'a str),
    Body(BodyNode<'a>),
}

impl<'a> ViewNode<'a> {
    /// The document that `store` is.
    pub(crate) fn root(store: &'a Store) -> Self {
        Self(Place::Root(store))
    }

    /// One object.
    pub fn object(object: &'a Object) -> Self {
        Self::body(object.node())
    }

    fn body(node: BodyNode<'a>) -> Self {
        Self(Place::Body(node))
    }

    /// The fields of a list; none where this is not one.
    fn fields(self) -> Option<(&'a Store, Option<&'a str>)> {
        match self.0 {
            Place::Root(store) => Some((store, store.head().plural.as_deref())),
            Place::List(store) => Some((store, None)),
            Place::Items(_) | Place::Text(_) | Place::Body(_) => None,
        }
    }
}

impl<'a> Node<'a> for ViewNode<'a> {
    type Elements = ViewElements<'a>;
    type Entries = ViewEntries<'a>;

    #[inline]
    fn shape(self) -> Shape<'a> {
        match self.0 {
            Place::Body(node) => node.shape(),
            Place::Text(text) => Shape::String(text),
            Place::Items(store) => Shape::Array(store.len()),
            Place::List(store) => Shape::Object(store.head().texts.len() + 1),
            Place::Root(store) => {
                let head = store.head();
                Shape::Object(head.texts.len() + 1 + usize::from(head.plural.is_some()))
            }
        }
    }

    #[inline]
    fn field(self, name: &str) -> Option<Self> {
        if let Place::Body(node) = self.0 {
            return node.field(name).map(Self::body);
        }
        let (store, plural) = self.fields()?;
        if name == ITEMS {
            return Some(Self(Place::Items(store)));
        }
        if plural == Some(name) {
            return Some(Self(Place::List(store)));
        }
        let mut texts = store.head().texts.iter();
        let (_, text) = texts.find(|(field, _)| *field == name)?;
        Some(Self(Place::Text(text)))
    }

    fn element(self, index: usize) -> Option<Self> {
        match self.0 {
            Place::Body(node) => node.element(index).map(Self::body),
            Place::Items(store) => {
                // From whichever end is nearer, since an index may count from the last.
                let from_last = store.len().checked_sub(1)?.checked_sub(index)?;
                let object = if from_last < index {
                    store.objects().nth_back(from_last)
                } else {
                    store.objects().nth(index)
                };
                object.map(Self::object)
            }
            Place::Root(_) | Place::List(_) | Place::Text(_) => None,
        }
    }

    #[inline]
    fn elements(self) -> ViewElements<'a> {
        ViewElements(match self.0 {
            Place::Body(node) => InElements::Body(node.elements()),
            Place::Items(store) => InElements::Items(store.objects()),
            Place::Root(_) | Place::List(_) | Place::Text(_) => InElements::None,
        })
    }

    fn entries(self) -> ViewEntries<'a> {
        ViewEntries(match self.0 {
            Place::Body(node) => InEntries::Body(node.entries()),
            _ => InEntries::Fields { of: self, at: 0 },
        })
    }
}

/// The elements of an array of the document.
#[derive(Clone, Debug)]
pub struct ViewElements<'a>(InElements<'a>);

#[derive(Clone, Debug)]
enum InElements<'a> {
    None,
    Items(btree_set::Iter<'a, Object>),
    Body(Elements<'a>),
}

impl<'a> Iterator for ViewElements<'a> {
    type Item = ViewNode<'a>;

    #[inline]
    fn next(&mut self) -> Option<ViewNode<'a>> {
        match &mut self.0 {
            InElements::None => None,
            InElements::Items(objects) => objects.next().map(ViewNode::object),
            InElements::Body(elements) => elements.next().map(ViewNode::body),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            InElements::None => (0, Some(0)),
            InElements::Items(objects) => objects.size_hint(),
            InElements::Body(elements) => elements.size_hint(),
        }
    }
}

/// The entries of an object of the document.
#[derive(Clone, Debug)]
pub struct ViewEntries<'a>(InEntries<'a>);

#[derive(Clone, Debug)]
enum InEntries<'a> {
    /// The fields of a list from the `at`th on.
    Fields {
        of: ViewNode<'a>,
        at: usize,
    },
    Body(Entries<'a>),
}

impl<'a> Iterator for ViewEntries<'a> {
    type Item = (&'a str, ViewNode<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            InEntries::Body(entries) => {
                let (name, node) = entries.next()?;
                Some((name, ViewNode::body(node)))
            }
            InEntries::Fields { of, at } => {
                let (store, plural) = of.fields()?;
                let texts = &store.head().texts;
                let index = *at;
                *at += 1;
                if let Some((name, text)) = texts.get(index) {
                    return Some((name, ViewNode(Place::Text(text))));
                }
                match index - texts.len() {
                    0 => Some((ITEMS, ViewNode(Place::Items(store)))),
                    1 => Some((plural?, ViewNode(Place::List(store)))),
                    _ => None,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
