//! A view on a collection, and its progress with each of its watches.
//!
//! A [`Progress`] stands for one view and one watch:
//!
//! ```text
//!             the watch's list begins            the list ends
//!    ┌──────▶ Waits ─────────────────▶ Lists ─────────────────▶ Follows
//!    │          │                       ▲  ▲                    │    ▲
//!    │          │ its own list begins   │  └────────────────────┘    │
//!    │          ▼                       │    the next list begins    │
//!    │        Joins ────────────────────┘                            │
//!    │          │  the watch's list begins, and is new enough        │
//!    │          └────────────────────────────────────────────────────┘
//!    │                  its own list ends
//!    └─ from Joins: its own list fails, or too many events are held back
//!       from Follows: the list that begins is older in some namespaces only
//!       from Waits, Joins and Follows: the watch is refused
//!       from any state: the view starts over (`feeds` has the four ways)
//! ```
//!
//! [`Progress::part_in_list`] decides about each list that begins. Three kinds of resource versions tell how much of the
//! source a view knows:
//!
//! | version | of | meaning |
//! |---|---|---|
//! | [`Member::since`] | the view | a list has to be at least as new as this to end the view's wait |
//! | `known_to` of [`Progress::Lists`] | a view in a running list | the view knew every object of the watch up to this before the list began |
//! | `after` of [`Progress::Follows`] | a view that joined | the view's own list showed the namespace at this, so older events are in it already |

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use anteroom_model::{ObjectKey, ResourceVersion, RetainedFields};
use tokio::time::Instant;
use tracing::Span;

use super::{
    held_events::{HeldEvent, HeldEvents, HeldEventsFull},
    labels::labels_of,
    plan::{ViewFilter, WatchScope},
    running_watch::RunningWatch,
};
use crate::{
    log_writer::publish::{ChangeOrigin, WriteHandle, WriteQueue},
    source::reflect::{Origin, RawObject},
};

/// A view on a collection.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) handle: WriteHandle,
    pub(super) filter: ViewFilter,
    pub(super) sealed: bool,
    /// The fields that the view keeps of each object; `None`: all fields.
    pub(super) retained: Option<Arc<RetainedFields>>,
    /// The newest version of the source of which the view may hold anything, taken when the view began to wait for
    /// lists. The view ignores older lists.
    pub(super) since: ResourceVersion,
    /// The view's watches, each with the view's progress. No two of them bring the same object.
    pub(super) watches: BTreeMap<WatchScope, Progress>,
    /// The API server refused one of the view's watches, and no list was complete since.
    pub(super) is_refused: bool,
}

/// The state of a view with a watch.
#[derive(Debug)]
pub(super) enum Progress {
    /// The member waits for the watch's next list.
    Waits {
        /// A list was too old, and the watch was asked to list again. If the next list is too old as well, the
        /// history of the source restarted.
        asked_again: bool,
    },
    /// The member takes part in the list that runs.
    Lists {
        /// The list's number in this view.
        list: u32,
        /// The version up to which the view knew every object of the watch when the list began; empty: the view
        /// knew nothing for certain.
        known_to: ResourceVersion,
    },
    /// The view's own objects are listed beside the watch. The watch's events are held back for the view meanwhile.
    Joins { list: u32, held: HeldEvents },
    /// The view has a list, and takes the watch's events.
    Follows {
        /// The versions of the lists that the view read beside the watch, by namespace (empty: all namespaces). An
        /// event up to such a version is in that list already, and is dropped. Empty once no such event can come.
        after: Vec<(String, ResourceVersion)>,
    },
}

/// The part that a view takes in a list of its watch that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListPart {
    /// The view takes the list's objects. `is_known`: the view knew every object that the watch had brought before.
    Takes { is_known: bool },
    /// The view ignores the list, because the view's own list beside the watch is newer.
    PassesOver,
    /// The list is too old for the view, and the watch lists again. The next list has to show the source at `since`;
    /// `None`: `Member::since` stays as it is.
    WaitsForNext { since: Option<ResourceVersion> },
    /// The second list is too old as well, so the source's history restarted. The view takes the list's objects.
    RestartsHistory,
}

