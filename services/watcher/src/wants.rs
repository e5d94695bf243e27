//! What is wanted, as the coordinator wrote it to the log: the views and the referenced objects, for
//! those who run the watches of a group. One reader for the process, whatever it leads.
//!
//! [`Wants`] is pure: records in, and for each group what changed since it was last asked for. A
//! change takes the place of an older one of its key, so what waits is bounded by what is wanted.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use anteroom_bus::{Bus, LogEvent, Scope};
use anteroom_model::{
    Delta, Group, ObjectKey, ObjectReference, Op, Source, ViewId, ViewState, WantedView, system,
};
use anteroom_wire::{body, envelope::Record};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

/// What a group's feeder has to take in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Want {
    /// The view is wanted so.
    View(ViewId, Box<WantedView>),
    /// The view is not wanted any more.
    NoView(ViewId),
    /// The object is referenced.
    Object(ObjectReference),
    /// The object is not referenced any more.
    NoObject(ObjectReference),
    /// All that is wanted is known. Said once.
    Settled,
}

#[derive(Debug, Default)]
struct Changes {
    /// With their group's feeder having been told of them or not.
    views: HashSet<ViewId>,
    objects: HashMap<ObjectKey, ObjectReference>,
    settled: bool,
    told_settled: bool,
}

/// All that is wanted.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    views: HashMap<ViewId, (u64, WantedView)>,
    objects: HashMap<ObjectKey, (u64, ObjectReference)>,
    /// Counts readings of the log from its start: what a reading did not bring is gone.
    reading: u64,
    read_whole: bool,
    /// The log is read to its end, and says of both views that all of it is there.
    views_synced: bool,
    objects_synced: bool,
    /// Records of this reading that cannot be read: what they say is unknown, and so is what is not
    /// wanted, until they are replaced.
    unreadable: HashSet<(ViewId, ObjectKey)>,
    /// There is one of which not even that can be told, until the log is read again.
    blind: bool,
    groups: HashMap<Group, Changes>,
}

impl Wants {
    /// From here on, changes are kept for this group; all that is wanted is one.
    fn begin(&mut self, group: Group) {
        let mut changes = Changes {
            settled: self.is_settled(),
            ..Changes::default()
        };
        for (view, (_, wanted)) in &self.views {
            if Group::of(&wanted.info.source) == group {
                changes.views.insert(view.clone());
            }
        }
        for (key, (_, reference)) in &self.objects {
            if group_of(reference) == group {
                changes.objects.insert(key.clone(), reference.clone());
            }
        }
        self.groups.insert(group, changes);
    }

    /// What changed for this group since it was last asked for: views before their objects.
    fn take(&mut self, group: Group) -> Vec<Want> {
        let Some(changes) = self.groups.get_mut(&group) else {
            return Vec::new();
        };
        let mut wants = Vec::with_capacity(changes.views.len() + changes.objects.len());
        for view in changes.views.drain() {
            wants.push(match self.views.get(&view) {
                Some((_, wanted)) => Want::View(view, Box::new(wanted.clone())),
                None => Want::NoView(view),
            });
        }
        for (key, reference) in changes.objects.drain() {
            wants.push(match self.objects.contains_key(&key) {
                true => Want::Object(reference),
                false => Want::NoObject(reference),
            });
        }
        if changes.settled && !std::mem::replace(&mut changes.told_settled, true) {
            wants.push(Want::Settled);
        }
        wants
    }

    fn is_settled(&self) -> bool {
        let is_legible = self.unreadable.is_empty() && !self.blind;
        is_legible && self.read_whole && self.views_synced && self.objects_synced
    }

    /// Takes an event of the log in; says whether what is served may have changed.
    fn hear(&mut self, event: LogEvent) -> bool {
        match event {
            LogEvent::Restart { .. } => {
                self.reading += 1;
                self.read_whole = false;
                self.views_synced = false;
                self.objects_synced = false;
                self.unreadable.clear();
                self.blind = false;
            }
            LogEvent::CaughtUp { .. } => self.read_whole = true,
            LogEvent::Away { .. } => {}
            LogEvent::Record {
                revision,
                envelope: Err(error),
            } => {
                tracing::error!(revision = revision.0, %error, "a record of what is wanted cannot be read");
                self.unread(error.view, error.key);
            }
            LogEvent::Record {
                envelope: Ok(envelope),
                ..
            } => return self.record(envelope.record),
        }
        self.settle();
        false
    }

    fn record(&mut self, record: Record) -> bool {
        let view = record.view().clone();
        match record {
            Record::Delta { .. } if view == system::kinds() => return true,
            Record::Delta { delta, .. } => self.delta(view, delta),
            Record::Control(record) => {
                // A successor begins anew with what its predecessor left, which is whole too.
                let synced = record.state == ViewState::Synced;
                if view == system::wanted() {
                    self.views_synced |= synced;
                } else if view == system::references() {
                    self.objects_synced |= synced;
                }
                self.settle();
            }
        }
        false
    }

    fn delta(&mut self, view: ViewId, delta: Delta<Bytes>) {
        let Delta { key, op, .. } = delta;
        let slot = (view, key);
        let was_unreadable = self.unreadable.remove(&slot);
        let (view, key) = slot;
        let is_of_views = view == system::wanted();
        match op {
            Op::Put(bytes) => {
                let taken = match is_of_views {
                    true => body::decode(&bytes).map(|wanted| self.put_view(wanted)),
                    false => body::decode(&bytes)
                        .map(|reference| self.put_object(key.clone(), reference)),
                };
                if let Err(error) = taken {
                    tracing::error!(%view, %key, %error, "what is wanted cannot be read");
                    self.unread(Some(view), Some(key));
                }
            }
            Op::Delete if is_of_views => self.remove_view(&ViewId::new(&*key.name)),
            Op::Delete => self.remove_object(&key),
        }
        if was_unreadable {
            self.settle();
        }
    }

