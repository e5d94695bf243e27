//! What the webhook knows: entries, kinds and policies, as the watcher published them.
//!
//! A catalog is only ever replaced by a whole newer one. While the log or the watcher is away, the
//! last one stays in force: a policy that was there is better enforced than forgotten, and the facts
//! that it reads carry their own age.

mod follow;

use std::{collections::HashMap, sync::Arc};

use anteroom_model::{EntryRecord, FactError, ViewId};
use tokio::sync::watch;

use crate::{kinds::Kinds, policies::PolicySet};

pub(crate) use follow::follow;

/// What the webhook knows. Immutable.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) entries: Arc<HashMap<String, EntryRecord>>,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) policies: Arc<PolicySet>,
}

/// The catalog as it stands; `None` until everything was read once.
pub(crate) type Catalogs = watch::Receiver<Option<Arc<Catalog>>>;

impl Catalog {
    /// The view that an entry points at, or the error that its readers get: those of a namespaced
    /// policy, if there is a `namespace`.
    pub(crate) fn view(&self, entry: &str, namespace: Option<&str>) -> Result<&ViewId, FactError> {
        match self.entries.get(entry) {
            Some(record) => record.view_within(namespace),
            None => Err(FactError::EntryNotFound {
                entry: entry.to_owned(),
            }),
        }
    }
}
