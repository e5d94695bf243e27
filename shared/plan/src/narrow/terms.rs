//! The things that the value of a term depends on.

use anteroom_jmespath::ast::{Ast, Term, TermId};
use serde_json::Value;

use crate::Operand;

/// Functions whose value is another one the next time, or depends on more than their arguments.
pub(crate) const VOLATILE: [&str; 4] = ["random", "time_now", "time_now_utc", "time_since"];

/// Functions that take anything and never fail.
const SAFE: [&str; 3] = ["not_null", "to_array", "type"];

/// Returns true if the term's value depends on nothing but the value that it is evaluated on.
pub(super) fn is_fixed(ast: &Ast, id: TermId) -> bool {
    let term = ast.term(id);
    let own = match term {
        Term::Parameter(_) => false,
        Term::Call { function, .. } => !VOLATILE.contains(&ast.function_name(*function)),
        _ => true,
    };
    own && term.children().iter().all(|child| is_fixed(ast, *child))
}

/// Returns true if the term is a part of the value that it is evaluated on, and reads nothing else.
pub(super) fn is_key(ast: &Ast, id: TermId) -> bool {
    !matches!(ast.term(id), Term::Literal(_)) && is_fixed(ast, id)
}

/// Nothing but a function can fail on a body, and a missing key, which a condition forgives.
pub(super) fn cannot_fail(ast: &Ast, id: TermId) -> bool {
    let term = ast.term(id);
    let own = match term {
        Term::Call { function, .. } => SAFE.contains(&ast.function_name(*function)),
        _ => true,
    };
    own && term.children().iter().all(|child| cannot_fail(ast, *child))
}

/// The operand that a key may be compared with.
pub(super) fn operand(ast: &Ast, id: TermId) -> Option<Operand> {
    match ast.term(id) {
        Term::Parameter(slot) => {
            let name = &ast.parameters()[slot.index()];
            Some(Operand::Parameter(name.to_string()))
        }
        Term::Literal(value) => Some(Operand::Literal(value.clone())),
        _ => None,
    }
}

/// Returns true if there are terms, and each is an empty list.
pub(crate) fn are_empty_lists(ast: &Ast, terms: &[TermId]) -> bool {
    let is_empty = |term: &TermId| matches!(ast.term(*term), Term::Literal(Value::Array(list)) if list.is_empty());
    !terms.is_empty() && terms.iter().all(is_empty)
}

/// Returns the term whose value a call of this function returns, if that value is a list. The other arguments cannot
/// fail.
pub(crate) fn standing_in(ast: &Ast, function: &str, arguments: &[TermId]) -> Option<TermId> {
    let (first, rest) = arguments.split_first()?;
    let is_literal = |term: &TermId| matches!(ast.term(*term), Term::Literal(_));
    match function {
        "not_null" => rest.iter().all(is_literal).then_some(*first),
        "to_array" => rest.is_empty().then_some(*first),
        _ => None,
    }
}

/// A name, or names one behind the other: null on a list.
pub(super) fn is_null_on_lists(ast: &Ast, id: TermId) -> bool {
    match ast.term(id) {
        Term::Field(_) => true,
        Term::Path(steps) => steps
            .iter()
            .all(|step| matches!(ast.term(*step), Term::Field(_))),
        _ => false,
    }
}