    /// A record cannot be read: what was known of it stays.
    fn unread(&mut self, view: Option<ViewId>, key: Option<ObjectKey>) {
        let Some(view) = view else {
            self.blind = true;
            return;
        };
        let reading = self.reading;
        match key {
            Some(key) if view == system::wanted() => {
                if let Some((seen, _)) = self.views.get_mut(&ViewId::new(&*key.name)) {
                    *seen = reading;
                }
                self.unreadable.insert((view, key));
            }
            Some(key) if view == system::references() => {
                if let Some((seen, _)) = self.objects.get_mut(&key) {
                    *seen = reading;
                }
                self.unreadable.insert((view, key));
            }
            // A control record says nothing of what is wanted, and the kinds are only looked for.
            Some(_) | None => {}
        }
    }

    fn put_view(&mut self, wanted: WantedView) {
        let (view, group) = (wanted.info.source.view_id(), Group::of(&wanted.info.source));
        let before = self.views.get(&view);
        let is_news = before.is_none_or(|(_, before)| *before != wanted);
        self.views.insert(view.clone(), (self.reading, wanted));
        if is_news {
            self.change(group, |changes| changes.views.insert(view));
        }
    }

    fn remove_view(&mut self, view: &ViewId) {
        if let Some((_, wanted)) = self.views.remove(view) {
            self.change(Group::of(&wanted.info.source), |changes| {
                changes.views.insert(view.clone())
            });
        }
    }

    fn put_object(&mut self, key: ObjectKey, reference: ObjectReference) {
        let group = group_of(&reference);
        let before = self
            .objects
            .insert(key.clone(), (self.reading, reference.clone()));
        if before.is_none() {
            self.change(group, |changes| changes.objects.insert(key, reference));
        }
    }

    fn remove_object(&mut self, key: &ObjectKey) {
        if let Some((_, reference)) = self.objects.remove(key) {
            self.change(group_of(&reference), |changes| {
                changes.objects.insert(key.clone(), reference)
            });
        }
    }

    fn change<R>(&mut self, group: Group, change: impl FnOnce(&mut Changes) -> R) {
        if let Some(changes) = self.groups.get_mut(&group) {
            change(changes);
        }
    }

    /// Once all is known, what this reading did not bring is gone.
    fn settle(&mut self) {
        if !self.is_settled() {
            return;
        }
        let reading = self.reading;
        let gone = |(_, (seen, _)): &(&ViewId, &(u64, WantedView))| *seen != reading;
        let gone: Vec<_> = self
            .views
            .iter()
            .filter(gone)
            .map(|(v, _)| v.clone())
            .collect();
        gone.iter().for_each(|view| self.remove_view(view));
        let gone = |(_, (seen, _)): &(&ObjectKey, &(u64, ObjectReference))| *seen != reading;
        let gone: Vec<_> = self
            .objects
            .iter()
            .filter(gone)
            .map(|(k, _)| k.clone())
            .collect();
        gone.iter().for_each(|key| self.remove_object(key));
        self.groups
            .values_mut()
            .for_each(|changes| changes.settled = true);
    }
}

fn group_of(reference: &ObjectReference) -> Group {
    let gvr = reference.gvr.clone();
    Group::of(&Source::Objects { gvr })
}

/// The reader, and what it found. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct WantsReader {
    wants: Arc<Mutex<Wants>>,
    changed: watch::Sender<()>,
    settled: watch::Sender<bool>,
    /// Changes whenever the API server begins or ceases to serve something.
    pub served: watch::Sender<()>,
}

impl WantsReader {
    /// Reads nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            wants: Arc::default(),
            changed: watch::Sender::new(()),
            settled: watch::Sender::new(false),
            served: watch::Sender::new(()),
        }
    }

    /// Follows the log, for ever.
    pub(crate) async fn run(&self, bus: &dyn Bus) {
        let scope = vec![system::wanted(), system::references(), system::kinds()];
        let mut follower = bus.follow(Scope::Views(scope));
        while let Some(event) = follower.next().await {
            let (served, settled) = {
                let mut wants = self.wants.lock();
                (wants.hear(event), wants.is_settled())
            };
            if served {
                self.served.send_replace(());
            }
            // Once known, it stays so: another reading changes it record by record.
            self.settled.send_if_modified(|before| {
                let first = settled && !*before;
                *before |= settled;
                first
            });
            self.changed.send_replace(());
        }
        std::future::pending::<()>().await; // The bus was closed: the process ends.
    }

    /// Whether all that is wanted is known, and changes of that.
    pub(crate) fn settled(&self) -> watch::Receiver<bool> {
        self.settled.subscribe()
    }

    /// For a feeder of this group, which begins.
    pub(crate) fn feed(&self, group: Group) -> Feed {
        self.wants.lock().begin(group);
        let mut changed = self.changed.subscribe();
        changed.mark_changed();
        Feed {
            group,
            changed,
            wants: Arc::clone(&self.wants),
        }
    }
}

/// What is wanted of one group.
#[derive(Debug)]
pub(crate) struct Feed {
    group: Group,
    changed: watch::Receiver<()>,
    wants: Arc<Mutex<Wants>>,
}

impl Feed {
    /// What changed since the last call; waits until something did. Dropping the future loses
    /// nothing.
    pub(crate) async fn next(&mut self) -> Vec<Want> {
        loop {
            if self.changed.changed().await.is_err() {
                return std::future::pending().await; // The process ends.
            }
            let wants = self.wants.lock().take(self.group);
            if !wants.is_empty() {
                return wants;
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.wants.lock().groups.remove(&self.group);
    }
}

#[cfg(test)]
mod tests;
