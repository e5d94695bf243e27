//! What the reports at the API server say, as far as is known, and which have to be looked at. Pure.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use anteroom_runtime::backoff::Backoff;
use tokio::time::Instant;

use crate::{
    desk::{Owner, Unsettled},
    report::Report,
    store::{Key, Listed},
};

/// Waits after a write that failed, in milliseconds.
pub(crate) const RETRY_BASE_MS: u64 = 500;
pub(crate) const RETRY_MAX_MS: u64 = 60_000;

/// What a report says of which nobody knows it: a write may have arrived, or not.
const UNKNOWN: &str = "";

/// What becomes of a report.
#[derive(Debug, PartialEq)]
pub(crate) enum Deed {
    /// It says what it should, as far as is known.
    Nothing,
    /// It says what it should, and said so before: whoever has to be told of it was.
    Same,
    /// One of an earlier time is another one now: what it said is read first.
    Read,
    Apply(Box<Report>),
    Delete,
}

/// A report of an earlier time.
#[derive(Debug)]
struct Left {
    /// The object that it is about.
    owner: Owner,
    /// What it said is known.
    was_read: bool,
}

/// What is known of the reports at the API server.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// What they say.
    written: HashMap<Key, String>,
    /// Those of an earlier time whose objects have not been met yet.
    left: HashMap<Key, Left>,
    /// `None`: nothing is known of any object.
    unsettled: Option<Arc<Unsettled>>,
    /// Those on their way; and whether they have to be looked at again.
    busy: HashMap<Key, bool>,
    backoffs: HashMap<Key, Backoff>,
    /// To be looked at again, by when: each once.
    later: BTreeSet<(Instant, Key)>,
    at: HashMap<Key, Instant>,
    /// Written to since a list was begun: it does not say what they say now.
    touched: HashSet<Key>,
}

impl Ledger {
    /// A list of the reports begins.
    pub(crate) fn listing(&mut self) {
        self.touched = self.busy.keys().cloned().collect();
    }

    /// It has come to its end: what is not as it was known is looked at, unless it was written to
    /// meanwhile.
    pub(crate) fn listed(&mut self, listed: Vec<Listed>, now: Instant) {
        let mut missing: HashSet<Key> = self.written.keys().cloned().collect();
        for report in listed {
            missing.remove(&report.key);
            let known = self.written.get(&report.key);
            if known == Some(&report.content) || self.touched.contains(&report.key) {
                continue;
            }
            self.written.insert(report.key.clone(), report.content);
            let is_settled = !self.is_unsettled(&report.owner);
            let left = Left {
                owner: report.owner,
                // Since when it says so is known here.
                was_read: is_settled,
            };
            self.left.insert(report.key.clone(), left);
            if is_settled {
                self.put_off(report.key, now);
            }
        }
        for key in missing {
            if !self.touched.contains(&key) {
                self.written.remove(&key);
                self.left.remove(&key);
                self.put_off(key, now);
            }
        }
    }

    /// Of these objects it is not known yet what there is to say. Reports of before are looked at once
    /// their object is none of them.
    pub(crate) fn settle(&mut self, unsettled: Option<Arc<Unsettled>>, now: Instant) {
        self.unsettled = unsettled;
        let settled = self
            .left
            .iter()
            .filter(|(_, left)| !self.is_unsettled(&left.owner));
        let settled: Vec<Key> = settled
            .map(|(key, _)| key.clone())
            .filter(|key| !self.at.contains_key(key) && !self.busy.contains_key(key))
            .collect();
        // What is on a page is looked at as any other, and stays.
        settled.into_iter().for_each(|key| self.put_off(key, now));
    }

    fn is_unsettled(&self, owner: &Owner) -> bool {
        let unsettled = self.unsettled.as_ref();
        unsettled.is_none_or(|unsettled| unsettled.has(owner))
    }

    /// When the next has to be looked at again.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// One that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Key> {
        self.next_at().filter(|at| *at <= now)?;
        let (_, key) = self.later.pop_first()?;
        self.at.remove(&key);
        Some(key)
    }

    /// How many have to be looked at again.
    pub(crate) fn waiting(&self) -> usize {
        self.later.len()
    }

    /// Looks at a report. Whatever is to be written is on its way from now on, until it is
    /// [done](Self::done).
    pub(crate) fn begin(&mut self, key: &Key, report: Option<Report>) -> Deed {
        if let Some(again) = self.busy.get_mut(key) {
            *again = true;
            return Deed::Nothing;
        }
        if let Some(at) = self.at.remove(key) {
            self.later.remove(&(at, key.clone()));
        }
        let left = self.left.get(key);
        let deed = match (report, self.written.get(key)) {
            (None, None) => Deed::Nothing,
            (Some(report), Some(content)) if report.content == *content => Deed::Same,
            // What was said before stays until all is known that is to be said.
            _ if left.is_some_and(|left| self.is_unsettled(&left.owner)) => return Deed::Nothing,
            (None, Some(_)) => Deed::Delete,
            (Some(_), _) if left.is_some_and(|left| !left.was_read) => {
                self.busy.insert(key.clone(), false);
                return Deed::Read;
            }
            (Some(report), _) => Deed::Apply(Box::new(report)),
        };
        self.left.remove(key);
        match deed {
            Deed::Nothing | Deed::Same | Deed::Read => drop(self.backoffs.remove(key)),
            Deed::Apply(_) | Deed::Delete => {
                self.busy.insert(key.clone(), false);
                self.touched.insert(key.clone());
                self.written.insert(key.clone(), UNKNOWN.to_owned());
            }
        }
        deed
    }

    /// What a report of an earlier time said was read: it is looked at as any other.
    pub(crate) fn was_read(&mut self, key: Key, now: Instant) {
        self.busy.remove(&key);
        self.backoffs.remove(&key);
        if let Some(left) = self.left.get_mut(&key) {
            left.was_read = true;
        }
        self.put_off(key, now);
    }

    /// A write has come to its end: this is what the report says now (`None`: it is gone), or nobody
    /// knows, and it is tried again after a while, by `random`.
    pub(crate) fn done(
        &mut self,
        key: Key,
        content: Result<Option<String>, ()>,
        random: u64,
        now: Instant,
    ) {
        let again = self.busy.remove(&key).unwrap_or_default();
        match content {
            Ok(content) => {
                self.backoffs.remove(&key);
                match content {
                    Some(content) => drop(self.written.insert(key.clone(), content)),
                    None => drop(self.written.remove(&key)),
                }
                if again {
                    self.put_off(key, now);
                }
            }
            Err(()) => {
                let backoff = self.backoffs.entry(key.clone());
                let backoff = backoff.or_insert_with(|| Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS));
                let after: Duration = backoff.next(random);
                self.put_off(key, now + after);
            }
        }
    }

    fn put_off(&mut self, key: Key, at: Instant) {
        if let Some(before) = self.at.insert(key.clone(), at) {
            self.later.remove(&(before, key.clone()));
        }
        self.later.insert((at, key));
    }
}

#[cfg(test)]
mod tests;
