//! Facts that rules wait for, and the groups of them that travel together. Pure.

use anteroom_model::{ErrorCode, ErrorSubject, FactError, limits::QUERIES_PER_REQUEST_MAX};

use super::route::{FactRoute, ViewRead};
use crate::rule::RuleRef;

/// A fact on its read, and the error of the view that was asked before.
pub(super) struct PendingFact<'a> {
    pub(super) asker: usize,
    pub(super) reader: &'a RuleRef,
    pub(super) review_namespace: &'a str,
    pub(super) route: FactRoute,
    pub(super) fallback_from: Option<ErrorCode>,
    /// The error of a backend asked before, whose part the review's own namespace uses up.
    pub(super) over_part: Option<FactError>,
}

/// Returns the error of a fact whose last backend failed with `error`: an earlier one of which the review's own namespace
/// uses up its part, unless the last error says more than that a service could not answer.
pub(super) fn final_error(over_part: Option<FactError>, error: FactError) -> FactError {
    match over_part {
        Some(earlier) if error.class().subject == ErrorSubject::Service => earlier,
        _ => error,
    }
}

/// Facts to ask for in one query to a view.
pub(super) struct ViewBatch<'a> {
    pub(super) pending: Vec<(PendingFact<'a>, ViewRead)>,
    /// Each of the facts has another backend too.
    pub(super) has_fallback: bool,
}

impl ViewBatch<'_> {
    /// The namespace of the policies that ask; empty: they are of the cluster.
    pub(super) fn policy_namespace(&self) -> &str {
        let first = self.pending.first();
        first.map_or("", |(fact, _)| &*fact.reader.policy.namespace)
    }

    /// Returns whether `fact`, which `read` asks for, may travel in this batch. Facts for policies or reviews of
    /// different namespaces travel apart, since each namespace has its own share of a replica.
    pub(super) fn takes(
        &self,
        read: &ViewRead,
        fact: &PendingFact<'_>,
        has_fallback: bool,
    ) -> bool {
        self.has_fallback == has_fallback
            && self.pending.len() < QUERIES_PER_REQUEST_MAX
            && self.pending.first().is_some_and(|(first, first_read)| {
                (&first_read.view, first_read.age_max_ms, first_read.secret)
                    == (&read.view, read.age_max_ms, read.secret)
                    && first.reader.policy.namespace == fact.reader.policy.namespace
                    && first.review_namespace == fact.review_namespace
            })
    }
}

/// Returns whether several rules ask.
pub(super) fn are_several(pending: &[(PendingFact<'_>, ViewRead)]) -> bool {
    pending
        .windows(2)
        .any(|pair| pair[0].0.asker != pair[1].0.asker)
}

/// Groups facts by the rule that asks for them.
pub(super) fn by_asker<'a>(
    pending: Vec<(PendingFact<'a>, ViewRead)>,
) -> Vec<Vec<(PendingFact<'a>, ViewRead)>> {
    let mut groups: Vec<Vec<(PendingFact<'a>, ViewRead)>> = Vec::new();
    for fact in pending {
        match groups.last_mut() {
            Some(group) if group[0].0.asker == fact.0.asker => group.push(fact),
            _ => groups.push(vec![fact]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_that_the_own_namespace_keeps_busy_is_told_unless_the_next_one_says_more() {
        let earlier = FactError::DeadlineExceeded {
            deadline_ms: 1,
            over_part: true,
        };
        let absent = FactError::LiveReadFailed {
            code: 404,
            message: "m".into(),
        };
        for (last, expected) in [(FactError::NoWatcher, &earlier), (absent.clone(), &absent)] {
            let told = final_error(Some(earlier.clone()), last);
            assert_eq!(told, *expected);
        }
        assert_eq!(
            final_error(None, FactError::NoWatcher),
            FactError::NoWatcher
        );
    }
}
