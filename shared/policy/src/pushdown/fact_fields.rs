//! The fields of a fact that a rule can read, for facts that the rule needs whole.
//!
//! The analysis follows a fact from its context entry through variables of the context and elements of a `foreach`.
//! Fields that no expression and no pattern of the rule reads need not travel.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use anteroom_functions::KEEP_ONLY;
use anteroom_jmespath::{
    Expression,
    ast::{Ast, Expr, ExprId},
    reads::{self, Reached, Use},
};
use anteroom_model::RetainedFields;
use serde_json::Value;

use super::{
    fact::is_kept,
    visitor::{self, ExpressionSite, Flow},
};
use crate::ir::{
    Rule,
    context::{ContextEntry, Loader},
    cost,
    rule::ForEach,
    subquery::ExpressionId,
    template::Prepared,
};

/// Returns, for each fact of which the rule reads less than the whole, the query for the fields that it reads.
pub(super) fn queries_of(rule: &Rule) -> Vec<(ExpressionId, Expression)> {
    let (mut facts, mut known) = (Vec::new(), HashSet::new());
    let mut all = |entries: &[Arc<ContextEntry>]| {
        for entry in entries {
            if known.insert(Arc::as_ptr(entry)) {
                facts.push(Arc::clone(entry));
            }
        }
    };
    all(&rule.context);
    for each in rule.each() {
        each.entries()
            .into_iter()
            .for_each(|entry| all(std::slice::from_ref(entry)));
    }
    let of_entry = |entry: Arc<ContextEntry>| {
        let Loader::Fact(fact) = &entry.loader else {
            return None;
        };
        let own = is_kept(fact).ok()?;
        let less = expression(own, &read(rule, &[&entry], listed(own)))?;
        Some((fact.id, less))
    };
    facts.into_iter().filter_map(of_entry).collect()
}

/// Narrows a query to the fields of its result that the rule reads; `None`: the rule reads the whole result.
pub(super) fn narrow_to_read_fields(
    rule: &Rule,
    place: &ExpressionSite<'_>,
    query: &Expression,
) -> Option<Expression> {
    let entries: Vec<_> = match place.flow {
        Flow::Used => return None,
        Flow::Elements(each) if reads_elements(each) => return None,
        Flow::Elements(each) => elements(each).collect(),
        Flow::Entry(at) => vec![&place.entries[at]],
    };
    let is_list = matches!(place.flow, Flow::Entry(_)) && listed(Some(query));
    expression(Some(query), &read(rule, &entries, is_list))
}

/// Returns the entries that hold the elements of a `foreach`.
fn elements(each: &ForEach) -> impl Iterator<Item = &Arc<ContextEntry>> {
    each.context[each.outer..].iter().filter(|entry| {
        let is_given = matches!(entry.loader, Loader::Given);
        is_given && !entry.name.starts_with("elementIndex")
    })
}

/// Returns whether each element is compared with a pattern, which is no expression. An inner `foreach` may
/// compare an element around it.
fn reads_elements(each: &ForEach) -> bool {
    let is_outer = !each.work.each().is_empty();
    (is_outer || each.element_scope != Some(false)) && each.work.has_pattern()
}

/// Returns the entry's own expression, narrowed to the fields that the rule reads; `None`: the rule reads the whole
/// value.
fn expression(own: Option<&Expression>, kept: &RetainedFields) -> Option<Expression> {
    let fields = match kept {
        RetainedFields::Whole => return None,
        kept => fields(kept),
    };
    let literal = fields.to_string().replace('`', "\\`");
    let text = match own {
        None => format!("{}(@, `{literal}`)", KEEP_ONLY),
        Some(own) => format!("({own}).{}(@, `{literal}`)", KEEP_ONLY),
    };
    let is_within_limit = cost::charge_parsed(text.len());
    is_within_limit.then(|| Expression::parse(&text).ok())?
}

