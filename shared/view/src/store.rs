//! Objects by key, with their digest and the bytes that they take.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Deref,
    sync::Arc,
};

use anteroom_model::{
    Delta, Digest, Epoch, KeyBytes, ObjectKey, Op, ResourceVersion, Revision, ViewRecord, ViewState,
};
use anteroom_wire::unreadable;

use crate::{
    listing::ListHead,
    object::{Object, Version},
    pack::Holes,
    size::allocated,
    tree::{Change, Objects, Stretch, Tree},
    unreadable::Unreadable,
};

/// Deletions that a store remembers. Records arrive in the log's order and a repeat is known by its
/// position, so this guards against one thing only: a writer that puts what it has deleted, at a
/// version from before the deletion. Over the limit the oldest is forgotten, and such a put would
/// then be applied as the log has it, as it is in every reader that starts later.
pub const TOMBSTONES_MAX: usize = 1_024;

/// One state of a view: what the log said up to one position.
///
/// Objects stand in one tree in the API server's order, so that a namespace is a range of it.
#[derive(Clone, Debug, Default)]
pub struct Store {
    objects: Tree,
    digest: Digest,
    /// Without the tree.
    bytes: ViewBytes,
    /// The part of `bytes` that belongs to objects that share their allocation with their twins.
    shared: ViewBytes,
    revision: Revision,
    /// Records of an earlier epoch than this are void.
    origin: Epoch,
    /// Shared, as the head is: a state that is written beside a snapshot is copied for each change.
    control: Option<Arc<ViewRecord>>,
    head: Arc<ListHead>,
    unreadable: Unreadable,
}

/// A state that is written: the only one that may change.
///
/// A change copies the store if a snapshot holds it, but for the objects (see `tree`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    store: Arc<Store>,
    aside: Aside,
}

/// The part of a store that only the writer needs.
#[derive(Clone, Debug, Default)]
struct Aside {
    tombstones: Tombstones,
    holes: Holes,
    /// The view was whole once: what comes now are changes, and is packed no more.
    is_whole: bool,
}

impl Aside {
    fn bytes(&self) -> usize {
        self.tombstones.bytes + self.holes.bytes()
    }
}

/// The size of a store in bytes, rounded up as the allocator does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewBytes {
    /// Bodies, as MessagePack.
    pub bodies: usize,
    /// Namespaces, names, and versions that are not numbers.
    pub keys: usize,
    /// The structures that keep objects in order: slots of the tree, counters and remembered deletions;
    /// and the overhead of the allocator.
    pub indexes: usize,
}

impl ViewBytes {
    /// All of it.
    pub fn total(&self) -> usize {
        self.bodies + self.keys + self.indexes
    }
}

/// The effect of a delta, with the object that it replaced, for indexes beside the objects.
#[derive(Debug)]
pub enum Applied {
    /// The object is now what the delta says.
    Put {
        /// The object before, if it was there.
        old: Option<Object>,
    },
    /// The object is gone.
    Deleted {
        /// The object before.
        old: Object,
    },
    /// Nothing changed.
    Ignored(Ignored),
}

/// Why a delta changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ignored {
    /// The delta had been applied before: its position of the log was.
    Repeated,
    /// The object that is held (or was deleted) is newer by the apply rule. The log and this copy now
    /// differ, which the digest will show.
    Superseded,
    /// A deletion of what was not there.
    Absent,
    /// The view waits for the log to be read again.
    NotFollowing,
    /// A key that no bus carries.
    KeyTooLong,
}

impl Deref for Draft {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Draft {
    /// See [`Store::apply`].
    pub(crate) fn apply<B: AsRef<[u8]>>(
        &mut self,
        revision: Revision,
        delta: &Delta<B>,
        twin: Option<&Object>,
    ) -> Applied {
        if revision <= self.revision {
            return Applied::Ignored(Ignored::Repeated);
        }
        let store = Arc::make_mut(&mut self.store);
        store.apply(revision, delta, twin, &mut self.aside)
    }

    /// See [`Store::control`].
    pub(crate) fn control(&mut self, revision: Revision, record: ViewRecord) {
        let is_whole = record.state == ViewState::Synced;
        Arc::make_mut(&mut self.store).control(revision, record, &mut self.aside);
        if is_whole {
            self.pack();
        }
    }

    /// Packs the objects that arrived singly. Runs only once, since readers that follow changes see every object
    /// move.
    fn pack(&mut self) {
        if !std::mem::replace(&mut self.aside.is_whole, true) {
            Arc::make_mut(&mut self.store).pack();
        }
    }

    /// Returns a copy to write to while this state is still served. Both share every object.
    pub(crate) fn writable_copy(&self) -> Self {
        let mut copy = self.clone();
        let store = Arc::make_mut(&mut copy.store);
        store.shared = store.bytes;
        store.shared.indexes -= copy.aside.bytes();
        copy.aside.is_whole = true;
        copy
    }

