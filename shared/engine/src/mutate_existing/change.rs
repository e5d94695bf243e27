//! An attempt of a rule on existing objects. It goes on part by part, and leaves threads to the requests at
//! admission.

use anteroom_functions::meter;
use anteroom_policy::{AdmissionRequest, ChangedObject, FactSubject, RuleOutcome, RuleReport};
use tokio::time::{Duration, Instant};

use super::{
    TIMEOUT,
    attempt::TriggerSource,
    forbidden::ForbiddenTargets,
    memory::{PartTurn, PartTurns},
};
use crate::{
    catalog::Catalog,
    decide::Engine,
    drive::Driver,
    facts::{FactAnswer, FactHolder, FactResult, FactSource, ReviewWaiting, RuleRequests},
    incoming::ReviewOwner,
    off_thread::off_thread,
    policies::CompiledPolicy,
    review_work::REVIEW_STEPS_MAX,
    rule::{RuleName, RuleResult},
    rule_run::{NamedRule, RuleRun},
};

/// The longest time for one read.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A rule on existing objects, on its way through its trigger.
pub(super) struct TriggeredChange<'a, F> {
    engine: &'a Engine<F>,
    catalog: &'a Catalog,
    name: &'a RuleName,
    run: [RuleRun<'a>; 1],
    /// The facts that it waits for.
    asked: Option<RuleRequests<'a>>,
    owner: ReviewOwner,
    /// The holder of all facts but the parts of lists, which are held in turns.
    holder: FactHolder,
    /// The memory of what the rule holds while it waits.
    waiting: ReviewWaiting<'a>,
    turns: &'a PartTurns,
    turn: Option<PartTurn>,
    /// A part was read, and is held in its turn.
    has_read: bool,
    begun: Instant,
    deadline: Instant,
}

impl<'a, F: FactSource> TriggeredChange<'a, F> {
    /// Begins to evaluate a rule on its trigger, holding the `turn` of its owner. `None`: the catalog has no such rule.
    pub(super) fn begin(
        engine: &'a Engine<F>,
        catalog: &'a Catalog,
        name: &RuleName,
        request: &'a AdmissionRequest,
        source: TriggerSource,
        turns: &'a PartTurns,
        (owner, turn): (ReviewOwner, PartTurn),
    ) -> Option<Self> {
        let named = named_rule(catalog, name)?;
        let name = named.name;
        let run = match source {
            TriggerSource::Request => RuleRun::new(named, request, catalog),
            TriggerSource::Existing => RuleRun::of_existing(named, request, catalog),
        };
        let begun = Instant::now();
        Some(Self {
            engine,
            catalog,
            name,
            run: [run],
            asked: None,
            owner,
            holder: FactHolder::trigger(owner),
            waiting: engine.waiting().of(owner),
            turns,
            turn: Some(turn),
            has_read: false,
            begun,
            deadline: begun + TIMEOUT,
        })
    }

    /// Goes on to the next objects that are to be written; `None`: there are none any more. Nobody waits for it: it
    /// takes turns with others of its kind before each part after the first, since each holds one, and no thread
    /// from those that admit.
    pub(super) async fn next_changed(&mut self) -> Option<Vec<ChangedObject>> {
        // Ends: an evaluation asks for a bounded number of facts, each once.
        loop {
            if let Some(asked) = self.asked.take() {
                if is_of_next_part(&asked) {
                    if Instant::now() >= self.deadline {
                        self.run[0].end_out_of_time();
                        return None;
                    }
                    if std::mem::replace(&mut self.has_read, true) {
                        // What was held before is done with.
                        self.turn = None;
                    }
                }
                self.supply(asked).await;
            }
            let [run] = &mut self.run;
            if run.report().is_some() {
                return None;
            }
            let (asked, steps_left) =
                off_thread(|| meter::within(REVIEW_STEPS_MAX, || run.step(0)));
            if steps_left == 0 {
                run.end_too_costly();
                return None;
            }
            // Also where there is no memory to go on: it is to be written.
            let changed = run.take_changed();
            if let Some(asked) = asked {
                match run.hold(&mut self.waiting) {
                    Ok(()) => self.asked = Some(asked),
                    Err(full) => run.end_without_memory(asked, full),
                }
            }
            if !changed.is_empty() {
                return Some(changed);
            }
        }
    }

