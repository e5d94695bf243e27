//! The one loop that takes rules to their end: it hands over facts as they arrive.

use anteroom_policy::RuleReport;
use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};

use crate::{
    catalog::Catalog,
    facts::{Arriving, Deadline, FactSource, RuleRequests},
    review_work::ReviewWork,
    rule_run::RuleRun,
};

/// Facts on their way to rules.
pub(crate) struct Driver<'s, F> {
    source: &'s F,
    under_way: FuturesUnordered<Arriving<'s>>,
}

impl<'s, F: FactSource> Driver<'s, F> {
    pub(crate) fn new(source: &'s F) -> Self {
        Self {
            source,
            under_way: FuturesUnordered::new(),
        }
    }

    /// Asks for facts. The `asker` of each is its rule's position.
    pub(crate) fn ask(
        &mut self,
        catalog: &Catalog,
        asked: Vec<RuleRequests<'s>>,
        deadline: Deadline,
    ) {
        self.under_way
            .extend(self.source.ask(catalog, asked, deadline));
    }

    /// Waits for the next facts and hands them to their rules. Returns false if none are on their way.
    pub(crate) async fn hand_over(&mut self, rules: &mut [RuleRun<'_>]) -> bool {
        let Some(facts) = self.under_way.next().await else {
            return false;
        };
        for fact in facts {
            if let Some(rule) = rules.get_mut(fact.asker) {
                rule.supply(fact);
            }
        }
        true
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
    let mut driver = Driver::new(source);
    // Ends: an evaluation asks for a bounded number of facts, each once.
    loop {
        let mut asked = Vec::new();
        for (asker, rule) in rules.iter_mut().enumerate() {
            asked.extend(work.step(rule, asker).await);
        }
        driver.ask(catalog, asked, deadline);
        if !driver.hand_over(rules).await {
            if rules.iter().all(|rule| rule.report().is_some()) {
                break;
            }
            rules.iter_mut().for_each(RuleRun::give_up);
        }
    }
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
