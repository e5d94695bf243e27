//! Brings the reports at the API server in step with the findings. It writes only changed reports, at a limited rate,
//! and tries failed writes again later.

use std::{sync::Arc, time::Duration};

use anteroom_runtime::{Check, backoff::Backoff};
use futures::{
    StreamExt as _,
    future::{BoxFuture, Fuse, FusedFuture as _, FutureExt as _},
    stream::FuturesUnordered,
};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::{
    events::{Events, Violation},
    findings::{BYTES_MAX, Findings, OBJECTS_MAX},
    metrics::ReporterMetrics,
    published::{PublishedReports, REPORTS_MAX, RETRY_BASE_MS, RETRY_MAX_MS, ReportAction},
    report::{self, Report},
    result::{ReportSubject, ReportedSince},
    shared::{Owner, SharedFindings, Unsettled, owner_of},
    store::{Fault, ListPosition, Listed, ReportKey, Store},
};

/// Writes on their way at one time.
const AT_ONCE: usize = 8;

/// The most reports that are looked at in one go: most of them need no write.
const LOOKS_MAX: usize = 64;

/// Kinds, and objects, that the reason for waiting names; the rest is counted.
const NAMED_MAX: usize = 10;

/// A finished write.
struct Done {
    key: ReportKey,
    /// The content that the report has now; `None`: it is gone.
    content: Option<String>,
    result: Result<(), Fault>,
    /// The results in the report with their times, if the report was read and not written.
    reported_since: Option<ReportedSince>,
}

/// Writes reports.
pub(crate) struct ReportWriter {
    store: Store,
    shared: SharedFindings,
    events: Option<Events>,
    metrics: ReporterMetrics,
    per_second: u32,
    published: PublishedReports,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The time after which the reports are listed again: others may have changed them.
    interval: Duration,
    /// The process log has a warning that there are more reports than are remembered.
    told_beyond: bool,
}

/// A part of a list of the reports.
type ReportPage = Result<(Vec<Listed>, Option<ListPosition>), Fault>;

impl ReportWriter {
    pub(crate) fn new(
        store: Store,
        shared: SharedFindings,
        events: Option<Events>,
        metrics: ReporterMetrics,
        per_second: u32,
        interval: Duration,
    ) -> Self {
        Self {
            store,
            shared,
            events,
            metrics,
            per_second: per_second.max(1),
            published: PublishedReports::default(),
            under_way: FuturesUnordered::new(),
            interval,
            told_beyond: false,
        }
    }

    /// Writes until it is dropped.
    pub(crate) async fn run(mut self, check: Arc<Check>) {
        self.read_all(&check).await;
        check.ready();
        let (mut changes, mut unsettled) = (self.shared.changes(), self.shared.unsettled());
        let mut pace = interval(Duration::from_secs(1) / self.per_second);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        changes.mark_changed();
        unsettled.mark_changed();
        let mut listing: Fuse<BoxFuture<'static, ReportPage>> = Fuse::terminated();
        let mut list_at = Instant::now() + self.interval;
        loop {
            let changed = self.shared.with(|findings| findings.waiting());
            self.metrics.waiting(changed + self.published.waiting());
            self.metrics
                .reports(self.published.len(), self.published.beyond());
            if self.told_beyond != (self.published.beyond() > 0) {
                self.tell_beyond();
                unsettled.mark_changed();
            }
            let is_due = self
                .published
                .next_at()
                .is_some_and(|at| at <= Instant::now());
            let begins = self.has_room() && (changed > 0 || is_due);
            let due = self.wakes_at().filter(|_| !begins);
            tokio::select! {
                Some(done) = self.under_way.next() => self.done(done),
                // Beside all else: what was begun goes on meanwhile.
                _ = pace.tick(), if begins => self.begin_next(),
                Ok(()) = changes.changed(), if self.has_room() && !begins => {}
                Ok(()) = unsettled.changed() => {
                    let unsettled = unsettled.borrow_and_update().clone();
                    match unsettled.as_deref().and_then(|unsettled| waits_for(unsettled, self.told_beyond)) {
                        None => check.ready(),
                        Some(what) => check.ready_but(what),
                    }
                    self.published.settle(unsettled, Instant::now());
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = sleep_until(list_at), if listing.is_terminated() => {
                    self.published.listing();
                    listing = self.part(ListPosition::default());
                }
                part = &mut listing => {
                    list_at = Instant::now() + self.interval;
                    match self.listed(part) {
                        Ok(next) => listing = next.map_or_else(Fuse::terminated, |next| self.part(next)),
                        Err(fault) => tracing::warn!(
                            %fault,
                            "reports not listed: tried again after the scan interval; check the reporter's rights"
                        ),
                    }
                }
            }
        }
    }

    fn part(&self, place: ListPosition) -> Fuse<BoxFuture<'static, ReportPage>> {
        let store = self.store.clone();
        async move { store.list(place).await }.boxed().fuse()
    }

