//! Notes that wait for the controller. Pure.
//!
//! Only the last note of each object waits, in the place of the first. The cluster's objects go first, and the
//! namespaces take turns. So whoever changes an object in a loop has one note in the queue, and one who changes many
//! objects of a namespace lets others wait for one of them.
//!
//! A note about a whole collection stays in its place among the notes of that collection: a list begins and
//! ends where it did, and the news that the source was heard from follows all changes that came before.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
};

use anteroom_model::ObjectKey;
use tokio::time::Instant;

use super::collection::Manifests;
use crate::source::reflect::Note;

/// The most notes of one collection that wait; at the limit, reading it from the API server waits.
const NOTES_MAX: usize = 1_024;

/// The most bytes of the objects in them. One object may have more.
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// The notes of the cluster's objects that go before one of a namespace that waits.
const CLUSTER_IN_A_ROW_MAX: u32 = 8;

/// A note, its collection, and the time at which the note came.
pub(super) type TakenNote = (Manifests, Note, Instant);

/// The notes of all collections that wait.
#[derive(Debug, Default)]
pub(super) struct NoteQueue {
    collections: BTreeMap<Manifests, CollectionNotes>,
    /// Counts notes.
    arrivals: u64,
    /// The namespace that had the last turn.
    last_turn: Box<str>,
    /// Notes of the cluster's objects since a namespace had a turn.
    cluster_in_a_row: u32,
}

/// The notes of one collection.
#[derive(Debug, Default)]
struct CollectionNotes {
    /// The notes between those that say where a list begins or ends. Notes are taken from the first stage.
    stages: VecDeque<Stage>,
    notes: usize,
    bytes: usize,
}

/// Notes whose order does not matter, but for one that goes first.
#[derive(Debug, Default)]
struct Stage {
    first: Option<Arrived>,
    changes: HashMap<ObjectKey, (u64, Arrived)>,
    /// The same by the arrival of the object's first note.
    arrivals: BTreeMap<u64, ObjectKey>,
    /// The arrivals of each namespace; empty: the cluster.
    namespaces: BTreeMap<Box<str>, BTreeSet<u64>>,
    /// Notes that follow all changes that came before, with their arrival.
    news: VecDeque<(u64, Arrived)>,
}

#[derive(Debug)]
struct Arrived {
    note: Note,
    at: Instant,
}

/// The meaning of a note for the order of others.
enum NoteOrder {
    /// It replaces earlier notes of this object.
    Object(ObjectKey),
    /// It follows the changes that came before.
    News,
    /// Earlier notes are taken before a barrier, and later notes after.
    Barrier,
}

impl NoteOrder {
    fn of(note: &Note) -> Self {
        match note {
            Note::Put { object, .. } => Self::Object(object.key.clone()),
            Note::Gone { key, .. } => Self::Object(key.clone()),
            Note::Heard { .. } | Note::Skipped | Note::Troubled(_) => Self::News,
            Note::Begin { .. } | Note::Listed { .. } | Note::Refused(_) => Self::Barrier,
        }
    }
}

fn bytes(note: &Note) -> usize {
    match note {
        Note::Put { object, .. } => object.json.len(),
        _ => 0,
    }
}

fn is_heard(arrived: &Arrived) -> bool {
    matches!(arrived.note, Note::Heard { .. })
}

impl NoteQueue {
    /// Adds a note. Returns it where there is no room for it.
    pub(super) fn push(&mut self, of: Manifests, note: Note, at: Instant) -> Option<Note> {
        self.arrivals += 1;
        let collection = self.collections.entry(of).or_default();
        collection.push(self.arrivals, Arrived { note, at })
    }

    /// Takes the next note.
    pub(super) fn take(&mut self) -> Option<TakenNote> {
        let mut collections = self.collections.iter_mut();
        let whole = collections.find_map(|(of, notes)| Some((*of, notes.take_whole()?)));
        let (of, taken) = match whole {
            Some(whole) => whole,
            None => self.take_change()?,
        };
        Some((of, taken.note, taken.at))
    }

    /// Takes the next note of an object.
    fn take_change(&mut self) -> Option<(Manifests, Arrived)> {
        let of_cluster = self.first_of("").is_some();
        let next_turn = self.next_turn();
        let namespace = match next_turn {
            Some(namespace) if !of_cluster || self.cluster_in_a_row >= CLUSTER_IN_A_ROW_MAX => {
                self.cluster_in_a_row = 0;
                self.last_turn.clone_from(&namespace);
                namespace
            }
            _ => {
                self.cluster_in_a_row = self.cluster_in_a_row.saturating_add(1);
                Box::default()
            }
        };
        let (arrival, of) = self.first_of(&namespace)?;
        let taken = self.collections.get_mut(&of)?.take_change(arrival)?;
        Some((of, taken))
    }

