//! The entries that manifests declare: `CachedContextEntry` and `GlobalContextEntry`. Pure.

use anteroom_model::{EntryKind, Failure, ObjectKey};
use tokio::time::Instant;

use super::{
    manifest_list::{ManifestList, is_not_served},
    manifests::EntryManifest,
    registry::EntryId,
    status::writer::StatusOwner,
};

/// The entries of both kinds.
pub(super) struct EntryStore {
    cached: ManifestList<EntryManifest>,
    global: ManifestList<EntryManifest>,
}

impl Default for EntryStore {
    fn default() -> Self {
        Self {
            cached: ManifestList::new(EntryKind::Cached.name()),
            global: ManifestList::new(EntryKind::Global.name()),
        }
    }
}

impl EntryStore {
    /// Returns the entries of a kind. Implicit entries have no manifests.
    pub(super) fn list(&self, kind: EntryKind) -> &ManifestList<EntryManifest> {
        match kind {
            EntryKind::Global => &self.global,
            EntryKind::Cached | EntryKind::Implicit => &self.cached,
        }
    }

    /// Returns the same as [`Self::list`], to be changed.
    pub(super) fn list_mut(&mut self, kind: EntryKind) -> &mut ManifestList<EntryManifest> {
        match kind {
            EntryKind::Global => &mut self.global,
            EntryKind::Cached | EntryKind::Implicit => &mut self.cached,
        }
    }

    /// Returns the manifest of an entry.
    pub(super) fn get(&self, (kind, name): &EntryId) -> Option<&EntryManifest> {
        self.list(*kind).get(&ObjectKey::new("", name.as_str()))
    }

    /// Returns the entries of both kinds.
    pub(super) fn iter(&self) -> impl Iterator<Item = &EntryManifest> {
        self.cached.values().chain(self.global.values())
    }

    /// Returns whether all entries are known.
    pub(super) fn are_known(&self) -> bool {
        self.cached.is_known() && self.global.is_known()
    }

    /// Returns the reason why not all entries are known or up to date.
    pub(super) fn waits_for(&self) -> Option<&str> {
        self.cached.waits_for().or(self.global.waits_for())
    }

    /// Returns since when the news of both kinds is: the older of the two.
    pub(super) fn news_at(&self) -> Option<Instant> {
        match (self.cached.news_at(), self.global.news_at()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, None) if self.global.is_absent() => one,
            _ => None,
        }
    }

    /// Notes that entries of a kind cannot be read. Returns whether that is an error for readers: Kyverno's own
    /// kind need not be installed.
    pub(super) fn refuse(&mut self, kind: EntryKind, failure: &Failure) -> bool {
        let list = self.list_mut(kind);
        if kind == EntryKind::Global && is_not_served(failure) {
            list.set_absent(true);
            return false;
        }
        list.refuse(format!(
            "the API server to serve {}: {failure}",
            kind.name()
        ));
        true
    }
}

/// Returns the object that holds the entry's status.
pub(super) fn status_owner(entry: &EntryManifest) -> StatusOwner {
    let (kind, plural) = match entry.kind {
        EntryKind::Global => ("GlobalContextEntry", "globalcontextentries"),
        EntryKind::Cached | EntryKind::Implicit => ("CachedContextEntry", "cachedcontextentries"),
    };
    StatusOwner::new("kyverno.io/v2alpha1", kind, plural, &entry.identity)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn failure(reason: &str) -> Failure {
        Failure::new(reason, "no")
    }

    #[test]
    fn entries_are_known_without_kyvernos_own_kind_but_not_without_ours() {
        for (kind, known, told) in [
            (EntryKind::Global, true, false),
            (EntryKind::Cached, false, true),
        ] {
            let mut store = EntryStore::default();
            let other = match kind {
                EntryKind::Global => EntryKind::Cached,
                _ => EntryKind::Global,
            };
            store.list_mut(other).complete(Instant::now());
            assert_eq!(store.refuse(kind, &failure("ResourceNotFound")), told);
            assert_eq!(store.are_known(), known, "{kind:?}");
            assert_eq!(store.waits_for().is_none(), known, "{kind:?}");
        }
    }

    #[test]
    fn a_refusal_for_another_reason_is_waited_for_until_the_next_list() {
        let mut store = EntryStore::default();
        store.list_mut(EntryKind::Cached).complete(Instant::now());
        assert!(store.refuse(EntryKind::Global, &failure("Forbidden")));
        assert!(store.waits_for().is_some() && !store.are_known());
        store.list_mut(EntryKind::Global).complete(Instant::now());
        assert!(store.waits_for().is_none() && store.are_known());
    }

    #[test]
    fn entries_are_as_fresh_as_the_kind_that_was_heard_longer_ago() {
        let (early, mut store) = (Instant::now(), EntryStore::default());
        let late = early + Duration::from_secs(1);
        store.list_mut(EntryKind::Cached).note_news(late);
        assert_eq!(store.news_at(), None);
        store.refuse(EntryKind::Global, &failure("ResourceNotFound"));
        assert_eq!(store.news_at(), Some(late));
        store.list_mut(EntryKind::Global).note_news(early);
        assert_eq!(store.news_at(), Some(early));
    }
}
