//! The objects of a type that are referenced one by one, and the last news about each.
//!
//! Only something newer ever replaces the last news of an object, so it does not matter which
//! watch it comes from.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use anteroom_model::{Failure, ObjectKey, ResourceVersion};
use anteroom_wire::{WireError, referenced};
use bytes::Bytes;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use super::plan::WatchScope;
use crate::log_writer::publish::{ChangeOrigin, WriteHandle, WriteQueue};

/// The texts of a key, its version and its watch, as they mostly are.
const KEY_BYTES: usize = 96;

#[derive(Debug, Default)]
pub(super) struct References {
    /// The write handle of the references' view; `None`: the view is not desired.
    pub(super) handle: Option<WriteHandle>,
    pub(super) sealed: bool,
    pub(super) by_object: HashMap<ObjectKey, ReferencedObject>,
    /// The objects that came since watches were last planned.
    pub(super) fresh: VecDeque<ObjectKey>,
    /// Histories of the source so far.
    pub(super) era: u64,
}

#[derive(Debug)]
pub(super) struct ReferencedObject {
    pub(super) state: State,
    /// The type's version at the last news of the object, or the object's own version.
    version: ResourceVersion,
    /// The running lists that have yet to bring the object, if the object exists.
    awaited: Awaited,
    /// The watch that is planned for it.
    pub(super) scope: Option<WatchScope>,
    pub(super) read: Instant,
    /// Only policies of namespaces refer to the object, so that it counts against the quota of its namespace.
    in_quota: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Pending,
    Found,
    Absent,
    Failed {
        /// The digest of the failure that readers are told.
        digest: u64,
    },
    Idle,
}

/// Lists of the watches that may bring one object: of itself, of its namespace, of the type. Each by a
/// bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Awaited(u8);

impl Awaited {
    fn begin(&mut self, list: &WatchScope) {
        self.0 |= Self::bit(list);
    }

    /// Returns whether it was awaited.
    fn end(&mut self, list: &WatchScope) -> bool {
        let was = self.0 & Self::bit(list) != 0;
        self.0 &= !Self::bit(list);
        was
    }

    fn bit(list: &WatchScope) -> u8 {
        match (list.is_wide(), list.namespace.is_empty()) {
            (false, _) => 1,
            (true, false) => 2,
            (true, true) => 4,
        }
    }
}

impl ReferencedObject {
    /// Returns whether the watch brings the object, if the object exists.
    fn is_brought_by(&self, scope: &WatchScope, object: &ObjectKey) -> bool {
        let planned = self.scope.as_ref() == Some(scope);
        planned || (scope.is_wide() && scope.holds_namespace(&object.namespace))
    }
}

impl References {
    /// The object is referenced, or counts otherwise against the quota of its namespace.
    pub(super) fn refer(
        &mut self,
        object: &ObjectKey,
        in_quota: bool,
        now: Instant,
        queue: &mut WriteQueue,
    ) {
        if let Some(known) = self.by_object.get_mut(object) {
            if std::mem::replace(&mut known.in_quota, in_quota) != in_quota {
                self.set_exempt(object, !in_quota, queue);
            }
            return;
        }
        let reference = ReferencedObject {
            state: State::Pending,
            version: ResourceVersion::default(),
            awaited: Awaited::default(),
            scope: None,
            read: now,
            in_quota,
        };
        self.by_object.insert(object.clone(), reference);
        self.fresh.push_back(object.clone());
        self.set_exempt(object, !in_quota, queue);
        self.announce(object, queue);
    }

    fn set_exempt(&self, object: &ObjectKey, exempt: bool, queue: &mut WriteQueue) {
        if let Some(handle) = &self.handle {
            queue.set_exempt(&handle.view, object, exempt);
        }
    }

    /// Publishes the object as pending. If the log has a state from an earlier term, readers are served that state
    /// until there is news.
    fn announce(&self, object: &ObjectKey, queue: &mut WriteQueue) {
        let Some(handle) = &self.handle else { return };
        if !queue.touch(handle, object) {
            self.publish(
                object,
                "pending",
                referenced::pending(),
                Instant::now(),
                queue,
            );
        }
    }

    /// The references' view is desired from now on. Every earlier reference is announced, and its object has to be
    /// read: objects that a watch brought before are not in the view.
    pub(super) fn opened(&mut self, handle: WriteHandle, sealed: bool, queue: &mut WriteQueue) {
        self.handle = Some(handle);
        self.sealed = sealed;
        for reference in self.by_object.values_mut() {
            reference.state = State::Pending;
            reference.version = ResourceVersion::default();
            reference.scope = None;
        }
        for (object, reference) in &self.by_object {
            self.set_exempt(object, !reference.in_quota, queue);
            self.announce(object, queue);
        }
    }

