//! What the webhook knows: entries, kinds and policies, as the watcher published them.
//!
//! A catalog is only ever replaced by a whole newer one. While the log or the watcher is away, the
//! last one stays in force: a policy that was there is better enforced than forgotten, and the facts
//! that it reads carry their own age.

mod entries;
mod follow;

use std::sync::Arc;

use anteroom_model::{EntryKind, EntryRecord, FactError};
use tokio::sync::watch;

use crate::{kinds::Kinds, policies::PolicySet};

pub(crate) use entries::Entries;
pub(crate) use follow::follow;

/// What the webhook knows. Immutable.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) entries: Arc<Entries>,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) policies: Arc<PolicySet>,
}

/// The catalog as it stands; `None` until everything was read once.
pub(crate) type Catalogs = watch::Receiver<Option<Arc<Catalog>>>;

impl Catalog {
    /// The entry of this name.
    ///
    /// # Errors
    /// [`FactError::EntryNotFound`]
    pub(crate) fn entry(&self, kind: EntryKind, name: &str) -> Result<&EntryRecord, FactError> {
        self.entries
            .get(kind, name)
            .ok_or_else(|| FactError::EntryNotFound {
                kind,
                entry: name.to_owned(),
            })
    }
}