/// A change from a watch, as the hub hands it to each view.
pub(super) struct Delivery<'a> {
    key: &'a ObjectKey,
    version: &'a ResourceVersion,
    /// `None`: the object was deleted.
    object: Option<&'a RawObject>,
    origin: Origin,
    /// The object's labels; `None` until a view selects by labels.
    labels: Option<HashMap<String, String>>,
}

/// A view that an object has to be written to.
#[derive(Clone, Debug)]
pub(super) struct RecipientView {
    pub(super) handle: WriteHandle,
    pub(super) sealed: bool,
    /// See [`Member::retained`].
    pub(super) retained: Option<Arc<RetainedFields>>,
}

impl Progress {
    pub(super) fn waits() -> Self {
        Self::Waits { asked_again: false }
    }

    pub(super) fn follows() -> Self {
        Self::Follows { after: Vec::new() }
    }

    /// Returns the part that a view with this progress takes in a list of the watch at `version`. `since` is the
    /// view's [`Member::since`]. The list may be older, because the watch may have asked for it before the view came.
    ///
    /// | progress | `version` is compared with | same, newer or incomparable | older |
    /// |---|---|---|---|
    /// | `Waits`, first list | `since` | `Takes`, nothing known | `WaitsForNext`, same `since` |
    /// | `Waits`, asked again | `since` | `Takes`, nothing known | `RestartsHistory` |
    /// | `Lists` | nothing | `Takes`, nothing known: the new list replaces the running one | the same |
    /// | `Joins` | `since` | `Takes`, nothing known: the list replaces the view's own one | `PassesOver` |
    /// | `Follows` | each version of `after` | `Takes`, all known | `PassesOver` |
    /// | `Follows` | `after`, and the answers differ by namespace | | `WaitsForNext`, `since` is the newest of `after` |
    pub(super) fn part_in_list(
        &self,
        version: &ResourceVersion,
        since: &ResourceVersion,
    ) -> ListPart {
        match self {
            Self::Lists { .. } => ListPart::Takes { is_known: false },
            Self::Waits { .. } | Self::Joins { .. } if follows_on(version, since) => {
                ListPart::Takes { is_known: false }
            }
            Self::Waits { asked_again: false } => ListPart::WaitsForNext { since: None },
            Self::Waits { asked_again: true } => ListPart::RestartsHistory,
            Self::Joins { .. } => ListPart::PassesOver,
            Self::Follows { after } => part_of_follower(version, after),
        }
    }

    /// Ends the wait for a list of the watch: the view reads a list of its own, with this number, beside the watch.
    pub(super) fn join(&mut self, list: u32) {
        if let Self::Waits { .. } = self {
            let held = HeldEvents::default();
            *self = Self::Joins { list, held };
        }
    }

    fn hold_back(&mut self, delivery: &Delivery<'_>) -> Result<(), HeldEventsFull> {
        match self {
            Self::Joins { held, .. } => held.push(delivery.held()),
            Self::Waits { .. } | Self::Lists { .. } | Self::Follows { .. } => Ok(()),
        }
    }

    fn give_up(&mut self) {
        if let Self::Joins { .. } = self {
            *self = Self::waits();
        }
    }
}

impl<'a> Delivery<'a> {
    pub(super) fn put(object: &'a RawObject, origin: &Origin) -> Self {
        Self {
            key: &object.key,
            version: &object.version,
            object: Some(object),
            origin: origin.clone(),
            labels: None,
        }
    }

    pub(super) fn gone(key: &'a ObjectKey, version: &'a ResourceVersion, span: &Span) -> Self {
        Self {
            key,
            version,
            object: None,
            origin: Origin::Event(span.clone()),
            labels: None,
        }
    }

    fn held(&self) -> HeldEvent {
        match self.object {
            Some(object) => HeldEvent::Put(object.clone(), self.origin.clone()),
            None => HeldEvent::Gone(self.key.clone(), self.version.clone(), self.origin.span()),
        }
    }
}

