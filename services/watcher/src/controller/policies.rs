//! The `policies` system view, which two collections feed.

use std::time::Instant;

use anteroom_model::ResourceVersion;

use super::{Controller, Feed};
use crate::{
    manifests::{PolicyManifest, PublishedPolicy, Roster},
    reflect::{Note, RawObject},
};

/// One of the two collections.
pub(super) struct PolicyFeed {
    pub(super) kind: &'static str,
    pub(super) plural: &'static str,
    pub(super) roster: Roster<PolicyManifest>,
    /// What it waits for, unless it was listed and can be read.
    waits: Option<String>,
    heard: Option<Instant>,
}

impl PolicyFeed {
    pub(super) fn new(kind: &'static str, plural: &'static str) -> Self {
        Self {
            kind,
            plural,
            roster: Roster::default(),
            waits: Some(format!("the first list of {plural}")),
            heard: None,
        }
    }
}

impl Controller {
    pub(super) fn policy_note(&mut self, feed: Feed, note: Note) {
        let now = Instant::now();
        let this = match feed {
            Feed::ClusterPolicies => &mut self.cluster_policies,
            Feed::Policies | Feed::Entries => &mut self.policies,
        };
        let (publisher, own) = (&self.tools.publisher, &self.own.policies);
        match note {
            Note::Begin { .. } => this.roster.begin(),
            Note::Put { object, span } => {
                let RawObject { key, .. } = &object;
                let (manifest, published) = PolicyManifest::read(&object, this.kind);
                let publish =
                    tracing::info_span!(parent: &span, "publish", otel.kind = "producer", %key);
                publisher.with(|book| match published {
                    Some(PublishedPolicy { version, body }) => {
                        book.put(own, key.clone(), version, body, now, publish);
                    }
                    None => book.delete(own, key, gone(), now, publish),
                });
                this.roster.put(object.key, manifest);
            }
            Note::Gone { key, span, .. } => {
                this.roster.remove(&key);
                let publish =
                    tracing::info_span!(parent: &span, "publish", otel.kind = "producer", %key);
                publisher.with(|book| book.delete(own, &key, gone(), now, publish));
            }
            Note::Skipped => publisher.with(|book| book.skipped(own)),
            Note::Listed { .. } => {
                let unseen = this.roster.sweep();
                this.waits = None;
                this.heard = Some(now);
                publisher.with(|book| {
                    for key in unseen {
                        book.delete(own, &key, gone(), now, tracing::Span::none());
                    }
                });
                self.policies_listed();
            }
            Note::Heard { .. } => {
                this.heard = Some(now);
                // The view's news is as old as the older of the two.
                let both = self.cluster_policies.heard.zip(self.policies.heard);
                if let Some(heard) = both.map(|(one, other)| one.min(other)) {
                    publisher.with(|book| book.heard(own, None, heard));
                }
            }
            Note::Refused(failure) => {
                this.waits = Some(format!("the API server to serve {}: {failure}", this.kind));
                publisher.with(|book| book.refused(own, failure));
                self.policies_check();
            }
            Note::Troubled(failure) => publisher.with(|book| book.troubled(own, failure)),
        }
    }

    /// Once both were listed: what neither had is gone, and the view is synced.
    fn policies_listed(&mut self) {
        self.policies_check();
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
