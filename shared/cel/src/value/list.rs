//! List values.

use std::{slice, sync::Arc};

use anteroom_jmespath::{Node as _, Shape};
use anteroom_wire::body::{BodyNode, Elements};
use serde_json::Value;

use super::Val;
use crate::objects::ObjectList;

/// A list, of the request or of a view, or made.
#[derive(Clone, Debug)]
pub(crate) enum List<'v> {
    Json(&'v [Value]),
    Body(BodyNode<'v>),
    Objects(&'v dyn ObjectList),
    Own(Arc<[Val<'v>]>),
}

impl<'v> List<'v> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Json(elements) => elements.len(),
            Self::Body(node) => match node.shape() {
                Shape::Array(count) => count,
                _ => 0,
            },
            Self::Objects(objects) => objects.len(),
            Self::Own(elements) => elements.len(),
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<Val<'v>> {
        match self {
            Self::Json(elements) => elements.get(at).map(Val::of),
            Self::Body(node) => node.element(at).map(Val::of_node),
            Self::Objects(objects) => objects.get(at).map(Val::of_node),
            Self::Own(elements) => elements.get(at).cloned(),
        }
    }

    /// The elements in order. To go on is cheap, whatever the list is made of.
    pub(crate) fn iter(&self) -> Iter<'_, 'v> {
        match self {
            Self::Json(elements) => Iter::Json(elements.iter()),
            Self::Body(node) => Iter::Body(node.elements()),
            Self::Objects(objects) => Iter::Objects(objects.iter()),
            Self::Own(elements) => Iter::Own(elements.iter()),
        }
    }
}

/// The elements of a list.
pub(crate) enum Iter<'l, 'v> {
    Json(slice::Iter<'v, Value>),
    Body(Elements<'v>),
    Objects(Box<dyn Iterator<Item = BodyNode<'v>> + 'v>),
    Own(slice::Iter<'l, Val<'v>>),
}

impl<'v> Iterator for Iter<'_, 'v> {
    type Item = Val<'v>;

    #[inline]
    fn next(&mut self) -> Option<Val<'v>> {
        match self {
            Self::Json(elements) => elements.next().map(Val::of),
            Self::Body(elements) => elements.next().map(Val::of_node),
            Self::Objects(objects) => objects.next().map(Val::of_node),
            Self::Own(elements) => elements.next().cloned(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Json(elements) => elements.size_hint(),
            Self::Body(elements) => elements.size_hint(),
            Self::Objects(objects) => objects.size_hint(),
            Self::Own(elements) => elements.size_hint(),
        }
    }
}
