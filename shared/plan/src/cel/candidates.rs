//! The objects that can matter to a macro, by its indexes.

use std::{cell::RefCell, iter};

use anteroom_cel::Candidates;
use anteroom_view::Object;
use anteroom_wire::body::BodyNode;

use super::{
    batches::Batches,
    list::{ViewList, node},
};
use crate::IndexKey;

/// The objects that have the values, and the objects for which an index cannot say. If the first of many objects
/// decides a macro, the others are not read.
#[derive(Debug)]
pub(super) struct ProbeHits<'l, 'a> {
    list: &'l ViewList<'a>,
    matching: RefCell<Matching<'l, 'a>>,
    /// The indexes that know the irregular ones.
    keys: Vec<IndexKey>,
}

/// Objects that have the values.
pub(super) struct Matching<'l, 'a> {
    /// The objects that were read, in order, each once.
    read: Vec<&'a Object>,
    /// The others.
    rest: Option<Ordered<'a, 'l>>,
}

/// Objects in order.
pub(super) type Ordered<'a, 'f> = Box<dyn Iterator<Item = &'a Object> + 'f>;

impl<'l, 'a> Matching<'l, 'a> {
    /// Objects that were read already, given in any order, some more than once.
    pub(super) fn of(list: &'l ViewList<'a>, mut objects: Vec<&'a Object>) -> Self {
        objects.sort_unstable();
        objects.dedup();
        list.examine(objects.len() as u64);
        Self {
            read: objects,
            rest: None,
        }
    }

    /// Makes the matching objects from these sequences, which are read as the caller asks for their objects.
    pub(super) fn lazy(list: &'l ViewList<'a>, parts: Vec<Batches<'l, 'a>>) -> Self {
        Self {
            read: Vec::new(),
            rest: Some(list.paced(merged(parts))),
        }
    }

    fn at(&mut self, at: usize) -> Option<&'a Object> {
        while self.read.len() <= at {
            self.read.push(self.rest.as_mut()?.next()?);
        }
        self.read.get(at).copied()
    }
}

impl std::fmt::Debug for Matching<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matching")
            .field("read", &self.read.len())
            .finish_non_exhaustive()
    }
}

impl<'l, 'a> ProbeHits<'l, 'a> {
    pub(super) fn new(
        list: &'l ViewList<'a>,
        matching: Matching<'l, 'a>,
        keys: Vec<IndexKey>,
    ) -> Self {
        Self {
            list,
            matching: RefCell::new(matching),
            keys,
        }
    }

    fn matching_at(&self, at: usize) -> Option<&'a Object> {
        self.matching.borrow_mut().at(at)
    }

    fn irregulars(&self) -> Ordered<'a, '_> {
        let parts = self.keys.iter();
        let irregular = merged(
            parts
                .map(|key| Batches::irregular(self.list, key.clone()))
                .collect(),
        );
        let mut at = 0;
        let mut matches = move |object: &&'a Object| {
            loop {
                match self.matching_at(at) {
                    Some(matching) if matching < *object => at += 1,
                    found => return found == Some(*object),
                }
            }
        };
        self.list
            .paced(Box::new(irregular.filter(move |object| !matches(object))))
    }
}

impl<'v, 'a: 'v> Candidates<'v> for ProbeHits<'_, 'a> {
    fn matching(&self, at: usize) -> Option<BodyNode<'v>> {
        self.matching_at(at).map(node)
    }

    fn irregular(&self, before: Option<usize>) -> Box<dyn Iterator<Item = BodyNode<'v>> + '_> {
        let end = before.and_then(|at| self.matching_at(at));
        let objects = self.irregulars();
        let is_before = move |object: &&'a Object| end.is_none_or(|end| *object < end);
        Box::new(objects.take_while(is_before).map(node))
    }

    fn all(&self) -> Box<dyn Iterator<Item = BodyNode<'v>> + '_> {
        let mut places = 0..;
        let matching = iter::from_fn(move || self.matching_at(places.next()?));
        let matching: Ordered<'a, '_> = Box::new(matching);
        Box::new(merged(vec![matching, self.irregulars()]).map(node))
    }
}

/// The objects of several sequences in order, each once.
fn merged<'a: 'f, 'f>(parts: Vec<impl Iterator<Item = &'a Object> + 'f>) -> Ordered<'a, 'f> {
    let mut parts: Vec<_> = parts.into_iter().map(Iterator::peekable).collect();
    Box::new(iter::from_fn(move || {
        let heads = parts.iter_mut().filter_map(|part| part.peek().copied());
        let first = heads.min()?;
        for part in &mut parts {
            part.next_if(|head| *head == first);
        }
        Some(first)
    }))
}
