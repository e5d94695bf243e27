//! The objects that can matter to a macro, as indexes tell them.

use std::iter::Peekable;

use anteroom_cel::Candidates;
use anteroom_view::Object;
use anteroom_wire::body::BodyNode;

use super::list::{ViewList, node};
use crate::IndexKey;

/// Irregular objects that are read from an index at once, the first time; the next time twice as many.
const BATCH_MIN: usize = 16;

/// The same at most.
const BATCH_MAX: usize = 1_024;

/// Objects that have the values, and those of which that cannot be told.
#[derive(Debug)]
pub(super) struct Found<'l, 'a> {
    list: &'l ViewList<'a>,
    /// In order, each once.
    matching: Vec<&'a Object>,
    nodes: Vec<BodyNode<'a>>,
    /// The indexes that know the irregular ones.
    keys: Vec<IndexKey>,
}

impl<'l, 'a> Found<'l, 'a> {
    pub(super) fn new(
        list: &'l ViewList<'a>,
        matching: Vec<&'a Object>,
        keys: Vec<IndexKey>,
    ) -> Self {
        list.examine(matching.len() as u64);
        Self {
            list,
            nodes: matching.iter().map(|object| object.node()).collect(),
            matching,
            keys,
        }
    }

    fn irregulars(&self) -> impl Iterator<Item = &'a Object> + '_ {
        let irregular: Box<dyn Iterator<Item = &'a Object> + '_> = match &*self.keys {
            [] => Box::new(std::iter::empty()),
            [key] => Box::new(Batches::new(self.list, key)),
            keys => Box::new(Merged(
                keys.iter()
                    .map(|key| Batches::new(self.list, key).peekable())
                    .collect(),
            )),
        };
        let matches = |object: &&Object| self.matching.binary_search(object).is_ok();
        self.list
            .paced(Box::new(irregular.filter(move |object| !matches(object))))
    }
}

impl<'v, 'a: 'v> Candidates<'v> for Found<'_, 'a> {
    fn matching(&self) -> &[BodyNode<'v>] {
        &self.nodes
    }

    fn irregular(&self, before: Option<usize>) -> Box<dyn Iterator<Item = BodyNode<'v>> + '_> {
        let end = before.and_then(|at| self.matching.get(at).copied());
        let objects = self.irregulars();
        let is_before = move |object: &&'a Object| end.is_none_or(|end| *object < end);
        Box::new(objects.take_while(is_before).map(node))
    }

    fn all(&self) -> Box<dyn Iterator<Item = BodyNode<'v>> + '_> {
        let both = Merged(vec![
            (Box::new(self.matching.iter().copied()) as Ordered<'a, '_>).peekable(),
            (Box::new(self.irregulars()) as Ordered<'a, '_>).peekable(),
        ]);
        Box::new(both.map(node))
    }
}

/// Objects in order.
type Ordered<'a, 'f> = Box<dyn Iterator<Item = &'a Object> + 'f>;

/// The objects of several sequences in order, each once.
struct Merged<I: Iterator>(Vec<Peekable<I>>);

impl<'a, I: Iterator<Item = &'a Object>> Iterator for Merged<I> {
    type Item = &'a Object;

    fn next(&mut self) -> Option<&'a Object> {
        let heads = self.0.iter_mut().filter_map(|part| part.peek().copied());
        let first = heads.min()?;
        for part in &mut self.0 {
            part.next_if(|head| *head == first);
        }
        Some(first)
    }
}

/// The irregular objects of one index, read a few at a time: nobody else waits for the index meanwhile, and most
/// are never asked for.
struct Batches<'l, 'a> {
    list: &'l ViewList<'a>,
    key: &'l IndexKey,
    batch: std::vec::IntoIter<Object>,
    size: usize,
    last: Option<Object>,
    is_over: bool,
    /// All objects from some place on: the index is gone, and each of them may be irregular.
    rest: Option<Box<dyn Iterator<Item = &'a Object> + 'a>>,
}

impl<'l, 'a> Batches<'l, 'a> {
    fn new(list: &'l ViewList<'a>, key: &'l IndexKey) -> Self {
        Self {
            list,
            key,
            batch: Vec::new().into_iter(),
            size: BATCH_MIN,
            last: None,
            is_over: false,
            rest: None,
        }
    }

    fn refill(&mut self) {
        let (mut found, after, size) = (Vec::new(), self.last.as_ref(), self.size);
        let ask = &mut |index: &crate::Index| found = index.always_after(after, size);
        if !self.list.host.ask(self.key, ask) {
            let last = self.last.clone();
            let behind =
                move |object: &&'a Object| last.as_ref().is_some_and(|last| *object <= last);
            self.rest = Some(Box::new(self.list.objects.iter().skip_while(behind)));
            return;
        }
        self.is_over = found.len() < size;
        self.size = (2 * size).min(BATCH_MAX);
        self.last = found.last().cloned().or(self.last.take());
        self.batch = found.into_iter();
    }
}

impl<'a> Iterator for Batches<'_, 'a> {
    type Item = &'a Object;

    fn next(&mut self) -> Option<&'a Object> {
        loop {
            if let Some(rest) = &mut self.rest {
                return rest.next();
            }
            for object in self.batch.by_ref() {
                if let Some(object) = self.list.objects.find(&object) {
                    return Some(object);
                }
            }
            if self.is_over {
                return None;
            }
            self.refill();
        }
    }
}
