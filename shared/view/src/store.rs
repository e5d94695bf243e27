//! Objects by key, with their digest and the bytes that they take.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_set},
    ops::Bound,
};

use anteroom_model::{Delta, Digest, Epoch, ObjectKey, Op, ResourceVersion, Revision, ViewRecord};

use crate::{
    listing::ListHead,
    object::{Keyed, Object, Version},
};

/// Deletions that a store remembers. Records arrive in the log's order and a repeat is known by its
/// position, so this guards against one thing only: a writer that puts what it has deleted, at a
/// version from before the deletion. Over the limit the oldest is forgotten, and such a put would
/// then be applied as the log has it, as it is in every reader that starts later.
pub const TOMBSTONES_MAX: usize = 1_024;

/// One state of a view: what the log said up to one position.
///
/// Objects stand in one tree by (namespace, name), so that a namespace is a range of it.
#[derive(Clone, Debug, Default)]
pub struct Store {
    objects: BTreeSet<Object>,
    tombstones: Tombstones,
    digest: Digest,
    bytes: ViewBytes,
    revision: Revision,
    control: Option<ViewRecord>,
    head: ListHead,
}

/// What a store takes, in bytes, without what the allocator rounds up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewBytes {
    /// Bodies, as MessagePack.
    pub bodies: usize,
    /// Namespaces, names, and versions that are not numbers.
    pub keys: usize,
    /// What keeps them in order: slots of the tree, and remembered deletions.
    pub indexes: usize,
}

impl ViewBytes {
    /// All of it.
    pub fn total(&self) -> usize {
        self.bodies + self.keys + self.indexes
    }
}

/// What a delta did, with what it replaced, for whatever is kept up beside the objects.
#[derive(Debug)]
pub enum Applied {
    /// The object is now what the delta says.
    Put {
        /// What it was before, if it was there.
        old: Option<Object>,
    },
    /// The object is gone.
    Deleted {
        /// What it was.
        old: Object,
    },
    /// Nothing changed.
    Ignored(Ignored),
}

/// Why a delta changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// This position of the log was applied before.
    Repeated,
    /// What is held (or was deleted) is newer by the apply rule. The log and this copy now differ,
    /// which the digest will show.
    Superseded,
    /// A deletion of what was not there.
    Absent,
    /// The view waits for the log to be read again.
    NotFollowing,
    /// A key that no bus carries.
    KeyTooLong,
}

impl Store {
    /// Applies a delta that stands at `revision` of the log.
    ///
    /// Records must come in the log's order; one at or before the last position is a repeat. Beyond
    /// that, [`Delta::supersedes`] decides. `twin` is the same key's object in another state of the
    /// view: its allocation is taken over if it is the same.
    pub(crate) fn apply<B: AsRef<[u8]>>(
        &mut self,
        revision: Revision,
        delta: &Delta<B>,
        twin: Option<&Object>,
    ) -> Applied {
        if revision <= self.revision {
            return Applied::Ignored(Ignored::Repeated);
        }
        self.revision = revision;
        if !self.is_superseded_by(delta) {
            return Applied::Ignored(Ignored::Superseded);
        }
        match &delta.op {
            Op::Put(body) => {
                let object = Object::new(&delta.key, delta.epoch, &delta.version, body.as_ref());
                self.put(&delta.key, object, twin)
            }
            Op::Delete => self.delete(&delta.key, delta.epoch, &delta.version),
        }
    }

    /// Whether a control record that stands at `revision` is to be taken in: not a repeat, and not
    /// of an earlier tenure.
    pub(crate) fn accepts(&self, revision: Revision, record: &ViewRecord) -> bool {
        revision > self.revision && self.record().is_none_or(|held| record.epoch >= held.epoch)
    }

    /// Takes in a control record that was accepted.
    pub(crate) fn control(&mut self, revision: Revision, record: ViewRecord) {
        self.revision = revision;
        self.head = ListHead::of(&record.info);
        self.control = Some(record);
    }

    /// The last control record.
    pub fn record(&self) -> Option<&ViewRecord> {
        self.control.as_ref()
    }

    /// What the list of these objects says of itself.
    pub(crate) fn head(&self) -> &ListHead {
        &self.head
    }

    /// The last position of the log that was applied.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Over every object's key and version.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What it takes.
    pub fn bytes(&self) -> ViewBytes {
        self.bytes
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object of this key.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Object> {
        self.objects.get::<dyn Keyed>(&(namespace, name))
    }

    /// All objects, by namespace and name.
    pub fn objects(&self) -> btree_set::Iter<'_, Object> {
        self.objects.iter()
    }