    /// Takes a part of a list. Returns the position of the next part.
    fn listed(&mut self, part: ReportPage) -> Result<Option<ListPosition>, Fault> {
        let now = Instant::now();
        let (listed, next) = part?;
        self.published.listed(listed, now);
        if next.is_none() {
            // Which were to be looked at nobody remembers.
            if self.published.listed_all(now) | self.shared.with(Findings::take_lost) {
                self.shared.with(|findings| findings.touch(|_| true));
                self.published.look_at_all(now);
            }
        }
        Ok(next)
    }

    fn tell_beyond(&mut self) {
        self.told_beyond = self.published.beyond() > 0;
        match self.told_beyond {
            true => tracing::warn!(
                held = self.published.len(),
                beyond = self.published.beyond(),
                "limit of remembered reports exceeded: reports beyond the limit may be outdated; delete reports \
                 that others left"
            ),
            false => tracing::info!("limit of remembered reports met again"),
        }
    }

    /// Begins the next write, if one of those that are looked at wants any.
    fn begin_next(&mut self) {
        for _ in 0..LOOKS_MAX {
            let Some((key, owner)) = self.next() else {
                return;
            };
            if self.begin(key, owner.as_ref()) {
                return;
            }
        }
    }

    /// Returns whether another write can begin.
    fn has_room(&self) -> bool {
        self.under_way.len() < AT_ONCE
    }

    /// The time at which there is something to do though nothing happens; `None` while nothing can begin.
    fn wakes_at(&self) -> Option<Instant> {
        self.published.next_at().filter(|_| self.has_room())
    }

    /// Reads which reports there are.
    async fn read_all(&mut self, check: &Check) {
        let mut backoff = Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS);
        loop {
            let Err(fault) = self.try_read_all().await else {
                return;
            };
            tracing::warn!(
                %fault,
                "reports not listed: tried again, and none are written until then; check the reporter's rights"
            );
            check.not_ready(format!("a list of PolicyReports (wgpolicyk8s.io): {fault}"));
            sleep(backoff.next(rand::random())).await;
        }
    }

    async fn try_read_all(&mut self) -> Result<(), Fault> {
        self.published.listing();
        let mut place = Some(ListPosition::default());
        while let Some(at) = place {
            let part = self.store.list(at).await;
            place = self.listed(part)?;
        }
        Ok(())
    }

    /// Takes the next report to look at, with its object: reports that are due again, then reports with new findings.
    fn next(&mut self) -> Option<(ReportKey, Option<Owner>)> {
        if let Some(due) = self.published.take_due(Instant::now()) {
            return Some((due, None));
        }
        let subject = self.shared.with(Findings::take_changed)?;
        Some((key(&subject), Some(owner_of(&subject))))
    }

    /// Returns whether there is something to write.
    fn begin(&mut self, key: ReportKey, owner: Option<&Owner>) -> bool {
        let (store, metrics) = (self.store.clone(), self.metrics.clone());
        let report = self.report(&key);
        let write = match self.published.begin(&key, owner, report) {
            ReportAction::Nothing => return false,
            ReportAction::UpToDate => {
                // The write of the report has sent the Event already.
                self.shared.with(|findings| findings.mark_sent(&key.1));
                return false;
            }
            ReportAction::ReadFirst => async move {
                let (reported_since, result) = match store.read(&key).await {
                    Ok(reported_since) => (Some(reported_since), Ok(())),
                    Err(fault) => (None, Err(fault)),
                };
                let content = None;
                Done {
                    key,
                    content,
                    result,
                    reported_since,
                }
            }
            .boxed(),
            ReportAction::Apply(report) => async move {
                let result = store.apply(&key, report.manifest).await;
                metrics.wrote("apply", result.is_ok());
                let content = Some(report.content);
                Done {
                    key,
                    content,
                    result,
                    reported_since: None,
                }
            }
            .boxed(),
            ReportAction::Delete => async move {
                let result = store.delete(&key).await;
                metrics.wrote("delete", result.is_ok());
                let content = None;
                Done {
                    key,
                    content,
                    result,
                    reported_since: None,
                }
            }
            .boxed(),
        };
        self.under_way.push(write);
        true
    }

    /// Returns the report that is to be there; `None`: none.
    fn report(&self, key: &ReportKey) -> Option<Report> {
        let reported = self.shared.reported();
        self.shared.with(|findings| {
            let of_object = findings.of_object(&key.1)?;
            let of = |policy: &_| reported.get(policy).map(|reported| &reported.reporting);
            Some(report::report(of_object, of))
        })
    }

    fn done(&mut self, done: Done) {
        let Done {
            key,
            content,
            result,
            reported_since,
        } = done;
        if let Some(reported_since) = reported_since {
            self.shared
                .with(|findings| findings.remember(&key.1, &reported_since));
            return self.published.was_read(&key, Instant::now());
        }
        match &result {
            Ok(()) if content.is_some() => self.send_events(&key.1),
            Ok(()) => {}
            Err(fault) => {
                tracing::warn!(
                    namespace = key.0,
                    report = key.1,
                    %fault,
                    "report not read or not written: tried again"
                );
            }
        }
        let content = result.map(|()| content).map_err(drop);
        self.published
            .done(&key, content, rand::random(), Instant::now());
    }

    /// Sends Events about new bad results of a report that was written.
    fn send_events(&self, uid: &str) {
        let reported = self.shared.reported();
        self.shared.with(|findings| {
            let of_object = findings.of_object(uid);
            let each = of_object.into_iter().flat_map(|of_object| {
                let findings = of_object.findings.iter();
                findings.map(move |finding| (of_object, &finding.scan, finding))
            });
            for (of_object, scan, finding) in each {
                let is_news = finding.is_new && finding.result.outcome.is_bad();
                if let Some(events) = self.events.as_ref().filter(|_| is_news) {
                    events.send(&Violation {
                        policy: &scan.policy,
                        reported: reported.get(&scan.policy),
                        subject: &of_object.subject,
                        result: &finding.result,
                        since_s: finding.since_s,
                    });
                }
            }
            findings.mark_sent(uid);
        });
    }
}

