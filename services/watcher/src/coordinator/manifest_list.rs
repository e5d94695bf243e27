//! The objects of one collection that the coordinator reads, and whether they are all known.

use anteroom_model::{Failure, ObjectKey, source_reason};
use tokio::time::Instant;

use crate::generations::Generations;

/// The manifests of one collection, as they were read last.
pub(super) struct ManifestList<T> {
    manifests: Generations<ObjectKey, T>,
    /// The reason why they are not all known or up to date, for people.
    waits_for: Option<String>,
    /// All manifests were listed at least once.
    listed: bool,
    /// The API server does not serve the kind: there are none.
    absent: bool,
    heard: Option<Instant>,
}

impl<T> ManifestList<T> {
    /// Returns an empty list of a kind, of which nothing is known yet.
    pub(super) fn new(plural: &str) -> Self {
        Self {
            manifests: Generations::default(),
            waits_for: Some(format!("the first list of {plural}")),
            listed: false,
            absent: false,
            heard: None,
        }
    }

    /// Begins a list.
    pub(super) fn begin(&mut self) {
        self.manifests.begin();
    }

    /// Completes the list that was begun, and returns the manifests that it did not bring.
    pub(super) fn complete(&mut self, now: Instant) -> Vec<(ObjectKey, T)> {
        self.listed = true;
        self.absent = false;
        self.waits_for = None;
        self.heard = Some(now);
        self.manifests.sweep()
    }

    /// Notes that the API server was heard from.
    pub(super) fn note_news(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// Notes that the collection cannot be read, and the text for the readiness check.
    pub(super) fn refuse(&mut self, waits_for: String) {
        self.waits_for = Some(waits_for);
    }

    /// Notes whether the API server serves the kind. If it does not, readiness does not wait for the list.
    pub(super) fn set_absent(&mut self, absent: bool) {
        self.absent = absent;
        if absent {
            self.waits_for = None;
        }
    }

    /// Inserts a manifest, and returns the manifest before.
    pub(super) fn put(&mut self, key: ObjectKey, manifest: T) -> Option<T> {
        self.manifests.put(key, manifest)
    }

    /// Replaces what is known of a manifest, and returns the manifest before. A list under way has not brought it thereby.
    pub(super) fn replace(&mut self, key: ObjectKey, manifest: T) -> Option<T> {
        self.manifests.replace(key, manifest)
    }

    /// Notes that a list under way has brought a manifest.
    pub(super) fn touch(&mut self, key: &ObjectKey) {
        self.manifests.touch(key);
    }

    /// Removes a manifest.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<T> {
        self.manifests.remove(key)
    }

    /// Returns a manifest.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&T> {
        self.manifests.get(key)
    }

    /// Returns all manifests with their keys, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &T)> {
        self.manifests.iter()
    }

    /// Returns all manifests, in no order.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.manifests.values()
    }

    /// Returns whether all manifests are known: they were listed, or there are none.
    pub(super) fn is_known(&self) -> bool {
        self.listed || self.absent
    }

    /// Returns whether the API server does not serve the kind.
    pub(super) fn is_absent(&self) -> bool {
        self.absent
    }

    /// Returns the reason why the manifests are not all known or up to date, for people.
    pub(super) fn waits_for(&self) -> Option<&str> {
        self.waits_for.as_deref()
    }

    /// Returns when the API server was last heard from.
    pub(super) fn news_at(&self) -> Option<Instant> {
        self.heard
    }
}

/// Returns whether a collection was refused because the API server does not serve its kind.
pub(super) fn is_not_served(failure: &Failure) -> bool {
    failure.reason == source_reason::RESOURCE_NOT_FOUND
}
