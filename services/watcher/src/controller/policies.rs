//! The `policies` system view, which two collections feed.

use std::time::Instant;

use anteroom_model::{Dependent, ObjectKey, ResourceVersion};

use super::{Controller, Feed};
use crate::{
    manifests::{POLICY_API_VERSION, PolicyManifest, PublishedPolicy, Roster},
    permits::{self, SecretsReaders},
    reflect::{Note, RawObject},
    registry::Event,
    status::Author,
};

/// Which policy: a `ClusterPolicy` has no namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PolicyId(pub(super) ObjectKey);

impl PolicyId {
    pub(super) fn may_read_secrets(&self, readers: &SecretsReaders) -> bool {
        readers.allows_policy(&self.0.namespace, &self.0.name)
    }
}

/// One of the two collections.
pub(super) struct PolicyFeed {
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) roster: Roster<PolicyManifest>,
    /// What it waits for, unless it was listed and can be read.
    waits: Option<String>,
    /// The API server does not serve the kind: there is none.
    absent: bool,
    heard: Option<Instant>,
}

impl PolicyFeed {
    pub(super) fn new(kind: &'static str, plural: &'static str) -> Self {
        Self {
            kind,
            plural,
            roster: Roster::default(),
            waits: Some(format!("the first list of {plural}")),
            absent: false,
            heard: None,
        }
    }

    /// All of them are known.
    pub(super) fn is_known(&self) -> bool {
        self.roster.listed || self.absent
    }

    pub(super) fn author(&self, policy: &PolicyManifest) -> Author {
        Author::new(POLICY_API_VERSION, self.kind, self.plural, &policy.identity)
    }
}

impl Controller {
    pub(super) fn policy_feed(&self, id: &PolicyId) -> &PolicyFeed {
        match id.0.namespace.is_empty() {
            true => &self.cluster_policies,
            false => &self.policies,
        }
    }

    fn feed_mut(&mut self, feed: Feed) -> &mut PolicyFeed {
        match feed {
            Feed::ClusterPolicies => &mut self.cluster_policies,
            Feed::Policies | Feed::Entries(_) | Feed::Exceptions => &mut self.policies,
        }
    }

    pub(super) fn policy_note(&mut self, feed: Feed, note: Note) {
        let now = Instant::now();
        match note {
            Note::Begin { .. } => self.feed_mut(feed).roster.begin(),
            Note::Put { object, span } => {
                let RawObject { key, .. } = &object;
                let (manifest, published) = PolicyManifest::read(&object, self.feed_mut(feed).kind);
                let publish =
                    tracing::info_span!(parent: &span, "publish", otel.kind = "producer", %key);
                // What it reads is wanted before readers learn of it.
                span.in_scope(|| self.policy_put(feed, key.clone(), manifest));
                let own = &self.own.policies;
                self.tools.publisher.with(|book| match published {
                    Some(PublishedPolicy { version, body }) => {
                        book.put(own, key.clone(), version, body, now, publish);
                    }
                    None => book.delete(own, key, gone(), now, publish),
                });
            }
            Note::Gone { key, span, .. } => {
                let publish =
                    tracing::info_span!(parent: &span, "publish", otel.kind = "producer", %key);
                let own = &self.own.policies;
                let publisher = &self.tools.publisher;
                publisher.with(|book| book.delete(own, &key, gone(), now, publish));
                let manifest = self.feed_mut(feed).roster.remove(&key);
                self.policy_gone(feed, key, manifest);
            }
            Note::Skipped => {
                let own = &self.own.policies;
                self.tools.publisher.with(|book| book.skipped(own));
            }
            Note::Listed { .. } => {
                let unseen = self.feed_mut(feed).roster.sweep();
                let feed_state = self.feed_mut(feed);
                feed_state.waits = None;
                feed_state.absent = false;
                feed_state.heard = Some(now);
                for (key, manifest) in unseen {
                    let own = &self.own.policies;
                    self.tools.publisher.with(|book| {
                        book.delete(own, &key, gone(), now, tracing::Span::none());
                    });
                    self.policy_gone(feed, key, Some(manifest));
                }
                self.policies_listed();
                self.settle();
            }
            Note::Heard { .. } => {
                self.feed_mut(feed).heard = Some(now);
                // The view's news is as old as the older of the two.
                let both = self.cluster_policies.heard.zip(self.policies.heard);
                if let Some(heard) = both.map(|(one, other)| one.min(other)) {
                    let own = &self.own.policies;
                    let publisher = &self.tools.publisher;
                    publisher.with(|book| book.heard(own, None, heard));
                }
            }
            Note::Refused(failure) => {
                let feed_state = self.feed_mut(feed);
                let kind = feed_state.kind;
                feed_state.absent = failure.reason == "ResourceNotFound";
                feed_state.waits = Some(format!("the API server to serve {kind}: {failure}"));
                let own = &self.own.policies;
                let publisher = &self.tools.publisher;
                publisher.with(|book| book.refused(own, failure));
                self.policies_check();
                self.retain_for_all();
                self.settle();
            }
            Note::Troubled(failure) => {
                let own = &self.own.policies;
                let publisher = &self.tools.publisher;
                publisher.with(|book| book.troubled(own, failure));
            }
        }
    }

