//! Expressions about several facts.
//!
//! One of the facts is asked for the expression's value, if everything in it that is about another one can
//! be asked for by itself: it is given then, like any other value that the rule knows.

use std::collections::BTreeSet;

use anteroom_jmespath::Expression;

use super::{
    FoundUse, Name, facts_of, find,
    fit::{self, Fit, Given},
    is_kept, one,
    part::Part,
    places::Place,
    using,
};
use crate::{
    compile::root_fields,
    policy::{Fact, Loader},
    template::Prepared,
};

/// The uses of facts in an expression. Of several facts in one that can be asked for the first is the one
/// that is asked for it.
pub(super) fn of<'r>(place: &Place<'r>, prepared: &'r Prepared) -> Vec<FoundUse<'r>> {
    let facts = facts_of(place, prepared);
    let mut uses: Vec<_> = facts
        .iter()
        .map(|(at, fact)| one(place, prepared, *at, fact))
        .collect();
    let Some(main) = uses.iter().position(|one| one.value.is_ok()) else {
        return uses;
    };
    uses.swap(0, main);
    let given = match &uses[0].value {
        Ok(part) => parts_in(part),
        Err(_) => Vec::new(),
    };
    for one in &mut uses[1..] {
        let own = |part: &&Part| std::ptr::eq(one.entry, &place.entries[part.entry]);
        if let Some(part) = given.iter().find(own) {
            (one.value, one.probe) = (Ok(part.clone()), None);
        }
    }
    uses
}

/// The queries for what a query is given.
fn parts_in(part: &Part) -> Vec<Part> {
    let parts = part
        .givens
        .iter()
        .filter_map(|(_, given)| given.part.as_deref());
    parts
        .flat_map(|part| std::iter::once(part.clone()).chain(parts_in(part)))
        .collect()
}

/// How an expression depends on the fact at this place among the entries, and what it is given of others.
///
/// # Errors
/// Why it has to be evaluated in the rule.
pub(super) fn fit(place: &Place<'_>, at: usize, expression: &Expression) -> Result<Fit, String> {
    let name = |name: &str| match find(place, name) {
        Some(found) if found == at => Name::Variable,
        Some(found) if fact(place, found).is_some() => Name::Fact,
        _ => Name::Known,
    };
    let mut fit = fit::fit(expression, &name)?;
    if let Fit::Function(function) = &mut fit {
        for (_, given) in &mut function.givens {
            ask(place, given)?;
        }
    }
    Ok(fit)
}

/// Finds the query for what is given, if that is about facts.
fn ask(place: &Place<'_>, given: &mut Given) -> Result<(), String> {
    let (mut names, ast) = (BTreeSet::new(), given.expression.ast());
    root_fields(ast, ast.root(), &mut names);
    let facts: BTreeSet<_> = names
        .into_iter()
        .filter_map(|name| find(place, name))
        .filter(|at| fact(place, *at).is_some())
        .collect();
    let Some(first) = facts.first() else {
        return Ok(());
    };
    let part = facts
        .iter()
        .find_map(|at| part(place, *at, &given.expression).ok());
    match part {
        Some(part) => given.part = Some(Box::new(part)),
        None => {
            let name = &place.entries[*first].name;
            return Err(format!("it reads `{name}` too, another fact"));
        }
    }
    Ok(())
}

fn part(place: &Place<'_>, at: usize, expression: &Expression) -> Result<Part, String> {
    let fact = fact(place, at).ok_or("it is no fact")?;
    let own = is_kept(fact)?;
    let fit = fit(place, at, expression)?;
    using(place, at, fact, own, (expression, &fit)).part()
}

fn fact<'r>(place: &Place<'r>, at: usize) -> Option<&'r Fact> {
    match &place.entries[at].loader {
        Loader::Fact(fact) => Some(fact),
        Loader::Given | Loader::Variable { .. } => None,
    }
}
