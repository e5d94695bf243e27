//! The rules on existing objects that a request may trigger. Pure.

use std::sync::Arc;

use crate::{incoming::Incoming, policies::CompiledPolicy, rule::RuleName};

/// Returns the rules that the request may trigger, each with whether our own writes trigger it too. A dry run
/// triggers none. An evaluation finds out later whether the rule matches.
pub(super) fn triggered(
    entries: &[&CompiledPolicy],
    incoming: &impl Incoming,
) -> Vec<(Arc<RuleName>, bool)> {
    if incoming.is_dry_run() {
        return Vec::new();
    }
    let operation = incoming.head().operation;
    let of_policy = |entry: &&CompiledPolicy| {
        let policy = entry.outcome.as_ref().ok();
        let entry: &CompiledPolicy = entry;
        let named = policy.map(|policy| policy.rules().iter().zip(&entry.names));
        let named = named
            .into_iter()
            .flatten()
            .filter(|(rule, _)| rule.changes_existing() && rule.is_triggered_by(operation));
        let rules = named.map(|(rule, name)| (Arc::clone(name), rule.is_triggered_by_own()));
        rules.collect::<Vec<_>>()
    };
    entries.iter().flat_map(of_policy).collect()
}