/// The fields that are kept, as [`KEEP_ONLY`] takes them.
fn fields(kept: &RetainedFields) -> Value {
    match kept {
        RetainedFields::Whole => Value::Bool(true),
        RetainedFields::Fields(inner) => inner
            .iter()
            .map(|(name, kept)| (name.clone(), fields(kept)))
            .collect(),
    }
}

fn listed(query: Option<&Expression>) -> bool {
    query.is_some_and(|query| is_list(query.ast(), query.ast().root()))
}

/// Returns the fields that the rule reads of these entries' values, through all its variables.
fn read(rule: &Rule, entries: &[&Arc<ContextEntry>], listed: bool) -> RetainedFields {
    let all = |entry: &&Arc<ContextEntry>| (Arc::as_ptr(entry), Reached::all(listed));
    let mut follow = Follow {
        reached: entries.iter().map(all).collect(),
        kept: RetainedFields::default(),
    };
    visitor::each(rule, &mut |place, prepared| {
        follow.expression(place, prepared);
    });
    follow.kept
}

struct Follow {
    /// The origins of entries' values; entries that are not here have nothing to do with the fact.
    reached: HashMap<*const ContextEntry, Reached>,
    kept: RetainedFields,
}

impl Follow {
    fn expression(&mut self, place: &ExpressionSite<'_>, prepared: &Prepared) {
        if self.kept == RetainedFields::Whole || !cost::charge_parsed(prepared.source().len()) {
            return;
        }
        let (reached, kept) = (&self.reached, &mut self.kept);
        let is_fixed = prepared.fixed().is_some();
        // In an expression with variables a name is a placeholder. Each request has its own, which may be any field.
        let is_known = Cell::new(true);
        let fields = |name: &str| {
            is_known.set(is_known.get() && (is_fixed || name == "request"));
            let entry = place.find(name).map(|at| Arc::as_ptr(&place.entries[at]));
            let entry = entry.and_then(|entry| reached.get(&entry));
            entry.cloned().unwrap_or(Reached::NotInDocument)
        };
        let ast = prepared.expression().ast();
        let mut is_read = false;
        let mut tell = |used: Use<'_>| {
            is_read = true;
            match used {
                Use::Touched(path) => {
                    kept.touch(path);
                }
                Use::Whole(path) => {
                    kept.keep(path);
                }
                Use::Everything => *kept = RetainedFields::Whole,
            }
        };
        let value = reads::reads(ast, &Reached::Root, &fields, &mut tell);
        let mut flows = Vec::new();
        match place.flow {
            // What a name in it means is said where it is used.
            _ if value == Reached::Root => tell(Use::Everything),
            Flow::Used => value.whole(&mut tell),
            Flow::Entry(at) => flows.push((Arc::as_ptr(&place.entries[at]), value)),
            Flow::Elements(each) => {
                if reads_elements(each) {
                    value.whole(&mut tell);
                }
                let inner = value.elements();
                flows.extend(elements(each).map(|entry| (Arc::as_ptr(entry), inner.clone())));
            }
        }
        flows.retain(|(_, value)| !matches!(value, Reached::NotInDocument));
        // What is put together for each request reads nobody knows what.
        if !is_known.get() || !is_fixed && (is_read || !flows.is_empty()) {
            *kept = RetainedFields::Whole;
        }
        self.reached.extend(flows);
    }
}

/// Returns whether the value is a list, or null, or without parts.
fn is_list(ast: &Ast, id: ExprId) -> bool {
    match ast.expr(id) {
        Expr::Project { .. }
        | Expr::ProjectValues { .. }
        | Expr::Filter { .. }
        | Expr::Flatten(_) => true,
        Expr::Literal(value) => !value.is_object(),
        Expr::Or(operands) => operands.iter().all(|operand| is_list(ast, *operand)),
        Expr::Pipe(stages) => stages.last().is_some_and(|last| is_list(ast, *last)),
        _ => false,
    }
}
