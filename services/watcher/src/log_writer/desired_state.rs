//! The desired state, as the coordinator wrote it to the log: views and referenced objects, for the feeders of
//! groups. One reader for the process, whatever it leads.
//!
//! [`DesiredState`] is pure: records go in, and for each group the changes since the last query come out. A change
//! replaces an older one of its key, so the waiting changes are bounded by the desired views.
//! [`Tally`] tells if a record was missed. Then the log is read again.

mod tally;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::{Bus, LogEvent, LogScope};
use anteroom_model::{
    Delta, DesiredView, Epoch, Group, ObjectKey, ObjectReference, Op, Revision, Source, ViewId,
    ViewState, system,
};
use anteroom_wire::{body, envelope::Record};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};

use super::contradictions::RepairPace;
use crate::generations::Generations;
use tally::Tally;

/// The interval at which it is looked whether a record was missed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The least and the longest wait between two readings of the log because a record was missed.
const REREAD_WAIT_MIN: Duration = Duration::from_secs(1);
const REREAD_WAIT_MAX: Duration = Duration::from_secs(60);

/// A change of a group's desired views and objects, for its feeder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DesiredChange {
    /// The view is desired, with these options.
    View(ViewId, Box<DesiredView>),
    /// The view is not desired any more.
    ViewGone(ViewId),
    /// The object is referenced, with these options.
    Object(ObjectReference),
    /// The object is not referenced any more.
    ObjectGone(ObjectReference),
    /// All desired views and objects are known. Said once.
    Settled,
}

#[derive(Debug, Default)]
struct Changes {
    /// The desired views and objects of the group, whether its feeder knows of them or not.
    views: HashSet<ViewId>,
    objects: HashMap<ObjectKey, ObjectReference>,
    settled: bool,
    told_settled: bool,
}

/// A desired view or object, with the epoch in which it was written.
#[derive(Debug)]
struct Written<T> {
    epoch: Epoch,
    value: T,
}

/// All desired views and objects, and the changes for each group.
#[derive(Debug, Default)]
pub(crate) struct DesiredState {
    views: Generations<ViewId, Written<DesiredView>>,
    objects: Generations<ObjectKey, Written<ObjectReference>>,
    views_tally: Tally,
    objects_tally: Tally,
    read_whole: bool,
    /// The log was read to its end, and both views are synced there.
    views_synced: bool,
    objects_synced: bool,
    /// The origins of both views there. What was written before them is void: a view that lost its control record begins
    /// anew, and leaves its old records in the log.
    views_origin: Epoch,
    objects_origin: Epoch,
    /// Records of this reading that cannot be decoded. Their content is unknown, and so is which views are no longer
    /// desired, until the records are replaced.
    unreadable: HashSet<(ViewId, ObjectKey)>,
    /// There is an unreadable record whose view is unknown too, until the log is read again.
    blind: bool,
    groups: HashMap<Group, Changes>,
}

impl DesiredState {
    /// Keeps changes for this group from now on. The first changes are all views and objects that are desired now.
    fn begin(&mut self, group: Group) {
        let mut changes = Changes {
            settled: self.is_settled(),
            ..Changes::default()
        };
        for (view, desired) in self.views.iter() {
            if Group::of(&desired.value.info.source) == group {
                changes.views.insert(view.clone());
            }
        }
        for (key, reference) in self.objects.iter() {
            if group_of(&reference.value) == group {
                let reference = reference.value.clone();
                changes.objects.insert(key.clone(), reference);
            }
        }
        self.groups.insert(group, changes);
    }

    /// Returns the changes for this group since the last call: views before their objects.
    fn take(&mut self, group: Group) -> Vec<DesiredChange> {
        let Some(changes) = self.groups.get_mut(&group) else {
            return Vec::new();
        };
        let mut taken = Vec::with_capacity(changes.views.len() + changes.objects.len());
        for view in changes.views.drain() {
            taken.push(match self.views.get(&view) {
                Some(desired) => DesiredChange::View(view, Box::new(desired.value.clone())),
                None => DesiredChange::ViewGone(view),
            });
        }
        for (key, reference) in changes.objects.drain() {
            taken.push(match self.objects.get(&key) {
                Some(_) => DesiredChange::Object(reference),
                None => DesiredChange::ObjectGone(reference),
            });
        }
        if changes.settled && !std::mem::replace(&mut changes.told_settled, true) {
            taken.push(DesiredChange::Settled);
        }
        taken
    }

    fn is_settled(&self) -> bool {
        let is_known = self.is_legible() && !self.misses_a_record();
        is_known && self.read_whole && self.views_synced && self.objects_synced
    }

    fn is_legible(&self) -> bool {
        self.unreadable.is_empty() && !self.blind
    }

    /// Returns true if the log has, or had, a record of a desired view or object that this reading did not bring.
    fn misses_a_record(&self) -> bool {
        self.views_tally.misses() || self.objects_tally.misses()
    }

