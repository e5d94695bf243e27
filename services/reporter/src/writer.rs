//! Brings the reports at the API server in step with the book: only what changed is written, at a bounded
//! rate, and what could not be written is written later.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use anteroom_runtime::{Check, backoff::Backoff};
use futures::{
    StreamExt as _,
    future::{BoxFuture, FutureExt as _},
    stream::FuturesUnordered,
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::{
    desk::{Desk, Kind},
    events::{Events, Violation},
    metrics::ReporterMetrics,
    report::{self, Report},
    result::Subject,
    store::{Fault, Key, Store},
};

/// Writes on their way at one time.
const AT_ONCE: usize = 8;

/// Waits after a write that failed, in milliseconds.
const RETRY_BASE_MS: u64 = 500;
const RETRY_MAX_MS: u64 = 60_000;

/// What becomes of a report.
enum Deed {
    /// It says what it should.
    Nothing,
    Apply(Box<Report>),
    Delete,
}

/// A write that has come to its end.
struct Done {
    key: Key,
    /// `None`: it was left over from another time.
    subject: Option<Subject>,
    /// What the report says now; `None`: it is gone.
    content: Option<String>,
    result: Result<(), Fault>,
}

/// Writes reports.
pub(crate) struct Writer {
    store: Store,
    desk: Desk,
    events: Option<Events>,
    metrics: ReporterMetrics,
    per_second: u32,
    /// What the reports at the API server say.
    written: HashMap<Key, String>,
    /// Those of an earlier time whose objects have not been met yet, and of which kind these are.
    left: HashMap<Key, Kind>,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Which those are about; and whether they have to be looked at again.
    busy: HashMap<Key, bool>,
    backoffs: HashMap<Key, Backoff>,
    /// To be looked at again, by when.
    later: BTreeMap<(Instant, Key), Option<Subject>>,
}

impl Writer {
    pub(crate) fn new(
        store: Store,
        desk: Desk,
        events: Option<Events>,
        metrics: ReporterMetrics,
        per_second: u32,
    ) -> Self {
        Self {
            store,
            desk,
            events,
            metrics,
            per_second: per_second.max(1),
            written: HashMap::new(),
            left: HashMap::new(),
            under_way: FuturesUnordered::new(),
            busy: HashMap::new(),
            backoffs: HashMap::new(),
            later: BTreeMap::new(),
        }
    }

    /// Writes until it is dropped.
    pub(crate) async fn run(mut self, check: &Check) {
        self.read_all(check).await;
        check.ready();
        let (mut changes, mut unsettled) = (self.desk.changes(), self.desk.unsettled());
        let mut pace = interval(Duration::from_secs(1) / self.per_second);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        changes.mark_changed();
        unsettled.mark_changed();
        loop {
            while self.under_way.len() < AT_ONCE {
                let Some((subject, key)) = self.next() else {
                    break;
                };
                if self.begin(subject, key) {
                    pace.tick().await;
                }
            }
            self.metrics
                .waiting(self.desk.look(|book| book.waiting()) + self.later.len());
            let due = self.later.first_key_value().map(|((at, _), _)| *at);
            tokio::select! {
                Some(done) = self.under_way.next() => self.done(done),
                Ok(()) = changes.changed(), if self.under_way.len() < AT_ONCE => {}
                Ok(()) = unsettled.changed() => {
                    let kinds = unsettled.borrow_and_update().clone();
                    if let Some(kinds) = kinds {
                        self.sweep(|kind| kinds.contains(kind));
                    }
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
    }

    /// Reads which reports there are.
    async fn read_all(&mut self, check: &Check) {
        let mut backoff = Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS);
        let listed = loop {
            match self.store.list().await {
                Ok(listed) => break listed,
                Err(fault) => {
                    tracing::warn!(%fault, "reports cannot be listed");
                    check.not_ready(format!("a list of PolicyReports (wgpolicyk8s.io): {fault}"));
                    sleep(backoff.next(rand::random())).await;
                }
            }
        };
        for report in listed {
            self.left.insert(report.key.clone(), report.owner);
            self.written.insert(report.key, report.content);
        }
    }

    /// What is looked at next: what changed, and what is due again.
    fn next(&mut self) -> Option<(Option<Subject>, Key)> {
        let due = self.later.first_entry();
        if let Some(due) = due.filter(|due| due.key().0 <= Instant::now()) {
            let ((_, key), subject) = due.remove_entry();
            return Some((subject, key));
        }
        let subject = self.desk.look(crate::book::Book::take_changed)?;
        let key = key(&subject);
        Some((Some(subject), key))
    }

    /// Returns whether there is something to write.
    fn begin(&mut self, subject: Option<Subject>, key: Key) -> bool {
        if let Some(again) = self.busy.get_mut(&key) {
            *again = true;
            return false;
        }
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        let write = match self.deed(&key) {
            Deed::Nothing => return false,
            Deed::Apply(report) => async move {
                let result = store.apply(&key, &report.manifest).await;
                metrics.wrote("apply", result.is_ok());
                Done {
                    key,
                    subject,
                    content: Some(report.content),
                    result,
                }
            }
            .boxed(),
            Deed::Delete => async move {
                let result = store.delete(&key).await;
                metrics.wrote("delete", result.is_ok());
                Done {
                    key,
                    subject,
                    content: None,
                    result,
                }
            }
            .boxed(),
        };
        self.under_way.push(write);
        true
    }

    fn deed(&mut self, key: &Key) -> Deed {
        let about = self.desk.about();
        let report = self.desk.look(|book| {
            let page = book.page(&key.1)?;
            let of = |policy: &_| about.get(policy).map(|about| &about.reporting);
            Some(report::report(page, of))
        });
        let deed = match (report, self.written.get(key)) {
            (None, None) => Deed::Nothing,
            (None, Some(_)) => Deed::Delete,
            (Some(report), Some(content)) if report.content == *content => {
                // It was told of when that was written.
                self.desk.look(|book| book.told(&key.1));
                Deed::Nothing
            }
            (Some(report), _) => Deed::Apply(Box::new(report)),
        };
        self.left.remove(key);
        if !matches!(deed, Deed::Nothing) {
            self.busy.insert(key.clone(), false);
        }
        deed
    }

    fn done(&mut self, done: Done) {
        let Done {
            key,
            subject,
            content,
            result,
        } = done;
        let again = self.busy.remove(&key).unwrap_or_default();
        match result {
            Ok(()) => {
                self.backoffs.remove(&key);
                match content {
                    Some(content) => {
                        self.written.insert(key.clone(), content);
                        self.tell(&key.1);
                    }
                    None => drop(self.written.remove(&key)),
                }
                if again {
                    self.later.insert((Instant::now(), key), subject);
                }
            }
            Err(fault) => {
                tracing::warn!(namespace = key.0, report = key.1, %fault, "a report was not written");
                let backoff = self.backoffs.entry(key.clone());
                let backoff = backoff.or_insert_with(|| Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS));
                let at = Instant::now() + backoff.next(rand::random());
                self.later.insert((at, key), subject);
            }
        }
    }

    /// Tells of what is bad and new in a report that was written.
    fn tell(&self, uid: &str) {
        let about = self.desk.about();
        self.desk.look(|book| {
            let page = book.page(uid);
            let findings = page.into_iter().flat_map(|page| {
                let findings = page.findings.iter();
                findings.flat_map(move |(finder, all)| all.iter().map(move |f| (page, finder, f)))
            });
            for (page, finder, finding) in findings {
                let is_news = finding.is_new && finding.result.outcome.is_bad();
                if let Some(events) = self.events.as_ref().filter(|_| is_news) {
                    events.tell(&Violation {
                        policy: &finder.policy,
                        about: about.get(&finder.policy),
                        subject: &page.subject,
                        result: &finding.result,
                        since_s: finding.since_s,
                    });
                }
            }
            book.told(uid);
        });
    }

    /// Reports that nobody has met an object of go, but for kinds of which not everything was judged yet.
    fn sweep(&mut self, is_unsettled: impl Fn(&Kind) -> bool) {
        let settled: Vec<Key> = self
            .left
            .extract_if(|_, kind| !is_unsettled(kind))
            .map(|(key, _)| key)
            .collect();
        let now = Instant::now();
        for key in settled {
            // What is on a page is looked at as any other, and stays.
            self.later.insert((now, key), None);
        }
    }
}

fn key(subject: &Subject) -> Key {
    (subject.namespace.to_string(), subject.uid.to_string())
}
