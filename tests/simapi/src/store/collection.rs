//! One resource's objects, and what changed lately among them.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use tokio::sync::watch;

use super::{Key, StoreError, key};
use crate::{object::Stored, resource::ResourceType};

#[derive(Debug)]
pub(super) struct Collection {
    pub(super) resource: Arc<ResourceType>,
    pub(super) objects: BTreeMap<Key, Arc<Stored>>,
    /// Every change above `compacted`, oldest first.
    pub(super) history: VecDeque<Change>,
    pub(super) compacted: u64,
    /// Tells watches to look at the history; its end tells them that the resource is gone.
    pub(super) changed: watch::Sender<()>,
}

/// One change. Created: only `after`; deleted: only `before`.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) before: Option<Arc<Stored>>,
    pub(crate) after: Option<Arc<Stored>>,
}

impl Collection {
    pub(super) fn new(resource: ResourceType) -> Self {
        Self {
            resource: Arc::new(resource),
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            compacted: 0,
            changed: watch::Sender::new(()),
        }
    }

    /// The objects as they were at `version`, by taking back what changed since; `None` if nothing
    /// did.
    pub(super) fn as_of(
        &self,
        version: u64,
    ) -> Result<Option<BTreeMap<Key, Arc<Stored>>>, StoreError> {
        if version < self.compacted {
            return Err(StoreError::Expired(self.compacted));
        }
        let start = self
            .history
            .partition_point(|change| change.version <= version);
        if start == self.history.len() {
            return Ok(None);
        }
        let mut objects = self.objects.clone();
        for change in self.history.range(start..).rev() {
            if let Some(object) = change.before.as_ref().or(change.after.as_ref()) {
                let at = key(&object.namespace, &object.name);
                match &change.before {
                    Some(before) => objects.insert(at, before.clone()),
                    None => objects.remove(&at),
                };
            }
        }
        Ok(Some(objects))
    }
}
