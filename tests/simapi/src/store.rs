//! The objects, their one counter of versions, and what changed lately.
//!
//! Everything is behind one lock: a version is handed out, the object stored and the change
//! recorded in one step, so a list and a watch can never disagree about an order.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    object::{Stored, metadata_mut, text},
    resource::{ResourceName, ResourceType, built_in},
    selector::Selection,
};

/// The place of an object: namespace (empty if cluster-scoped) and name.
pub(crate) type Key = (Box<str>, Box<str>);

pub(crate) fn key(namespace: &str, name: &str) -> Key {
    (namespace.into(), name.into())
}

pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
pub(crate) const NAMESPACES: &str = "namespaces";

mod collection;

pub(crate) use collection::Change;
use collection::Collection;

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    state: Mutex<StoreState>,
    history_events_max: usize,
}

#[derive(Debug)]
struct StoreState {
    /// The last one handed out.
    version: u64,
    collections: BTreeMap<ResourceName, Collection>,
}

/// The state that a write relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Whatever is there.
    Anything,
    /// There is no such object.
    Absent,
    /// It is still of this version.
    Version(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreError {
    NoResource,
    /// Something else is there than was expected.
    Conflict,
    /// The history no longer reaches back; it does to this version.
    Expired(u64),
    /// The version asked for has not been handed out; the last one is this.
    Future(u64),
}

/// A part of a collection, as of one version.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) version: u64,
    pub(crate) objects: Vec<Arc<Stored>>,
    /// The last key of this page, and how many objects follow, if any do.
    pub(crate) more: Option<(Key, usize)>,
}

impl Store {
    /// A store of these resources, by their names; `None`: all that a cluster has.
    pub(crate) fn new(history_events_max: usize, served: Option<&[&str]>) -> Self {
        let is_served = |resource: &ResourceType| {
            served.is_none_or(|served| served.contains(&resource.name().as_str()))
        };
        let resources = built_in().filter(is_served);
        let collections = resources.map(|resource| (resource.name(), Collection::new(resource)));
        let state = StoreState {
            version: 1,
            collections: collections.collect(),
        };
        Self {
            state: Mutex::new(state),
            history_events_max,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// Every resource that is served, by name.
    pub(crate) fn resources(&self) -> Vec<Arc<ResourceType>> {
        let state = self.state.lock();
        state
            .collections
            .values()
            .map(|collection| collection.resource.clone())
            .collect()
    }

    pub(crate) fn resource(&self, name: &ResourceName) -> Option<Arc<ResourceType>> {
        Some(self.state.lock().collections.get(name)?.resource.clone())
    }

    pub(crate) fn get(
        &self,
        resource: &ResourceName,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Stored>> {
        self.state
            .lock()
            .collections
            .get(resource)?
            .objects
            .get(&key(namespace, name))
            .cloned()
    }

    /// Stores `object`, whose metadata names its key.
    pub(crate) fn put(
        &self,
        resource: &ResourceName,
        mut object: Value,
        expected: Expected,
    ) -> Result<Arc<Stored>, StoreError> {
        let metadata = metadata_mut(&mut object);
        let at = key(&text(metadata, "namespace"), &text(metadata, "name"));
        let definition = (resource.as_str() == CRDS).then(|| ResourceType::from_crd(&object));
        let mut state = self.state.lock();
        state.expect(resource, &at, expected)?;
        let version = state.version + 1;
        let stored = Arc::new(Stored::serialize(object, version));
        state.record(resource, at, Some(stored.clone()), self.history_events_max)?;
        if let Some(definition) = definition.flatten() {
            state.serve(definition);
        }
        Ok(stored)
    }

    /// Stores `body` unchecked as the object of the key.
    pub(crate) fn put_malformed(
        &self,
        resource: &ResourceName,
        namespace: &str,
        name: &str,
        body: Bytes,
    ) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let version = state.version + 1;
        let stored = Stored {
            malformed: true,
            ..Stored::new(namespace, name, version, body)
        };
        state.record(
            resource,
            key(namespace, name),
            Some(stored.into()),
            self.history_events_max,
        )
    }

    /// Removes an object and returns it as it was; `None` if there was none.
    pub(crate) fn delete(
        &self,
        resource: &ResourceName,
        namespace: &str,
        name: &str,
        expected: Expected,
    ) -> Result<Option<Arc<Stored>>, StoreError> {
        let at = key(namespace, name);
        let mut state = self.state.lock();
        state.expect(resource, &at, expected)?;
        let Some(before) = state.collection(resource)?.objects.get(&at).cloned() else {
            return Ok(None);
        };
        state.record(resource, at, None, self.history_events_max)?;
        let object = || before.parse().unwrap_or_default();
        if resource.as_str() == CRDS
            && let Some(definition) = ResourceType::from_crd(&object())
        {
            state.collections.remove(&definition.name());
        }
        if resource.as_str() == NAMESPACES {
            state.empty_namespace(name, self.history_events_max)?;
        }
        Ok(Some(before))
    }

    /// Up to `limit` objects of `selection` behind the key `after`, as of `version` (`None`: now).
    pub(crate) fn list(
        &self,
        resource: &ResourceName,
        selection: &Selection,
        version: Option<u64>,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let state = self.state.lock();
        let collection = state
            .collections
            .get(resource)
            .ok_or(StoreError::NoResource)?;
        let past = match version {
            Some(version) if version > state.version => {
                return Err(StoreError::Future(state.version));
            }
            Some(version) => collection.as_of(version)?,
            None => None,
        };
        let objects = past.as_ref().unwrap_or(&collection.objects);
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = objects.range((start, Bound::Unbounded));
        let mut page = Page {
            version: version.unwrap_or(state.version),
            objects: Vec::new(),
            more: None,
        };
        while let Some((at, object)) = rest.next() {
            if selection.matches(object) {
                page.objects.push(object.clone());
            }
            if page.objects.len() >= limit {
                let remaining = rest.count();
                page.more = (remaining > 0).then(|| (at.clone(), remaining));
                break;
            }
        }
        Ok(page)
    }

    /// Every change after `version`, and the version up to which that is all.
    pub(crate) fn changes_after(
        &self,
        resource: &ResourceName,
        version: u64,
    ) -> Result<(Vec<Change>, u64), StoreError> {
        let state = self.state.lock();
        let collection = state
            .collections
            .get(resource)
            .ok_or(StoreError::NoResource)?;
        if version < collection.compacted {
            return Err(StoreError::Expired(collection.compacted));
        }
        let start = collection
            .history
            .partition_point(|change| change.version <= version);
        let changes = collection.history.range(start..).cloned().collect();
        Ok((changes, state.version.max(version)))
    }

    pub(crate) fn subscribe(
        &self,
        resource: &ResourceName,
    ) -> Result<watch::Receiver<()>, StoreError> {
        let state = self.state.lock();
        let collection = state
            .collections
            .get(resource)
            .ok_or(StoreError::NoResource)?;
        Ok(collection.changed.subscribe())
    }

    /// Forgets the history of one resource, or of all: every older version has expired. As in etcd,
    /// a compaction moves the counter on.
    pub(crate) fn compact(&self, resource: Option<&ResourceName>) {
        let mut state = self.state.lock();
        state.version += 1;
        let version = state.version;
        for (name, collection) in &mut state.collections {
            if resource.is_none_or(|resource| resource == name) {
                collection.history.clear();
                collection.compacted = version;
            }
        }
    }

    /// Puts everything back as it was at `version`, the counter included, as restoring a backup of
    /// etcd does.
    pub(crate) fn restore(&self, version: u64, raised_by: u64) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if version > state.version {
            return Err(StoreError::Future(state.version));
        }
        let oldest = state
            .collections
            .values()
            .map(|collection| collection.compacted)
            .max();
        if let Some(oldest) = oldest.filter(|oldest| version < *oldest) {
            return Err(StoreError::Expired(oldest));
        }
        for collection in state.collections.values_mut() {
            if let Some(past) = collection.as_of(version)? {
                collection.objects = past;
            }
            collection
                .history
                .retain(|change| change.version <= version);
            if raised_by > 0 {
                collection.history.clear();
                collection.compacted = version + raised_by;
            }
        }
        state.version = version + raised_by;
        Ok(())
    }
}

impl StoreState {
    fn collection(&mut self, resource: &ResourceName) -> Result<&mut Collection, StoreError> {
        self.collections
            .get_mut(resource)
            .ok_or(StoreError::NoResource)
    }

