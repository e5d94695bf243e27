//! The things that the value of a subexpression depends on.

use anteroom_jmespath::ast::{Ast, Expr, ExprId};
use serde_json::Value;

use crate::Operand;

/// Functions whose value is another one the next time, or depends on more than their arguments.
pub(crate) const VOLATILE: [&str; 4] = ["random", "time_now", "time_now_utc", "time_since"];

/// Functions that take anything and never fail.
const SAFE: [&str; 3] = ["not_null", "to_array", "type"];

/// Returns true if the subexpression's value depends on nothing but the value that it is evaluated on.
pub(super) fn is_fixed(ast: &Ast, id: ExprId) -> bool {
    let expr = ast.expr(id);
    let own = match expr {
        Expr::Parameter(_) => false,
        Expr::Call { function, .. } => !VOLATILE.contains(&ast.function_name(*function)),
        _ => true,
    };
    own && expr.children().iter().all(|child| is_fixed(ast, *child))
}

/// Returns true if the subexpression is a part of the value that it is evaluated on, and reads nothing else.
pub(super) fn is_key(ast: &Ast, id: ExprId) -> bool {
    !matches!(ast.expr(id), Expr::Literal(_)) && is_fixed(ast, id)
}

/// Nothing but a function can fail on a body, and a missing key, which a condition forgives.
pub(super) fn cannot_fail(ast: &Ast, id: ExprId) -> bool {
    let expr = ast.expr(id);
    let own = match expr {
        Expr::Call { function, .. } => SAFE.contains(&ast.function_name(*function)),
        _ => true,
    };
    own && expr.children().iter().all(|child| cannot_fail(ast, *child))
}

/// The operand that a key may be compared with.
pub(super) fn operand(ast: &Ast, id: ExprId) -> Option<Operand> {
    match ast.expr(id) {
        Expr::Parameter(slot) => {
            let name = &ast.parameters()[slot.index()];
            Some(Operand::Parameter(name.to_string()))
        }
        Expr::Literal(value) => Some(Operand::Literal(value.clone())),
        _ => None,
    }
}

/// Returns true if there are subexpressions, and each is an empty list.
pub(crate) fn are_empty_lists(ast: &Ast, exprs: &[ExprId]) -> bool {
    let is_empty = |expr: &ExprId| matches!(ast.expr(*expr), Expr::Literal(Value::Array(list)) if list.is_empty());
    !exprs.is_empty() && exprs.iter().all(is_empty)
}

/// Returns the subexpression whose value a call of this function returns, if that value is a list. The other arguments
/// cannot fail.
pub(crate) fn standing_in(ast: &Ast, function: &str, arguments: &[ExprId]) -> Option<ExprId> {
    let (first, rest) = arguments.split_first()?;
    let is_literal = |expr: &ExprId| matches!(ast.expr(*expr), Expr::Literal(_));
    match function {
        "not_null" => rest.iter().all(is_literal).then_some(*first),
        "to_array" => rest.is_empty().then_some(*first),
        _ => None,
    }
}

/// A name, or names one behind the other: null on a list.
pub(super) fn is_null_on_lists(ast: &Ast, id: ExprId) -> bool {
    match ast.expr(id) {
        Expr::Field(_) => true,
        Expr::Path(steps) => steps
            .iter()
            .all(|step| matches!(ast.expr(*step), Expr::Field(_))),
        _ => false,
    }
}