    /// Returns the first note about an object of a namespace: its arrival, and its collection.
    fn first_of(&self, namespace: &str) -> Option<(u64, Manifests)> {
        let firsts = self.collections.iter().filter_map(|(of, notes)| {
            let arrivals = notes.stages.front()?.namespaces.get(namespace)?;
            Some((*arrivals.first()?, *of))
        });
        firsts.min()
    }

    /// Returns the namespace with the next turn: the one after the last by name, of those with notes.
    fn next_turn(&self) -> Option<Box<str>> {
        let after = |name: &str| {
            let stages = self.collections.values();
            let stages = stages.filter_map(|notes| notes.stages.front());
            let nexts = stages.filter_map(|stage| {
                let range = (Bound::Excluded(name), Bound::<&str>::Unbounded);
                let (next, _) = stage.namespaces.range::<str, _>(range).next()?;
                Some(next)
            });
            nexts.min().cloned()
        };
        after(&self.last_turn).or_else(|| after(""))
    }

    /// Returns whether no note waits.
    pub(super) fn is_empty(&self) -> bool {
        self.collections.values().all(|notes| notes.notes == 0)
    }
}

impl CollectionNotes {
    fn push(&mut self, arrival: u64, arrived: Arrived) -> Option<Note> {
        let order = NoteOrder::of(&arrived.note);
        let (count, bytes) = (self.notes, bytes(&arrived.note));
        let is_full = count >= NOTES_MAX || (count > 0 && self.bytes + bytes > BYTES_MAX);
        let last = self.stages.back_mut();
        let replaced = match (&order, last) {
            (NoteOrder::Object(key), Some(last)) => {
                last.changes.get_mut(key).map(|(_, before)| before)
            }
            // The older one is not put off.
            (NoteOrder::News, Some(last)) if is_heard(&arrived) => last.replaceable_news(arrival),
            _ => None,
        };
        if let Some(replaced) = replaced {
            let more = bytes.saturating_sub(self::bytes(&replaced.note));
            if more > 0 && count > 1 && self.bytes + more > BYTES_MAX {
                return Some(arrived.note);
            }
            let before = std::mem::replace(replaced, arrived);
            self.bytes += bytes;
            self.bytes -= self::bytes(&before.note);
            return None;
        }
        if is_full {
            return Some(arrived.note);
        }
        self.notes += 1;
        self.bytes += bytes;
        if self.stages.is_empty() || matches!(order, NoteOrder::Barrier) {
            self.stages.push_back(Stage::default());
        }
        // There is one now.
        let stage = self.stages.back_mut()?;
        match order {
            NoteOrder::Object(key) => {
                let of_namespace = stage.namespaces.entry(key.namespace.clone()).or_default();
                of_namespace.insert(arrival);
                stage.arrivals.insert(arrival, key.clone());
                stage.changes.insert(key, (arrival, arrived));
            }
            NoteOrder::News => stage.news.push_back((arrival, arrived)),
            NoteOrder::Barrier => stage.first = Some(arrived),
        }
        None
    }

    /// Takes the next note if it is about the whole collection.
    fn take_whole(&mut self) -> Option<Arrived> {
        let stage = self.stages.front_mut()?;
        let taken = stage.first.take().or_else(|| stage.take_news())?;
        self.count_taken(&taken);
        Some(taken)
    }

    fn take_change(&mut self, arrival: u64) -> Option<Arrived> {
        let stage = self.stages.front_mut()?;
        let key = stage.arrivals.remove(&arrival)?;
        if let Some(of_namespace) = stage.namespaces.get_mut(&key.namespace) {
            of_namespace.remove(&arrival);
            if of_namespace.is_empty() {
                stage.namespaces.remove(&key.namespace);
            }
        }
        let (_, taken) = stage.changes.remove(&key)?;
        self.count_taken(&taken);
        Some(taken)
    }

    fn count_taken(&mut self, taken: &Arrived) {
        self.notes -= 1;
        self.bytes -= bytes(&taken.note);
        while self.stages.front().is_some_and(Stage::is_empty) {
            self.stages.pop_front();
        }
    }
}

impl Stage {
    /// Takes the first news, once all changes before it were taken.
    fn take_news(&mut self) -> Option<Arrived> {
        let (arrival, _) = self.news.front()?;
        let waits = self.arrivals.first_key_value();
        let waits = waits.is_some_and(|(first, _)| first < arrival);
        match waits {
            true => None,
            false => self.news.pop_front().map(|(_, arrived)| arrived),
        }
    }

    /// Returns the last news if later ones may take its place: the source was heard from, as before it. It gets the
    /// later arrival.
    fn replaceable_news(&mut self, arrival: u64) -> Option<&mut Arrived> {
        let before = self.news.len().checked_sub(2)?;
        if !self.news.range(before..).all(|(_, news)| is_heard(news)) {
            return None;
        }
        let (at, last) = self.news.back_mut()?;
        *at = arrival;
        Some(last)
    }

    fn is_empty(&self) -> bool {
        self.first.is_none() && self.changes.is_empty() && self.news.is_empty()
    }
}

#[cfg(test)]
mod tests;
