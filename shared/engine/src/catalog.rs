//! The catalog: entries, kinds, policies and exceptions, as the watcher published them.
//!
//! A catalog is only ever replaced by a whole newer one. While the log or the watcher is away, the
//! last one stays in force: a policy that was there is better enforced than forgotten, and the facts
//! that it reads carry their own age.

mod entries;
mod follow;
mod position;

use std::sync::Arc;

use anteroom_model::{EntryKind, EntryRecord, EntryState, FactError, Incarnation, Revision};
use anteroom_policy::{CALLS, CALLS_DECLARED, CALLS_OFF, Reference, WRITER};
use tokio::sync::watch;

use crate::{exceptions::Exceptions, kinds::Kinds, policies::PolicySet};

pub use entries::EntrySet;
pub use follow::{CatalogOutlets, follow};

/// All that decisions go by. Immutable.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The context entries.
    pub entries: Arc<EntrySet>,
    /// The kinds that the API server serves.
    pub kinds: Arc<Kinds>,
    /// The policies, ready or not.
    pub policies: Arc<PolicySet>,
    /// The exceptions from policies.
    pub exceptions: Arc<Exceptions>,
    /// The position of the log up to which everything but exceptions is in here.
    pub position: LogPosition,
}

/// A position of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// The log; empty: none.
    pub incarnation: Incarnation,
    /// 0: before its beginning.
    pub revision: Revision,
    /// Times that the log had lost records that were read here.
    pub shortened: u64,
}

impl LogPosition {
    /// Returns true if the two positions can be compared: they are of one log, which lost no record in between.
    pub fn is_comparable_to(&self, other: &Self) -> bool {
        (&self.incarnation, self.shortened) == (&other.incarnation, other.shortened)
    }
}

/// The catalog as it stands; `None` until everything was read once.
pub type Catalogs = watch::Receiver<Option<Arc<Catalog>>>;

impl Catalog {
    /// The user as whom the watcher writes objects that rules change, if it says so.
    pub fn writer(&self) -> Option<&str> {
        match &self.entries.get(EntryKind::Implicit, WRITER)?.state {
            EntryState::Invalid { failure } => Some(&failure.message),
            EntryState::Bound(_) => None,
        }
    }

    /// Returns whether the same policies and exceptions are in force.
    pub fn same_policies(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.policies, &other.policies)
            && Arc::ptr_eq(&self.exceptions, &other.exceptions)
    }

    /// Returns whether a view may answer a policy's call that `reference` is kept for, or is the policy's own
    /// inline entry: which calls are, the watcher says.
    pub fn keeps(&self, reference: &Reference) -> bool {
        let said = self.entries.get(EntryKind::Implicit, CALLS);
        let reason = match said.map(|record| &record.state) {
            Some(EntryState::Invalid { failure }) => &*failure.reason,
            Some(EntryState::Bound(_)) | None => return true,
        };
        match reason {
            CALLS_OFF => reference.is_inline(),
            CALLS_DECLARED => reference.is_declared(),
            _ => true,
        }
    }

    /// The entry of this name.
    ///
    /// # Errors
    /// [`FactError::EntryNotFound`]
    pub fn entry(&self, kind: EntryKind, name: &str) -> Result<&EntryRecord, FactError> {
        self.entries
            .get(kind, name)
            .ok_or_else(|| FactError::EntryNotFound {
                kind,
                entry: name.to_owned(),
            })
    }
}
