//! What one view should be in the log, and what it is there. Pure.
//!
//! Two states are kept side by side: the *wanted* one, which every change of the source moves at
//! once, and the *logged* one, which moves as changes are taken into batches. Between them stand the
//! pending changes, one for each key: a key that changes ten times while the bus is slow is written
//! once.

mod state;
mod writing;

use std::{
    cmp::Ordering,
    collections::{HashMap, hash_map::Entry},
    time::Instant,
};

use anteroom_model::{
    Delta, Digest, Epoch, Failure, ObjectKey, Op, ResourceVersion, Revision, SourceInfo, ViewId,
    ViewRecord, ViewState,
};
use bytes::Bytes;
use tracing::Span;

use super::{
    change::{Change, Queued, Taken},
    marks::{Marks, Width},
    work::Brought,
};

/// What is shown of a key in a failure: namespace and name of most kinds, whole.
const SHOWN_BYTES_MAX: usize = 320;

/// One view, as its writer knows it.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) info: SourceInfo,
    pub(super) epoch: Epoch,
    wanted: HashMap<ObjectKey, Known>,
    pending: HashMap<ObjectKey, Change>,
    /// Counts lists.
    lists: u32,
    /// The history restarted with this list: what older ones end with says nothing.
    anew_since: u32,
    /// Where lists of this history ended, by namespace (empty: all): what is not there then, and is
    /// older, is gone.
    floors: Vec<(Box<str>, ResourceVersion)>,
    /// Two watches bring the same objects, one behind the other: objects that are gone, so that the
    /// slower one does not bring them back.
    gone: Option<HashMap<ObjectKey, ResourceVersion>>,
    /// Bytes of keys and versions.
    key_bytes: u64,
    /// The first epoch of the objects that the log has.
    pub(super) origin: Epoch,
    /// See [`ViewRecord::age_max_ms`].
    pub(super) age_max_ms: Option<u64>,
    /// Bytes of the wanted objects' bodies.
    bytes: u64,
    /// The log after all that was taken from here.
    logged_objects: u64,
    logged_digest: Digest,
    /// Where the source stands, and whether the readers were told.
    pub(super) state: ViewState,
    pub(super) version: ResourceVersion,
    pub(super) told: Told,
    pub(super) trouble: Option<Failure>,
    /// Objects that are there and cannot be published.
    unusable: HashMap<ObjectKey, Unusable>,
    /// Objects without a name that were passed over since the last list began.
    pub(super) skipped: u64,
    pub(super) revision: Revision,
    pub(super) heard: Option<Instant>,
    /// When the oldest change of the batch on its way was made.
    pub(super) in_flight_since: Option<Instant>,
}

/// The last control record of a view in the log.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) state: Option<ViewState>,
    pub(super) at: Option<Instant>,
    /// Changes were taken since.
    pub(super) outdated: bool,
}

#[derive(Debug)]
struct Known {
    version: ResourceVersion,
    body_bytes: u32,
    marks: Marks,
}

/// An object that is there and cannot be published, and why.
#[derive(Debug)]
struct Unusable {
    version: ResourceVersion,
    marks: Marks,
    problem: String,
}

