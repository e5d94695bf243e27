//! The state of one view on its way to the log: its objects at the source, and its objects in the log. Pure.
//!
//! Two states are kept side by side: the state *at the source*, which every change of the source moves at
//! once, and the *logged* one, which moves as changes are taken into batches. Between them stand the
//! pending changes, one for each key: a key that changes ten times while the bus is slow is written
//! once.
//!
//! A list marks the objects that it brings with its number. At its end, those with a smaller number
//! are not at the source any more.

mod freshness;
mod lists;
mod namespace_parts;
mod suspension;
mod writing;

use std::{cmp::Ordering, collections::HashMap};

use anteroom_model::{
    Digest, Epoch, Failure, ObjectKey, Op, ResourceVersion, Revision, SourceInfo, ViewState,
};
use bytes::Bytes;
use tokio::time::Instant;

use freshness::Freshness;
use lists::Lists;
use namespace_parts::{BodySize, NamespaceParts};
pub(super) use suspension::Limit;
use suspension::Suspension;

use super::{
    pending::{Change, Queued},
    suspends::Suspends,
    work::{ChangeOrigin, Incoming},
};

/// A view, as its writer knows it.
#[derive(Debug)]
pub(super) struct ViewWriteState {
    pub(super) info: SourceInfo,
    /// See [`ViewOptions::in_quota`].
    ///
    /// [`ViewOptions::in_quota`]: anteroom_model::ViewOptions::in_quota
    pub(super) in_quota: bool,
    /// The parts of namespaces in the view; `None`: they have never been limited.
    parts: Option<Box<NamespaceParts>>,
    /// The epoch in which it is written.
    pub(super) epoch: Epoch,
    /// The epoch under which changes come in. It is an earlier one once the view was suspended.
    pub(super) accepted_epoch: Epoch,
    suspension: Suspension,
    at_source: HashMap<ObjectKey, SourceObject>,
    pending: HashMap<ObjectKey, Change>,
    lists: Lists,
    /// Bytes of keys and versions.
    key_bytes: u64,
    /// The first epoch of the objects that the log has.
    pub(super) origin: Epoch,
    /// See [`ViewRecord::age_max_ms`].
    pub(super) age_max_ms: Option<u64>,
    /// Bytes of the bodies of the objects at the source.
    bytes: u64,
    /// The log after all that was taken from here.
    logged_objects: u64,
    logged_digest: Digest,
    /// State and version of the source.
    pub(super) state: ViewState,
    pub(super) version: ResourceVersion,
    pub(super) last_control: LastControlRecord,
    pub(super) trouble: Option<Failure>,
    pub(super) revision: Revision,
    pub(super) freshness: Freshness,
}

/// The last control record of a view in the log.
#[derive(Debug, Default)]
pub(super) struct LastControlRecord {
    pub(super) state: Option<ViewState>,
    pub(super) at: Option<Instant>,
    /// Changes were taken since.
    pub(super) outdated: bool,
}

/// An object of the view as the source has it.
#[derive(Debug)]
struct SourceObject {
    version: ResourceVersion,
    size: BodySize,
    /// The last list that had begun when it was last heard of.
    list: u32,
}

impl ViewWriteState {
    /// Returns the state of a view. `seed` are the view's objects in the log.
    pub(super) fn new(
        info: SourceInfo,
        epoch: Epoch,
        seed: HashMap<ObjectKey, ResourceVersion>,
        origin: Option<Epoch>,
        age_max_ms: Option<u64>,
    ) -> Self {
        let mut digest = Digest::default();
        let mut key_bytes = 0;
        for (key, version) in &seed {
            digest.add(key, version);
            key_bytes += weight(key, version);
        }
        Self {
            info,
            in_quota: false,
            parts: None,
            epoch,
            accepted_epoch: epoch,
            suspension: Suspension::No,
            logged_objects: seed.len() as u64,
            logged_digest: digest,
            at_source: seed
                .into_iter()
                .map(|(key, version)| (key, SourceObject::in_log(version)))
                .collect(),
            pending: HashMap::new(),
            lists: Lists::default(),
            key_bytes,
            origin: origin.unwrap_or(epoch),
            age_max_ms,
            bytes: 0,
            state: ViewState::Syncing,
            version: ResourceVersion::default(),
            last_control: LastControlRecord::default(),
            trouble: None,
            revision: Revision::default(),
            freshness: Freshness::default(),
        }
    }

    /// The number of the last list that began.
    pub(super) fn last_list(&self) -> u32 {
        self.lists.last()
    }

    /// An object without a name, or with a key that is too long, was passed over.
    pub(super) fn skip(&mut self) {
        self.lists.skip();
    }

    /// Returns how many objects were passed over since the last list began.
    pub(super) fn skipped(&self) -> u64 {
        self.lists.skipped()
    }

