//! What is known of an expression, by what it is evaluated on.

use std::sync::OnceLock;

use anteroom_plan::Document;
use parking_lot::RwLock;

/// Names of lists for which something is kept. An expression is asked of one view, mostly; for one more
/// it is found out anew each time.
const PLURALS_MAX: usize = 8;

/// Something that was found out about an expression.
#[derive(Debug)]
pub(crate) struct PerDocument<T> {
    of_array: OnceLock<T>,
    /// By the list's other name.
    of_lists: RwLock<Vec<(Option<Box<str>>, T)>>,
}

impl<T> Default for PerDocument<T> {
    fn default() -> Self {
        Self {
            of_array: OnceLock::new(),
            of_lists: RwLock::default(),
        }
    }
}

impl<T: Clone> PerDocument<T> {
    /// What `find` found out when it was asked first.
    pub(crate) fn get(&self, document: Document<'_>, find: impl FnOnce() -> T) -> T {
        let Document::List { plural } = document else {
            return self.of_array.get_or_init(find).clone();
        };
        if let Some(known) = self.known(plural) {
            return known;
        }
        let found = find();
        let mut known = self.of_lists.write();
        if known.len() < PLURALS_MAX {
            known.push((plural.map(Into::into), found.clone()));
        }
        found
    }

    fn known(&self, plural: Option<&str>) -> Option<T> {
        let known = self.of_lists.read();
        let known = known.iter().find(|(name, _)| name.as_deref() == plural);
        known.map(|(_, known)| known.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_out_once_up_to_a_number_of_names() {
        let known = PerDocument::default();
        let mut asked = 0;
        for _ in 0..2 {
            for plural in [None, Some("pods")] {
                let document = Document::List { plural };
                assert_eq!(
                    known.get(document, || format!("{plural:?}")),
                    format!("{plural:?}")
                );
            }
            known.get(Document::Array, || {
                asked += 1;
                String::new()
            });
        }
        assert_eq!(asked, 1);
        for n in 0..20 {
            let name = n.to_string();
            let plural = Some(&*name);
            assert_eq!(known.get(Document::List { plural }, || name.clone()), name);
        }
        assert_eq!(known.of_lists.read().len(), PLURALS_MAX);
    }
}
