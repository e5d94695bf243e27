//! The views of one type, the watches that they hear, and the progress of each view with each watch. Pure: lists and
//! events of watches go in, and the objects of the views go into the [`WriteQueue`].
//!
//! A view hears its own watches and no others. It begins with a list and then follows the events ([`Progress`]). A
//! view that changes its watches is opened anew: readers are served the known objects until the lists of all its new
//! watches are complete.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use anteroom_model::{Failure, ObjectKey, ResourceVersion, ViewId, source_reason};
use tokio::time::Instant;
use tracing::Span;

use super::{
    index::Index,
    member::{Delivery, ListPart, Member, Progress, RecipientView},
    plan::WatchScope,
    references::References,
    running_watch::RunningWatch,
};
use crate::{
    log_writer::publish::WriteQueue,
    source::reflect::{Origin, RawObject},
};

/// The shortest time between two words to all views of a watch that it is alive.
const SPREAD: Duration = Duration::from_millis(100);

/// The state of one type: its views, watches and references.
#[derive(Debug, Default)]
pub(super) struct Hub {
    pub(super) watches: BTreeMap<WatchScope, RunningWatch>,
    pub(super) members: HashMap<ViewId, Member>,
    index: Index,
    pub(super) references: References,
    /// Wide watches that the API server forbids, each with the time of its last refusal.
    pub(super) forbidden: HashMap<WatchScope, Instant>,
}

impl Hub {
    /// Returns whether a view or an object is not served, for want of a watch or of rights.
    pub(super) fn misses(&self) -> bool {
        let missing = |member: &Member| member.is_refused || member.watches.is_empty();
        self.members.values().any(missing) || self.references.misses()
    }

    /// Returns whether something within the scope is wanted.
    pub(super) fn wants_within(&self, scope: &WatchScope) -> bool {
        let mut namespaces = self.members.values().flat_map(|member| member.filter.own());
        namespaces.any(|own| scope.holds_namespace(&own.namespace))
            || (self.references.by_object.keys())
                .any(|object| scope.holds_namespace(&object.namespace))
    }

    pub(super) fn insert(&mut self, member: Member) {
        let view = member.handle.view.clone();
        self.remove(&view);
        self.index.insert(&view, &member.filter);
        self.members.insert(view, member);
    }

    pub(super) fn remove(&mut self, view: &ViewId) {
        if let Some(member) = self.members.remove(view) {
            self.index.remove(view, &member.filter);
        }
    }

    /// Returns the bytes that references and events that are held back take.
    pub(super) fn memory(&self) -> u64 {
        let held: usize = self.members.values().map(Member::held_bytes).sum();
        self.references.memory() + held as u64
    }

    /// Returns the time of the oldest news among the watches of referenced objects; `None`: one of them has had no
    /// news.
    pub(super) fn references_heard(&self, now: Instant) -> Option<Instant> {
        let scopes = self.references.by_object.values();
        let scopes: BTreeSet<_> = scopes
            .filter_map(|reference| reference.scope.as_ref())
            .collect();
        let heard = scopes
            .into_iter()
            .map(|scope| self.watches.get(scope)?.heard);
        heard.min().unwrap_or(Some(now))
    }

    /// Returns whether the view waits for a list of the watch.
    pub(super) fn waits(&self, view: &ViewId, scope: &WatchScope) -> bool {
        let member = self.members.get(view);
        let progress = member.and_then(|member| member.watches.get(scope));
        matches!(progress, Some(Progress::Waits { .. }))
    }

    /// Makes the view write every object again, as the next lists of its watches bring it.
    pub(super) fn reread(&mut self, view: &ViewId, queue: &mut WriteQueue) {
        let Some(member) = self.members.get_mut(view) else {
            return;
        };
        member.reread(&self.watches, queue);
        self.ask_watches_of(view);
    }