    /// Completes a writable copy: the served state that it was copied from is dropped now.
    pub(crate) fn settle(&mut self) {
        let store = Arc::make_mut(&mut self.store);
        let took_over = store.shared.bodies > 0;
        store.shared = ViewBytes::default();
        store.objects.compact();
        if took_over {
            let before = self.aside.holes.bytes();
            self.aside.holes = Holes::of(store.objects());
            store.bytes.indexes = store.bytes.indexes + self.aside.holes.bytes() - before;
        }
        store.pack();
        self.aside.is_whole = true;
    }

    /// Returns the present state, for a reader that keeps the state.
    pub(crate) fn snapshot(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }
}

impl Store {
    /// Applies a delta that stands at `revision` of the log.
    ///
    /// Records must come in the log's order; one at or before the last position is a repeat. Beyond
    /// that, [`Delta::supersedes`] decides. `twin` is the same key's object in another state of the
    /// view: its allocation is taken over if it is the same.
    fn apply<B: AsRef<[u8]>>(
        &mut self,
        revision: Revision,
        delta: &Delta<B>,
        twin: Option<&Object>,
        aside: &mut Aside,
    ) -> Applied {
        self.revision = revision;
        if !self.is_superseded_by(delta, &aside.tombstones) {
            return Applied::Ignored(Ignored::Superseded);
        }
        let before = aside.bytes() + self.unreadable.bytes();
        let applied = match &delta.op {
            Op::Put(body) => {
                aside.tombstones.remove(&delta.key);
                let stub = unreadable::document(body.as_ref());
                self.unreadable.put(&delta.key, stub.is_some());
                let body = stub.unwrap_or(body.as_ref());
                let object = Object::new(&delta.key, delta.epoch, &delta.version, body);
                let applied = self.put(&delta.key, object, twin);
                if !aside.is_whole {
                    self.objects.pack_at(delta.key.as_bytes());
                }
                applied
            }
            Op::Delete => {
                aside
                    .tombstones
                    .push(&delta.key, delta.epoch, &delta.version);
                self.unreadable.remove(&delta.key);
                self.delete(&delta.key, twin)
            }
        };
        let gone = match &applied {
            Applied::Put { old } => old.as_ref(),
            Applied::Deleted { old } => Some(old),
            Applied::Ignored(_) => None,
        };
        if let Some(gone) = gone {
            self.left_allocation(gone, &mut aside.holes);
        }
        let after = aside.bytes() + self.unreadable.bytes();
        self.bytes.indexes = self.bytes.indexes + after - before;
        self.count_saved();
        applied
    }

    /// Returns true if a control record that stands at `revision` is to be taken in: it is no repeat,
    /// and of no earlier epoch.
    pub(crate) fn accepts(&self, revision: Revision, record: &ViewRecord) -> bool {
        revision > self.revision && self.record().is_none_or(|held| record.epoch >= held.epoch)
    }

    /// Takes in a control record that was accepted, and frees what it says is void: the view was
    /// dropped since, or begun anew, and its objects were purged without a record of their own.
    fn control(&mut self, revision: Revision, record: ViewRecord, aside: &mut Aside) {
        self.revision = revision;
        if record.origin > self.origin {
            self.origin = record.origin;
            let before = aside.bytes() + self.unreadable.bytes();
            self.free_before(record.origin, &mut aside.holes);
            let after = aside.bytes() + self.unreadable.bytes();
            self.bytes.indexes = self.bytes.indexes + after - before;
        }
        self.head = Arc::new(ListHead::of(&record.info));
        self.control = Some(Arc::new(record));
    }

    /// The last control record.
    pub fn record(&self) -> Option<&ViewRecord> {
        self.control.as_deref()
    }

    /// The names that the list of these objects goes by.
    pub(crate) fn head(&self) -> &ListHead {
        &self.head
    }

    /// The objects that cannot be shown.
    pub(crate) fn unreadable(&self) -> &Unreadable {
        &self.unreadable
    }

    /// The last position of the log that was applied.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Over every object's key and version.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Its size in memory.
    pub fn bytes(&self) -> ViewBytes {
        let mut bytes = self.bytes;
        bytes.indexes += self.objects.bytes();
        bytes
    }

    /// The state's bytes, without the objects shared with a second state.
    pub(crate) fn own_bytes(&self) -> ViewBytes {
        let (bytes, shared) = (self.bytes(), self.shared);
        // What has moved out of a place that it shared is still counted as shared.
        ViewBytes {
            bodies: bytes.bodies.saturating_sub(shared.bodies),
            keys: bytes.keys.saturating_sub(shared.keys),
            indexes: bytes.indexes.saturating_sub(shared.indexes),
        }
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The object of this key.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Object> {
        self.objects.get(KeyBytes::new(namespace, name))
    }

    /// All objects, in the API server's order: by `namespace/name`.
    pub fn objects(&self) -> Objects<'_> {
        self.objects.iter()
    }

    /// All objects in the API server's order, stretch by stretch.
    pub(crate) fn stretches(&self) -> impl Iterator<Item = Stretch<'_>> {
        self.objects.stretches()
    }

