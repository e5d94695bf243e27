//! The decisions that a tap means. Pure.

use anteroom_wire::tap::{DecisionRecord, TapFilter};

use super::{Decided, record};

/// Returns whether the filter selects a decision.
pub(super) fn means(filter: &TapFilter, decided: &Decided<'_>, is_notable: bool) -> bool {
    let head = &decided.review.head;
    let mut rules = decided.decision.rules.iter();
    (is_notable || !filter.denied)
        && decided.took.as_micros() >= u128::from(filter.slower_than_us)
        && is(&filter.kind, &head.kind.kind)
        && is(&filter.namespace, record::namespace(decided.review))
        && filter.policy.as_ref().is_none_or(|policy| rules.any(|rule| rule.name.policy == *policy))
        // Read last: it has to be parsed.
        && filter.user.as_ref().is_none_or(|user| {
            decided.review.user().is_some_and(|asks| asks.username == **user)
        })
}

/// Returns whether the filter selects a decision that was kept.
pub(super) fn means_kept(filter: &TapFilter, kept: &DecisionRecord) -> bool {
    let mut rules = kept.rules.iter();
    kept.took_us >= filter.slower_than_us
        && is(&filter.kind, &kept.kind)
        && is(&filter.namespace, &kept.namespace)
        && is(&filter.user, &kept.user)
        && filter
            .policy
            .as_ref()
            .is_none_or(|policy| rules.any(|rule| rule.policy == *policy))
}

fn is(meant: &Option<String>, found: &str) -> bool {
    meant.as_ref().is_none_or(|meant| meant == found)
}
