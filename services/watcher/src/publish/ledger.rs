//! What one view should be in the log, and what it is there. Pure.
//!
//! Two states are kept side by side: the *wanted* one, which every change of the source moves at
//! once, and the *logged* one, which moves as changes are taken into batches. Between them stand the
//! pending changes, one for each key: a key that changes ten times while the bus is slow is written
//! once.

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

/// Why a view with an object that cannot be published fails.
const UNUSABLE: &str = "ObjectUnusable";

/// One view, as its writer knows it.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) info: SourceInfo,
    pub(super) epoch: Epoch,
    wanted: HashMap<ObjectKey, Known>,
    pending: HashMap<ObjectKey, Change>,
    /// Counts lists: an object remembers the last one that it was seen in, or after.
    pass: u32,
    /// The history restarted with this list: versions from before say nothing.
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
    unusable: HashMap<ObjectKey, (u32, String)>,
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
    pass: u32,
}

/// A change that is not in the log yet.
#[derive(Debug)]
pub(super) struct Change {
    version: ResourceVersion,
    op: Op<Bytes>,
    /// What the log has of the key.
    logged: Option<ResourceVersion>,
    pub(super) since: Instant,
    pub(super) span: Span,
}

/// What became of a change that was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// It waits for its turn.
    New,
    /// It took the place of an older change of its key.
    Coalesced,
    /// There is nothing to write.
    Nothing,
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
            pass: 0,
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
            pass: 0,
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

    pub(super) fn pass(&self) -> u32 {
        self.pass
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

    /// A list begins; its number is what [`Ledger::unseen`] wants to know.
    pub(super) fn begin_list(&mut self, afresh: bool) -> u32 {
        self.pass += 1;
        if afresh {
            self.anew_since = self.pass;
            self.floors.clear();
            self.gone = self.gone.take().map(|_| HashMap::new());
        }
        self.skipped = 0;
        self.pass
    }

    /// Whether two watches bring the same objects for a while.
    pub(super) fn set_overlap(&mut self, overlap: bool) {
        match overlap {
            true => drop(self.gone.get_or_insert_default()),
            false => self.gone = None,
        }
    }

    /// Whether the object is wanted in any version. Then it counts as seen.
    pub(super) fn touch(&mut self, key: &ObjectKey) -> bool {
        let pass = self.pass;
        let known = self.wanted.get_mut(key);
        known.map(|known| known.pass = pass).is_some()
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
        match self.wanted.get(key) {
            Some(known) => known.pass >= self.anew_since && older(&known.version),
            None => {
                let of = |namespace: &str| namespace.is_empty() || *namespace == *key.namespace;
                let mut floors = self.floors.iter().filter(|(namespace, _)| of(namespace));
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
                        pass: 0,
                    };
                    self.wanted.insert(key, known)
                }
                None => self.wanted.remove(&key),
            };
            self.bytes -= unwanted.map_or(0, |known| u64::from(known.body_bytes));
        }
        self.epoch = epoch;
        self.state = ViewState::Syncing;
        self.unusable.clear();
        bytes
    }

    /// Whether this very version is wanted already, which is so for most of a list that is read
    /// again. Then it counts as seen, and need not be put. An object whose size is not known yet has
    /// to be put once, and so has every object of a history that restarted.
    pub(super) fn is_known(&mut self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        let (pass, anew_since) = (self.pass, self.anew_since);
        match self.wanted.get_mut(key) {
            Some(known) => {
                let same = known.version == *version && known.body_bytes > 0;
                let is_known = same && known.pass >= anew_since;
                if is_known {
                    known.pass = pass;
                }
                is_known
            }
            None => false,
        }
    }

    /// The object is now this. Returns also by how much the bytes that wait have grown.
    pub(super) fn put(
        &mut self,
        key: ObjectKey,
        version: ResourceVersion,
        body: Bytes,
        now: Instant,
        span: Span,
    ) -> (Queued, isize) {
        if self.is_outdated(&key, &version) {
            self.touch(&key);
            return (Queued::Nothing, 0);
        }
        self.unusable.remove(&key);
        if let Some(gone) = &mut self.gone {
            gone.remove(&key);
        }
        self.key_bytes += weight(&key, &version);
        let body_bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let known = Known {
            version: version.clone(),
            body_bytes,
            pass: self.pass,
        };
        let before = self.wanted.insert(key.clone(), known);
        self.bytes += u64::from(body_bytes);
        if let Some(before) = &before {
            self.bytes -= u64::from(before.body_bytes);
            self.key_bytes = self.key_bytes.saturating_sub(weight(&key, &before.version));
            if before.version == version && before.pass >= self.anew_since {
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
                since: now,
                span,
            },
        )
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

    /// The object is there and cannot be published. What is known of it is left as it is: the view
    /// is not served while it has such an object.
    pub(super) fn set_unusable(&mut self, key: ObjectKey, problem: String) {
        if let Some(known) = self.wanted.get_mut(&key) {
            known.pass = self.pass;
        }
        self.unusable.insert(key, (self.pass, problem));
    }

    /// What the readers have to be told now that an object changed, if that is anything: only of a
    /// view that is otherwise whole can one object make a difference.
    pub(super) fn state_after_object(&self) -> Option<ViewState> {
        let whole = match &self.state {
            ViewState::Synced => true,
            ViewState::Failed { failure } => failure.reason == UNUSABLE,
            ViewState::Syncing | ViewState::Dropped => false,
        };
        whole.then(|| self.state_when_listed())
    }

    /// What the readers have to be told of a list that is complete.
    pub(super) fn state_when_listed(&self) -> ViewState {
        match self.incomplete() {
            None => ViewState::Synced,
            Some(failure) => ViewState::Failed { failure },
        }
    }

    /// The failure of a view that would answer *absent* for an object that is there.
    fn incomplete(&self) -> Option<Failure> {
        let (key, (_, problem)) = self.unusable.iter().min_by_key(|(key, _)| *key)?;
        Some(Failure::new(
            UNUSABLE,
            format!(
                "{} object(s) cannot be published, the first is `{key}`: {problem}. A view without \
                 them would take them for absent, so it is not served until they are changed, \
                 deleted, or left out by a selector",
                self.unusable.len()
            ),
        ))
    }

    /// The list `begun` of a namespace (empty: all) is complete at `version`: objects that it did
    /// not have, and that are not known to be younger.
    pub(super) fn unseen(
        &mut self,
        begun: u32,
        namespace: &str,
        version: &ResourceVersion,
    ) -> Vec<ObjectKey> {
        let within = |key: &ObjectKey| namespace.is_empty() || *key.namespace == *namespace;
        self.unusable
            .retain(|key, (pass, _)| *pass >= begun || !within(key));
        let anew_since = self.anew_since;
        let younger = |known: &Known| {
            known.pass >= anew_since && known.version.compare(version) == Some(Ordering::Greater)
        };
        let unseen = self
            .wanted
            .iter()
            .filter(|(key, known)| known.pass < begun && within(key) && !younger(known));
        let unseen = unseen.map(|(key, _)| key.clone()).collect();
        self.raise_floor(namespace, version);
        unseen
    }

    fn raise_floor(&mut self, namespace: &str, version: &ResourceVersion) {
        match self.floors.iter_mut().find(|(of, _)| **of == *namespace) {
            Some((_, floor)) if version.compare(floor) == Some(Ordering::Less) => {}
            Some((_, floor)) => floor.clone_from(version),
            None => self.floors.push((namespace.into(), version.clone())),
        }
    }

    fn queue(&mut self, key: ObjectKey, mut change: Change) -> (Queued, isize) {
        let grown = signed(change.body_bytes());
        match self.pending.entry(key) {
            Entry::Vacant(slot) => {
                slot.insert(change);
                (Queued::New, grown)
            }
            Entry::Occupied(mut slot) => {
                let older = slot.get_mut();
                let shrunk = signed(older.body_bytes());
                change.logged = older.logged.take();
                change.since = older.since;
                slot.insert(change);
                (Queued::Coalesced, grown - shrunk)
            }
        }
    }

    /// Takes the change of a key for a batch; `None` where the log needs none.
    pub(super) fn take(&mut self, view: &ViewId, key: &ObjectKey) -> Option<Taken> {
        let change = self.pending.remove(key)?;
        let body_bytes = change.body_bytes();
        if change.logged.is_none() && change.op == Op::Delete {
            return Some(Taken {
                delta: None,
                body_bytes,
                since: change.since,
                span: change.span,
            });
        }
        if let Some(version) = &change.logged {
            self.logged_digest.remove(key, version);
            self.logged_objects -= 1;
        }
        if let Op::Put(_) = &change.op {
            self.logged_digest.add(key, &change.version);
            self.logged_objects += 1;
        }
        self.told.outdated = true;
        let delta = Delta {
            key: key.clone(),
            epoch: self.epoch,
            version: change.version,
            op: change.op,
        };
        tracing::trace!(%view, %key, "taken for a batch");
        Some(Taken {
            delta: Some(delta),
            body_bytes,
            since: change.since,
            span: change.span,
        })
    }

    /// The bytes of the next change of a key.
    pub(super) fn next_bytes(&self, key: &ObjectKey) -> usize {
        self.pending.get(key).map_or(0, Change::body_bytes)
    }

    /// The control record that is true after all that was taken so far.
    pub(super) fn record(
        &self,
        view: ViewId,
        state: ViewState,
        version: ResourceVersion,
    ) -> ViewRecord {
        ViewRecord {
            view,
            info: self.info.clone(),
            epoch: self.epoch,
            state,
            version,
            objects: self.logged_objects,
            digest: self.logged_digest,
            origin: self.origin,
            age_max_ms: self.age_max_ms,
        }
    }
}

/// A change, taken for a batch.
#[derive(Debug)]
pub(super) struct Taken {
    /// `None`: the object came and went without being written.
    pub(super) delta: Option<Delta<Bytes>>,
    pub(super) body_bytes: usize,
    pub(super) since: Instant,
    pub(super) span: Span,
}

impl Change {
    fn body_bytes(&self) -> usize {
        match &self.op {
            Op::Put(body) => body.len(),
            Op::Delete => 0,
        }
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