    pub(super) fn objects(&self) -> u64 {
        self.at_source.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The bytes by which the next change of a key makes the log grow, about.
    pub(super) fn growth(&self, key: &ObjectKey) -> u64 {
        self.pending.get(key).map_or(0, Change::growth)
    }

    /// Returns whether a change of the object waits.
    pub(super) fn is_pending(&self, key: &ObjectKey) -> bool {
        self.pending.contains_key(key)
    }

    /// Returns the age of the news in the log; `u64::MAX` where the source was never heard from.
    pub(super) fn news_age_ms(&self, now: Instant, suspends: &Suspends) -> u64 {
        let oldest_pending = self.oldest_pending();
        self.freshness.news_age_ms(oldest_pending, now, suspends)
    }

    /// Returns the time of the oldest change that waits.
    fn oldest_pending(&self) -> Option<Instant> {
        self.pending.values().map(|change| change.since).min()
    }

    /// Bytes that keeping this takes: keys, versions, their table, and the bodies that wait.
    pub(super) fn memory(&self) -> u64 {
        let slots = self.at_source.capacity() * (size_of::<(ObjectKey, SourceObject)>() + 1)
            + self.pending.capacity() * (size_of::<(ObjectKey, Change)>() + 1);
        let waiting: usize = self.pending.values().map(Change::body_bytes).sum();
        let parts = self.parts.as_ref().map_or(0, |parts| parts.memory());
        self.key_bytes + (slots + waiting + parts) as u64
    }

    /// Begins a list and returns its number, which [`ViewWriteState::unseen`] asks for.
    pub(super) fn begin_list(&mut self) -> u32 {
        self.freshness.begin_list();
        self.lists.begin()
    }

    /// Ends the list: the whole view was listed, and later changes are newer.
    pub(super) fn end_list(&mut self) {
        self.freshness.end_list();
    }

    /// Returns whether the source has the object in any version. Then the running list counts it as brought.
    pub(super) fn touch(&mut self, key: &ObjectKey) -> bool {
        let (known, list) = (self.at_source.get_mut(key), self.lists.last());
        known.map(|known| known.list = list).is_some()
    }

    /// Returns whether the object is at the source.
    pub(super) fn holds(&self, key: &ObjectKey) -> bool {
        self.at_source.contains_key(key)
    }

    /// Returns whether a newer version of the object is known.
    fn is_outdated(&self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        let older = |than: &ResourceVersion| version.compare(than) == Some(Ordering::Less);
        let known = self.at_source.get(key);
        known.is_some_and(|known| self.lists.is_current(known.list) && older(&known.version))
    }

    /// Returns whether a list at `listed_at` shows the object in a version that it cannot have there, if the source has
    /// one history: an older one than was known before that, or another one than was known when everything up to
    /// `known_to` was.
    pub(super) fn contradicts(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        known_to: &ResourceVersion,
        listed_at: &ResourceVersion,
    ) -> bool {
        let within =
            |version: &ResourceVersion, end| version.compare(end).is_some_and(Ordering::is_le);
        let known = self.at_source.get(key);
        match known.filter(|known| self.lists.is_current(known.list)) {
            Some(known) if known.version == *version => false,
            Some(known) if version.compare(&known.version) == Some(Ordering::Less) => {
                within(&known.version, listed_at)
            }
            _ => within(version, known_to),
        }
    }

    /// Opens a new epoch that keeps the known objects; the next list brings the differences. Changes that wait are
    /// written in the new epoch: their keys are returned.
    pub(super) fn switch_watches(&mut self, epoch: Epoch) -> Vec<ObjectKey> {
        self.begin_epoch(epoch);
        // A failure is told until the source has been read.
        if self.state == ViewState::Synced {
            self.state = ViewState::Syncing;
        }
        self.pending.keys().cloned().collect()
    }

    fn begin_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.accepted_epoch = epoch;
        self.freshness.begin_epoch();
    }

    /// Opens a new epoch in which every object is written again, as after the source's history restarted. Changes
    /// that wait are dropped, and the next list brings their objects. Returns the bytes that the changes held.
    pub(super) fn reread(&mut self, epoch: Epoch) -> usize {
        let bytes = self.drop_pending();
        self.begin_epoch(epoch);
        self.lists.reread();
        self.version = ResourceVersion::default();
        self.state = ViewState::Syncing;
        bytes
    }

    /// Drops the changes that wait: the log's state of their objects is the known one again. Returns the bytes that
    /// they held.
    pub(super) fn drop_pending(&mut self) -> usize {
        let mut bytes = 0;
        for (key, change) in std::mem::take(&mut self.pending) {
            bytes += change.body_bytes();
            let unwanted = self.size_of(&key);
            self.bytes -= unwanted.bytes();
            let known = change.logged.map(SourceObject::in_log);
            if let Some(parts) = &mut self.parts {
                let size = known.as_ref().map(|known| known.size);
                parts.replace(&key, unwanted, size.unwrap_or_default());
            }
            match known {
                Some(known) => self.at_source.insert(key, known),
                None => self.at_source.remove(&key),
            };
        }
        bytes
    }

