//! The reports at the API server: their content as far as it is known, and the reports to look at again. Pure.
//!
//! At most [`REPORTS_MAX`] reports are remembered. Nothing is known about a report beyond them: it may exist with any
//! content. So it is read and written whenever its object has new results, deleted if there are none, and then
//! forgotten again. Later visits that it needs, and changes by others, are not remembered. So all reports are looked
//! at after a list ([`PublishedReports::listed_all`]).

mod revisit_cursor;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use anteroom_runtime::backoff::Backoff;
use tokio::time::Instant;

use self::revisit_cursor::RevisitCursor;
use crate::{
    findings::OBJECTS_MAX,
    report::Report,
    shared::{Owner, Unsettled},
    store::{Listed, ReportKey},
};

/// The most remembered reports, beside the few that are being written: those of all objects with findings, and half
/// as many from earlier times.
pub(crate) const REPORTS_MAX: usize = OBJECTS_MAX + OBJECTS_MAX / 2;

/// The part of the limit that is reserved for settled reports, so that unsettled reports do not displace them. The
/// reader looks at as many further reports of a list, in turns, and forgets them then.
const ROOM: usize = 8;

/// Waits after a write that failed, in milliseconds.
pub(crate) const RETRY_BASE_MS: u64 = 500;
pub(crate) const RETRY_MAX_MS: u64 = 60_000;

/// Marks a report whose content is unknown: a write of it may have arrived, or not.
const UNKNOWN: &str = "";

/// The step that brings a report up to date.
#[derive(Debug, PartialEq)]
pub(crate) enum ReportAction {
    /// The report has the right content, as far as is known.
    Nothing,
    /// The report has the right content already, and its Events were sent before.
    UpToDate,
    /// A report of an earlier time has other content now, which is read first.
    ReadFirst,
    Apply(Box<Report>),
    Delete,
}

/// A report of an earlier time.
#[derive(Debug)]
struct InheritedReport {
    /// The object that it is about.
    owner: Owner,
    /// The content of the report is known.
    was_read: bool,
}

/// The state of one report.
#[derive(Debug, Default)]
struct ReportState {
    /// The content of the report; `None`: the report is not there.
    content: Option<Box<str>>,
    /// `Some`: a read or write of the report is under way; whether the report has to be looked at again after it.
    busy: Option<bool>,
    backoff: Option<Backoff>,
    /// The time by which the report is to be looked at again.
    at: Option<Instant>,
    /// The last list had the report.
    is_listed: bool,
    /// The report was written since the list was begun, so the list may have its old content.
    is_touched: bool,
}

impl ReportState {
    /// Returns whether there is nothing to remember, but for a list that is under way.
    fn is_blank(&self) -> bool {
        let is_idle = self.busy.is_none() && self.at.is_none() && self.backoff.is_none();
        is_idle && self.content.is_none()
    }
}

/// The reports at the API server, as far as they are remembered.
#[derive(Debug)]
pub(crate) struct PublishedReports {
    reports_max: usize,
    rows: HashMap<Arc<ReportKey>, ReportState>,
    /// Reports of an earlier time whose objects have not been met yet.
    left: HashMap<Arc<ReportKey>, InheritedReport>,
    /// `None`: nothing is known of any object.
    unsettled: Option<Arc<Unsettled>>,
    /// The times at which reports are to be looked at again: each report once.
    later: BTreeSet<(Instant, Arc<ReportKey>)>,
    /// A list is under way.
    lists: bool,
    /// Reports that may be there and are not remembered, about; 0: there are none.
    beyond: usize,
    /// Reports that are not remembered and were met since the last list was begun.
    beyond_now: usize,
    /// Chooses the forgotten reports that are looked at during a list.
    revisits: RevisitCursor,
}

impl Default for PublishedReports {
    fn default() -> Self {
        Self::with_limit(REPORTS_MAX)
    }
}

impl PublishedReports {
    /// Remembers `reports_max` reports at most.
    pub(crate) fn with_limit(reports_max: usize) -> Self {
        Self {
            reports_max,
            rows: HashMap::new(),
            left: HashMap::new(),
            unsettled: None,
            later: BTreeSet::new(),
            lists: false,
            beyond: 0,
            beyond_now: 0,
            revisits: RevisitCursor::default(),
        }
    }

    /// A list of the reports begins.
    pub(crate) fn listing(&mut self) {
        self.lists = true;
        self.beyond_now = 0;
        self.revisits.begin();
        self.rows.retain(|_, row| {
            row.is_listed = false;
            row.is_touched = row.busy.is_some();
            !row.is_blank()
        });
    }