/// Returns a text about the objects that have no complete reports yet; `None`: all have. `is_beyond`: there are more
/// reports than are remembered.
fn waits_for(unsettled: &Unsettled, is_beyond: bool) -> Option<String> {
    let kinds = &unsettled.unseen;
    let named = kinds.iter().map(|(group, kind)| match &**group {
        "" => kind.clone(),
        group => format!("{kind}.{group}"),
    });
    let kinds = some_of(named).map(|named| {
        format!("not everything was judged yet of {named}: where that stays, the watcher may not read them")
    });
    let objects = &unsettled.unread;
    let named = objects
        .iter()
        .map(|((_, kind), key)| format!("{kind} {key}"));
    let objects = some_of(named)
        .map(|named| format!("{named} cannot be read, and have what reports said of them before"));
    let full = unsettled.is_full.then(|| {
        format!(
            "some objects have no report: it holds {OBJECTS_MAX} of them, and {BYTES_MAX} bytes"
        )
    });
    let beyond = is_beyond.then(|| {
        format!("there are more than the {REPORTS_MAX} reports that are remembered: others may say what they said before")
    });
    let told = kinds.into_iter().chain(objects).chain(full).chain(beyond);
    let told: Vec<_> = told.collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Returns the first few names, and how many more there are; `None`: there are none.
fn some_of(names: impl ExactSizeIterator<Item = String>) -> Option<String> {
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<_> = names.take(NAMED_MAX).collect();
    (!named.is_empty()).then(|| format!("{}{more}", named.join(", ")))
}

fn key(subject: &ReportSubject) -> ReportKey {
    (subject.namespace.to_string(), subject.uid.to_string())
}

#[cfg(test)]
mod tests {
    use anteroom_model::ObjectKey;

    use super::*;

    #[test]
    fn unsettled_objects_without_a_report_are_named() {
        let kind = |(group, kind): &(&str, &str)| ((*group).to_owned(), (*kind).to_owned());
        let told = |kinds: &[(&str, &str)]| {
            let unsettled = Unsettled {
                unseen: kinds.iter().map(kind).collect(),
                ..Unsettled::default()
            };
            waits_for(&unsettled, false)
        };
        assert_eq!(told(&[]), None);
        let full = Unsettled {
            is_full: true,
            ..Unsettled::default()
        };
        let full = waits_for(&full, false);
        assert!(full.unwrap().starts_with("some objects have no report"));
        let beyond = waits_for(&Unsettled::default(), true);
        assert!(
            beyond
                .unwrap()
                .starts_with("there are more than the 300000 reports")
        );
        let unread = Unsettled {
            unread: [(kind(&("", "Pod")), ObjectKey::new("n", "a"))].into(),
            ..Unsettled::default()
        };
        let unread = waits_for(&unread, false);
        assert!(unread.unwrap().starts_with("Pod n/a cannot be read"));
        let two = told(&[("", "Pod"), ("batch", "Job")]).unwrap();
        assert!(two.contains("of Pod, Job.batch: "), "{two}");
        let names: Vec<_> = (0..12).map(|number| format!("Kind{number:02}")).collect();
        let many: Vec<_> = names.iter().map(|name| ("", &**name)).collect();
        let many = told(&many).unwrap();
        assert!(many.contains("Kind09 and 2 more: "), "{many}");
    }
}
