//! Rules on objects that exist already: which of them a request may trigger, and what becomes of one.

use std::sync::Arc;

use anteroom_model::ObjectKey;
use anteroom_policy::{AdmissionRequest, RuleReport};
use futures::future::join_all;
use tokio::time::Instant;

use super::{Decider, Running};
use crate::{
    admission::Admission, catalog::Catalog, existing::Triggered, facts::Reader, policies::Entry,
    review::Review, rule::RuleName,
};

/// The rules that the request may trigger; `None`: none, or nothing comes of it. Whether one matches is found
/// out when it is evaluated.
pub(super) fn triggered(
    entries: &[&Entry],
    review: &Review<'_>,
    request: &AdmissionRequest,
) -> Option<Triggered> {
    let mut rules = Vec::new();
    for entry in entries {
        let Ok(policy) = &entry.outcome else {
            continue;
        };
        let named = policy.rules().iter().zip(&entry.names);
        let may_be = named.filter(|(rule, _)| {
            rule.changes_existing() && rule.is_triggered_by(review.operation())
        });
        rules.extend(may_be.map(|(rule, name)| (Arc::clone(name), rule.is_triggered_by_own())));
    }
    let happens = !rules.is_empty() && !review.is_dry_run();
    happens.then(|| Triggered {
        request: request.clone(),
        rules,
    })
}

impl Decider {
    /// The policies and all else as they are now; `None` until all was read once.
    pub(crate) fn catalog(&self) -> Option<Arc<Catalog>> {
        self.catalogs.borrow().clone()
    }

    /// Takes a rule on objects that exist through what triggers it. `is_admission`: a request, rather than what
    /// exists too. `None`: there is no such rule any more.
    pub(crate) async fn change_existing(
        &self,
        catalog: &Catalog,
        name: &RuleName,
        (request, is_admission): (&AdmissionRequest, bool),
        deadline: Instant,
    ) -> Option<RuleReport> {
        let key = &name.reader.policy;
        let entry = catalog
            .policies
            .entries()
            .iter()
            .find(|entry| entry.key == *key)?;
        let policy = entry.outcome.as_ref().ok()?;
        let mut named = policy.rules().iter().zip(&entry.names);
        let (rule, name) =
            named.find(|(rule, _)| rule.changes_existing() && rule.name() == name.rule())?;
        let running = match is_admission {
            true => Running::new((policy, rule, name), request, catalog),
            false => Running::of_existing((policy, rule, name), request, catalog),
        };
        let mut running = [running];
        let begun = Instant::now();
        self.drive(catalog, &mut running, deadline).await;
        let [running] = running;
        let report = running.report?;
        name.count(report_result(&report), begun.elapsed(), &self.metrics);
        Some(report)
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
                "rule `{}` changes nothing yet: {lacks}",
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