    /// Takes a part of the list. Reports with unexpected content are looked at, unless they were written meanwhile.
    pub(crate) fn listed(&mut self, reports: Vec<Listed>, now: Instant) {
        for report in reports {
            let is_settled = !self.is_unsettled(&report.owner);
            let key = self.shared(&report.key);
            if let Some(row) = self.rows.get_mut(&key) {
                row.is_listed = true;
                if row.is_touched || row.content.as_deref() == Some(&*report.content) {
                    continue;
                }
                row.content = Some(report.content.into());
            } else if self.has_room(is_settled) || self.has_turn(&key, is_settled) {
                let row = ReportState {
                    content: Some(report.content.into()),
                    is_listed: true,
                    ..ReportState::default()
                };
                self.rows.insert(Arc::clone(&key), row);
            } else {
                continue;
            }
            let left = InheritedReport {
                owner: report.owner,
                // The time since which the report says so is known here.
                was_read: is_settled,
            };
            self.left.insert(Arc::clone(&key), left);
            if is_settled {
                self.put_off(&key, now);
            }
        }
    }

    /// Ends the list: reports that it lacks are looked at, unless they were written meanwhile. Returns whether there
    /// may be reports that are not remembered. Then every object has to be looked at, since it is unknown which have
    /// one.
    pub(crate) fn listed_all(&mut self, now: Instant) -> bool {
        self.lists = false;
        let is_lost = self.beyond > 0;
        self.beyond = self.beyond_now;
        self.revisits.end();
        let is_missing =
            |row: &ReportState| !row.is_listed && !row.is_touched && row.content.is_some();
        let missing = self.rows.iter_mut().filter(|(_, row)| is_missing(row));
        let missing: Vec<Arc<ReportKey>> = missing
            .map(|(key, row)| {
                row.content = None;
                Arc::clone(key)
            })
            .collect();
        for key in missing {
            self.left.remove(&key);
            self.put_off(&key, now);
        }
        self.rows.retain(|_, row| !row.is_blank());
        is_lost
    }

    /// Everything that is remembered is looked at.
    pub(crate) fn look_at_all(&mut self, now: Instant) {
        let idle = self.rows.iter();
        let idle = idle.filter(|(_, row)| row.busy.is_none() && row.at.is_none());
        let idle: Vec<Arc<ReportKey>> = idle.map(|(key, _)| Arc::clone(key)).collect();
        idle.iter().for_each(|key| self.put_off(key, now));
    }

    /// The number of reports that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The number, about, of reports that may be there and are not remembered; 0: there are none.
    pub(crate) fn beyond(&self) -> usize {
        self.beyond
    }

    fn has_room(&self, is_settled: bool) -> bool {
        let most = match is_settled {
            true => self.reports_max,
            false => self.reports_max - self.reports_max.div_ceil(ROOM),
        };
        self.rows.len() < most
    }

    /// Returns whether a listed report that has no room is looked at now.
    fn has_turn(&mut self, key: &Arc<ReportKey>, is_settled: bool) -> bool {
        self.beyond_now += 1;
        self.beyond = self.beyond.max(self.beyond_now);
        let most = self
            .reports_max
            .saturating_add(self.reports_max.div_ceil(ROOM));
        let has_room = self.rows.len() < most;
        is_settled && self.revisits.take(key, has_room)
    }

    /// Takes the objects whose results are not known yet. A report of an earlier time is looked at once its object is
    /// not among them.
    pub(crate) fn settle(&mut self, unsettled: Option<Arc<Unsettled>>, now: Instant) {
        self.unsettled = unsettled;
        let settled = self
            .left
            .iter()
            .filter(|(_, left)| !self.is_unsettled(&left.owner));
        let is_idle = |row: Option<&ReportState>| {
            row.is_some_and(|row| row.at.is_none() && row.busy.is_none())
        };
        let settled: Vec<Arc<ReportKey>> = settled
            .map(|(key, _)| Arc::clone(key))
            .filter(|key| is_idle(self.rows.get(key)))
            .collect();
        // An object with findings is looked at as any other, and stays.
        settled.iter().for_each(|key| self.put_off(key, now));
    }

    fn is_unsettled(&self, owner: &Owner) -> bool {
        let unsettled = self.unsettled.as_ref();
        unsettled.is_none_or(|unsettled| unsettled.has(owner))
    }

