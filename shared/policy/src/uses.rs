//! How a rule uses the facts that it reads.
//!
//! A fact is most often a list of which a rule wants to know little: what of it agrees with the request,
//! how long it is, whether something is in it. So the list is not fetched where every use of it can be
//! evaluated where the list is kept; each use is a query of its own then ([`Part`]).
//!
//! - `places` walks a rule, and knows what is visible where;
//! - `fit` finds out how an expression depends on one variable;
//! - `part` makes one query of an entry's expression and of a use;
//! - `together` does so for expressions about several facts;
//! - `cut` finds out what of a fact is read at all, where it is fetched whole;
//! - `read` says all that to people.
//!
//! Nothing here can change what becomes of a rule. A part that has no answer, because its evaluation
//! failed or for want of whoever answers it, leaves the rule to evaluate the use itself, over the fact.

mod cut;
mod fit;
mod part;
mod places;
mod read;
mod together;

use std::{collections::HashSet, sync::Arc};

use anteroom_jmespath::Expression;
use anteroom_model::EntryKind;

use crate::{
    Rule,
    call::ApiCall,
    operator::Operator,
    policy::{ContextEntry, Fact, FactSource, Loader},
    template::Prepared,
};
pub(crate) use fit::Given;
pub use fit::may_miss_key;
use fit::{Fit, Name};
use part::Projection;
pub(crate) use part::{Part, Side};
use places::Place;
pub(crate) use places::each as each_expression;
pub use read::{Read, ReadSource, Usage};

/// The queries that may stand for an expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    /// For its value.
    pub(crate) value: Option<Part>,
    /// For the condition of which it is one side.
    pub(crate) probe: Option<(Part, Side)>,
}

/// Notes at each expression of a rule which query may stand for it.
pub(crate) fn note(rule: &Rule) {
    let uses = of(rule);
    for each in uses.into_iter().filter(|each| each.is_asked_for) {
        each.prepared.note(each.parts());
    }
    cut::note(rule);
}

/// An expression that refers to a fact.
struct FoundUse<'r> {
    place: Place<'r>,
    prepared: &'r Prepared,
    entry: &'r Arc<ContextEntry>,
    fact: &'r Fact,
    /// The query for its value, or why there is none.
    value: Result<Part, String>,
    /// The query for its condition, and whose verdict it is.
    probe: Option<(Part, Side, Operator)>,
    /// Whether it is asked for what it needs, or else for the fact.
    is_asked_for: bool,
}

impl FoundUse<'_> {
    fn parts(self) -> Parts {
        Parts {
            value: self.value.ok(),
            probe: self.probe.map(|(part, side, _)| (part, side)),
        }
    }

    fn wants_whole(&self) -> bool {
        self.value.is_err() && self.probe.is_none()
    }
}

/// Every use of every fact, in the order of the rule's fields.
fn of(rule: &Rule) -> Vec<FoundUse<'_>> {
    let (mut found, mut together, mut is_read_whole) = (Vec::new(), Vec::new(), false);
    places::each(rule, &mut |place, prepared| {
        is_read_whole |= fit::reads_everything(prepared.expression());
        let uses = together::of(place, prepared);
        if uses.len() > 1 {
            let entries = uses.iter().map(|one| Arc::as_ptr(one.entry));
            together.push(entries.collect::<HashSet<_>>());
        }
        found.extend(uses);
    });
    // A message is for the few requests that are denied, and others do not pay for it.
    let mut whole: HashSet<*const ContextEntry> = found
        .iter()
        .filter(|each| each.wants_whole() && !each.place.in_message)
        .map(|each| Arc::as_ptr(each.entry))
        .collect();
    // What is evaluated in the rule with one of its facts is with all of them.
    for _ in 0..together.len() {
        for facts in &together {
            if facts.iter().any(|fact| whole.contains(fact)) {
                whole.extend(facts);
            }
        }
    }
    for each in &mut found {
        let is_whole = each.wants_whole() || whole.contains(&Arc::as_ptr(each.entry));
        // `@` shows which entries were loaded.
        each.is_asked_for = !is_whole && !is_read_whole;
        if let (true, Ok(part)) = (each.is_asked_for, &mut each.value)
            && let Some(less) = cut::followed(rule, &each.place, &part.expression)
        {
            part.expression = less;
        }
    }
    found
}

