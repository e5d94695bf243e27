//! The size of the next page of a list. Pure.
//!
//! | the page before | the next one |
//! |---|---|
//! | could not be read for its size | the same, half as long; one object alone is passed over |
//! | had nothing that is wanted | twice as long, but never as long as one that could not be read |

/// Objects of the first page.
const MOST_FIRST: usize = 100;

/// Objects of the longest page: as the API server's own clients have it.
const MOST_MAX: usize = 500;

/// A place in a list, and how many objects are asked for there.
#[derive(Debug)]
pub(super) struct Page {
    most: usize,
    /// The longest that is tried.
    longest: usize,
    continues: String,
}

impl Page {
    /// The first, at this place.
    pub(super) fn at(continues: &str) -> Self {
        Self {
            most: MOST_FIRST,
            longest: MOST_MAX,
            continues: continues.to_owned(),
        }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn continues(&self) -> &str {
        &self.continues
    }

    /// Halves a page that was too large. Returns false, and changes nothing, where the page is one object.
    pub(super) fn halve(&mut self) -> bool {
        if self.most == 1 {
            return false;
        }
        self.most /= 2;
        self.longest = self.most;
        true
    }

    /// Continues at the same place in the present list: the API server does not know the earlier state of the list
    /// any more.
    pub(super) fn renew(&mut self, continues: &str) {
        continues.clone_into(&mut self.continues);
    }

    /// Goes on to the next page: this one was read, or passed over since there was nothing to hand on.
    pub(super) fn follow(&mut self, continues: &str, is_passed_over: bool) {
        continues.clone_into(&mut self.continues);
        // What was too large is behind us.
        if is_passed_over {
            (self.most, self.longest) = (MOST_FIRST, MOST_MAX);
            return;
        }
        self.most = (self.most * 2).min(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_too_large_is_halved_down_to_one_object() {
        let mut page = Page::at("");
        let mut sizes = vec![page.most()];
        while page.halve() {
            sizes.push(page.most());
        }
        assert_eq!(sizes, [100, 50, 25, 12, 6, 3, 1]);
        // Never as long as what could not be read, until that is passed over.
        page.follow("a", false);
        assert_eq!((page.most(), page.continues()), (1, "a"));
        page.follow("b", true);
        assert_eq!((page.most(), page.continues()), (100, "b"));
    }

    #[test]
    fn page_sizes_grow_while_pages_are_empty() {
        let mut page = Page::at("");
        let grown: Vec<_> = (0..4)
            .map(|_| {
                page.follow("x", false);
                page.most()
            })
            .collect();
        assert_eq!(grown, [200, 400, 500, 500]);
        assert!(page.halve());
        page.follow("y", false);
        assert_eq!(page.most(), 250);
    }
}