    /// Asks the watches of a view to list again.
    pub(super) fn ask_watches_of(&mut self, view: &ViewId) {
        let Some(member) = self.members.get(view) else {
            return;
        };
        for scope in member.watches.keys() {
            if let Some(watch) = self.watches.get_mut(scope) {
                watch.ask();
            }
        }
    }

    /// A list of the watch begins, which shows the source at `version`. Each view that hears the watch takes the part
    /// in it that [`Progress::part_in_list`] says.
    pub(super) fn begin_list(
        &mut self,
        scope: &WatchScope,
        is_new_history: bool,
        version: &ResourceVersion,
        queue: &mut WriteQueue,
    ) {
        let Some(watch) = self.watches.get_mut(scope) else {
            return;
        };
        let watched_to = watch.newest.clone();
        watch.begin_list(is_new_history, version);
        self.references.begin_list(scope, is_new_history);
        let mut restarted = is_new_history;
        for member in self.members.values_mut() {
            let Some(progress) = member.watches.get(scope) else {
                continue;
            };
            let part = match is_new_history {
                true => ListPart::RestartsHistory,
                false => progress.part_in_list(version, &member.since),
            };
            match part {
                ListPart::Takes { is_known: true } => {
                    member.begin_list(scope, watched_to.clone(), queue);
                }
                ListPart::Takes { is_known: false } => {
                    member.begin_list(scope, ResourceVersion::default(), queue);
                }
                ListPart::PassesOver => {}
                ListPart::WaitsForNext { since } => {
                    member.wait_for_next(scope, since);
                    watch.list_again();
                }
                ListPart::RestartsHistory => {
                    restarted = true;
                    member.restart_history(queue);
                    member.begin_list(scope, ResourceVersion::default(), queue);
                }
            }
        }
        if restarted {
            // The history of a type restarts for all of its watches, and their lists with it.
            let others = self.watches.iter_mut().filter(|(other, _)| *other != scope);
            others.for_each(|(_, other)| other.ask());
        }
    }

    /// Returns the views to write the object to. An event deletes the object from each view that holds the object and
    /// does not select it any more.
    pub(super) fn put(
        &mut self,
        scope: &WatchScope,
        object: &RawObject,
        origin: &Origin,
        queue: &mut WriteQueue,
    ) -> Vec<RecipientView> {
        let Some(watch) = self.watches.get_mut(scope) else {
            return Vec::new();
        };
        match origin {
            Origin::List => watch.objects += 1,
            Origin::Event(_) => watch.newest.clone_from(&object.version),
        }
        let mut delivery = Delivery::put(object, origin);
        let (mut recipients, mut contradicted) = (Vec::new(), false);
        for view in self.index.views_of(&object.key) {
            let Some(member) = self.members.get_mut(view) else {
                continue;
            };
            contradicted |= origin.is_list()
                && member.is_contradicted(scope, &mut delivery, &watch.lists_at, queue);
            recipients.extend(member.take(watch, scope, &mut delivery, queue));
        }
        if contradicted {
            self.restart_history(scope, queue);
            recipients.clear();
        }
        recipients
    }

    /// Starts every view of the watch over, because the history of the source restarted.
    fn restart_history(&mut self, scope: &WatchScope, queue: &mut WriteQueue) {
        tracing::warn!(
            ?scope,
            "history of the source restarted: the API server lists an object in an impossible version, as after a \
             restore from a backup; everything is read again"
        );
        self.references.restart_history();
        let of_scope = |member: &&mut Member| member.watches.contains_key(scope);
        let members = self.members.values_mut().filter(of_scope);
        members.for_each(|member| member.restart_history(queue));
        self.watches.values_mut().for_each(RunningWatch::ask);
    }

    pub(super) fn gone(
        &mut self,
        scope: &WatchScope,
        key: &ObjectKey,
        version: &ResourceVersion,
        span: &Span,
        queue: &mut WriteQueue,
    ) {
        let Some(watch) = self.watches.get_mut(scope) else {
            return;
        };
        watch.newest.clone_from(version);
        let mut delivery = Delivery::gone(key, version, span);
        for view in self.index.views_of(key) {
            if let Some(member) = self.members.get_mut(view) {
                member.take(watch, scope, &mut delivery, queue);
            }
        }
        self.references.gone(scope, key, version, queue);
    }

