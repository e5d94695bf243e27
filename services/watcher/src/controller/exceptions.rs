//! The `exceptions` system view: the `PolicyException`s that are taken into account.
//!
//! An exception that is not known yet would leave a rule in force that should not be, so a webhook waits for
//! this view as it does for the policies. Where the API server serves no such kind, or where none are to be
//! read, there are none.

use std::time::Instant;

use anteroom_model::{Dependent, ObjectKey, ResourceVersion};
use anteroom_policy::Reference;

use super::Controller;
use crate::{
    manifests::{ExceptionManifest, Roster},
    reflect::{Note, RawObject},
    registry::{Event, Referred},
};

/// The exceptions as they are read.
#[derive(Default)]
pub(super) struct ExceptionFeed {
    roster: Roster<ExceptionManifest>,
    /// They were listed once, or there is nothing to list.
    pub(super) is_known: bool,
    /// There is nothing to list, and so nobody to hear of.
    pub(super) is_nothing: bool,
}

impl Controller {
    /// None are read.
    pub(super) fn no_exceptions(&mut self) {
        self.exceptions.roster.begin();
        self.exceptions_listed();
        self.exceptions.is_nothing = true;
    }

    pub(super) fn exception_note(&mut self, note: Note) {
        let now = Instant::now();
        match note {
            Note::Begin { .. } => self.exceptions.roster.begin(),
            Note::Put { object, span } => {
                let publish = tracing::info_span!(parent: &span, "publish", otel.kind = "producer", key = %object.key);
                span.in_scope(|| self.exception_put(&object, publish));
            }
            Note::Gone { key, span, .. } => {
                let publish =
                    tracing::info_span!(parent: &span, "publish", otel.kind = "producer", %key);
                let manifest = self.exceptions.roster.remove(&key);
                self.exception_gone(&key, manifest, publish);
            }
            Note::Skipped => {
                let own = &self.own.exceptions;
                self.tools.publisher.with(|book| book.skipped(own));
            }
            Note::Listed { .. } => self.exceptions_listed(),
            Note::Heard { .. } => {
                let own = &self.own.exceptions;
                let publisher = &self.tools.publisher;
                publisher.with(|book| book.heard(own, None, now));
            }
            // No such kind: then there are none.
            Note::Refused(failure) if failure.reason == "ResourceNotFound" => self.no_exceptions(),
            Note::Refused(failure) => {
                tracing::warn!(%failure, "PolicyExceptions cannot be read");
                let own = &self.own.exceptions;
                let publisher = &self.tools.publisher;
                publisher.with(|book| book.refused(own, failure));
                // What they need kept is not known, and nothing else waits for it.
                self.exceptions.is_known = true;
                self.settle();
            }
            Note::Troubled(failure) => {
                let own = &self.own.exceptions;
                let publisher = &self.tools.publisher;
                publisher.with(|book| book.troubled(own, failure));
            }
        }
    }

    /// What it is about that a request does not carry is kept for it, by its UID.
    fn exception_put(&mut self, object: &RawObject, publish: tracing::Span) {
        let (key, now) = (object.key.clone(), Instant::now());
        let (manifest, published) = ExceptionManifest::read(object);
        for problem in &manifest.problems {
            tracing::warn!(exception = %key, %problem, "PolicyException excepts nothing");
        }
        let references = manifest.references.iter();
        let kept = references
            .map(|r: &Reference| Referred::by(&key, r))
            .collect();
        let uid = Dependent(manifest.uid.clone());
        if let Some(old) = self.exceptions.roster.remove(&key)
            && old.uid != manifest.uid
        {
            self.apply(Event::PolicyGone(Dependent(old.uid)));
        }
        self.exceptions.roster.put(key.clone(), manifest);
        self.apply(Event::Policy(uid, kept));
        let own = &self.own.exceptions;
        self.tools.publisher.with(|book| match published {
            Some(published) => {
                book.put(own, key, published.version, published.body, now, publish);
            }
            None => book.delete(own, &key, gone(), now, publish),
        });
    }

    fn exception_gone(
        &mut self,
        key: &ObjectKey,
        manifest: Option<ExceptionManifest>,
        publish: tracing::Span,
    ) {
        let (own, now) = (&self.own.exceptions, Instant::now());
        let publisher = &self.tools.publisher;
        publisher.with(|book| book.delete(own, key, gone(), now, publish));
        if let Some(manifest) = manifest {
            self.apply(Event::PolicyGone(Dependent(manifest.uid)));
        }
    }

    /// What was not seen is gone.
    fn exceptions_listed(&mut self) {
        for (key, manifest) in self.exceptions.roster.sweep() {
            self.exception_gone(&key, Some(manifest), tracing::Span::none());
        }
        let (own, now) = (&self.own.exceptions, Instant::now());
        let version = ResourceVersion::default();
        let publisher = &self.tools.publisher;
        publisher.with(|book| book.listed(own, &version, now));
        (self.exceptions.is_known, self.exceptions.is_nothing) = (true, false);
        self.settle();
    }
}

/// Versions of this view are hashes of content, and a deletion has none.
fn gone() -> ResourceVersion {
    ResourceVersion::default()
}