    fn expect(
        &mut self,
        resource: &ResourceName,
        at: &Key,
        expected: Expected,
    ) -> Result<(), StoreError> {
        let found = self
            .collection(resource)?
            .objects
            .get(at)
            .map(|object| object.version);
        let met = match expected {
            Expected::Anything => true,
            Expected::Absent => found.is_none(),
            Expected::Version(version) => found == Some(version),
        };
        if met {
            Ok(())
        } else {
            Err(StoreError::Conflict)
        }
    }

    /// Takes the next version for a change, and tells the watches.
    fn record(
        &mut self,
        resource: &ResourceName,
        at: Key,
        after: Option<Arc<Stored>>,
        history_events_max: usize,
    ) -> Result<(), StoreError> {
        let version = self.version + 1;
        let collection = self.collection(resource)?;
        let before = match &after {
            Some(object) => collection.objects.insert(at, object.clone()),
            None => collection.objects.remove(&at),
        };
        collection.history.push_back(Change {
            version,
            before,
            after,
        });
        while collection.history.len() > history_events_max {
            if let Some(forgotten) = collection.history.pop_front() {
                collection.compacted = forgotten.version;
            }
        }
        collection.changed.send_replace(());
        self.version = version;
        Ok(())
    }

    /// Serves what a CustomResourceDefinition defines. Objects that are there already stay.
    fn serve(&mut self, definition: ResourceType) {
        let name = definition.name();
        let version = self.version;
        match self.collections.get_mut(&name) {
            Some(collection) => collection.resource = Arc::new(definition),
            None => {
                let collection = Collection {
                    compacted: version,
                    ..Collection::new(definition)
                };
                self.collections.insert(name, collection);
            }
        }
    }

    /// Does what the namespace controller does once a namespace is being deleted.
    fn empty_namespace(
        &mut self,
        namespace: &str,
        history_events_max: usize,
    ) -> Result<(), StoreError> {
        let within = |collection: &Collection| -> Vec<Key> {
            let keys = collection.objects.keys();
            keys.filter(|(of, _)| &**of == namespace).cloned().collect()
        };
        let doomed: Vec<(ResourceName, Vec<Key>)> = self
            .collections
            .iter()
            .map(|(name, collection)| (name.clone(), within(collection)))
            .collect();
        for (resource, keys) in doomed {
            for at in keys {
                self.record(&resource, at, None, history_events_max)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