    /// Takes an event of the log. Returns whether the API server may serve other kinds now.
    fn take_in(&mut self, event: LogEvent) -> bool {
        match event {
            LogEvent::Restart { .. } => {
                self.views.begin();
                self.objects.begin();
                self.views_tally = Tally::default();
                self.objects_tally = Tally::default();
                self.read_whole = false;
                self.views_synced = false;
                self.objects_synced = false;
                self.views_origin = Epoch::default();
                self.objects_origin = Epoch::default();
                self.unreadable.clear();
                self.blind = false;
            }
            LogEvent::CaughtUp { .. } if self.read_whole => {}
            LogEvent::CaughtUp { .. } => {
                self.read_whole = true;
                if self.is_legible() {
                    self.views_tally.compare_at_end();
                    self.objects_tally.compare_at_end();
                }
            }
            LogEvent::Superseded { .. } | LogEvent::Away { .. } => {}
            LogEvent::Record {
                revision,
                envelope: Err(error),
            } => {
                tracing::error!(
                    revision = revision.0,
                    %error,
                    "record of a desired view or reference not decoded: its last known state stays; check that all \
                     watchers have the same version"
                );
                self.note_unreadable(error.view, error.key);
            }
            LogEvent::Record {
                revision,
                envelope: Ok(envelope),
            } => return self.record(revision, envelope.record),
        }
        self.settle();
        false
    }

    fn record(&mut self, revision: Revision, record: Record) -> bool {
        let view = record.view().clone();
        match record {
            Record::Delta { .. } if view == system::kinds() => return true,
            Record::Delta { delta, .. } => self.delta(view, delta),
            Record::Control(record) => {
                // `Syncing` takes nothing back: a successor starts from its predecessor's records, which are whole.
                let (synced, compares) = (
                    record.state == ViewState::Synced,
                    self.read_whole && self.is_legible(),
                );
                let (tally, is_synced, origin) = if view == system::desired_views() {
                    (
                        &mut self.views_tally,
                        &mut self.views_synced,
                        &mut self.views_origin,
                    )
                } else if view == system::references() {
                    (
                        &mut self.objects_tally,
                        &mut self.objects_synced,
                        &mut self.objects_origin,
                    )
                } else {
                    return false;
                };
                if synced {
                    *is_synced = true;
                    *origin = record.origin;
                }
                if tally.control(revision, &record) && compares {
                    tally.compare_live();
                }
                self.settle();
            }
        }
        false
    }

    fn delta(&mut self, view: ViewId, delta: Delta<Bytes>) {
        match view == system::desired_views() {
            true => self.views_tally.delta(&delta),
            false => self.objects_tally.delta(&delta),
        }
        let Delta { key, op, epoch, .. } = delta;
        let slot = (view, key);
        let was_unreadable = self.unreadable.remove(&slot);
        let (view, key) = slot;
        let is_of_views = view == system::desired_views();
        match op {
            Op::Put(bytes) => {
                let taken = match is_of_views {
                    true => body::decode(&bytes).map(|desired| self.put_view(desired, epoch)),
                    false => body::decode(&bytes)
                        .map(|reference| self.put_object(key.clone(), reference, epoch)),
                };
                if let Err(error) = taken {
                    tracing::error!(
                        %view,
                        %key,
                        %error,
                        "desired view or reference not decoded: its last known state stays; check that all \
                         watchers have the same version"
                    );
                    self.note_unreadable(Some(view), Some(key));
                }
            }
            Op::Delete if is_of_views => self.remove_view(&ViewId::new(&*key.name)),
            Op::Delete => self.remove_object(&key),
        }
        if was_unreadable {
            self.settle();
        }
    }

    /// Keeps the last known state of a record that cannot be decoded.
    fn note_unreadable(&mut self, view: Option<ViewId>, key: Option<ObjectKey>) {
        let Some(view) = view else {
            self.blind = true;
            return;
        };
        match key {
            Some(key) if view == system::desired_views() => {
                self.views.touch(&ViewId::new(&*key.name));
                self.unreadable.insert((view, key));
            }
            Some(key) if view == system::references() => {
                self.objects.touch(&key);
                self.unreadable.insert((view, key));
            }
            // A control record says nothing of what is desired, and the kinds are only looked for.
            Some(_) | None => {}
        }
    }

    fn put_view(&mut self, desired: DesiredView, epoch: Epoch) {
        let (view, group) = (
            desired.info.source.view_id(),
            Group::of(&desired.info.source),
        );
        let before = self.views.get(&view).map(|before| &before.value);
        let is_news = before != Some(&desired);
        let value = desired;
        self.views.put(view.clone(), Written { epoch, value });
        if is_news {
            self.change(group, |changes| changes.views.insert(view));
        }
    }

    fn remove_view(&mut self, view: &ViewId) {
        if let Some(desired) = self.views.remove(view) {
            self.view_gone(view.clone(), &desired.value);
        }
    }