/// The facts that an expression refers to, by their place among the entries.
fn facts_of<'r>(place: &Place<'r>, prepared: &'r Prepared) -> Vec<(usize, &'r Fact)> {
    let mut names = std::collections::BTreeSet::new();
    let ast = prepared.expression().ast();
    crate::compile::root_fields(ast, ast.root(), &mut names);
    let entries = names
        .into_iter()
        .filter_map(|name| find(place, name))
        .collect::<std::collections::BTreeSet<_>>();
    entries
        .into_iter()
        .filter_map(|at| match &place.entries[at].loader {
            Loader::Fact(fact) => Some((at, &**fact)),
            Loader::Given | Loader::Variable { .. } => None,
        })
        .collect()
}

/// The last entry of this name that is visible.
fn find(place: &Place<'_>, name: &str) -> Option<usize> {
    place.entries[..place.visible]
        .iter()
        .rposition(|entry| entry.name == name)
}

fn one<'r>(place: &Place<'r>, prepared: &'r Prepared, at: usize, fact: &'r Fact) -> FoundUse<'r> {
    let entry = &place.entries[at];
    let fit = is_kept(fact).and_then(|own| {
        let expression = prepared
            .fixed()
            .ok_or("a variable stands in it where no parameter can")?;
        Ok((own, expression, together::fit(place, at, expression)?))
    });
    let (value, probe) = match &fit {
        Err(reason) => (Err(reason.clone()), None),
        Ok((own, expression, fit)) => {
            let of = using(place, at, fact, *own, (expression, fit));
            let probe = place.side.and_then(|(operator, side)| {
                let part = of.probe(operator, side).ok()?;
                Some((part, side, operator))
            });
            (of.part(), probe)
        }
    };
    FoundUse {
        place: place.clone(),
        prepared,
        entry,
        fact,
        value,
        probe,
        is_asked_for: false,
    }
}

fn using<'u>(
    place: &'u Place<'_>,
    at: usize,
    fact: &Fact,
    own: Option<&'u Expression>,
    (expression, fit): (&'u Expression, &'u Fit),
) -> part::Use<'u> {
    part::Use {
        projection: projection(fact),
        has_items: matches!(fact.source, FactSource::Collection(_) | FactSource::Api(_)),
        variable: &place.entries[at].name,
        entry: at,
        own,
        expression,
        fit,
    }
}

fn projection(fact: &Fact) -> Projection {
    let FactSource::Entry {
        kind: EntryKind::Global,
        name,
    } = &fact.source
    else {
        return Projection::No;
    };
    match name.fixed() {
        None => Projection::Perhaps,
        Some(name) if name.contains('.') => Projection::Yes,
        Some(_) => Projection::No,
    }
}

/// The expression of a fact that is kept as a list; `None`: its data whole.
///
/// # Errors
/// Why it is better fetched whole.
fn is_kept(fact: &Fact) -> Result<Option<&Expression>, String> {
    let is_list = match &fact.source {
        FactSource::Entry { .. } | FactSource::Collection(_) => Ok(()),
        FactSource::Api(ApiCall {
            data: None,
            kept: Some(kept),
            ..
        }) => match kept.is_list() {
            true => Ok(()),
            false => Err("it is one object"),
        },
        FactSource::Api(_) => Err("only the API server answers it"),
        FactSource::Service(_) => Err("a service answers it"),
        FactSource::ConfigMap(_) => Err("it is one ConfigMap"),
        FactSource::Image(_) => Err("a registry answers it"),
    };
    is_list?;
    if fact.on_occasion().is_some() {
        return Err("its own expression speaks of the time or of chance".to_owned());
    }
    match &fact.query {
        None => Ok(None),
        Some(query) => match query.fixed() {
            Some(own) => Ok(Some(own)),
            None => Err("its own expression is put together for each request".to_owned()),
        },
    }
}

#[cfg(test)]
mod tests;
