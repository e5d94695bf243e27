//! Rules on objects that exist already: which of them a request may trigger, and what becomes of one.

use std::sync::Arc;

use anteroom_model::ObjectKey;
use anteroom_policy::{AdmissionRequest, ChangedObject, FactTarget, RuleReport};
use futures::future::join_all;
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{Semaphore, SemaphorePermit},
    time::{Duration, Instant},
};

use super::{Decider, Running};
use crate::{
    admission::Admission,
    catalog::Catalog,
    existing::Refused,
    facts::{Fact, Needs, Reader},
    policies::Entry,
    review::Review,
    rule::RuleName,
};

/// How long one read may take.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// The rules that the request may trigger; none: nothing comes of it. Whether one matches is found out when it is
/// evaluated.
pub(super) fn triggered(entries: &[&Entry], review: &Review<'_>) -> Vec<(Arc<RuleName>, bool)> {
    if review.is_dry_run() {
        return Vec::new();
    }
    let of_policy = |entry: &&Entry| {
        let policy = entry.outcome.as_ref().ok();
        let entry: &Entry = entry;
        let named = policy.map(|policy| policy.rules().iter().zip(&entry.names));
        let named = named.into_iter().flatten().filter(|(rule, _)| {
            rule.changes_existing() && rule.is_triggered_by(review.operation())
        });
        let rules = named.map(|(rule, name)| (Arc::clone(name), rule.is_triggered_by_own()));
        rules.collect::<Vec<_>>()
    };
    entries.iter().flat_map(of_policy).collect()
}

impl Decider {
    /// The policies and all else as they are now; `None` until all was read once.
    pub(crate) fn catalog(&self) -> Option<Arc<Catalog>> {
        self.catalogs.borrow().clone()
    }

    /// Begins to take a rule on objects that exist through what triggers it, which has its turn. `is_admission`: a
    /// request, rather than what exists too. `None`: there is no such rule any more.
    pub(crate) fn begin_change<'a>(
        &self,
        catalog: &'a Catalog,
        name: &RuleName,
        (request, is_admission): (&'a AdmissionRequest, bool),
        deadline: Instant,
        turn: SemaphorePermit<'a>,
    ) -> Option<Change<'a>> {
        let entry = entry_of(catalog, name)?;
        let policy = entry.outcome.as_ref().ok()?;
        let mut named = policy.rules().iter().zip(&entry.names);
        let (rule, name) =
            named.find(|(rule, _)| rule.changes_existing() && rule.name() == name.rule())?;
        let running = match is_admission {
            true => Running::new((policy, rule, name), request, catalog),
            false => Running::of_existing((policy, rule, name), request, catalog),
        };
        Some(Change {
            catalog,
            name,
            running,
            needs: None,
            turn: Some(turn),
            has_read: false,
            begun: Instant::now(),
            deadline,
        })
    }

    /// Whether the rule's policy says what it said in `catalog`.
    pub(crate) fn says_still(&self, catalog: &Catalog, name: &RuleName) -> bool {
        let now = self.catalog();
        let now = now.as_ref().and_then(|now| entry_of(now, name));
        let begun_with = entry_of(catalog, name);
        now.zip(begun_with)
            .is_some_and(|(now, begun_with)| now.says_as(begun_with))
    }

    /// Goes on to the next objects that are to be written; `None`: there are none any more. Nobody waits for it: it
    /// takes turns with others of its kind before each part after the first, since each holds one, and no thread
    /// from those that admit.
    pub(crate) async fn next_changed<'a>(
        &self,
        change: &mut Change<'a>,
        turns: &'a Semaphore,
    ) -> Option<Vec<ChangedObject>> {
        // Ends: an evaluation asks for a bounded number of facts, each once.
        loop {
            if let Some(needs) = change.needs.take() {
                if is_of_next_part(&needs) {
                    if Instant::now() >= change.deadline {
                        change.running.end_out_of_time();
                        return None;
                    }
                    if std::mem::replace(&mut change.has_read, true) {
                        // What was held before is done with.
                        change.turn = None;
                    }
                }
                self.supply(change, needs, turns).await;
            }
            let running = &mut change.running;
            if running.report.is_some() {
                return None;
            }
            change.needs = off_thread(|| running.step(0));
            let changed = running.take_changed();
            if !changed.is_empty() {
                return Some(changed);
            }
        }
    }

    async fn supply<'a>(&self, change: &mut Change<'a>, needs: Needs<'a>, turns: &'a Semaphore) {
        if change.turn.is_none() {
            let begun = Instant::now();
            change.turn = turns.acquire().await.ok();
            // Others' work takes none of its time.
            change.deadline += begun.elapsed();
        }
        let until = change.deadline.min(Instant::now() + READ_TIMEOUT);
        let arriving = self.facts.ask(change.catalog, vec![needs], until);
        for facts in join_all(arriving).await {
            facts
                .into_iter()
                .for_each(|fact| change.running.supply(fact));
        }
        change.running.give_up(); // Of what did not come, which is nothing.
    }

    /// What became of the rule in the end.
    pub(crate) fn end_change(&self, change: Change<'_>) -> Option<RuleReport> {
        let report = change.running.report?;
        change.name.count(
            report_result(&report),
            change.begun.elapsed(),
            &self.metrics,
        );
        Some(report)
    }
}

