//! What the webhook knows: entries, kinds and policies, as the watcher published them.
//!
//! A catalog is only ever replaced by a whole newer one. While the log or the watcher is away, the
//! last one stays in force: a policy that was there is better enforced than forgotten, and the facts
//! that it reads carry their own age.

mod follow;

use std::{collections::HashMap, sync::Arc};

use anteroom_model::{Binding, EntryKind, EntryRecord, FactError};
use tokio::sync::watch;

use crate::{kinds::Kinds, policies::PolicySet};

pub(crate) use follow::follow;

/// What the webhook knows. Immutable.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) entries: Arc<HashMap<(EntryKind, String), EntryRecord>>,
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) policies: Arc<PolicySet>,
}

/// The catalog as it stands; `None` until everything was read once.
pub(crate) type Catalogs = watch::Receiver<Option<Arc<Catalog>>>;

impl Catalog {
    /// Where an entry's data are, or the error that its readers get: those of a namespaced policy, if
    /// there is a `namespace`.
    pub(crate) fn binding(
        &self,
        kind: EntryKind,
        entry: &str,
        namespace: Option<&str>,
    ) -> Result<&Binding, FactError> {
        match self.entries.get(&(kind, entry.to_owned())) {
            Some(record) => record.binding_within(namespace),
            None => Err(FactError::EntryNotFound {
                entry: entry.to_owned(),
            }),
        }
    }
}