    /// The list is complete. Returns whether other watches have to be planned.
    pub(super) fn listed(
        &mut self,
        scope: &WatchScope,
        version: &ResourceVersion,
        queue: &mut WriteQueue,
    ) -> bool {
        let now = Instant::now();
        let Some(watch) = self.watches.get_mut(scope) else {
            return false;
        };
        // What the list shows may have been so since then.
        let before = watch.heard.unwrap_or(now);
        watch.end(version, now);
        for member in self.members.values_mut() {
            let Some(progress) = member.watches.get_mut(scope) else {
                continue;
            };
            if let Progress::Lists { list, .. } = *progress {
                *progress = Progress::follows();
                queue.sweep(&member.handle, list, &scope.namespace, version, now);
                member.settle(version, &self.watches, queue);
            }
        }
        self.references.swept(scope, version, before, queue);
        self.mark_alive(scope, Some(version), true, queue);
        // The server allows the watch again: the next plan may derive views from it.
        self.forbidden.remove(scope).is_some()
    }

    /// The watch is alive.
    pub(super) fn mark_alive(
        &mut self,
        scope: &WatchScope,
        version: Option<&ResourceVersion>,
        at_once: bool,
        queue: &mut WriteQueue,
    ) {
        let now = Instant::now();
        let Some(watch) = self.watches.get_mut(scope) else {
            return;
        };
        watch.heard = Some(now);
        if let Some(version) = version {
            watch.newest.clone_from(version);
        }
        let due = watch
            .spread
            .is_none_or(|at| now.saturating_duration_since(at) >= SPREAD);
        if !(due || at_once) {
            return;
        }
        watch.spread = Some(now);
        for member in self.members.values() {
            if member.watches.contains_key(scope) {
                member.refresh(version, &self.watches, queue);
            }
        }
    }

    /// The watch is refused. Returns whether other watches have to be planned.
    pub(super) fn refused(
        &mut self,
        scope: &WatchScope,
        failure: &Failure,
        queue: &mut WriteQueue,
    ) -> bool {
        let is_optional_watch_forbidden =
            scope.is_wide() && failure.reason == source_reason::FORBIDDEN;
        let newly = is_optional_watch_forbidden && !self.forbidden.contains_key(scope);
        if is_optional_watch_forbidden {
            self.forbidden.insert(scope.clone(), Instant::now());
        }
        let Some(watch) = self.watches.get_mut(scope) else {
            return newly;
        };
        watch.refuse();
        for member in self.members.values_mut() {
            let Some(progress) = member.watches.get_mut(scope) else {
                continue;
            };
            // A list that was read waits to be announced.
            if !matches!(progress, Progress::Lists { .. }) {
                *progress = Progress::waits();
            }
            // The next plan gives the views of a forbidden wide watch their own watches, whose outcome decides. Only
            // a view of exactly this scope fails now.
            if !is_optional_watch_forbidden || member.filter.own().contains(scope) {
                member.is_refused = true;
                queue.refused(&member.handle, failure.clone());
            }
        }
        if !is_optional_watch_forbidden {
            self.references.failed(scope, failure, queue);
        }
        newly
    }

    pub(super) fn troubled(&self, scope: &WatchScope, failure: &Failure, queue: &mut WriteQueue) {
        for member in self.hearers(scope) {
            queue.troubled(&member.handle, failure.clone());
        }
    }

    pub(super) fn skipped(&self, scope: &WatchScope, queue: &mut WriteQueue) {
        for member in self.hearers(scope) {
            queue.skipped(&member.handle);
        }
    }

    fn hearers(&self, scope: &WatchScope) -> impl Iterator<Item = &Member> {
        let members = self.members.values();
        members.filter(move |member| member.watches.contains_key(scope))
    }
}

#[cfg(test)]
mod tests;