/// A rule on objects that exist, on its way through what triggers it.
pub(crate) struct Change<'a> {
    catalog: &'a Catalog,
    name: &'a RuleName,
    running: Running<'a>,
    /// What it waits for.
    needs: Option<Needs<'a>>,
    turn: Option<SemaphorePermit<'a>>,
    /// A part was read, and is held in its turn.
    has_read: bool,
    begun: Instant,
    deadline: Instant,
}

impl Change<'_> {
    /// When it has to be done: later by as much as it had to wait for turns.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Does not go on with a list whose objects may not be written: that is what the target comes to.
    pub(crate) fn leave(&mut self, refused: &Refused) {
        let Some(needs) = &mut self.needs else {
            return;
        };
        let running = &mut self.running;
        needs.requests.retain(|request| {
            let why = match &request.target {
                FactTarget::Existing(objects) => refused.rest_of(objects),
                _ => None,
            };
            if let Some(error) = why {
                running.supply(Fact::unanswered(needs.asker, request.id, error.clone()));
            }
            why.is_none()
        });
        self.needs.take_if(|needs| needs.requests.is_empty());
    }
}

/// What the catalog has of the rule's policy.
fn entry_of<'c>(catalog: &'c Catalog, name: &RuleName) -> Option<&'c Arc<Entry>> {
    let mut entries = catalog.policies.entries().iter();
    entries.find(|entry| entry.key == name.reader.policy)
}

/// Whether a part of what is changed is asked for: what was asked for before is done with.
fn is_of_next_part(needs: &Needs<'_>) -> bool {
    let mut requests = needs.requests.iter();
    requests.all(|request| matches!(request.target, FactTarget::Existing(_)))
}

/// Work that may take long: other tasks leave this thread meanwhile, where there are others.
fn off_thread<T>(work: impl FnOnce() -> T) -> T {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

impl Decider {
    /// Warns of objects that exist and that the watcher may not change. Where that is not known, nothing is said:
    /// whoever waits for the change is told why it did not come.
    pub(crate) async fn ask_for_writes(&self, admission: &mut Admission, deadline: Instant) {
        let writes = std::mem::take(&mut admission.writes);
        if !admission.refused.is_empty() {
            return;
        }
        let asked = writes.into_iter().map(async |(rule, objects)| {
            let reader = Reader {
                policy: ObjectKey::new("", ""),
                rule,
            };
            let lacks = self.facts.lacks_to_write(&reader, objects, deadline).await;
            let lacks = lacks.ok().flatten()?;
            Some(format!(
                "rule `{}` may change nothing: {lacks}",
                reader.rule
            ))
        });
        admission
            .warnings
            .extend(join_all(asked).await.into_iter().flatten());
    }
}

fn report_result(report: &RuleReport) -> crate::verdict::RuleResult {
    crate::verdict::RuleResult::of(&report.outcome)
}