    /// The objects of one namespace, by name.
    pub fn namespace<'s>(&'s self, namespace: &str) -> impl Iterator<Item = &'s Object> {
        let first = (namespace, "");
        self.objects
            .range::<dyn Keyed, _>((Bound::Included(&first as &dyn Keyed), Bound::Unbounded))
            .take_while(move |object| object.namespace() == namespace)
    }

    /// Lays the tree out anew, with full nodes: one that grew object by object is little more than
    /// half full.
    pub(crate) fn compact(&mut self) {
        self.objects = std::mem::take(&mut self.objects).into_iter().collect();
    }

    fn is_superseded_by<B>(&self, delta: &Delta<B>) -> bool {
        if let Some(held) = self.get(&delta.key.namespace, &delta.key.name) {
            return delta.supersedes(held.epoch(), &held.version());
        }
        match self.tombstones.get(&delta.key) {
            Some((epoch, version)) => delta.supersedes(*epoch, &version.text()),
            None => true,
        }
    }

    fn put(&mut self, key: &ObjectKey, object: Option<Object>, twin: Option<&Object>) -> Applied {
        let Some(mut object) = object else {
            return Applied::Ignored(Ignored::KeyTooLong);
        };
        if let Some(twin) = twin {
            object.share(twin);
        }
        self.forget(key);
        self.digest.add(key, &object.version());
        self.bytes.add(&bytes_of(&object));
        let old = self.objects.replace(object);
        if let Some(old) = &old {
            self.removed(key, old);
        }
        Applied::Put { old }
    }

    fn delete(&mut self, key: &ObjectKey, epoch: Epoch, version: &ResourceVersion) -> Applied {
        self.forget(key);
        self.bytes.indexes += tombstone_bytes(key);
        if let Some(oldest) = self.tombstones.push(key, epoch, version) {
            self.bytes.indexes -= tombstone_bytes(&oldest);
        }
        let parts = (&*key.namespace, &*key.name);
        match self.objects.take::<dyn Keyed>(&parts) {
            Some(old) => {
                self.removed(key, &old);
                Applied::Deleted { old }
            }
            None => Applied::Ignored(Ignored::Absent),
        }
    }

    fn removed(&mut self, key: &ObjectKey, old: &Object) {
        self.digest.remove(key, &old.version());
        self.bytes.remove(&bytes_of(old));
    }

    /// Forgets that `key` was deleted.
    fn forget(&mut self, key: &ObjectKey) {
        if self.tombstones.remove(key) {
            self.bytes.indexes -= tombstone_bytes(key);
        }
    }
}

impl ViewBytes {
    /// This and `other`.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.add(&other);
        self
    }

    fn add(&mut self, other: &Self) {
        self.bodies += other.bodies;
        self.keys += other.keys;
        self.indexes += other.indexes;
    }

    fn remove(&mut self, other: &Self) {
        self.bodies -= other.bodies;
        self.keys -= other.keys;
        self.indexes -= other.indexes;
    }
}

fn bytes_of(object: &Object) -> ViewBytes {
    ViewBytes {
        bodies: object.body().len(),
        keys: object.key_bytes() + object.version_bytes(),
        indexes: Object::SLOT_BYTES,
    }
}

/// A key stands in the map and in the queue.
fn tombstone_bytes(key: &ObjectKey) -> usize {
    2 * (key.name_bytes() + size_of::<ObjectKey>()) + size_of::<(Epoch, Version)>()
}

/// The newest deletions: at most [`TOMBSTONES_MAX`].
#[derive(Clone, Debug, Default)]
struct Tombstones {
    by_key: BTreeMap<ObjectKey, (Epoch, Version)>,
    /// Oldest first.
    order: VecDeque<ObjectKey>,
}

impl Tombstones {
    fn get(&self, key: &ObjectKey) -> Option<&(Epoch, Version)> {
        self.by_key.get(key)
    }

    /// Remembers a deletion that is not remembered yet; returns the one forgotten for it.
    fn push(
        &mut self,
        key: &ObjectKey,
        epoch: Epoch,
        version: &ResourceVersion,
    ) -> Option<ObjectKey> {
        self.by_key
            .insert(key.clone(), (epoch, Version::new(version)));
        self.order.push_back(key.clone());
        if self.order.len() <= TOMBSTONES_MAX {
            return None;
        }
        let oldest = self.order.pop_front()?;
        self.by_key.remove(&oldest);
        Some(oldest)
    }

    fn remove(&mut self, key: &ObjectKey) -> bool {
        if self.by_key.remove(key).is_none() {
            return false;
        }
        // Rare (an object made again under its old name), so a walk is cheaper than an index.
        self.order.retain(|other| other != key);
        true
    }
}

#[cfg(test)]
mod tests;