    fn put_object(&mut self, key: ObjectKey, reference: ObjectReference, epoch: Epoch) {
        let group = group_of(&reference);
        let value = reference.clone();
        let before = self.objects.put(key.clone(), Written { epoch, value });
        if before.is_none_or(|before| before.value != reference) {
            self.change(group, |changes| changes.objects.insert(key, reference));
        }
    }

    fn remove_object(&mut self, key: &ObjectKey) {
        if let Some(reference) = self.objects.remove(key) {
            self.object_gone(key.clone(), reference.value);
        }
    }

    fn view_gone(&mut self, view: ViewId, desired: &DesiredView) {
        let group = Group::of(&desired.info.source);
        self.change(group, |changes| changes.views.insert(view));
    }

    fn object_gone(&mut self, key: ObjectKey, reference: ObjectReference) {
        let group = group_of(&reference);
        self.change(group, |changes| changes.objects.insert(key, reference));
    }

    fn change<R>(&mut self, group: Group, change: impl FnOnce(&mut Changes) -> R) {
        if let Some(changes) = self.groups.get_mut(&group) {
            change(changes);
        }
    }

    /// Removes views and objects that this reading did not bring, and void ones, once everything is known.
    fn settle(&mut self) {
        if !self.is_settled() {
            return;
        }
        let origin = self.views_origin;
        for (view, desired) in self.views.sweep_void(|desired| desired.epoch < origin) {
            self.view_gone(view, &desired.value);
        }
        let origin = self.objects_origin;
        for (key, reference) in self.objects.sweep_void(|object| object.epoch < origin) {
            self.object_gone(key, reference.value);
        }
        self.groups
            .values_mut()
            .for_each(|changes| changes.settled = true);
    }
}

fn group_of(reference: &ObjectReference) -> Group {
    let gvr = reference.gvr.clone();
    Group::of(&Source::Objects { gvr })
}

/// The reader of the desired state. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct DesiredStateReader {
    state: Arc<Mutex<DesiredState>>,
    changed: watch::Sender<()>,
    settled: watch::Sender<bool>,
    /// Changes whenever the API server begins or ceases to serve something.
    pub served: watch::Sender<()>,
}

impl DesiredStateReader {
    /// Reads nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            changed: watch::Sender::new(()),
            settled: watch::Sender::new(false),
            served: watch::Sender::new(()),
        }
    }

    /// Follows the log, for ever.
    pub(crate) async fn run(&self, bus: &dyn Bus) {
        let scope = vec![
            system::desired_views(),
            system::references(),
            system::kinds(),
        ];
        let mut follower = bus.follow(LogScope::Views(scope));
        let mut rereads = RepairPace::new(Instant::now(), REREAD_WAIT_MIN, REREAD_WAIT_MAX);
        let mut look = interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                event = follower.next() => match event {
                    Some(event) => self.take_in(event),
                    None => return std::future::pending().await, // The bus was closed: the process ends.
                },
                _ = look.tick() => {
                    let misses = self.state.lock().misses_a_record();
                    if misses && rereads.begin(Instant::now()) {
                        tracing::error!(
                            "record of a desired view or reference missed: the log is read again; check the disks of NATS \
                             if this repeats"
                        );
                        follower.restart();
                    }
                }
            }
        }
    }

    fn take_in(&self, event: LogEvent) {
        let (served, settled) = {
            let mut state = self.state.lock();
            (state.take_in(event), state.is_settled())
        };
        if served {
            self.served.send_replace(());
        }
        // `settled` never turns back: a later reading of the log changes the known state record by record.
        self.settled.send_if_modified(|before| {
            let first = settled && !*before;
            *before |= settled;
            first
        });
        self.changed.send_replace(());
    }

    /// Returns a receiver of whether the whole desired state is known.
    pub(crate) fn settled(&self) -> watch::Receiver<bool> {
        self.settled.subscribe()
    }

    /// Returns the changes of this group from here on, for a feeder that begins.
    pub(crate) fn subscribe(&self, group: Group) -> GroupSubscription {
        self.state.lock().begin(group);
        let mut changed = self.changed.subscribe();
        changed.mark_changed();
        GroupSubscription {
            group,
            changed,
            state: Arc::clone(&self.state),
        }
    }
}

/// The changes of one group's desired state.
#[derive(Debug)]
pub(crate) struct GroupSubscription {
    group: Group,
    changed: watch::Receiver<()>,
    state: Arc<Mutex<DesiredState>>,
}

impl GroupSubscription {
    /// Returns the changes since the last call; waits until there is one. Dropping the future loses
    /// nothing.
    pub(crate) async fn next(&mut self) -> Vec<DesiredChange> {
        loop {
            if self.changed.changed().await.is_err() {
                return std::future::pending().await; // The process ends.
            }
            let changes = self.state.lock().take(self.group);
            if !changes.is_empty() {
                return changes;
            }
        }
    }
}

impl Drop for GroupSubscription {
    fn drop(&mut self) {
        self.state.lock().groups.remove(&self.group);
    }
}

#[cfg(test)]
mod tests;
