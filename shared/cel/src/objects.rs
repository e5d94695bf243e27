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

    /// Returns the objects that have the values that a macro looks for, and those of which that cannot be
    /// told. `None`: the list does not know, and all of them are looked at.
    fn find(&self, probes: &Probes<'_>) -> Option<Box<dyn Candidates<'_> + '_>> {
        let _ = probes;
        None
    }
}

/// The objects of a list that can matter to a macro.
pub trait Candidates<'v> {
    /// The one at this place among those that have the values, in the order of the list. Those before it were asked for.
    fn matching(&self, at: usize) -> Option<BodyNode<'v>>;

    /// The objects of which an index cannot tell, without any that match, in the order of the list. With
    /// `before` only the objects that stand before that one of [`Candidates::matching`].
    fn irregular(&self, before: Option<usize>) -> Box<dyn Iterator<Item = BodyNode<'v>> + '_>;

    /// Both, in the order of the list.
    fn all(&self) -> Box<dyn Iterator<Item = BodyNode<'v>> + '_>;
}