impl Ledger {
    /// `seed` is what the log has of the view.
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
        let known = |version| Known {
            version,
            body_bytes: 0,
            marks: Marks::current(),
        };
        Self {
            info,
            epoch,
            logged_objects: seed.len() as u64,
            logged_digest: digest,
            wanted: seed
                .into_iter()
                .map(|(key, version)| (key, known(version)))
                .collect(),
            pending: HashMap::new(),
            lists: 0,
            anew_since: 0,
            floors: Vec::new(),
            gone: None,
            key_bytes,
            origin: origin.unwrap_or(epoch),
            age_max_ms,
            bytes: 0,
            state: ViewState::Syncing,
            version: ResourceVersion::default(),
            told: Told::default(),
            trouble: None,
            unusable: HashMap::new(),
            skipped: 0,
            revision: Revision::default(),
            heard: None,
            in_flight_since: None,
        }
    }

    /// The number of the last list that began.
    pub(super) fn last_list(&self) -> u32 {
        self.lists
    }

    pub(super) fn objects(&self) -> u64 {
        self.wanted.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether a change of the object waits.
    pub(super) fn is_pending(&self, key: &ObjectKey) -> bool {
        self.pending.contains_key(key)
    }

    /// When the oldest change was made that is not in the log.
    pub(super) fn oldest_change(&self) -> Option<Instant> {
        let pending = self.pending.values().map(|change| change.since).min();
        self.in_flight_since.into_iter().chain(pending).min()
    }

    /// Bytes that keeping this takes: keys, versions, their table, and the bodies that wait.
    pub(super) fn memory(&self) -> u64 {
        let slots = self.wanted.capacity() * (size_of::<(ObjectKey, Known)>() + 1)
            + self.pending.capacity() * (size_of::<(ObjectKey, Change)>() + 1);
        let gone = self.gone.iter().flatten();
        let gone: u64 = gone.map(|(key, version)| weight(key, version)).sum();
        let waiting: usize = self.pending.values().map(Change::body_bytes).sum();
        self.key_bytes + gone + (slots + waiting) as u64
    }

    /// A list of a namespace (empty: all) begins; its number is what [`Ledger::unseen`] wants to know.
    pub(super) fn begin_list(&mut self, list: Width, namespace: &str, afresh: bool) -> u32 {
        self.lists += 1;
        if afresh {
            self.anew_since = self.lists;
            self.floors.clear();
            self.gone = self.gone.take().map(|_| HashMap::new());
            let all = self.wanted.values_mut();
            all.for_each(|known| known.marks = Marks::default());
        } else {
            let known = self.wanted.iter_mut().map(|(key, of)| (key, &mut of.marks));
            let unusable = self.unusable.iter_mut();
            let unusable = unusable.map(|(key, of)| (key, &mut of.marks));
            let within = known
                .chain(unusable)
                .filter(|(key, _)| holds(namespace, key));
            within.for_each(|(_, marks)| marks.begin(list));
        }
        self.skipped = 0;
        self.lists
    }

    /// Whether two watches bring the same objects for a while.
    pub(super) fn set_overlap(&mut self, overlap: bool) {
        match overlap {
            true => drop(self.gone.get_or_insert_default()),
            false => self.gone = None,
        }
    }

    /// Whether the object is wanted in any version. Then a list of it counts it as seen.
    pub(super) fn touch(&mut self, key: &ObjectKey) -> bool {
        let known = self.wanted.get_mut(key);
        known
            .map(|known| known.marks.bring(Some(Width::Own)))
            .is_some()
    }

    /// Whether the object is wanted in any version.
    pub(super) fn holds(&self, key: &ObjectKey) -> bool {
        self.wanted.contains_key(key)
    }

    /// Whether something newer was heard of the object: watches of one view may be one behind the
    /// other.
    fn is_outdated(&self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        let older = |than: &ResourceVersion| version.compare(than) == Some(Ordering::Less);
        let not_newer = |than: &ResourceVersion| {
            matches!(
                version.compare(than),
                Some(Ordering::Less | Ordering::Equal)
            )
        };
        let unusable = self.unusable.get(key);
        if unusable.is_some_and(|of| of.marks.is_current() && older(&of.version)) {
            return true;
        }
        match self.wanted.get(key) {
            Some(known) => known.marks.is_current() && older(&known.version),
            None => {
                let of = |(namespace, _): &&(Box<str>, _)| holds(namespace, key);
                let mut floors = self.floors.iter().filter(of);
                let gone = self.gone.as_ref().and_then(|gone| gone.get(key));
                floors.any(|(_, floor)| not_newer(floor)) || gone.is_some_and(not_newer)
            }
        }
    }

    /// The history restarted: a new epoch, in which the log's objects are known only as something to
    /// replace. Changes on their way are dropped; the list that follows brings what they brought.
    /// Returns the bytes that they held.
    pub(super) fn renew(&mut self, epoch: Epoch) -> usize {
        let mut bytes = 0;
        for (key, change) in std::mem::take(&mut self.pending) {
            bytes += change.body_bytes();
            let unwanted = match change.logged {
                Some(version) => {
                    let known = Known {
                        version,
                        body_bytes: 0,
                        marks: Marks::default(),
                    };
                    self.wanted.insert(key, known)
                }
                None => self.wanted.remove(&key),
            };
            self.bytes -= unwanted.map_or(0, |known| u64::from(known.body_bytes));
        }
        self.epoch = epoch;
        self.version = ResourceVersion::default();
        self.state = ViewState::Syncing;
        self.unusable.clear();
        bytes
    }

    /// Whether this very version is wanted already, which is so for most of a list that is read
    /// again. Then it counts as seen by the list that brings it, and need not be put. An object whose
    /// size is not known yet has to be put once, and so has every object of a history that restarted.
    pub(super) fn is_known(
        &mut self,
        key: &ObjectKey,
        version: &ResourceVersion,
        by: Option<Width>,
    ) -> bool {
        let Some(known) = self.wanted.get_mut(key) else {
            return false;
        };
        let same = known.version == *version && known.body_bytes > 0;
        let is_known = same && known.marks.is_current();
        if is_known {
            known.marks.bring(by);
        }
        is_known
    }

    /// The object is now this. Returns also by how much the bytes that wait have grown.
    pub(super) fn put(&mut self, brought: Brought, body: Bytes) -> (Queued, isize) {
        let Brought {
            key,
            version,
            by,
            since,
            span,
        } = brought;
        if self.is_outdated(&key, &version) {
            self.pass_over(&key, by);
            return (Queued::Nothing, 0);
        }
        self.unusable.remove(&key);
        if let Some(gone) = &mut self.gone {
            gone.remove(&key);
        }
        self.key_bytes += weight(&key, &version);
        let body_bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let before = self.wanted.get(&key).map(|known| known.marks);
        let mut marks = before.unwrap_or_default();
        marks.bring(by);
        let known = Known {
            version: version.clone(),
            body_bytes,
            marks,
        };
        let was_current = before.is_some_and(Marks::is_current);
        let before = self.wanted.insert(key.clone(), known);
        self.bytes += u64::from(body_bytes);
        if let Some(before) = &before {
            self.bytes -= u64::from(before.body_bytes);
            self.key_bytes = self.key_bytes.saturating_sub(weight(&key, &before.version));
            if before.version == version && was_current {
                return (Queued::Nothing, 0);
            }
        }
        let logged = before.map(|known| known.version);
        self.queue(
            key,
            Change {
                version,
                op: Op::Put(body),
                logged,
                since,
                span,
            },
        )
    }

    /// A list brings an object of which something newer is known: it is there all the same.
    fn pass_over(&mut self, key: &ObjectKey, by: Option<Width>) {
        let known = self.wanted.get_mut(key).map(|known| &mut known.marks);
        let unusable = self
            .unusable
            .get_mut(key)
            .map(|unusable| &mut unusable.marks);
        let of = known.into_iter().chain(unusable);
        of.for_each(|marks| marks.bring(by));
    }

    /// The object is gone.
    pub(super) fn delete(
        &mut self,
        key: &ObjectKey,
        version: ResourceVersion,
        now: Instant,
        span: Span,
    ) -> (Queued, isize) {
        if self.is_outdated(key, &version) {
            return (Queued::Nothing, 0);
        }
        self.remove(key, version, now, span)
    }

    /// The object is gone, whatever was heard of it.
    pub(super) fn remove(
        &mut self,
        key: &ObjectKey,
        version: ResourceVersion,
        now: Instant,
        span: Span,
    ) -> (Queued, isize) {
        self.unusable.remove(key);
        if let Some(gone) = &mut self.gone {
            gone.insert(key.clone(), version.clone());
        }
        let Some(before) = self.wanted.remove(key) else {
            return (Queued::Nothing, 0);
        };
        self.bytes -= u64::from(before.body_bytes);
        self.key_bytes = self.key_bytes.saturating_sub(weight(key, &before.version));
        let logged = Some(before.version);
        self.queue(
            key.clone(),
            Change {
                version,
                op: Op::Delete,
                logged,
                since: now,
                span,
            },
        )
    }

    /// The list `begun` of a namespace (empty: all) is complete at `version`: objects that it did
    /// not bring, and that are not known to be younger. `None`: it is of a history before this one, and
    /// says nothing.
    pub(super) fn unseen(
        &mut self,
        begun: u32,
        (list, namespace): (Width, &str),
        version: &ResourceVersion,
    ) -> Option<Vec<ObjectKey>> {
        if begun < self.anew_since {
            return None;
        }
        let missed = |key: &ObjectKey, marks: Marks, at: &ResourceVersion| {
            let younger = marks.is_current() && at.compare(version) == Some(Ordering::Greater);
            holds(namespace, key) && !marks.is_brought_by(list) && !younger
        };
        self.unusable
            .retain(|key, of| !missed(key, of.marks, &of.version));
        let wanted = self.wanted.iter();
        let unseen = wanted.filter(|(key, known)| missed(key, known.marks, &known.version));
        let unseen = unseen.map(|(key, _)| key.clone()).collect();
        self.raise_floor(namespace, version);
        Some(unseen)
    }

    /// All that the namespace (empty: all of them) holds is known up to this version: what is older,
    /// and is not known, is gone.
    pub(super) fn raise_floor(&mut self, namespace: &str, version: &ResourceVersion) {
        match self.floors.iter_mut().find(|(of, _)| **of == *namespace) {
            Some((_, floor)) if version.compare(floor) == Some(Ordering::Less) => {}
            Some((_, floor)) => floor.clone_from(version),
            None => self.floors.push((namespace.into(), version.clone())),
        }
    }
}

/// Bytes of a key and its version, as the allocator has them: each text on its own.
fn weight(key: &ObjectKey, version: &ResourceVersion) -> u64 {
    let texts = [key.namespace.len(), key.name.len(), version.as_str().len()];
    let rounded = texts.iter().map(|bytes| bytes.next_multiple_of(16));
    rounded.sum::<usize>() as u64
}

/// A key for people: one that cannot be published may be as long as it likes.
pub(super) fn shown(key: &ObjectKey) -> String {
    let mut text = key.to_string();
    if text.len() > SHOWN_BYTES_MAX {
        text.truncate(text.floor_char_boundary(SHOWN_BYTES_MAX));
        text.push('…');
    }
    text
}

/// Whether the key is of this namespace; empty: all are.
fn holds(namespace: &str, key: &ObjectKey) -> bool {
    namespace.is_empty() || *namespace == *key.namespace
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}
