//! A fact about an expression for each kind of document that it is evaluated on.

use std::sync::OnceLock;

use anteroom_plan::Document;
use parking_lot::RwLock;

/// The most names of lists for which a fact is kept. An expression is asked of one view, mostly; for one
/// more name the fact is found out each time.
const PLURALS_MAX: usize = 8;

/// A fact about an expression.
#[derive(Debug)]
pub(super) struct PerDocument<T> {
    of_array: OnceLock<T>,
    /// A fact for each plural under which a document lists its items.
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
    /// Returns the fact. `find` finds it out, the first time.
    pub(super) fn get(&self, document: Document<'_>, find: impl FnOnce() -> T) -> T {
        let Document::List { plural } = document else {
            return self.of_array.get_or_init(find).clone();
        };
        if let Some(fact) = self.get_for_list(plural) {
            return fact;
        }
        let fact = find();
        let mut facts = self.of_lists.write();
        if facts.len() < PLURALS_MAX {
            facts.push((plural.map(Into::into), fact.clone()));
        }
        fact
    }

    fn get_for_list(&self, plural: Option<&str>) -> Option<T> {
        let facts = self.of_lists.read();
        let found = facts.iter().find(|(name, _)| name.as_deref() == plural);
        found.map(|(_, fact)| fact.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_is_found_out_once_up_to_a_number_of_names() {
        let facts = PerDocument::default();
        let mut asked = 0;
        for _ in 0..2 {
            for plural in [None, Some("pods")] {
                let document = Document::List { plural };
                assert_eq!(
                    facts.get(document, || format!("{plural:?}")),
                    format!("{plural:?}")
                );
            }
            facts.get(Document::Array, || {
                asked += 1;
                String::new()
            });
        }
        assert_eq!(asked, 1);
        for n in 0..20 {
            let name = n.to_string();
            let plural = Some(&*name);
            assert_eq!(facts.get(Document::List { plural }, || name.clone()), name);
        }
        assert_eq!(facts.of_lists.read().len(), PLURALS_MAX);
    }
}
