//! The log itself: pure, no lock, no task.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use anteroom_model::{Group, Incarnation, ObjectKey, Op, Revision, ViewId, ViewState};
use anteroom_wire::envelope::{Envelope, Record};
use tokio::time::Instant;

use crate::{Fence, Lease, LogHead, LogIndex, LogScope, LogSize};

/// Bytes of a record beside its body.
const RECORD_BYTES: u64 = 256;

/// Records with their positions.
pub(super) type Records = Vec<(Revision, Arc<Envelope>)>;

/// The key under which the log keeps one record, the last. On NATS, it is a subject.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum LogKey {
    Control(ViewId),
    Object(ViewId, ObjectKey),
}

impl LogKey {
    fn of(record: &Record) -> Self {
        match record {
            Record::Control(record) => Self::Control(record.view.clone()),
            Record::Delta { view, delta } => Self::Object(view.clone(), delta.key.clone()),
        }
    }
}

/// The lease is not that of the fence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fenced;

/// Why nothing was appended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotAppended {
    Fenced,
    /// There is no room.
    Full(LogSize),
}

impl From<Fenced> for NotAppended {
    fn from(Fenced: Fenced) -> Self {
        Self::Fenced
    }
}

/// Why nothing was purged.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotPurged {
    Fenced,
    NotDropped,
}

/// The last record of every slot, in the order in which they were written.
#[derive(Debug)]
pub(super) struct Log {
    incarnation: Incarnation,
    tombstone_ttl: Duration,
    last: Revision,
    leases: HashMap<Group, (Lease, Fence)>,
    records: BTreeMap<Revision, Arc<Envelope>>,
    slots: HashMap<LogKey, Revision>,
    /// Bytes of the records.
    bytes: u64,
    bytes_max: Option<u64>,
    /// In the order of writing, which is that of expiry.
    tombstones: VecDeque<(Instant, Revision)>,
}

impl Log {
    pub(super) fn new(incarnation: Incarnation, tombstone_ttl: Duration) -> Self {
        Self {
            incarnation,
            tombstone_ttl,
            last: Revision(0),
            leases: HashMap::new(),
            records: BTreeMap::new(),
            slots: HashMap::new(),
            bytes: 0,
            bytes_max: None,
            tombstones: VecDeque::new(),
        }
    }

    pub(super) fn head(&self) -> LogHead {
        LogHead {
            incarnation: self.incarnation.clone(),
            last: self.last,
        }
    }

    pub(super) fn size(&self) -> LogSize {
        LogSize {
            bytes: self.bytes,
            bytes_max: self.bytes_max,
        }
    }

    pub(super) fn limit(&mut self, bytes_max: Option<u64>) {
        self.bytes_max = bytes_max;
    }

    pub(super) fn lease(&self, group: Group) -> Option<(Lease, Fence)> {
        self.leases.get(&group).cloned()
    }

    /// Returns the number of leases between two positions.
    pub(super) fn leases_between(&self, after: Revision, before: Revision) -> u64 {
        let positions = self.leases.values().map(|(_, fence)| fence.at);
        let between = positions.filter(|at| after < *at && *at < before);
        between.count() as u64
    }

    /// Compare-and-swap. The lease takes a position, as any record does.
    pub(super) fn take_lease(
        &mut self,
        group: Group,
        lease: Lease,
        expected: Option<Fence>,
    ) -> Result<Fence, Fenced> {
        if self.leases.get(&group).map(|(_, fence)| *fence) != expected {
            return Err(Fenced);
        }
        self.last.0 += 1;
        let at = self.last;
        let fence = Fence { group, at };
        self.leases.insert(group, (lease, fence));
        Ok(fence)
    }

    fn check(&self, fence: Fence) -> Result<(), Fenced> {
        match self.leases.get(&fence.group) {
            Some((_, current)) if *current == fence => Ok(()),
            _ => Err(Fenced),
        }
    }

    pub(super) fn append(
        &mut self,
        fence: Fence,
        batch: Vec<Envelope>,
        now: Instant,
    ) -> Result<Revision, NotAppended> {
        self.check(fence)?;
        self.expire(now);
        self.check_room(&batch)?;
        for envelope in batch {
            self.last.0 += 1;
            if is_tombstone(&envelope) {
                self.tombstones
                    .push_back((now + self.tombstone_ttl, self.last));
            }
            let slot = LogKey::of(&envelope.record);
            if let Some(previous) = self.slots.insert(slot, self.last) {
                self.take_out(previous);
            }
            self.bytes += bytes_of(&envelope);
            self.records.insert(self.last, Arc::new(envelope));
        }
        Ok(self.last)
    }

    /// Refuses a batch that does not fit, as NATS does: only a record alone is given what it replaces.
    fn check_room(&self, batch: &[Envelope]) -> Result<(), NotAppended> {
        let replaced = match batch {
            [alone] => self.slots.get(&LogKey::of(&alone.record)),
            _ => None,
        };
        let replaced = replaced.and_then(|at| self.records.get(at));
        let credit = replaced.map_or(0, |envelope| bytes_of(envelope));
        let bytes = self.bytes - credit + batch.iter().map(bytes_of).sum::<u64>();
        match self.bytes_max {
            Some(bytes_max) if bytes > bytes_max => Err(NotAppended::Full(self.size())),
            _ => Ok(()),
        }
    }

