//! The entries that manifests declare: `CachedContextEntry` and `GlobalContextEntry`.

use std::time::Instant;

use anteroom_model::{EntryKind, Failure};

use super::Controller;
use crate::{
    calls::{self, CallTarget},
    conditions,
    manifests::{Entry, Roster},
    permits,
    reflect::Note,
    registry::{Claim, EntryId, Event},
    resolve::{Resolution, Resolved, resolve},
    status::Author,
};

/// One of the two collections.
pub(super) struct EntryFeed {
    kind: EntryKind,
    pub(super) roster: Roster<Entry>,
    /// What it waits for, unless it was listed and can be read.
    waits: Option<String>,
    /// The API server does not serve the kind: there is none.
    absent: bool,
    heard: Option<Instant>,
}

impl EntryFeed {
    pub(super) fn new(kind: EntryKind) -> Self {
        Self {
            kind,
            roster: Roster::default(),
            waits: Some(format!("the first list of {}", kind.name())),
            absent: false,
            heard: None,
        }
    }

    /// All of them are known.
    pub(super) fn is_known(&self) -> bool {
        self.roster.listed || self.absent
    }

    /// Of all of them.
    pub(super) fn ids(&self) -> impl Iterator<Item = EntryId> {
        let names = self
            .roster
            .values()
            .map(|entry| entry.identity.name.clone());
        names.map(|name| (self.kind, name))
    }
}

impl Controller {
    pub(super) fn entry_feed(&mut self, kind: EntryKind) -> &mut EntryFeed {
        match kind {
            EntryKind::Global => &mut self.global,
            EntryKind::Cached | EntryKind::Implicit => &mut self.cached,
        }
    }

    pub(super) fn entry_note(&mut self, kind: EntryKind, note: Note) {
        let now = Instant::now();
        match note {
            Note::Begin { .. } => self.entry_feed(kind).roster.begin(),
            Note::Put { object, span } => {
                let entry = Entry::read(&object, kind);
                self.dirty
                    .entries
                    .insert((kind, entry.identity.name.clone()));
                span.in_scope(|| self.resolve(&entry));
                self.entry_feed(kind).roster.put(object.key, entry);
            }
            Note::Gone { key, span, .. } => {
                let gone = self.entry_feed(kind).roster.remove(&key);
                span.in_scope(|| self.entry_gone(kind, &key.name, gone.as_ref()));
            }
            Note::Skipped => {
                let own = &self.own.entries;
                self.tools.publisher.with(|book| book.skipped(own));
            }
            Note::Listed { .. } => {
                let gone = self.entry_feed(kind).roster.sweep();
                for (key, entry) in gone {
                    self.entry_gone(kind, &key.name, Some(&entry));
                }
                let feed = self.entry_feed(kind);
                feed.waits = None;
                feed.absent = false;
                feed.heard = Some(now);
                self.entries_check();
                self.settle();
            }
            Note::Heard { .. } => {
                self.entry_feed(kind).heard = Some(now);
                // The view's news is as old as the older of the two.
                let heard = match (self.cached.heard, self.global.heard) {
                    (Some(one), Some(other)) => Some(one.min(other)),
                    (one, None) if self.global.absent => one,
                    _ => None,
                };
                if let Some(heard) = heard {
                    self.own_heard(heard);
                }
            }
            Note::Refused(failure) => self.entries_refused(kind, failure),
            Note::Troubled(failure) => {
                let own = &self.own.entries;
                let publisher = &self.tools.publisher;
                publisher.with(|book| book.troubled(own, failure));
            }
        }
    }

    fn entries_refused(&mut self, kind: EntryKind, failure: Failure) {
        let absent = failure.reason == "ResourceNotFound";
        let problem = format!("the API server to serve {}: {failure}", kind.name());
        let feed = self.entry_feed(kind);
        // Kyverno's own kind need not be installed.
        if kind == EntryKind::Global && absent {
            feed.absent = true;
            feed.waits = None;
        } else {
            feed.waits = Some(problem);
            let own = &self.own.entries;
            let publisher = &self.tools.publisher;
            publisher.with(|book| book.refused(own, failure));
        }
        self.entries_check();
        self.settle();
    }

    fn entries_check(&self) {
        let check = &self.tools.checks.entries;
        match self.cached.waits.as_ref().or(self.global.waits.as_ref()) {
            None => check.ready(),
            Some(waits) => check.not_ready(waits),
        }
    }

    fn entry_gone(&mut self, kind: EntryKind, name: &str, gone: Option<&Entry>) {
        let id = (kind, name.to_owned());
        if let Some(gone) = gone {
            self.tools.status.forget(&author(gone));
        }
        // What it said last stays known until its readers are told.
        self.dirty.entries.insert(id.clone());
        self.apply(Event::EntryGone(id));
    }

    /// What the entry means by what is served now.
    pub(super) fn resolve(&mut self, entry: &Entry) {
        let Some(catalog) = &self.catalog else {
            return; // It is resolved when there is one.
        };
        let name = &entry.identity.name;
        let resolution = match &entry.spec {
            Ok(spec) => match self.retained(entry, resolve(name, spec, catalog)) {
                Some(resolution) => resolution,
                None => return, // It is resolved when the policies are known.
            },
            Err(failure) => Resolution::Invalid(failure.clone()),
        };
        let who = || format!("the {} `{name}`", entry.kind.name());
        let resolution = match resolution {
            Resolution::Found(found) if calls_secrets(&found) => {
                Resolution::Invalid(permits::uncallable(&who()))
            }
            Resolution::Found(found)
                if found.binding.secret && !self.tools.secrets.allows_entry(entry.kind, name) =>
            {
                Resolution::Invalid(permits::forbidden(&who()))
            }
            other => other,
        };
        let generation = entry.identity.generation;
        self.apply(Event::Entry(Box::new(Claim {
            kind: entry.kind,
            name: name.clone(),
            uid: entry.identity.uid.clone(),
            generation,
            resolution,
            given_up: conditions::forbidden(&entry.status.conditions, generation),
        })));
    }
}

/// Whether it calls for Secrets, which only a `resource` keeps sealed.
fn calls_secrets(found: &Resolved) -> bool {
    match found.call.as_ref().map(|call| &call.target) {
        Some(CallTarget::Api { path }) => calls::is_of_secrets(path),
        Some(CallTarget::Service { .. }) | None => false,
    }
}

/// Whose status.
pub(super) fn author(entry: &Entry) -> Author {
    match entry.kind {
        EntryKind::Global => Author::new(
            "kyverno.io/v2alpha1",
            "GlobalContextEntry",
            "globalcontextentries",
            &entry.identity,
        ),
        EntryKind::Cached | EntryKind::Implicit => Author::new(
            "kyverno.io/v2alpha1",
            "CachedContextEntry",
            "cachedcontextentries",
            &entry.identity,
        ),
    }
}