    async fn supply(&mut self, asked: RuleRequests<'a>) {
        if self.turn.is_none() {
            let begun = Instant::now();
            self.turn = self.turns.take(self.owner).await.ok();
            // Others' work takes none of its time.
            self.deadline += begun.elapsed();
            if self.turn.is_none() {
                return self.run[0].give_up();
            }
        }
        let until = self.deadline.min(Instant::now() + READ_TIMEOUT);
        let mut driver = Driver::new(self.engine.facts(), self.holder.clone());
        driver.ask(self.catalog, vec![asked], until);
        while driver.hand_over(&mut self.run).await {}
        self.run[0].give_up(); // Facts that did not come count as not answered.
    }

    /// The moment by which it has to be done: later by as much as it had to wait for turns.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Ends lists whose remaining objects may not be written: the target gets the error of the writes.
    pub(super) fn leave(&mut self, forbidden: &ForbiddenTargets) {
        let Some(asked) = &mut self.asked else {
            return;
        };
        let [run] = &mut self.run;
        asked.requests.retain(|request| {
            let why = match &request.subject {
                FactSubject::Existing(objects) => forbidden.rest_of(objects),
                _ => None,
            };
            if let Some(error) = why {
                run.supply(FactAnswer::of(
                    asked.asker,
                    request.id,
                    FactResult::Got(Err(error.clone())),
                ));
            }
            why.is_none()
        });
        self.asked.take_if(|asked| asked.requests.is_empty());
    }

    /// Returns whether the rule has read data that may travel sealed alone.
    pub(super) fn knows_secrets(&self) -> bool {
        self.run[0].knows_secrets()
    }

    /// Ends the change, and returns the rule's report; `None`: the rule was not evaluated to its end.
    pub(super) fn end(self) -> Option<RuleReport> {
        let [run] = self.run;
        let report = run.into_ended()?;
        let result = RuleResult::of(&report.outcome);
        let took = self.begun.elapsed();
        self.engine.recorder().rule(self.name, result, took);
        Some(report)
    }
}

/// Returns whether the rule does not match the request, or its preconditions exclude it. This uses only facts that
/// are known before any read, and takes its steps from `steps_left`. Where none are left, a rule that is not ruled out
/// may be with more of them.
pub(super) fn is_ruled_out(
    catalog: &Catalog,
    name: &RuleName,
    request: &AdmissionRequest,
    steps_left: &mut u64,
) -> bool {
    let Some(named) = named_rule(catalog, name) else {
        return true;
    };
    let mut run = RuleRun::new(named, request, catalog);
    let (asked, left) = meter::within(*steps_left, || run.step(0));
    *steps_left = left;
    let report = run.report().filter(|_| left > 0 && asked.is_none());
    report.is_some_and(|report| {
        let outcome = &report.outcome;
        matches!(
            outcome,
            RuleOutcome::NotMatched | RuleOutcome::Skipped { .. }
        )
    })
}

fn named_rule<'c>(catalog: &'c Catalog, name: &RuleName) -> Option<NamedRule<'c>> {
    let entry = entry_of(catalog, name)?;
    let policy = entry.outcome.as_ref().ok()?;
    let mut named = policy.rules().iter().zip(&entry.names);
    let (rule, name) =
        named.find(|(rule, _)| rule.changes_existing() && rule.name() == name.rule())?;
    Some(NamedRule { policy, rule, name })
}

/// Returns whether the rule's policy still has the version that `catalog` has.
pub(super) fn is_unchanged<F>(engine: &Engine<F>, catalog: &Catalog, name: &RuleName) -> bool {
    let now = engine.catalog();
    let now = now.as_ref().and_then(|now| entry_of(now, name));
    let begun_with = entry_of(catalog, name);
    now.zip(begun_with)
        .is_some_and(|(now, begun_with)| now.same_manifest(begun_with))
}

/// The entry of the rule's policy.
fn entry_of<'c>(catalog: &'c Catalog, name: &RuleName) -> Option<&'c CompiledPolicy> {
    let mut entries = catalog.policies.all().iter();
    let entry = entries.find(|entry| entry.key == name.reader.policy);
    entry.map(|entry| &**entry)
}

/// Returns whether a part of the objects is asked for: those that were asked for before are done with.
fn is_of_next_part(asked: &RuleRequests<'_>) -> bool {
    let mut requests = asked.requests.iter();
    requests.all(|request| matches!(request.subject, FactSubject::Existing(_)))
}
