//! Every use of every fact in a rule, and which query may stand for it.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::Arc,
};

use crate::ir::{
    Rule,
    context::{ContextEntry, Loader},
    subquery::{Pushdown, Subqueries},
};

use super::{
    dependency, fact_fields,
    multi_fact::{self, FoundUse},
    request_parts::{names_roles, object_paths},
    visitor,
};

/// Finds the parts of a rule that replicas can evaluate, whether the rule names roles, and what it reads beside facts.
pub(crate) fn prepare(rule: &mut Rule) {
    rule.names_roles = names_roles(rule);
    let is_fact = |entry: &ContextEntry| matches!(entry.loader, Loader::Fact(_));
    let reads_facts = rule.entries().any(is_fact);
    rule.paths_beside_facts = reads_facts.then(|| object_paths(rule));
    let uses = uses_in(rule).into_iter().filter(|each| each.is_asked_for);
    let subqueries = uses.map(|each| (each.prepared.id(), each.subqueries()));
    rule.pushdown = Pushdown::new(subqueries.collect(), fact_fields::queries_of(rule));
}

impl FoundUse<'_> {
    fn subqueries(self) -> Subqueries {
        Subqueries {
            value: self.value.ok(),
            verdict: self.verdict.map(|(subquery, side, _)| (subquery, side)),
        }
    }

    fn wants_whole(&self) -> bool {
        self.value.is_err() && self.verdict.is_none()
    }
}

/// Adds all facts that are used together with one of `whole`, by way of others too: an expression that is evaluated in
/// the rule with one of its facts is evaluated there with all of them.
fn extend<F: Copy + Eq + Hash>(whole: &mut HashSet<F>, together: &[HashSet<F>]) {
    let mut by_fact: HashMap<F, Vec<usize>> = HashMap::new();
    for (at, facts) in together.iter().enumerate() {
        for fact in facts {
            by_fact.entry(*fact).or_default().push(at);
        }
    }
    let mut waiting: Vec<F> = whole.iter().copied().collect();
    while let Some(fact) = waiting.pop() {
        for at in by_fact.remove(&fact).into_iter().flatten() {
            let added = together[at].iter().filter(|fact| whole.insert(**fact));
            waiting.extend(added);
        }
    }
}

/// Every use of every fact, in the order of the rule's fields.
pub(super) fn uses_in(rule: &Rule) -> Vec<FoundUse<'_>> {
    let (mut found, mut together, mut is_read_whole) = (Vec::new(), Vec::new(), false);
    visitor::each(rule, &mut |site, prepared| {
        is_read_whole |= dependency::reads_everything(prepared.expression());
        let uses = multi_fact::uses_in(site, prepared);
        if uses.len() > 1 {
            let entries = uses.iter().map(|one| Arc::as_ptr(one.entry));
            together.push(entries.collect::<HashSet<_>>());
        }
        found.extend(uses);
    });
    // A message is for the few requests that are denied, and others do not pay for it.
    let mut whole: HashSet<*const ContextEntry> = found
        .iter()
        .filter(|each| each.wants_whole() && !each.site.in_message)
        .map(|each| Arc::as_ptr(each.entry))
        .collect();
    extend(&mut whole, &together);
    for each in &mut found {
        let is_whole = each.wants_whole() || whole.contains(&Arc::as_ptr(each.entry));
        // `@` shows which entries were loaded.
        each.is_asked_for = !is_whole && !is_read_whole;
        if let (true, Ok(subquery)) = (each.is_asked_for, &mut each.value)
            && let Some(less) =
                fact_fields::narrow_to_read_fields(rule, &each.site, &subquery.expression)
        {
            subquery.expression = less;
        }
    }
    found
}
