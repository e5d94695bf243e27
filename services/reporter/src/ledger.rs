//! What the reports at the API server say, as far as is known, and which have to be looked at. Pure.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use anteroom_runtime::backoff::Backoff;
use tokio::time::Instant;

use crate::{
    desk::{Kind, Unsettled},
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

/// What is known of the reports at the API server.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// What they say.
    written: HashMap<Key, String>,
    /// Those of an earlier time whose objects have not been met yet, and of which kind these are.
    left: HashMap<Key, Kind>,
    unsettled: Unsettled,
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
            match self.is_unsettled(&report.owner) {
                true => drop(self.left.insert(report.key, report.owner)),
                false => self.put_off(report.key, now),
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

    /// Of these kinds not everything was judged yet. Reports that nobody has met an object of are looked
    /// at once their kind is none of them.
    pub(crate) fn settle(&mut self, unsettled: Unsettled, now: Instant) {
        self.unsettled = unsettled;
        let Some(kinds) = &self.unsettled else {
            return;
        };
        let settled = self.left.iter().filter(|(_, kind)| !kinds.contains(*kind));
        let settled: Vec<Key> = settled
            .map(|(key, _)| key.clone())
            .filter(|key| !self.at.contains_key(key) && !self.busy.contains_key(key))
            .collect();
        // What is on a page is looked at as any other, and stays.
        settled.into_iter().for_each(|key| self.put_off(key, now));
    }

    fn is_unsettled(&self, kind: &Kind) -> bool {
        let kinds = self.unsettled.as_ref();
        kinds.is_none_or(|kinds| kinds.contains(kind))
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
        let deed = match (report, self.written.get(key)) {
            (None, None) => Deed::Nothing,
            (Some(report), Some(content)) if report.content == *content => Deed::Same,
            // What was said before stays until all is known that is to be said.
            _ if self
                .left
                .get(key)
                .is_some_and(|kind| self.is_unsettled(kind)) =>
            {
                return Deed::Nothing;
            }
            (None, Some(_)) => Deed::Delete,
            (Some(_), _) if self.left.contains_key(key) => {
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
        self.left.remove(&key);
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
mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;

    fn key(name: &str) -> Key {
        ("n".to_owned(), name.to_owned())
    }

    fn pod() -> Kind {
        (String::new(), "Pod".to_owned())
    }

    fn report(content: &str) -> Report {
        Report {
            content: content.to_owned(),
            manifest: Value::Null,
        }
    }

    fn listed(name: &str, content: &str) -> Listed {
        Listed {
            key: key(name),
            content: content.to_owned(),
            owner: pod(),
        }
    }

    fn unsettled(kinds: &[Kind]) -> Unsettled {
        Some(Arc::new(kinds.iter().cloned().collect()))
    }

    fn apply(content: &str) -> Deed {
        Deed::Apply(Box::new(report(content)))
    }

    /// Everything that is due.
    fn due(ledger: &mut Ledger, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| ledger.take_due(now))
            .map(|(_, name)| name)
            .collect()
    }

    #[test]
    fn a_report_of_before_stays_until_all_is_known() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.listing();
        ledger.listed(
            ["a", "b", "c"].map(|name| listed(name, "whole")).into(),
            now,
        );
        assert_eq!(due(&mut ledger, now), [""; 0], "nobody knows what there is");
        assert_eq!(ledger.begin(&key("a"), Some(report("part"))), Deed::Nothing);
        assert_eq!(ledger.begin(&key("b"), None), Deed::Nothing);
        assert_eq!(ledger.begin(&key("c"), Some(report("whole"))), Deed::Same);
        assert_eq!(ledger.begin(&key("c"), Some(report("more"))), apply("more"));
        assert_eq!(ledger.begin(&key("d"), Some(report("new"))), apply("new"));
        ledger.settle(unsettled(&[pod()]), now);
        assert_eq!(ledger.begin(&key("a"), Some(report("part"))), Deed::Nothing);
        ledger.settle(unsettled(&[]), now);
        assert_eq!(due(&mut ledger, now), ["a", "b"]);
        assert_eq!(ledger.begin(&key("a"), Some(report("all"))), Deed::Read);
        ledger.settle(unsettled(&[]), now);
        ledger.done(key("a"), Err(()), 0, now);
        let later = now + Duration::from_secs(60);
        assert_eq!(due(&mut ledger, later), ["b", "a"], "it could not be read");
        assert_eq!(ledger.begin(&key("a"), Some(report("all"))), Deed::Read);
        ledger.was_read(key("a"), now);
        assert_eq!(due(&mut ledger, now), ["a"]);
        assert_eq!(ledger.begin(&key("a"), Some(report("all"))), apply("all"));
        assert_eq!(ledger.begin(&key("b"), None), Deed::Delete);
    }

    #[test]
    fn a_write_that_failed_may_have_arrived() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.settle(unsettled(&[]), now);
        assert_eq!(ledger.begin(&key("a"), Some(report("x"))), apply("x"));
        ledger.done(key("a"), Err(()), 1, now);
        assert_eq!(ledger.begin(&key("a"), None), Deed::Delete);
        ledger.done(key("a"), Err(()), 1, now);
        assert_eq!(ledger.begin(&key("a"), Some(report("x"))), apply("x"));
        ledger.done(key("a"), Ok(Some("x".to_owned())), 1, now);
        assert_eq!(ledger.begin(&key("a"), Some(report("x"))), Deed::Same);
        assert!(ledger.backoffs.is_empty());
        assert_eq!(ledger.waiting(), 0);
    }

    #[test]
    fn what_failed_is_tried_again_once() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        for _ in 0..3 {
            // Changes meanwhile make no second row of trials.
            ledger.begin(&key("a"), Some(report("x")));
            ledger.begin(&key("a"), Some(report("y")));
            ledger.done(key("a"), Err(()), u64::MAX, now);
            assert_eq!(ledger.waiting(), 1);
        }
        assert!(ledger.next_at().is_some_and(|at| at > now));
        assert_eq!(due(&mut ledger, now), [""; 0]);
        assert_eq!(due(&mut ledger, now + Duration::from_secs(60)), ["a"]);
        assert_eq!(ledger.begin(&key("a"), None), Deed::Delete);
        ledger.done(key("a"), Ok(None), 0, now);
        assert_eq!(ledger.begin(&key("a"), None), Deed::Nothing);
        assert!(ledger.backoffs.is_empty() && ledger.at.is_empty());
    }

    #[test]
    fn what_changes_on_the_way_is_looked_at_again() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.begin(&key("a"), Some(report("x")));
        ledger.begin(&key("a"), Some(report("y")));
        ledger.done(key("a"), Ok(Some("x".to_owned())), 0, now);
        assert_eq!(due(&mut ledger, now), ["a"]);
        assert_eq!(ledger.begin(&key("a"), Some(report("y"))), apply("y"));
    }

    #[test]
    fn what_others_did_to_reports_is_found_by_the_next_list() {
        let now = Instant::now();
        let mut ledger = Ledger::default();
        ledger.settle(unsettled(&[]), now);
        for name in ["gone", "other", "same", "busy"] {
            ledger.begin(&key(name), Some(report("x")));
            ledger.done(key(name), Ok(Some("x".to_owned())), 0, now);
        }
        ledger.listing();
        ledger.begin(&key("busy"), Some(report("y")));
        ledger.begin(&key("new"), Some(report("x")));
        ledger.done(key("new"), Ok(Some("x".to_owned())), 0, now);
        let found = [
            ("other", "z"),
            ("same", "x"),
            ("strange", "x"),
            ("busy", "x"),
        ];
        ledger.listed(
            found.map(|(name, content)| listed(name, content)).into(),
            now,
        );
        assert_eq!(due(&mut ledger, now), ["gone", "other", "strange"]);
        assert_eq!(ledger.begin(&key("gone"), Some(report("x"))), apply("x"));
        assert_eq!(ledger.begin(&key("other"), Some(report("x"))), apply("x"));
        assert_eq!(ledger.begin(&key("strange"), None), Deed::Delete);
    }
}