    /// Tells `each` how to come from the objects of `older` to these, in order.
    pub(crate) fn changes_since<'a>(&'a self, older: &'a Self, each: impl FnMut(Change<'a>)) {
        self.objects.changes_since(&older.objects, each);
    }

    /// Returns the object at this index in the order of the keys.
    pub(crate) fn nth(&self, index: usize) -> Option<&Object> {
        self.objects.nth(index)
    }

    /// The objects of one namespace, by name.
    pub fn namespace<'s>(&'s self, namespace: &str) -> impl Iterator<Item = &'s Object> {
        self.objects
            .from(KeyBytes::new(namespace, ""))
            .take_while(move |object| object.is_under(namespace))
            // Only where names hold a slash can others stand between.
            .filter(move |object| object.namespace() == namespace)
    }

    fn is_superseded_by<B>(&self, delta: &Delta<B>, tombstones: &Tombstones) -> bool {
        if delta.epoch < self.origin {
            return false;
        }
        if let Some(held) = self.get(&delta.key.namespace, &delta.key.name) {
            return delta.supersedes(held.epoch(), &held.version());
        }
        match tombstones.get(&delta.key) {
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
        let bytes = bytes_of(&object);
        self.digest.add(key, &object.version());
        self.bytes.add(&bytes);
        let is_shared = twin.is_some_and(|twin| object.shares_with(twin));
        let old = self.objects.replace(object);
        if let Some(old) = &old {
            self.removed(key, old, twin);
        }
        if is_shared {
            self.shared.add(&bytes);
        }
        Applied::Put { old }
    }

    fn delete(&mut self, key: &ObjectKey, twin: Option<&Object>) -> Applied {
        match self.objects.take(key.as_bytes()) {
            Some(old) => {
                self.removed(key, &old, twin);
                Applied::Deleted { old }
            }
            None => Applied::Ignored(Ignored::Absent),
        }
    }

    fn removed(&mut self, key: &ObjectKey, old: &Object, twin: Option<&Object>) {
        self.digest.remove(key, &old.version());
        let bytes = bytes_of(old);
        self.bytes.remove(&bytes);
        if twin.is_some_and(|twin| old.shares_with(twin)) {
            self.shared.remove(&bytes);
        }
    }

    /// Frees objects of epochs before `origin`.
    fn free_before(&mut self, origin: Epoch, holes: &mut Holes) {
        for old in self.objects.take_all(|object| object.epoch() < origin) {
            let key = ObjectKey::new(old.namespace(), old.name());
            self.removed(&key, &old, None);
            self.unreadable.remove(&key);
            self.left_allocation(&old, holes);
        }
        self.count_saved();
    }

    /// Counts the hole that an object leaves in an allocation that it shared. Where little of that is used any more,
    /// the others move out.
    fn left_allocation(&mut self, gone: &Object, holes: &mut Holes) {
        if holes.left(gone) {
            let moved = self.objects.move_out(gone.allocation(), gone.key());
            holes.moved_out(gone, moved);
        }
    }

    fn pack(&mut self) {
        self.objects.pack();
        self.count_saved();
    }

    /// Objects that were packed, or have moved out, take another amount than when they came.
    fn count_saved(&mut self) {
        let saved = self.objects.take_saved();
        self.bytes.indexes = self.bytes.indexes.saturating_add_signed(-saved);
    }
}

impl ViewBytes {
    /// Adds `other`.
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

/// Returns the bytes of an object without its slot, which the tree counts.
fn bytes_of(object: &Object) -> ViewBytes {
    ViewBytes {
        bodies: object.body().len(),
        keys: object.key_bytes() + object.version_bytes(),
        indexes: object.spare_bytes(),
    }
}

/// A key stands in the map and in the queue, of which each may be half empty.
fn tombstone_bytes(key: &ObjectKey) -> usize {
    let names = allocated(key.namespace.len()) + allocated(key.name.len());
    let slots = 2 * size_of::<ObjectKey>() + size_of::<(Epoch, Version)>();
    2 * (names + slots)
}

/// The newest deletions: at most [`TOMBSTONES_MAX`].
#[derive(Clone, Debug, Default)]
struct Tombstones {
    by_key: BTreeMap<ObjectKey, (Epoch, Version)>,
    /// Oldest first.
    order: VecDeque<ObjectKey>,
    bytes: usize,
}

impl Tombstones {
    fn get(&self, key: &ObjectKey) -> Option<&(Epoch, Version)> {
        self.by_key.get(key)
    }

    /// Remembers a deletion; over the limit, the oldest is forgotten for it.
    fn push(&mut self, key: &ObjectKey, epoch: Epoch, version: &ResourceVersion) {
        self.remove(key);
        self.by_key
            .insert(key.clone(), (epoch, Version::new(version)));
        self.order.push_back(key.clone());
        self.bytes += tombstone_bytes(key);
        if self.order.len() > TOMBSTONES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
            self.bytes -= tombstone_bytes(&oldest);
        }
    }

    /// Forgets that `key` was deleted.
    fn remove(&mut self, key: &ObjectKey) {
        if self.by_key.remove(key).is_some() {
            // Rare (an object made again under its old name), so a walk is cheaper than an index.
            self.order.retain(|other| other != key);
            self.bytes -= tombstone_bytes(key);
        }
    }
}

#[cfg(test)]
mod tests;