impl Member {
    /// Returns whether the view follows all of its watches, so that no list is missing.
    pub(super) fn is_complete(&self) -> bool {
        let mut all = self.watches.values();
        !self.watches.is_empty() && all.all(|progress| matches!(progress, Progress::Follows { .. }))
    }

    /// Takes part in a list of the watch. The view knew every object of the watch up to `known_to`; empty: none.
    pub(super) fn begin_list(
        &mut self,
        scope: &WatchScope,
        known_to: ResourceVersion,
        queue: &mut WriteQueue,
    ) {
        let list = queue.begin_list(&self.handle);
        let lists = Progress::Lists { list, known_to };
        self.watches.insert(scope.clone(), lists);
    }

    /// Waits for the next list of the watch, because the list that begins is too old. The next list has to show the
    /// source at `since`; `None`: at the version that the view had required of this list.
    pub(super) fn wait_for_next(&mut self, scope: &WatchScope, since: Option<ResourceVersion>) {
        if let Some(since) = since {
            self.since = since;
        }
        let waits = Progress::Waits { asked_again: true };
        self.watches.insert(scope.clone(), waits);
    }

    /// Returns the bytes of the events that are held back for the view.
    pub(super) fn held_bytes(&self) -> usize {
        let bytes = |progress: &Progress| match progress {
            Progress::Joins { held, .. } => held.bytes(),
            Progress::Waits { .. } | Progress::Lists { .. } | Progress::Follows { .. } => 0,
        };
        self.watches.values().map(bytes).sum()
    }

    /// Takes a change from a watch. Returns the view to write the object to, if the view does not have this version.
    pub(super) fn take(
        &mut self,
        watch: &mut RunningWatch,
        scope: &WatchScope,
        delivery: &mut Delivery<'_>,
        queue: &mut WriteQueue,
    ) -> Option<RecipientView> {
        let takes = match self.watches.get_mut(scope)? {
            Progress::Waits { .. } => false,
            Progress::Lists { .. } => delivery.origin.is_list(),
            Progress::Follows { after } => {
                !delivery.origin.is_list() && !is_before(after, delivery)
            }
            progress @ Progress::Joins { .. } => {
                if progress.hold_back(delivery).is_err() {
                    progress.give_up();
                    watch.ask();
                }
                false
            }
        };
        takes.then(|| self.apply(delivery, queue))?
    }

    /// Returns whether a list of the watch at `listed_at` brings the object in a version that contradicts the history
    /// that the view knows.
    pub(super) fn is_contradicted(
        &self,
        scope: &WatchScope,
        delivery: &mut Delivery<'_>,
        listed_at: &ResourceVersion,
        queue: &WriteQueue,
    ) -> bool {
        let Some(Progress::Lists { known_to, .. }) = self.watches.get(scope) else {
            return false;
        };
        let Delivery { key, version, .. } = *delivery;
        let handle = &self.handle;
        self.selects(delivery) && queue.contradicts(handle, key, version, known_to, listed_at)
    }

    fn apply(&self, delivery: &mut Delivery<'_>, queue: &mut WriteQueue) -> Option<RecipientView> {
        let &mut Delivery { key, version, .. } = delivery;
        if self.selects(delivery) {
            let is_news = !queue.is_known(&self.handle, key, version);
            return is_news.then(|| self.recipient());
        }
        // A list deletes nothing before its end, when `sweep` removes the objects that the list did not bring.
        if let Origin::Event(span) = &delivery.origin {
            let (now, origin) = (Instant::now(), ChangeOrigin::Event(span.clone()));
            queue.delete(&self.handle, key, version.clone(), now, origin);
        }
        None
    }

    /// Starts the view over: every object is written again, as the next lists of its watches bring it. Lists that are
    /// older than the view's objects do not count.
    pub(super) fn reread(
        &mut self,
        watches: &BTreeMap<WatchScope, RunningWatch>,
        queue: &mut WriteQueue,
    ) {
        self.note_known(watches);
        self.wait_for_lists(queue);
    }

