//! The objects that earlier attempts have written for one trigger: a patch that adds something is applied once to each object,
//! however often the rest of the work is tried.

use std::{collections::HashSet, sync::Arc};

use anteroom_policy::ChangedObject;
use xxhash_rust::xxh3::xxh3_64;

use crate::catalog::Catalog;

/// An object of a target, by a hash: there may be hundreds of thousands.
pub(super) type Id = u64;

/// The objects that are done with.
#[derive(Debug, Default)]
pub(super) struct WrittenBefore {
    /// The catalog of the attempts.
    by: Option<Arc<Catalog>>,
    before: HashSet<Id>,
    now: HashSet<Id>,
}

impl WrittenBefore {
    /// Begins an attempt by `catalog`. Objects written by a different version of the policy (`is_same` is false) are
    /// written again.
    pub(super) fn begin(&mut self, catalog: &Arc<Catalog>, is_same: impl Fn(&Catalog) -> bool) {
        self.before.extend(self.now.drain());
        if !self.by.as_deref().is_some_and(is_same) {
            self.before.clear();
        }
        self.by = Some(Arc::clone(catalog));
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    /// Returns whether an earlier attempt wrote this object.
    pub(super) fn has(&self, changed: &ChangedObject) -> bool {
        self.before.contains(&id(changed))
    }

    /// Notes that the object is written.
    pub(super) fn put(&mut self, id: Id) {
        self.now.insert(id);
    }
}

/// The identity of an object, with its UID: an object that was created again under the same name is a different
/// object.
pub(super) fn id(changed: &ChangedObject) -> Id {
    let metadata = &changed.object["metadata"];
    let names = ["namespace", "name", "uid"].map(|field| metadata[field].as_str());
    xxh3_64(format!("{} {names:?}", changed.target).as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn written_objects_stay_done_as_long_as_the_policy_is_unchanged() {
        let changed = |target, uid: &str| ChangedObject {
            target,
            object: json!({"metadata": {"namespace": "n", "name": "a", "uid": uid}}),
        };
        let one = changed(0, "u");
        let (mut earlier, catalog) = (WrittenBefore::default(), Arc::new(Catalog::default()));
        earlier.begin(&catalog, |_| true);
        earlier.put(id(&one));
        assert!(
            !earlier.has(&one),
            "in this attempt another part may have it"
        );
        earlier.begin(&catalog, |_| true);
        assert!(earlier.has(&one) && !earlier.is_empty());
        assert!(!earlier.has(&changed(1, "u")) && !earlier.has(&changed(0, "v")));
        earlier.begin(&catalog, |_| true);
        assert!(earlier.has(&one));
        earlier.begin(&catalog, |_| false);
        assert!(earlier.is_empty());
    }
}