    /// Removes the reference, and its object from the view. Returns the watch that was planned for the object.
    pub(super) fn unrefer(
        &mut self,
        object: &ObjectKey,
        queue: &mut WriteQueue,
    ) -> Option<WatchScope> {
        let reference = self.by_object.remove(object)?;
        if let Some(handle) = &self.handle {
            let (now, none) = (Instant::now(), ResourceVersion::default());
            queue.delete(handle, object, none, now, ChangeOrigin::Own);
            queue.set_exempt(&handle.view, object, false);
        }
        reference.scope
    }

    /// Returns whether the object is not known yet, and no watch or read was started for it.
    pub(super) fn awaits_first(&self, object: &ObjectKey) -> bool {
        let reference = self.by_object.get(object);
        reference
            .is_some_and(|reference| reference.scope.is_none() && reference.state == State::Pending)
    }

    /// Returns the objects to watch.
    pub(super) fn to_watch(&self) -> BTreeSet<ObjectKey> {
        let watched = self.by_object.iter();
        let watched = watched.filter(|(_, reference)| reference.state != State::Idle);
        watched.map(|(object, _)| object.clone()).collect()
    }

    /// The history of the source restarted: earlier versions of the objects do not count any more.
    pub(super) fn restart_history(&mut self) {
        self.era += 1;
        for reference in self.by_object.values_mut() {
            reference.version = ResourceVersion::default();
            reference.awaited = Awaited::default();
        }
    }

    /// A list of the watch begins. Of a new history, other lists that run say nothing.
    pub(super) fn begin_list(&mut self, scope: &WatchScope, is_new_history: bool) {
        if is_new_history {
            self.restart_history();
        }
        for (object, reference) in &mut self.by_object {
            if reference.is_brought_by(scope, object) {
                reference.awaited.begin(scope);
            }
        }
    }

    /// Takes a version of an object. Returns whether the version is news about a reference. `by`: the list that
    /// brought the object, which no longer awaits it.
    pub(super) fn take(
        &mut self,
        key: &ObjectKey,
        version: &ResourceVersion,
        by: Option<&WatchScope>,
    ) -> bool {
        let Some(reference) = self.by_object.get_mut(key) else {
            return false;
        };
        if let Some(list) = by {
            reference.awaited.end(list);
        }
        if version.compare(&reference.version) == Some(Ordering::Less) {
            return false;
        }
        let news = reference.state != State::Found || reference.version != *version;
        reference.state = State::Found;
        reference.version = version.clone();
        news
    }

    /// Returns whether this version is still the last news about the object.
    pub(super) fn is_found_as(&self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        let reference = self.by_object.get(key);
        reference.is_some_and(|reference| {
            reference.state == State::Found && reference.version == *version
        })
    }

    /// The watch reports the object as deleted. The report counts only from a watch that brings the reference: a
    /// watch by labels also reports an object that lost its label.
    pub(super) fn gone(
        &mut self,
        scope: &WatchScope,
        key: &ObjectKey,
        version: &ResourceVersion,
        queue: &mut WriteQueue,
    ) {
        let reference = self.by_object.get(key);
        if reference.is_some_and(|reference| reference.is_brought_by(scope, key)) {
            self.absent(key, version, Instant::now(), queue);
        }
    }

    /// The API server has no such object, perhaps since then.
    pub(super) fn absent(
        &mut self,
        key: &ObjectKey,
        version: &ResourceVersion,
        since: Instant,
        queue: &mut WriteQueue,
    ) {
        let Some(reference) = self.by_object.get_mut(key) else {
            return;
        };
        if version.compare(&reference.version) == Some(Ordering::Less) {
            return;
        }
        reference.version = version.clone();
        if reference.state != State::Absent {
            reference.state = State::Absent;
            // Not a number: the log's own order decides what follows it.
            self.publish(
                key,
                &format!("absent-{version}"),
                referenced::absent(),
                since,
                queue,
            );
        }
    }

    /// The list is complete at `version`. Objects that it did not bring are absent, perhaps since `since`, the
    /// watch's last news before the list. The list says nothing about an object that was referenced while the list
    /// ran.
    pub(super) fn swept(
        &mut self,
        scope: &WatchScope,
        version: &ResourceVersion,
        since: Instant,
        queue: &mut WriteQueue,
    ) {
        let mut unseen = Vec::new();
        for (object, reference) in &mut self.by_object {
            if reference.is_brought_by(scope, object) && reference.awaited.end(scope) {
                unseen.push(object.clone());
            }
        }
        for object in &unseen {
            self.absent(object, version, since, queue);
        }
    }