    /// Starts the view over in a new history of the source: the next list counts, whatever its version.
    pub(super) fn restart_history(&mut self, queue: &mut WriteQueue) {
        self.since = ResourceVersion::default();
        self.wait_for_lists(queue);
    }

    fn wait_for_lists(&mut self, queue: &mut WriteQueue) {
        queue.reread(&mut self.handle);
        let all = self.watches.values_mut();
        all.for_each(|progress| *progress = Progress::waits());
    }

    /// Gives the view the watches of `scopes` in the place of its own. Readers are served the known objects
    /// meanwhile.
    pub(super) fn switch_watches(
        &mut self,
        scopes: BTreeSet<WatchScope>,
        watches: &BTreeMap<WatchScope, RunningWatch>,
        queue: &mut WriteQueue,
    ) {
        if !self.watches.is_empty() {
            queue.switch_watches(&mut self.handle);
        }
        self.note_known(watches);
        let waits = |scope| (scope, Progress::waits());
        self.watches = scopes.into_iter().map(waits).collect();
    }

    /// Raises `since` to the newest version that the view may hold anything of: by the watches that it follows, by the
    /// view's own lists beside them, and by lists that run, which may have brought a part of their objects.
    fn note_known(&mut self, watches: &BTreeMap<WatchScope, RunningWatch>) {
        for (scope, progress) in &self.watches {
            let Some(watch) = watches.get(scope) else {
                continue;
            };
            let known: Vec<_> = match progress {
                // A list that the view read beside the watch may be newer than the watch's last event.
                Progress::Follows { after } => after
                    .iter()
                    .map(|(_, at)| at)
                    .chain([&watch.newest])
                    .collect(),
                Progress::Lists { .. } => vec![&watch.lists_at],
                Progress::Waits { .. } | Progress::Joins { .. } => continue,
            };
            for known in known {
                if self.since.is_empty() || !follows_on(&self.since, known) {
                    self.since.clone_from(known);
                }
            }
        }
    }

    pub(super) fn recipient(&self) -> RecipientView {
        RecipientView {
            handle: self.handle.clone(),
            sealed: self.sealed,
            retained: self.retained.clone(),
        }
    }

    fn selects(&self, delivery: &mut Delivery<'_>) -> bool {
        let ViewFilter {
            namespaces,
            labels: selector,
            fields,
            ..
        } = &self.filter;
        let Some(RawObject { key, json, .. }) = delivery.object else {
            return false;
        };
        if !self.filter.derivable() {
            return true;
        }
        let within =
            namespaces.is_empty() || namespaces.iter().any(|name| **name == *key.namespace);
        within
            && fields.matches(&key.namespace, &key.name)
            && (selector.is_empty() || {
                let labels = delivery.labels.get_or_insert_with(|| labels_of(json));
                selector.matches(|key| labels.get(key).map(String::as_str))
            })
    }

    /// One of the view's lists is complete at `version`. The view is synced once all of its lists are complete.
    pub(super) fn settle(
        &mut self,
        version: &ResourceVersion,
        watches: &BTreeMap<WatchScope, RunningWatch>,
        queue: &mut WriteQueue,
    ) {
        if self.is_complete() {
            self.is_refused = false;
            self.refresh(Some(version), watches, queue);
            queue.complete(&self.handle);
        }
    }

    /// One of the view's watches was heard from. The view is as fresh as its watch that was silent for longest.
    pub(super) fn refresh(
        &self,
        version: Option<&ResourceVersion>,
        watches: &BTreeMap<WatchScope, RunningWatch>,
        queue: &mut WriteQueue,
    ) {
        if !self.is_complete() {
            return;
        }
        let heard = self.watches.keys().map(|scope| watches.get(scope)?.heard);
        // `None`, for a watch that was never heard from, is the least.
        if let Some(oldest) = heard.min().flatten() {
            let version = version.filter(|_| self.watches.len() == 1);
            queue.mark_fresh(&self.handle, version.cloned(), oldest);
        }
    }