    /// Returns whether this very version is known at the source already, which is so for most of a list that is read
    /// again. Then it counts as brought, and need not be put. An object whose size is not known yet has to
    /// be put once, and so has every object that is to be written again, or of which the log has a stub.
    pub(super) fn is_known(&mut self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        let Some(known) = self.at_source.get_mut(key) else {
            return false;
        };
        let same = known.version == *version && known.size.is_known();
        let is_known = same && self.lists.is_current(known.list);
        if is_known {
            known.list = self.lists.last();
        }
        is_known
    }

    /// The object is now this. For an object beyond its namespace's part of the view, a stub is written. Returns also by
    /// how much the bytes that wait have grown.
    pub(super) fn put(&mut self, incoming: Incoming, body: Bytes) -> (Queued, isize) {
        let Incoming {
            key,
            version,
            since,
            origin,
        } = incoming;
        if self.is_outdated(&key, &version) {
            // The object exists all the same: the list counts the object as brought.
            self.touch(&key);
            return (Queued::Nothing, 0);
        }
        self.key_bytes += weight(&key, &version);
        let (size, body) = self.admit(&key, body, &origin);
        let known = SourceObject {
            version: version.clone(),
            size,
            list: self.lists.last(),
        };
        let before = self.at_source.insert(key.clone(), known);
        self.bytes += size.bytes();
        if let Some(before) = &before {
            self.bytes -= before.size.bytes();
            self.key_bytes = self.key_bytes.saturating_sub(weight(&key, &before.version));
            let is_same = before.version == version && before.size.is_stub() == size.is_stub();
            if is_same && self.lists.is_current(before.list) {
                return (Queued::Nothing, 0);
            }
        }
        let logged_bytes = before.as_ref().map_or(0, |known| known.size.in_memory());
        let logged = before.map(SourceObject::into_version_in_log);
        self.queue(
            key,
            Change {
                version: size.version_in_log(version),
                op: Op::Put(body),
                logged,
                logged_bytes,
                since,
                origin,
            },
        )
    }

    /// The object is gone.
    pub(super) fn delete(
        &mut self,
        key: &ObjectKey,
        version: ResourceVersion,
        now: Instant,
        origin: ChangeOrigin,
    ) -> (Queued, isize) {
        if self.is_outdated(key, &version) {
            return (Queued::Nothing, 0);
        }
        self.remove(key, version, now, origin)
    }

    /// Removes the object, even if its known version is newer than `version`.
    pub(super) fn remove(
        &mut self,
        key: &ObjectKey,
        version: ResourceVersion,
        now: Instant,
        origin: ChangeOrigin,
    ) -> (Queued, isize) {
        let Some(before) = self.at_source.remove(key) else {
            return (Queued::Nothing, 0);
        };
        self.bytes -= before.size.bytes();
        self.key_bytes = self.key_bytes.saturating_sub(weight(key, &before.version));
        if let Some(parts) = &mut self.parts {
            parts.replace(key, before.size, BodySize::default());
        }
        let logged_bytes = before.size.in_memory();
        let logged = Some(before.into_version_in_log());
        self.queue(
            key.clone(),
            Change {
                version,
                op: Op::Delete,
                logged,
                logged_bytes,
                since: now,
                origin,
            },
        )
    }

    /// Returns the objects of a namespace (empty: all) that the list of this number, which is complete at
    /// `version`, did not bring, and that are not known to be younger.
    pub(super) fn unseen(
        &self,
        list: u32,
        namespace: &str,
        version: &ResourceVersion,
    ) -> Vec<ObjectKey> {
        let is_missing = |key: &ObjectKey, known: &SourceObject| {
            let is_younger = self.lists.is_current(known.list)
                && known.version.compare(version) == Some(Ordering::Greater);
            let is_within = namespace.is_empty() || *namespace == *key.namespace;
            is_within && known.list < list && !is_younger
        };
        let at_source = self.at_source.iter();
        let unseen = at_source.filter(|(key, known)| is_missing(key, known));
        unseen.map(|(key, _)| key.clone()).collect()
    }
}

/// Bytes of a key and its version, as the allocator has them: each text on its own.
fn weight(key: &ObjectKey, version: &ResourceVersion) -> u64 {
    let texts = [key.namespace.len(), key.name.len(), version.as_str().len()];
    let rounded = texts.iter().map(|bytes| bytes.next_multiple_of(16));
    rounded.sum::<usize>() as u64
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}
