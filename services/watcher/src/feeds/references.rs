//! The objects of a type that are referenced one by one, and what is known of each.
//!
//! What was heard of an object is only ever replaced by what is newer, so it does not matter which
//! watch it comes from.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap, VecDeque},
    time::{Duration, Instant},
};

use anteroom_model::{Failure, ObjectKey, ResourceVersion};
use anteroom_wire::{WireError, referenced};
use bytes::Bytes;
use tracing::Span;

use super::plan::Scope;
use crate::publish::{Publisher, Tenure, Width};

/// How often an immutable object, which is not watched, is looked at: only its deletion can be news.
pub(super) const IMMUTABLE_CHECK: Duration = Duration::from_secs(5 * 60);

/// The texts of a key, its version and its watch, as they mostly are.
const KEY_BYTES: usize = 96;

#[derive(Debug, Default)]
pub(super) struct References {
    /// The view that holds them, once it is wanted.
    pub(super) tenure: Option<Tenure>,
    pub(super) sealed: bool,
    pub(super) of: HashMap<ObjectKey, Reference>,
    /// Those that came since watches were last planned.
    pub(super) fresh: VecDeque<ObjectKey>,
    /// Counts histories.
    pub(super) era: u64,
}

#[derive(Debug)]
pub(super) struct Reference {
    pub(super) state: State,
    /// Where the type stood when this was so, or the object's own version.
    version: ResourceVersion,
    /// The lists that run, took it in when they began, and did not bring it yet.
    awaited: Awaited,
    /// The watch that is planned for it.
    pub(super) scope: Option<Scope>,
    pub(super) read: Instant,
    /// It cannot change any more.
    pub(super) immutable: bool,
    pub(super) checked: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Found,
    Absent,
    Failed,
    Idle,
}

/// Lists, by their width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Awaited(u8);

impl Awaited {
    fn begin(&mut self, list: Width) {
        self.0 |= list.bit();
    }

    /// Whether it was awaited.
    fn end(&mut self, list: Width) -> bool {
        let was = self.0 & list.bit() != 0;
        self.0 &= !list.bit();
        was
    }
}

impl Reference {
    /// Whether the watch brings it, if it is there.
    fn is_brought_by(&self, feed: &Scope, object: &ObjectKey) -> bool {
        let planned = self.scope.as_ref() == Some(feed);
        planned || (feed.is_wide() && feed.holds_namespace(&object.namespace))
    }
}

impl References {
    pub(super) fn refer(&mut self, object: &ObjectKey, now: Instant, publisher: &Publisher) {
        if self.of.contains_key(object) {
            return;
        }
        let reference = Reference {
            state: State::Pending,
            version: ResourceVersion::default(),
            awaited: Awaited::default(),
            scope: None,
            read: now,
            immutable: false,
            checked: now,
        };
        self.of.insert(object.clone(), reference);
        self.fresh.push_back(object.clone());
        self.announce(object, publisher);
    }

    /// What the log has of an earlier term goes on to be served until there is news.
    fn announce(&self, object: &ObjectKey, publisher: &Publisher) {
        let Some(tenure) = &self.tenure else { return };
        if !publisher.with(|book| book.touch(tenure, object)) {
            self.publish(object, "pending", referenced::pending(), publisher);
        }
    }

    /// The view is wanted now: everything that was referred to before is announced.
    pub(super) fn opened(&mut self, tenure: Tenure, sealed: bool, publisher: &Publisher) {
        self.tenure = Some(tenure);
        self.sealed = sealed;
        self.of
            .keys()
            .for_each(|object| self.announce(object, publisher));
    }

    /// The watch that was planned for it, if one was.
    pub(super) fn unrefer(&mut self, object: &ObjectKey, publisher: &Publisher) -> Option<Scope> {
        let reference = self.of.remove(object)?;
        if let Some(tenure) = &self.tenure {
            let (now, span) = (Instant::now(), Span::none());
            publisher
                .with(|book| book.delete(tenure, object, ResourceVersion::default(), now, span));
        }
        reference.scope
    }

