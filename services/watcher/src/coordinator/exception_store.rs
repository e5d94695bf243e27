//! The exceptions of both groups. Pure.

use anteroom_model::ObjectKey;
use tokio::time::Instant;

use super::{manifest_list::ManifestList, manifests::ExceptionManifest};

/// Stands before the names of exceptions of policies.kyverno.io, in the view of both kinds: no name has a slash in it.
const CEL_PREFIX: &str = "policies.kyverno.io/";

/// The kinds of exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExceptionKind {
    /// `PolicyException` of kyverno.io, from rules of its policies.
    Classic,
    /// `PolicyException` of policies.kyverno.io, from policies of that group.
    Cel,
}

impl ExceptionKind {
    /// Both groups of exceptions.
    pub(super) const ALL: [Self; 2] = [Self::Classic, Self::Cel];

    /// Returns the key among the exceptions of both kinds.
    pub(super) fn key(self, object: &ObjectKey) -> ObjectKey {
        match self {
            Self::Classic => object.clone(),
            Self::Cel => ObjectKey::new(&*object.namespace, format!("{CEL_PREFIX}{}", object.name)),
        }
    }
}

/// The exceptions of both kinds.
pub(super) struct ExceptionStore {
    /// The lists of exceptions, one for each kind, in the kinds' order.
    lists: [ManifestList<ExceptionManifest>; ExceptionKind::ALL.len()],
    /// A mark for each kind whose exceptions cannot be read. The entries that they need are unknown then, and nothing
    /// else waits for them.
    refused: [bool; ExceptionKind::ALL.len()],
}

impl Default for ExceptionStore {
    fn default() -> Self {
        Self {
            lists: ExceptionKind::ALL.map(|_| ManifestList::new("policyexceptions")),
            refused: [false; ExceptionKind::ALL.len()],
        }
    }
}

impl ExceptionStore {
    /// Returns the exceptions of a kind, by their keys among both.
    pub(super) fn list_mut(&mut self, kind: ExceptionKind) -> &mut ManifestList<ExceptionManifest> {
        &mut self.lists[kind as usize]
    }

    /// Returns whether the API server does not serve a kind.
    pub(super) fn is_absent(&self, kind: ExceptionKind) -> bool {
        self.lists[kind as usize].is_absent()
    }

    /// Returns whether it serves neither, or neither is to be read.
    pub(super) fn are_absent(&self) -> bool {
        self.lists.iter().all(ManifestList::is_absent)
    }

    /// Returns whether all exceptions were listed, or there are none.
    pub(super) fn are_listed(&self) -> bool {
        self.lists.iter().all(ManifestList::is_known)
    }

    /// Returns whether nothing waits for exceptions any more.
    pub(super) fn are_settled(&self) -> bool {
        let mut lists = self.lists.iter().zip(self.refused);
        lists.all(|(list, refused)| list.is_known() || refused)
    }

    /// Notes that the exceptions of a kind cannot be read.
    pub(super) fn refuse(&mut self, kind: ExceptionKind) {
        self.refused[kind as usize] = true;
    }

    /// Returns since when the news of both kinds is: the older of the two. A kind that is not served has none.
    pub(super) fn news_at(&self) -> Option<Instant> {
        let served = self.lists.iter().filter(|list| !list.is_absent());
        let heard: Option<Vec<_>> = served.map(ManifestList::news_at).collect();
        heard?.into_iter().min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn exceptions_of_both_kinds_have_keys_of_their_own() {
        let object = ObjectKey::new("ns", "a");
        let keys = ExceptionKind::ALL.map(|kind| kind.key(&object));
        assert_eq!(keys[0], object);
        assert_eq!(keys[1], ObjectKey::new("ns", "policies.kyverno.io/a"));
    }

    #[test]
    fn exceptions_are_as_fresh_as_the_served_kind_that_was_heard_longer_ago() {
        let mut store = ExceptionStore::default();
        let early = Instant::now();
        let late = early + Duration::from_secs(1);
        store.list_mut(ExceptionKind::Classic).note_news(early);
        assert_eq!(store.news_at(), None, "of the other nothing is known");
        store.list_mut(ExceptionKind::Cel).note_news(late);
        assert_eq!(store.news_at(), Some(early));
        store.list_mut(ExceptionKind::Classic).set_absent(true);
        assert_eq!(store.news_at(), Some(late));
        assert!(!store.are_listed());
        store.refuse(ExceptionKind::Cel);
        assert!(store.are_settled() && !store.are_listed() && !store.are_absent());
    }
}
