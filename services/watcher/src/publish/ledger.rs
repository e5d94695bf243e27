//! What one view should be in the log, and what it is there. Pure.
//!
//! Two states are kept side by side: the *wanted* one, which every change of the source moves at
//! once, and the *logged* one, which moves as changes are taken into batches. Between them stand the
//! pending changes, one for each key: a key that changes ten times while the bus is slow is written
//! once.

use std::{
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
    /// Which list an object was last seen in.
    pass: u32,
    /// A list has begun and is not complete.
    listing: bool,
    /// No version from before this list may be taken for unchanged.
    afresh: bool,
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
    unusable: HashMap<ObjectKey, String>,
    /// Objects without a name that were passed over since the last list began.
    pub(super) skipped: u64,
    pub(super) revision: Revision,
    /// See [`ViewRecord::age_max_ms`].
    pub(super) age_max_ms: Option<u64>,
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
    ) -> Self {
        let mut digest = Digest::default();
        for (key, version) in &seed {
            digest.add(key, version);
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
            listing: false,
            afresh: false,
            bytes: 0,
            state: ViewState::Syncing,
            version: ResourceVersion::default(),
            told: Told::default(),
            trouble: None,
            unusable: HashMap::new(),
            skipped: 0,
            revision: Revision::default(),
            age_max_ms: None,
            heard: None,
            in_flight_since: None,
        }
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

    /// A list begins. What was unusable is found again if it still is.
    pub(super) fn begin_list(&mut self, afresh: bool) {
        self.pass = self.pass.wrapping_add(1);
        self.listing = true;
        self.afresh = afresh;
        self.unusable.clear();
        self.skipped = 0;
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
        let (pass, afresh) = (self.pass, self.afresh);
        match self.wanted.get_mut(key) {
            Some(known) => {
                let same = known.version == *version && known.body_bytes > 0;
                let is_known = same && (!afresh || known.pass == pass);
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
        self.unusable.remove(&key);
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
            let listed_again = !self.afresh || before.pass == self.pass;
            if before.version == version && listed_again {
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
        self.unusable.remove(key);
        let Some(before) = self.wanted.remove(key) else {
            return (Queued::Nothing, 0);
        };
        self.bytes -= u64::from(before.body_bytes);
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
        self.unusable.insert(key, problem);
    }

    /// What the readers have to be told now that an object changed, if that is anything: only of a
    /// view that is otherwise whole can one object make a difference.
    pub(super) fn state_after_object(&self) -> Option<ViewState> {
        let whole = match &self.state {
            ViewState::Synced => true,
            ViewState::Failed { failure } => failure.reason == UNUSABLE,
            ViewState::Syncing | ViewState::Dropped => false,
        };
        (whole && !self.listing).then(|| self.state_when_listed())
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
        let (key, problem) = self.unusable.iter().min_by_key(|(key, _)| *key)?;
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

    /// The list is complete: objects that it did not have.
    pub(super) fn unseen(&mut self) -> Vec<ObjectKey> {
        self.listing = false;
        self.afresh = false;
        let pass = self.pass;
        let unseen = self.wanted.iter().filter(|(_, known)| known.pass != pass);
        unseen.map(|(key, _)| key.clone()).collect()
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
            origin: anteroom_model::Epoch::default(),
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

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}
