//! Which of the lists that run brought an object of a view. Pure.
//!
//! A view may be made of several watches, and each lists by itself. What a list did not bring is gone,
//! so only what the list itself brought may count as seen by it: an event of another watch, which may
//! be behind, says nothing of it, nor does another list, which may be older.

/// How much of a type a list brings. An object is brought to a view by one watch of each width at
/// most, so that is whose list it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// What the view itself selects; also any list of a view that is made of one.
    Own,
    /// A whole namespace.
    Namespace,
    /// The whole type.
    Type,
}

impl Width {
    /// One bit of a byte for each, from the lowest on.
    pub(crate) fn bit(self) -> u8 {
        match self {
            Self::Own => 1,
            Self::Namespace => 2,
            Self::Type => 4,
        }
    }
}

/// What is known of this history, and not only of one before it.
const CURRENT: u8 = 8;

/// The marks of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(u8);

impl Marks {
    /// Known in this history, and brought by no list that runs.
    pub(super) fn current() -> Self {
        Self(CURRENT)
    }

    pub(super) fn is_current(self) -> bool {
        self.0 & CURRENT != 0
    }

    /// It was brought by this list; `None`: by an event.
    pub(super) fn bring(&mut self, by: Option<Width>) {
        self.0 |= CURRENT | by.map_or(0, Width::bit);
    }

    pub(super) fn is_brought_by(self, list: Width) -> bool {
        self.0 & list.bit() != 0
    }

    /// Another list of this width begins.
    pub(super) fn begin(&mut self, list: Width) {
        self.0 &= !list.bit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_counts_what_it_brought_itself() {
        let mut marks = Marks::current();
        marks.bring(None);
        assert!(!marks.is_brought_by(Width::Own), "an event is no list");
        marks.bring(Some(Width::Type));
        assert!(marks.is_brought_by(Width::Type) && !marks.is_brought_by(Width::Namespace));
        marks.begin(Width::Namespace);
        assert!(marks.is_brought_by(Width::Type));
        marks.begin(Width::Type);
        assert!(!marks.is_brought_by(Width::Type) && marks.is_current());
    }
}
