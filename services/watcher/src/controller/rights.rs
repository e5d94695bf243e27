//! What policies change of what exists, whether this watcher may, and as whom it does.

use anteroom_model::{EntryKind, EntryRecord, EntryState, Failure, ObjectKey};
use anteroom_policy::WRITER;
use std::sync::Arc;
use tokio::sync::watch;

use super::{Controller, policies::PolicyId};
use crate::{
    manifests::PolicyManifest,
    rights::{Found, Need},
};

/// What the controller tells and is told of rights.
#[derive(Clone)]
pub(crate) struct Rights {
    /// What policies need.
    pub needed: watch::Sender<Arc<Vec<Need>>>,
    /// What is known of it.
    pub found: watch::Receiver<Found>,
    /// As whom this watcher writes.
    pub user: watch::Receiver<Option<String>>,
}

impl Controller {
    /// The policies may need something else.
    pub(super) fn needs_changed(&self) {
        let feeds = [&self.cluster_policies, &self.policies];
        let policies = feeds.into_iter().flat_map(|feed| feed.roster.values());
        let mut needs: Vec<_> = policies.flat_map(needs_of).cloned().collect();
        needs.sort();
        needs.dedup();
        self.rights.needed.send_if_modified(|before| {
            let is_news = **before != needs;
            *before = Arc::new(needs);
            is_news
        });
    }

    /// It is known what may be written: whom that concerns is told.
    pub(super) fn rights_found(&mut self) {
        let cluster = self.cluster_policies.roster.values();
        let policies = cluster.chain(self.policies.roster.values());
        let concerned = policies.filter(|policy| !policy.changes.is_empty());
        let ids: Vec<_> = concerned.map(|policy| PolicyId(key(policy))).collect();
        self.dirty.policies.extend(ids);
    }

    /// Webhooks have to know whose writes are no triggers.
    pub(super) fn writer_found(&mut self) {
        let user = self.rights.user.borrow_and_update().clone();
        if let Some(user) = user {
            self.own_entry(&EntryRecord {
                kind: EntryKind::Implicit,
                name: WRITER.to_owned(),
                uid: String::new(),
                generation: 0,
                state: EntryState::Invalid {
                    failure: Failure::new("Writer", user),
                },
                projections: Vec::new(),
            });
        }
    }
}

fn key(policy: &PolicyManifest) -> ObjectKey {
    let identity = &policy.identity;
    ObjectKey::new(&*identity.namespace, &*identity.name)
}

fn needs_of(policy: &PolicyManifest) -> impl Iterator<Item = &Need> {
    policy.changes.iter().map(|(_, need)| need)
}