    /// Whether nothing is known of it yet, and nobody was asked.
    pub(super) fn awaits_first(&self, object: &ObjectKey) -> bool {
        let of = self.of.get(object);
        of.is_some_and(|of| of.scope.is_none() && of.state == State::Pending)
    }

    /// Those that have to be watched: an immutable one only now and then.
    pub(super) fn to_watch(&self, now: Instant) -> BTreeSet<ObjectKey> {
        let due = |reference: &Reference| {
            let checked = now.saturating_duration_since(reference.checked);
            !reference.immutable || checked >= IMMUTABLE_CHECK
        };
        let watched = self
            .of
            .iter()
            .filter(|(_, reference)| reference.state != State::Idle && due(reference));
        watched.map(|(object, _)| object.clone()).collect()
    }

    pub(super) fn begin(&mut self, feed: &Scope, afresh: bool) {
        self.era += u64::from(afresh);
        for (object, reference) in &mut self.of {
            if afresh {
                reference.version = ResourceVersion::default();
                reference.awaited = Awaited::default();
            }
            if reference.is_brought_by(feed, object) {
                reference.awaited.begin(feed.width());
            }
        }
    }

    /// Whether this is news of a referenced object. `by`: the list that brought it, which does not take
    /// it away.
    pub(super) fn take(
        &mut self,
        key: &ObjectKey,
        version: &ResourceVersion,
        immutable: bool,
        by: Option<Width>,
    ) -> bool {
        let Some(reference) = self.of.get_mut(key) else {
            return false;
        };
        if let Some(list) = by {
            reference.awaited.end(list);
        }
        reference.checked = Instant::now();
        if version.compare(&reference.version) == Some(Ordering::Less) {
            return false;
        }
        let news = reference.state != State::Found || reference.version != *version;
        reference.state = State::Found;
        reference.immutable = immutable;
        reference.version = version.clone();
        news
    }

    /// Whether this is still what is known of it.
    pub(super) fn is_found_as(&self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        let of = self.of.get(key);
        of.is_some_and(|of| of.state == State::Found && of.version == *version)
    }

    /// The watch says that the object is no longer one of its own: of one that selects by labels that
    /// need not mean that it was deleted.
    pub(super) fn gone(
        &mut self,
        feed: &Scope,
        key: &ObjectKey,
        version: &ResourceVersion,
        publisher: &Publisher,
    ) {
        let of = self.of.get(key);
        if of.is_some_and(|of| of.is_brought_by(feed, key)) {
            self.absent(key, version, publisher);
        }
    }

    pub(super) fn absent(
        &mut self,
        key: &ObjectKey,
        version: &ResourceVersion,
        publisher: &Publisher,
    ) {
        let Some(reference) = self.of.get_mut(key) else {
            return;
        };
        if version.compare(&reference.version) == Some(Ordering::Less) {
            return;
        }
        reference.version = version.clone();
        reference.immutable = false;
        reference.checked = Instant::now();
        if reference.state != State::Absent {
            reference.state = State::Absent;
            // Not a number: the log's own order decides what follows it.
            self.publish(
                key,
                &format!("absent-{version}"),
                referenced::absent(),
                publisher,
            );
        }
    }

    /// The list did not have what it did not bring. Of an object that was referenced while it was read
    /// it says nothing.
    pub(super) fn swept(&mut self, feed: &Scope, version: &ResourceVersion, publisher: &Publisher) {
        let mut unseen = Vec::new();
        for (object, reference) in &mut self.of {
            if reference.is_brought_by(feed, object) && reference.awaited.end(feed.width()) {
                unseen.push(object.clone());
            }
        }
        unseen
            .iter()
            .for_each(|object| self.absent(object, version, publisher));
    }