    /// The view's own lists, read beside the watch, are complete at these versions. Returns the events that were held
    /// back meanwhile, for [`Member::replay`].
    pub(super) fn joined(
        &mut self,
        scope: &WatchScope,
        listed: &[(&WatchScope, ResourceVersion)],
        queue: &mut WriteQueue,
    ) -> Vec<HeldEvent> {
        let Some(progress @ Progress::Joins { .. }) = self.watches.get_mut(scope) else {
            return Vec::new();
        };
        let after = listed.iter();
        let after = after.map(|(own, version)| (own.namespace.clone(), version.clone()));
        let after = after.collect();
        let Progress::Joins { list, held } =
            std::mem::replace(progress, Progress::Follows { after })
        else {
            return Vec::new();
        };
        let orders_events = |version: &ResourceVersion| version.compare(version).is_some();
        let counts = |version| orders_events(version) && follows_on(version, &self.since);
        if !listed.iter().all(|(_, version)| counts(version)) {
            *progress = Progress::waits();
            return Vec::new();
        }
        let now = Instant::now();
        for (own, version) in listed {
            queue.sweep(&self.handle, list, &own.namespace, version, now);
        }
        if self.is_complete() {
            self.is_refused = false;
            let version = listed.first().map(|(_, version)| version.clone());
            let version = version.filter(|_| self.watches.len() == 1);
            queue.mark_fresh(&self.handle, version, now);
            queue.complete(&self.handle);
        }
        held.into_events()
    }

    /// Drops the view's own list beside the watch: the view waits for the watch's next list.
    pub(super) fn gives_up(&mut self, scope: &WatchScope) {
        if let Some(progress) = self.watches.get_mut(scope) {
            progress.give_up();
        }
    }

    /// Takes an event that was held back. Returns the view to write the object to, if the view does not have this
    /// version. The caller writes the object before it replays the next event.
    pub(super) fn replay(
        &mut self,
        scope: &WatchScope,
        held: &HeldEvent,
        queue: &mut WriteQueue,
    ) -> Option<RecipientView> {
        let mut delivery = match held {
            HeldEvent::Put(object, origin) => Delivery::put(object, origin),
            HeldEvent::Gone(key, version, span) => Delivery::gone(key, version, span),
        };
        let Progress::Follows { after } = self.watches.get_mut(scope)? else {
            return None;
        };
        let is_news = !is_before(after, &delivery);
        is_news.then(|| self.apply(&mut delivery, queue))?
    }
}

/// Returns the part that a view which follows the watch takes in a list at `version`. `after` are the versions of the
/// lists that the view read beside the watch; without any, the list counts.
fn part_of_follower(version: &ResourceVersion, after: &[(String, ResourceVersion)]) -> ListPart {
    let own = after.iter().map(|(_, at)| at);
    if own.clone().all(|at| follows_on(version, at)) {
        return ListPart::Takes { is_known: true };
    }
    if own.clone().all(|at| follows_on(at, version)) {
        return ListPart::PassesOver; // The events bring the rest.
    }
    // The list is older than the view's own list in some namespaces and newer in others.
    let youngest = own.reduce(|one, other| if follows_on(one, other) { one } else { other });
    let since = youngest.cloned().unwrap_or_default();
    ListPart::WaitsForNext { since: Some(since) }
}

/// Returns whether a list at `version` is at least as new as `since`. Versions that cannot be compared count as newer:
/// the list was asked for later.
pub(super) fn follows_on(version: &ResourceVersion, since: &ResourceVersion) -> bool {
    version.compare(since) != Some(Ordering::Less)
}

/// Returns whether the list of the event's namespace has the event already. Empties `after` once no such event can
/// come any more.
fn is_before(after: &mut Vec<(String, ResourceVersion)>, event: &Delivery<'_>) -> bool {
    let passed = |at: &ResourceVersion| event.version.compare(at) == Some(Ordering::Greater);
    if after.iter().all(|(_, at)| passed(at)) {
        after.clear();
    }
    let within = |namespace: &str| namespace.is_empty() || *namespace == *event.key.namespace;
    let mut lists = after.iter();
    lists.any(|(namespace, at)| within(namespace) && !passed(at))
}

#[cfg(test)]
mod tests;