    /// The policy is now this: its references are its own, by its UID.
    fn policy_put(&mut self, feed: Feed, key: ObjectKey, mut manifest: PolicyManifest) {
        let id = PolicyId(key.clone());
        let allowed = id.may_read_secrets(&self.tools.secrets);
        manifest.secrets_forbidden =
            !allowed && manifest.references.iter().any(permits::is_of_secrets);
        let kept = self.kept_for(&id, &manifest);
        let uid = Dependent(manifest.identity.uid.clone());
        let old = self.feed_mut(feed).roster.remove(&key);
        let mut queries = manifest.queries.clone();
        let needs = |policy: &PolicyManifest| !policy.changes.is_empty();
        let needs = needs(&manifest) || old.as_ref().is_some_and(needs);
        if let Some(old) = old {
            self.unread(&id, &old);
            match old.queries == queries {
                true => queries.clear(),
                false => queries.extend(old.queries),
            }
            let old = Dependent(old.identity.uid);
            if old != uid {
                self.by_uid.remove(&old);
                self.apply(Event::PolicyGone(old));
            }
        }
        for entry in &manifest.entries {
            let readers = self.readers.entry(entry.clone()).or_default();
            readers.insert(id.clone());
        }
        self.by_uid.insert(uid.clone(), id.clone());
        self.feed_mut(feed).roster.put(key, manifest);
        if needs {
            self.needs_changed();
        }
        self.dirty.policies.insert(id);
        self.apply(Event::Policy(uid, kept));
        self.retain_for(&queries);
    }

    fn policy_gone(&mut self, feed: Feed, key: ObjectKey, manifest: Option<PolicyManifest>) {
        let Some(manifest) = manifest else {
            return;
        };
        let author = self.feed_mut(feed).author(&manifest);
        self.tools.status.forget(&author);
        let id = PolicyId(key);
        self.not_to_enforce(&id);
        if !manifest.changes.is_empty() {
            self.needs_changed();
        }
        self.unread(&id, &manifest);
        let uid = Dependent(manifest.identity.uid);
        self.by_uid.remove(&uid);
        self.apply(Event::PolicyGone(uid));
        self.retain_for(&manifest.queries);
    }

    fn unread(&mut self, id: &PolicyId, manifest: &PolicyManifest) {
        for entry in &manifest.entries {
            if let Some(readers) = self.readers.get_mut(entry) {
                readers.remove(id);
                if readers.is_empty() {
                    self.readers.remove(entry);
                }
            }
        }
    }

    /// Once both were listed: what neither had is gone, and the view is synced.
    fn policies_listed(&mut self) {
        self.policies_check();
        self.retain_for_all();
        let feeds: [&PolicyFeed; 2] = [&self.cluster_policies, &self.policies];
        if feeds.iter().all(|feed| feed.waits.is_none()) {
            let (own, now) = (&self.own.policies, Instant::now());
            let version = ResourceVersion::default();
            self.tools
                .publisher
                .with(|book| book.listed(own, &version, now));
        }
    }

    fn policies_check(&self) {
        let check = &self.tools.checks.policies;
        let waits = self
            .cluster_policies
            .waits
            .as_ref()
            .or(self.policies.waits.as_ref());
        match waits {
            None => check.ready(),
            Some(waits) => check.not_ready(waits),
        }
    }
}

/// Versions of this view are hashes of content, and a deletion has none.
fn gone() -> ResourceVersion {
    ResourceVersion::default()
}
