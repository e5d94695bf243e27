//! Expressions about several facts.
//!
//! If an expression uses several facts, one of them is asked for the expression's value. This needs every part about
//! another fact to be asked for by itself. Such a part is then an argument, like any other value that the rule knows.

use std::sync::Arc;

use anteroom_functions::operator::Operator;
use anteroom_jmespath::Expression;

use super::{
    dependency::{self, Dependency, Name},
    fact::{is_kept, names_projection},
    subquery,
    visitor::ExpressionSite,
};
use crate::ir::{
    context::{ContextEntry, ContextFact, FactOrigin},
    subquery::{ConditionSide, Subquery, SubqueryArgument},
    template::Prepared,
};

/// Steps of compiling each use: what is kept of it while a rule is analysed takes some hundred bytes.
const STEPS_PER_USE: usize = 16;

/// An expression that refers to a fact.
pub(super) struct FoundUse<'r> {
    pub(super) site: ExpressionSite<'r>,
    pub(super) prepared: &'r Prepared,
    pub(super) entry: &'r Arc<ContextEntry>,
    pub(super) fact: &'r ContextFact,
    /// The query for its value, or why there is none.
    pub(super) value: Result<Subquery, String>,
    /// The query for its condition, and whose verdict it is.
    pub(super) verdict: Option<(Subquery, ConditionSide, Operator)>,
    /// The use's subqueries are asked, rather than the fact.
    pub(super) is_asked_for: bool,
}

/// Returns the uses of facts in an expression. If several of the facts could be asked for by a subquery, the first
/// one is.
pub(super) fn uses_in<'r>(site: &ExpressionSite<'r>, prepared: &'r Prepared) -> Vec<FoundUse<'r>> {
    let facts = site.facts_of(prepared.expression());
    let mut uses: Vec<_> = facts
        .iter()
        .map(|(at, fact)| found_use(site, prepared, *at, fact))
        .collect();
    let Some(main) = uses.iter().position(|one| one.value.is_ok()) else {
        return uses;
    };
    uses.swap(0, main);
    let argument = match &uses[0].value {
        Ok(subquery) => subqueries_in(subquery),
        Err(_) => Vec::new(),
    };
    for one in &mut uses[1..] {
        let own = |subquery: &&Subquery| std::ptr::eq(one.entry, &site.entries[subquery.entry]);
        if let Some(subquery) = argument.iter().find(own) {
            (one.value, one.verdict) = (Ok(subquery.clone()), None);
        }
    }
    uses
}

fn found_use<'r>(
    site: &ExpressionSite<'r>,
    prepared: &'r Prepared,
    at: usize,
    fact: &'r ContextFact,
) -> FoundUse<'r> {
    let entry = &site.entries[at];
    let kept = dependency::charge(STEPS_PER_USE).and_then(|()| is_kept(fact));
    let dependency = kept.and_then(|own| {
        let expression = prepared
            .fixed()
            .ok_or("a variable stands in it where no parameter can")?;
        Ok((own, expression, dependency_of(site, at, expression)?))
    });
    let (value, verdict) = match &dependency {
        Err(reason) => (Err(reason.clone()), None),
        Ok((own, expression, dependency)) => {
            let of = using(site, at, fact, *own, expression, dependency);
            let verdict = site.side.and_then(|(operator, side)| {
                let subquery = of.verdict(operator, side).ok()?;
                Some((subquery, side, operator))
            });
            (of.value(), verdict)
        }
    };
    FoundUse {
        site: site.clone(),
        prepared,
        entry,
        fact,
        value,
        verdict,
        is_asked_for: false,
    }
}

/// The queries for the arguments of a query.
fn subqueries_in(subquery: &Subquery) -> Vec<Subquery> {
    let subqueries = subquery
        .arguments
        .iter()
        .filter_map(|(_, argument)| argument.subquery.as_deref());
    subqueries
        .flat_map(|subquery| std::iter::once(subquery.clone()).chain(subqueries_in(subquery)))
        .collect()
}

/// Returns how an expression depends on the fact of this entry, and its arguments of others.
///
/// # Errors
/// Why it has to be evaluated in the rule.
pub(super) fn dependency_of(
    site: &ExpressionSite<'_>,
    at: usize,
    expression: &Expression,
) -> Result<Dependency, String> {
    let name = |name: &str| match site.find(name) {
        Some(found) if found == at => Name::Variable,
        Some(found) if site.fact(found).is_some() => Name::Fact,
        _ => Name::Known,
    };
    let mut dependency = dependency::dependency_of(expression, &name)?;
    if let Dependency::Function(function) = &mut dependency {
        for (_, argument) in &mut function.arguments {
            ask(site, argument)?;
        }
    }
    Ok(dependency)
}

/// Finds the query for an argument that is about facts.
fn ask(site: &ExpressionSite<'_>, argument: &mut SubqueryArgument) -> Result<(), String> {
    let facts = site.facts_of(&argument.expression);
    let Some(first) = facts.keys().next() else {
        return Ok(());
    };
    // Each of them asks for the arguments within in the same way: the meter bounds that.
    let subquery = facts
        .iter()
        .find_map(|(at, fact)| subquery_of(site, *at, fact, &argument.expression).ok());
    match subquery {
        Some(subquery) => argument.subquery = Some(Box::new(subquery)),
        None => {
            let name = &site.entries[*first].name;
            return Err(format!("it reads `{name}` too, another fact"));
        }
    }
    Ok(())
}

fn subquery_of(
    site: &ExpressionSite<'_>,
    at: usize,
    fact: &ContextFact,
    expression: &Expression,
) -> Result<Subquery, String> {
    let own = is_kept(fact)?;
    let dependency = dependency_of(site, at, expression)?;
    using(site, at, fact, own, expression, &dependency).value()
}

fn using<'u>(
    site: &'u ExpressionSite<'_>,
    at: usize,
    fact: &ContextFact,
    own: Option<&'u Expression>,
    expression: &'u Expression,
    dependency: &'u Dependency,
) -> subquery::FactUse<'u> {
    subquery::FactUse {
        names_projection: names_projection(fact),
        has_items: matches!(fact.source, FactOrigin::Collection(_) | FactOrigin::Api(_)),
        variable: &site.entries[at].name,
        entry: at,
        own,
        expression,
        dependency,
    }
}
