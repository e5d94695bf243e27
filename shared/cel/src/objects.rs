//! Lists of objects that are read where they are kept.

use std::fmt;

use anteroom_wire::body::BodyNode;

use crate::probes::Probes;

/// A list of objects of which nothing is copied: as long as nobody takes an element, none is looked at.
///
/// A list may know where its elements are by their values: then a macro that goes through it looks only at
/// those that can matter to it ([`ObjectList::find`]).
pub trait ObjectList: fmt::Debug + Sync {
    /// The number of objects.
    fn len(&self) -> usize;

    /// Returns true if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The object at a place.
    fn get(&self, at: usize) -> Option<BodyNode<'_>>;

    /// The objects in order.
    fn iter(&self) -> Box<dyn Iterator<Item = BodyNode<'_>> + '_>;

    /// Returns the objects that match the probes, and the objects for which the index cannot decide. `None`: the list
    /// has no index, and the macro looks at every object.
    fn find(&self, probes: &Probes<'_>) -> Option<Box<dyn Candidates<'_> + '_>> {
        let _ = probes;
        None
    }
}

/// The objects of a list that can matter to a macro.
pub trait Candidates<'v> {
    /// Returns the matching object at this index, in the order of the list. Callers ask for the indexes in ascending
    /// order.
    fn matching(&self, at: usize) -> Option<BodyNode<'v>>;

    /// Returns the objects for which the index cannot decide, without matching objects, in the order of the list. With
    /// `before`, only the objects ahead of that matching object (its index in [`Candidates::matching`]).
    fn irregular(&self, before: Option<usize>) -> Box<dyn Iterator<Item = BodyNode<'v>> + '_>;

    /// Returns matching and undecided objects together, in the order of the list.
    fn all(&self) -> Box<dyn Iterator<Item = BodyNode<'v>> + '_>;
}
