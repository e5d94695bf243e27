//! Objects of an index, a few at a time.

use std::ops::Bound;

use anteroom_view::Object;

use super::list::ViewList;
use crate::{Index, IndexKey, Scalar};

/// Objects that are read from an index at once, the first time; the next time twice as many.
const BATCH_MIN: usize = 16;

/// The most objects that are read from an index at once.
const BATCH_MAX: usize = 1_024;

/// The objects of one index in order, read a few at a time. So other queries need not wait for the index, and most
/// objects are never read.
pub(super) struct Batches<'l, 'a> {
    list: &'l ViewList<'a>,
    key: IndexKey,
    /// The value that the objects have; `None`: the batches are of irregular objects.
    value: Option<Scalar>,
    batch: std::vec::IntoIter<Object>,
    size: usize,
    /// The last one that was read.
    last: Option<Object>,
    is_over: bool,
    /// All objects from some place on. The index is gone, so any of them may match.
    rest: Option<Box<dyn Iterator<Item = &'a Object> + 'a>>,
}

impl<'l, 'a> Batches<'l, 'a> {
    /// The objects of which the index cannot tell.
    pub(super) fn irregular(list: &'l ViewList<'a>, key: IndexKey) -> Self {
        Self::new(list, key, None)
    }

    /// The objects that have this value.
    pub(super) fn having(list: &'l ViewList<'a>, key: IndexKey, value: Scalar) -> Self {
        Self::new(list, key, Some(value))
    }

    fn new(list: &'l ViewList<'a>, key: IndexKey, value: Option<Scalar>) -> Self {
        Self {
            list,
            key,
            value,
            batch: Vec::new().into_iter(),
            size: BATCH_MIN,
            last: None,
            is_over: false,
            rest: None,
        }
    }

    fn refill(&mut self) {
        let first = match (&self.last, self.list.objects.namespace()) {
            // Other namespaces have none of the list.
            (None, Some(_)) => self.list.objects.iter().next(),
            _ => None,
        };
        let from = match (&self.last, first) {
            (Some(last), _) => Bound::Excluded(last),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let (mut found, size) = (Vec::new(), self.size);
        let ask = &mut |index: &Index| {
            found = match &self.value {
                Some(value) => index.having_from(value, from, size),
                None => index.always_from(from, size),
            }
        };
        if !self.list.ask(&self.key, ask) {
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

    /// Returns whether a namespace is over once there is this object of another.
    fn is_behind(&self, object: &Object) -> bool {
        let namespace = self.list.objects.namespace();
        namespace.is_some_and(|namespace| object.namespace() != namespace)
    }
}

impl<'a> Iterator for Batches<'_, 'a> {
    type Item = &'a Object;

    fn next(&mut self) -> Option<&'a Object> {
        loop {
            if let Some(rest) = &mut self.rest {
                return rest.next();
            }
            while let Some(object) = self.batch.next() {
                if self.is_behind(&object) {
                    self.is_over = true;
                    self.batch = Vec::new().into_iter();
                } else if let Some(object) = self.list.objects.find(&object) {
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
