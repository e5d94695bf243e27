//! What policies change of what exists, whether this watcher may, and as whom it does.

use anteroom_model::{EntryKind, EntryRecord, EntryState, Failure, ObjectKey};
use anteroom_policy::WRITER;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

use super::{Controller, policies::PolicyId};
use crate::{
    manifests::PolicyManifest,
    rights::{Found, Need, Writer},
};

/// What the controller tells and is told of rights.
#[derive(Clone)]
pub(crate) struct Rights {
    /// What policies need.
    pub needed: watch::Sender<Arc<Vec<Need>>>,
    /// What is known of it.
    pub found: watch::Receiver<Found>,
    /// As whom this watcher writes.
    pub user: watch::Receiver<Writer>,
}

/// How long a term waits for the answer as whom it writes before what earlier terms said of it is dropped.
const WRITER_WAIT: Duration = Duration::from_secs(15);

/// Whether what an earlier term said of the writer is kept for now.
fn is_awaited(writer: &Writer, since: Duration) -> bool {
    *writer == Writer::Unknown && since < WRITER_WAIT
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
        if let Writer::Known(user) = user {
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

    /// Whether it may be known soon as whom this watcher writes.
    pub(super) fn awaits_writer(&self) -> bool {
        is_awaited(&self.rights.user.borrow(), self.begun.elapsed())
    }
}

fn key(policy: &PolicyManifest) -> ObjectKey {
    let identity = &policy.identity;
    ObjectKey::new(&*identity.namespace, &*identity.name)
}

fn needs_of(policy: &PolicyManifest) -> impl Iterator<Item = &Need> {
    policy.changes.iter().map(|(_, need)| need)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_the_writer_is_kept_until_it_is_known_or_not_to_be_known() {
        let just_before = WRITER_WAIT - Duration::from_millis(1);
        for (writer, since, expected) in [
            (Writer::Unknown, Duration::ZERO, true),
            (Writer::Unknown, just_before, true),
            (Writer::Unknown, WRITER_WAIT, false),
            (Writer::Unsaid, Duration::ZERO, false),
            (Writer::Known("w".into()), Duration::ZERO, false),
        ] {
            assert_eq!(is_awaited(&writer, since), expected, "{writer:?} {since:?}");
        }
    }
}
