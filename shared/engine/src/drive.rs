//! The one loop that takes rules to their end: it hands over facts as they arrive.
//!
//! Each rule goes on in place as soon as its own facts have arrived, and asks for more. Steps that may take long wait for a
//! place in the long lane meanwhile, and no fact waits for them. One place is for one step: of a policy of the cluster, if
//! such a rule waits.

use anteroom_policy::RuleReport;
use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use tokio::time::timeout_at;

use crate::{
    catalog::Catalog,
    facts::{Arriving, Deadline, FactAnswer, FactHolder, FactSource, RuleRequests},
    review_work::{LaneWait, ReviewWork, StepHere},
    rule::PolicyScope,
    rule_run::RuleRun,
};

/// Facts on their way to rules.
pub(crate) struct Driver<'s, F> {
    source: &'s F,
    holder: FactHolder,
    under_way: FuturesUnordered<Arriving<'s>>,
    /// The wait of the rules whose next step may take long; `None`: there are none.
    lane_wait: Option<LaneWait>,
}

impl<'s, F: FactSource> Driver<'s, F> {
    /// Takes facts from `source` to the rules of `holder`.
    pub(crate) fn new(source: &'s F, holder: FactHolder) -> Self {
        Self {
            source,
            holder,
            under_way: FuturesUnordered::new(),
            lane_wait: None,
        }
    }

    /// Asks for facts. The `asker` of each is its rule's position.
    pub(crate) fn ask(
        &mut self,
        catalog: &Catalog,
        asked: Vec<RuleRequests<'s>>,
        deadline: Deadline,
    ) {
        let arriving = self.source.ask(catalog, asked, &self.holder, deadline);
        self.under_way.extend(arriving);
    }

    /// Waits for the next facts and hands them to their rules. Returns false if none are on their way.
    pub(crate) async fn hand_over(&mut self, rules: &mut [RuleRun<'_>]) -> bool {
        let Some(facts) = self.under_way.next().await else {
            return false;
        };
        supply(facts, rules);
        true
    }

    /// Waits for the next facts, or for a place in the long lane, in which a rule of this scope takes its step. The scope is
    /// the widest of the rules that wait there. They end if there is no place in time.
    async fn hand_over_or_step(
        &mut self,
        catalog: &Catalog,
        rules: &mut [RuleRun<'s>],
        work: &mut ReviewWork<'_>,
        scope: PolicyScope,
        deadline: Deadline,
    ) {
        let wait = self.lane_wait.get_or_insert_with(|| work.lane_wait());
        let place = tokio::select! {
            biased; // A long step holds this task up, so all that was asked for is sent before.
            Some(facts) = self.under_way.next() => return supply(facts, rules),
            place = timeout_at(work.deadline_of(scope), wait) => place.ok().flatten(),
        };
        self.lane_wait = None;
        let Some(place) = place else {
            return work.end_without_place(rules, scope);
        };
        let mut waiting = rules.iter_mut().enumerate();
        let next = waiting.find(|(_, rule)| rule.waits_for_lane() && rule.scope() == scope);
        if let Some((asker, rule)) = next {
            let asked = work.step_in_lane(rule, asker, place);
            self.ask(catalog, asked.into_iter().collect(), deadline);
            if scope == PolicyScope::Namespace {
                work.note_hold_ups(rules);
            }
        }
    }
}

/// Hands facts to their rules.
fn supply(facts: Vec<FactAnswer>, rules: &mut [RuleRun<'_>]) {
    for fact in facts {
        if let Some(rule) = rules.get_mut(fact.asker) {
            rule.supply(fact);
        }
    }
}

/// Evaluates all rules to their end. Queries of several rules to one view at the same time travel together, and each
/// rule goes on as soon as its own facts have arrived.
pub(crate) async fn drive<'s, F: FactSource>(
    source: &'s F,
    catalog: &Catalog,
    rules: &mut [RuleRun<'s>],
    work: &mut ReviewWork<'_>,
    deadline: Deadline,
) {
    let mut driver = Driver::new(source, work.holder().clone());
    // Ends: an evaluation asks for a bounded number of facts, each once, and waits for a place once for each step.
    loop {
        let (mut asked, mut waiting) = (Vec::new(), None);
        for (asker, rule) in rules.iter_mut().enumerate() {
            match work.step_here(rule, asker) {
                StepHere::Asks(requests) => asked.push(requests),
                StepHere::WaitsForLane => waiting = waiting.max(Some(rule.scope())),
                StepHere::Rests => {}
            }
        }
        driver.ask(catalog, asked, deadline);
        if let Some(scope) = waiting {
            // In a box, so that the future of a short review stays small.
            Box::pin(driver.hand_over_or_step(catalog, rules, work, scope, deadline)).await;
            continue;
        }
        driver.lane_wait = None;
        if !driver.hand_over(rules).await {
            if rules.iter().all(|rule| rule.report().is_some()) {
                break;
            }
            rules.iter_mut().for_each(RuleRun::give_up);
        }
    }
    work.settle(rules);
}

/// Evaluates a rule to its end if every fact is at hand. A rule that would have to wait is out of time. Needs no
/// runtime.
pub fn drive_at_once<'s, F: FactSource>(source: &'s F, rule: RuleRun<'s>) -> RuleReport {
    let mut rules = [rule];
    let catalog = Catalog::default();
    let now = Deadline::now();
    let mut work = ReviewWork::at_once(now);
    // `None` is a rule without a report.
    let _ = drive(source, &catalog, &mut rules, &mut work, now).now_or_never();
    let [rule] = rules;
    rule.into_report()
}

#[cfg(test)]
mod tests;