    fn take_out(&mut self, revision: Revision) -> Option<Arc<Envelope>> {
        let envelope = self.records.remove(&revision)?;
        self.bytes -= bytes_of(&envelope);
        Some(envelope)
    }

    /// Forgets tombstones that are past their time.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(&(expires, revision)) = self.tombstones.front() {
            if expires > now {
                break;
            }
            self.tombstones.pop_front();
            self.forget(revision);
        }
    }

    fn forget(&mut self, revision: Revision) {
        if let Some(envelope) = self.take_out(revision) {
            self.slots.remove(&LogKey::of(&envelope.record));
        }
    }

    pub(super) fn purge(&mut self, fence: Fence, view: &ViewId) -> Result<(), NotPurged> {
        self.check(fence).map_err(|Fenced| NotPurged::Fenced)?;
        if !self.is_dropped(view) {
            return Err(NotPurged::NotDropped);
        }
        let of_view = |slot: &LogKey| matches!(slot, LogKey::Object(of, _) if of == view);
        let purged = self.slots.extract_if(|slot, _| of_view(slot));
        for revision in purged.map(|(_, revision)| revision).collect::<Vec<_>>() {
            self.take_out(revision);
        }
        Ok(())
    }

    fn is_dropped(&self, view: &ViewId) -> bool {
        let control = self
            .slots
            .get(&LogKey::Control(view.clone()))
            .and_then(|revision| self.records.get(revision));
        matches!(
            control.map(|envelope| &envelope.record),
            Some(Record::Control(record)) if record.state == ViewState::Dropped
        )
    }

    /// Returns an index of all views.
    pub(super) fn index(&self) -> LogIndex {
        let mut index = LogIndex {
            incarnation: self.incarnation.clone(),
            ..LogIndex::default()
        };
        for envelope in self.records.values() {
            match &envelope.record {
                Record::Control(record) => {
                    index.note_term(record.epoch);
                    index.views.insert(record.view.clone(), record.clone());
                }
                Record::Delta { view, delta } => {
                    index.note_term(delta.epoch);
                    if matches!(delta.op, Op::Put(_)) {
                        index
                            .objects
                            .entry(view.clone())
                            .or_default()
                            .insert(delta.key.clone(), (delta.epoch, delta.version.clone()));
                    }
                }
            }
        }
        index
    }

    /// Returns up to `records_max` records of `scope` after position `after`; fewer only at the
    /// log's end.
    pub(super) fn read(&self, after: Revision, scope: &LogScope, records_max: usize) -> Records {
        self.records
            .range(Revision(after.0 + 1)..)
            .filter(|(_, envelope)| scope.reads(&envelope.record))
            .take(records_max)
            .map(|(revision, envelope)| (*revision, Arc::clone(envelope)))
            .collect()
    }

    /// Drops the records after `last`, like a broker that lost acknowledged writes.
    pub(super) fn truncate(&mut self, last: Revision) {
        for (revision, envelope) in self.records.split_off(&Revision(last.0 + 1)) {
            self.bytes -= bytes_of(&envelope);
            self.slots.retain(|_, at| *at != revision);
        }
        // Their numbers are given out again.
        self.tombstones.retain(|(_, at)| *at <= last);
        self.last = self.last.min(last);
        self.leases.retain(|_, (_, fence)| fence.at <= last);
    }

    /// Loses the first objects behind `after`, up to `records_max`, and keeps all that stands behind them.
    pub(super) fn lose(&mut self, after: Revision, records_max: usize) {
        let behind = self.records.range(Revision(after.0 + 1)..);
        let objects =
            behind.filter(|(_, envelope)| matches!(envelope.record, Record::Delta { .. }));
        let lost: Vec<_> = objects.take(records_max).map(|(at, _)| *at).collect();
        for revision in lost {
            self.forget(revision);
        }
    }

    /// Puts another history in the place of the records after `last`, at least as long. In it, other writers took every
    /// lease and handed it back. No lease stands where the group's lease stood before: a writer that still holds that
    /// fence could append, and nobody could know.
    pub(super) fn replace_history(&mut self, last: Revision) {
        let end = self.last;
        let leases = self.leases.clone();
        self.truncate(last);
        for group in Group::all() {
            let Some((lease, before)) = leases.get(&group) else {
                continue;
            };
            self.last.0 += 1;
            if self.last == before.at {
                self.last.0 += 1;
            }
            let fence = Fence {
                group,
                at: self.last,
            };
            let free = Lease {
                term: lease.term.saturating_add(1),
                holder: String::new(),
            };
            self.leases.insert(group, (free, fence));
        }
        self.last = self.last.max(end);
    }
}

/// The bytes of a record, about: its body, and what NATS keeps beside it.
fn bytes_of(envelope: &Envelope) -> u64 {
    let body = match &envelope.record {
        Record::Delta { delta, .. } => match &delta.op {
            Op::Put(body) => body.len(),
            Op::Delete => 0,
        },
        Record::Control(_) => 0,
    };
    body as u64 + RECORD_BYTES
}

fn is_tombstone(envelope: &Envelope) -> bool {
    matches!(&envelope.record, Record::Delta { delta, .. } if delta.op == Op::Delete)
}

#[cfg(test)]
mod tests;