    pub(super) fn failed(&mut self, feed: &Scope, failure: &Failure, publisher: &Publisher) {
        let planned = self
            .of
            .iter()
            .filter(|(_, of)| of.scope.as_ref() == Some(feed));
        let planned: Vec<_> = planned.map(|(object, _)| object.clone()).collect();
        for object in planned {
            self.fail(&object, failure, publisher);
        }
    }

    pub(super) fn fail(&mut self, object: &ObjectKey, failure: &Failure, publisher: &Publisher) {
        if let Some(reference) = self.of.get_mut(object) {
            if reference.state == State::Failed {
                return;
            }
            reference.state = State::Failed;
            reference.immutable = false;
        }
        let version = format!("failed-{}", failure.reason);
        self.publish(object, &version, referenced::failed(failure), publisher);
    }

    /// Those that are watched by themselves and were not read for `after` are left alone. Says
    /// whether there was one.
    pub(super) fn rest(&mut self, after: Duration, now: Instant, publisher: &Publisher) -> bool {
        let alone = |object: &ObjectKey, of: &Reference| of.scope == Some(Scope::of_object(object));
        let idle = self.of.iter().filter(|(object, of)| {
            let unread = now.saturating_duration_since(of.read) >= after;
            unread && !of.immutable && of.state != State::Idle && alone(object, of)
        });
        let idle: Vec<_> = idle.map(|(object, _)| object.clone()).collect();
        for object in &idle {
            if let Some(reference) = self.of.get_mut(object) {
                reference.state = State::Idle;
            }
            self.publish(object, "idle", referenced::idle(), publisher);
        }
        !idle.is_empty()
    }

    /// It was read, or asked for. Says whether it has to be watched again.
    pub(super) fn wake(&mut self, object: &ObjectKey, now: Instant) -> bool {
        let Some(reference) = self.of.get_mut(object) else {
            return false;
        };
        reference.read = now;
        let idle = reference.state == State::Idle;
        if idle {
            reference.state = State::Pending;
            reference.version = ResourceVersion::default();
        }
        idle
    }

    /// Everything has to be written again.
    pub(super) fn anew(&mut self) {
        for reference in self.of.values_mut() {
            reference.version = ResourceVersion::default();
            reference.immutable = false;
            if reference.state != State::Idle {
                reference.state = State::Pending;
            }
        }
    }

    /// Whether one is to be watched that is not, or the other way round.
    pub(super) fn is_out_of_step(&self, now: Instant) -> bool {
        self.of.values().any(|reference| {
            let due = now.saturating_duration_since(reference.checked) >= IMMUTABLE_CHECK;
            reference.immutable && due == reference.scope.is_none()
        })
    }

    /// One cannot be read.
    pub(super) fn misses(&self) -> bool {
        let mut states = self.of.values().map(|reference| reference.state);
        states.any(|state| state == State::Failed)
    }

    /// Bytes that all of them take here, about.
    pub(super) fn memory(&self) -> u64 {
        let slots = self.of.capacity() * (size_of::<(ObjectKey, Reference)>() + 1);
        (slots + self.of.len() * KEY_BYTES) as u64
    }

    pub(super) fn is_watched(&self) -> bool {
        self.of.values().any(|reference| reference.scope.is_some())
    }

    pub(super) fn idle(&self) -> usize {
        let idle = self
            .of
            .values()
            .filter(|reference| reference.state == State::Idle);
        idle.count()
    }

    fn publish(
        &self,
        key: &ObjectKey,
        version: &str,
        body: Result<Bytes, WireError>,
        publisher: &Publisher,
    ) {
        let (Some(tenure), Ok(body)) = (&self.tenure, body) else {
            return; // A record of a state is a few bytes, which are never over a limit.
        };
        let (version, now) = (ResourceVersion::new(version), Instant::now());
        publisher.with(|book| book.put(tenure, key.clone(), version, body, now, Span::none()));
    }
}
