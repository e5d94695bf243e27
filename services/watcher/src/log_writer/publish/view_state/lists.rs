//! The lists of a view.

/// The lists of a view, by their numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lists {
    /// The last that began; 0: none did.
    last: u32,
    /// Objects whose last news came before this list have to be written again.
    rewritten_since: u32,
    /// Objects without a name that were passed over since the last one began.
    skipped: u64,
}

impl Lists {
    /// Begins a list and returns its number.
    pub(super) fn begin(&mut self) -> u32 {
        self.last += 1;
        self.skipped = 0;
        self.last
    }

    /// Returns the number of the last list that began.
    pub(super) fn last(self) -> u32 {
        self.last
    }

    /// Makes every object be written again: objects that were brought before the next list do not count.
    pub(super) fn reread(&mut self) {
        self.rewritten_since = self.last + 1;
    }

    /// Returns whether an object that was brought while this list ran still counts.
    pub(super) fn is_current(self, list: u32) -> bool {
        list >= self.rewritten_since
    }

    /// An object without a name was passed over.
    pub(super) fn skip(&mut self) {
        self.skipped += 1;
    }

    /// Returns how many objects without a name were passed over since the last list began.
    pub(super) fn skipped(self) -> u64 {
        self.skipped
    }
}