    pub(super) fn failed(&mut self, scope: &WatchScope, failure: &Failure, queue: &mut WriteQueue) {
        let planned = self
            .by_object
            .iter()
            .filter(|(_, reference)| reference.scope.as_ref() == Some(scope));
        let planned: Vec<_> = planned.map(|(object, _)| object.clone()).collect();
        for object in planned {
            self.fail(&object, failure, queue);
        }
    }

    pub(super) fn fail(&mut self, object: &ObjectKey, failure: &Failure, queue: &mut WriteQueue) {
        let digest = digest(failure);
        if let Some(reference) = self.by_object.get_mut(object) {
            if reference.state == (State::Failed { digest }) {
                return;
            }
            reference.state = State::Failed { digest };
        }
        // Two failures of one reason are two versions, or the second one would not be written.
        let version = format!("failed-{}-{digest:x}", failure.reason);
        self.publish(
            object,
            &version,
            referenced::failed(failure),
            Instant::now(),
            queue,
        );
    }

    /// Stops following objects that have watches of their own and were not read for `after`. Returns whether
    /// there was one.
    pub(super) fn rest(&mut self, after: Duration, now: Instant, queue: &mut WriteQueue) -> bool {
        let alone = |object: &ObjectKey, reference: &ReferencedObject| {
            reference.scope == Some(WatchScope::of_object(object))
        };
        let idle = self.by_object.iter().filter(|(object, reference)| {
            let unread = now.saturating_duration_since(reference.read) >= after;
            unread && reference.state != State::Idle && alone(object, reference)
        });
        let idle: Vec<_> = idle.map(|(object, _)| object.clone()).collect();
        for object in &idle {
            if let Some(reference) = self.by_object.get_mut(object) {
                reference.state = State::Idle;
            }
            self.publish(object, "idle", referenced::idle(), Instant::now(), queue);
        }
        !idle.is_empty()
    }

    /// Notes that the object was read, or asked for. Returns whether it has to be watched again.
    pub(super) fn wake(&mut self, object: &ObjectKey, now: Instant) -> bool {
        let Some(reference) = self.by_object.get_mut(object) else {
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

    /// Everything has to be written again, as the next lists bring it.
    pub(super) fn reread(&mut self) {
        for reference in self.by_object.values_mut() {
            reference.version = ResourceVersion::default();
            if reference.state != State::Idle {
                reference.state = State::Pending;
            }
        }
    }

    /// The next lists count as news of these objects, which are written again as far as the log has them otherwise.
    pub(super) fn read_again(&mut self, objects: &[ObjectKey]) {
        for object in objects {
            if let Some(reference) = self.by_object.get_mut(object) {
                reference.version = ResourceVersion::default();
            }
        }
    }

    /// The log has room again, and has none of the objects. All are announced, and their watches bring them again.
    pub(super) fn resume_after_full(&mut self, now: Instant, queue: &mut WriteQueue) {
        self.reread();
        for reference in self.by_object.values_mut() {
            (reference.state, reference.read) = (State::Pending, now);
        }
        if let Some(handle) = &mut self.handle {
            queue.reread(handle);
            queue.begin_list(handle);
        }
        self.by_object
            .keys()
            .for_each(|object| self.announce(object, queue));
        if let Some(handle) = &self.handle {
            queue.complete(handle);
        }
    }

    /// Returns whether one cannot be read.
    pub(super) fn misses(&self) -> bool {
        let mut states = self.by_object.values().map(|reference| reference.state);
        states.any(|state| matches!(state, State::Failed { .. }))
    }

    /// Returns the bytes that all references take here, about.
    pub(super) fn memory(&self) -> u64 {
        let slots = self.by_object.capacity() * (size_of::<(ObjectKey, ReferencedObject)>() + 1);
        (slots + self.by_object.len() * KEY_BYTES) as u64
    }

    pub(super) fn idle(&self) -> usize {
        let idle = self
            .by_object
            .values()
            .filter(|reference| reference.state == State::Idle);
        idle.count()
    }

    fn publish(
        &self,
        key: &ObjectKey,
        version: &str,
        body: Result<Bytes, WireError>,
        since: Instant,
        queue: &mut WriteQueue,
    ) {
        let (Some(handle), Ok(body)) = (&self.handle, body) else {
            return; // A record of a state is a few bytes, which are never over a limit.
        };
        let version = ResourceVersion::new(version);
        queue.put(handle, key.clone(), version, body, since, ChangeOrigin::Own);
    }
}

fn digest(failure: &Failure) -> u64 {
    xxh3_64(format!("{}\n{}", failure.reason, failure.message).as_bytes())
}

#[cfg(test)]
mod tests;