    /// The time at which the next report has to be looked at again.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// Takes a report that is due to be looked at again.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<ReportKey> {
        self.next_at().filter(|at| *at <= now)?;
        let (_, key) = self.later.pop_first()?;
        if let Some(row) = self.rows.get_mut(&key) {
            row.at = None;
        }
        Some((*key).clone())
    }

    /// The number of reports that have to be looked at again.
    pub(crate) fn waiting(&self) -> usize {
        self.later.len()
    }

    /// Looks at a report, of an object of which something changed or by itself (`owner`: `None`). Whatever is to be
    /// written is on its way from now on, until it is [done](Self::done).
    pub(crate) fn begin(
        &mut self,
        key: &ReportKey,
        owner: Option<&Owner>,
        report: Option<Report>,
    ) -> ReportAction {
        let key = &self.shared(key);
        let Some(row) = self.rows.get_mut(key) else {
            return match (report, self.beyond) {
                (None, 0) => ReportAction::Nothing,
                (Some(report), 0) => self.begin_write(key, ReportAction::Apply(Box::new(report))),
                (report, _) => self.begin_unknown(key, owner, report.is_some()),
            };
        };
        if let Some(again) = &mut row.busy {
            *again = true;
            return ReportAction::Nothing;
        }
        if let Some(at) = row.at.take() {
            self.later.remove(&(at, Arc::clone(key)));
        }
        let row = self.rows.get(key);
        let content = row.and_then(|row| row.content.as_deref());
        let left = self.left.get(key);
        let action = match (report, content) {
            (None, None) => ReportAction::Nothing,
            (Some(report), Some(content)) if *report.content == *content => ReportAction::UpToDate,
            // What was said before stays until all is known that is to be said.
            _ if left.is_some_and(|left| self.is_unsettled(&left.owner)) => {
                self.trim(key);
                return ReportAction::Nothing;
            }
            (None, Some(_)) => ReportAction::Delete,
            (Some(_), _) if left.is_some_and(|left| !left.was_read) => {
                self.row(key).busy = Some(false);
                return ReportAction::ReadFirst;
            }
            (Some(report), _) => ReportAction::Apply(Box::new(report)),
        };
        self.left.remove(key);
        match action {
            ReportAction::Nothing | ReportAction::UpToDate | ReportAction::ReadFirst => {
                self.row(key).backoff = None;
                self.trim(key);
                action
            }
            ReportAction::Apply(_) | ReportAction::Delete => self.begin_write(key, action),
        }
    }

    fn begin_write(&mut self, key: &Arc<ReportKey>, action: ReportAction) -> ReportAction {
        let row = self.row(key);
        row.busy = Some(false);
        row.is_touched = true;
        row.content = Some(UNKNOWN.into());
        action
    }

    /// Looks at a report that is not remembered: it may be there, and of an earlier time.
    fn begin_unknown(
        &mut self,
        key: &Arc<ReportKey>,
        owner: Option<&Owner>,
        is_said: bool,
    ) -> ReportAction {
        let Some(owner) = owner.filter(|owner| !self.is_unsettled(owner)) else {
            return ReportAction::Nothing;
        };
        if !is_said {
            return self.begin_write(key, ReportAction::Delete);
        }
        let left = InheritedReport {
            owner: owner.clone(),
            was_read: false,
        };
        self.left.insert(Arc::clone(key), left);
        let row = self.row(key);
        row.busy = Some(false);
        row.content = Some(UNKNOWN.into());
        ReportAction::ReadFirst
    }

    /// Takes the content of a report of an earlier time. The report is then looked at like any other.
    pub(crate) fn was_read(&mut self, key: &ReportKey, now: Instant) {
        let key = self.shared(key);
        let row = self.row(&key);
        row.busy = None;
        row.backoff = None;
        if let Some(left) = self.left.get_mut(&key) {
            left.was_read = true;
        }
        self.put_off(&key, now);
    }

    /// Ends a write. The report has this content now (`None`: it is deleted). If the outcome is unknown, the write is
    /// tried again after a while, by `random`.
    pub(crate) fn done(
        &mut self,
        key: &ReportKey,
        content: Result<Option<String>, ()>,
        random: u64,
        now: Instant,
    ) {
        let key = self.shared(key);
        let is_beyond = self.rows.len() > self.reports_max;
        let row = self.row(&key);
        let again = row.busy.take().unwrap_or_default();
        match content {
            Ok(content) => {
                row.backoff = None;
                row.content = content.map(Into::into);
                if again {
                    self.put_off(&key, now);
                }
            }
            // The report is forgotten, and looked at again in its turn.
            Err(()) if is_beyond => row.backoff = None,
            Err(()) => {
                let backoff = &mut row.backoff;
                let backoff =
                    backoff.get_or_insert_with(|| Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS));
                let after: Duration = backoff.next(random);
                self.put_off(&key, now + after);
            }
        }
        self.trim(&key);
    }

    fn put_off(&mut self, key: &Arc<ReportKey>, at: Instant) {
        if let Some(before) = self.row(key).at.replace(at) {
            self.later.remove(&(before, Arc::clone(key)));
        }
        self.later.insert((at, Arc::clone(key)));
    }

    /// Removes a row that needs no further step, if the report does not exist or if there are too many rows.
    fn trim(&mut self, key: &Arc<ReportKey>) {
        let Some(row) = self.rows.get(key) else {
            return;
        };
        if row.busy.is_some() || row.at.is_some() {
            return;
        }
        if row.is_blank() {
            // A list that is under way may still have it.
            if !(self.lists && row.is_touched) {
                self.rows.remove(key);
            }
        } else if self.rows.len() > self.reports_max {
            self.rows.remove(key);
            self.left.remove(key);
            self.beyond += 1;
            self.beyond_now += 1;
        }
    }

    fn row(&mut self, key: &Arc<ReportKey>) -> &mut ReportState {
        self.rows.entry(Arc::clone(key)).or_default()
    }

    /// Each key once.
    fn shared(&self, key: &ReportKey) -> Arc<ReportKey> {
        let known = self.rows.get_key_value(key);
        known.map_or_else(|| Arc::new(key.clone()), |(known, _)| Arc::clone(known))
    }
}

#[cfg(test)]
mod tests;
