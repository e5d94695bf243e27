//! The dependency of an expression on one variable.
//!
//! This walks down the syntax tree from the root, as far as subexpressions are evaluated on the context itself.
//! JMESPath has no way back to the context from inside a projection, a filter or a pipe, so a variable can be named in
//! no other place. If every such subexpression is the variable, or does not depend on it, the expression is a function
//! of the variable's value. A replica with that value can then evaluate it.

use std::ops::Range;

use anteroom_functions::{is_nondeterministic, is_order_sensitive, meter};
use anteroom_jmespath::{
    Expression,
    ast::{Argument, Ast, Expr, ExprId},
};

use crate::ir::{cost::OVER_LIMIT, subquery::SubqueryArgument};

/// The dependency of an expression on a variable.
#[derive(Debug)]
pub(super) enum Dependency {
    /// The expression is the variable, and nothing else.
    Lone,
    /// The expression is a function of the variable and of its arguments.
    Function(Function),
}

/// An expression as a function of a variable.
#[derive(Debug, Default)]
pub(super) struct Function {
    /// The spans of the variable.
    pub(super) variables: Vec<Range<usize>>,
    /// The spans of parameters.
    pub(super) parameters: Vec<Range<usize>>,
    /// The parts that are evaluated in the rule: arguments.
    pub(super) arguments: Vec<(Range<usize>, SubqueryArgument)>,
    /// A key that the variable's value lacks may be an error of the whole expression.
    pub(super) may_miss: bool,
    /// A key that is missing where the variable stands would be one everywhere.
    pub(super) is_strict: bool,
    /// The use may pass the variable's value on unchanged.
    pub(super) may_be_itself: bool,
    /// The variable stands left of `[]` or a filter, where a refused argument of a function gives null.
    pub(super) forgives_refusals: bool,
}

/// The meaning of a name that is looked up in the context.
pub(super) enum Name {
    /// The variable.
    Variable,
    /// Another fact.
    Fact,
    /// A value that is known without asking, or made of such.
    Known,
}

/// Returns how an expression depends on the variable. Parts about other facts are among the arguments.
///
/// # Errors
/// Why it has to be evaluated in the rule.
pub(super) fn dependency_of(
    expression: &Expression,
    name: &dyn Fn(&str) -> Name,
) -> Result<Dependency, String> {
    let ast = expression.ast();
    if let Expr::Field(field) = ast.expr(ast.root())
        && matches!(name(field), Name::Variable)
    {
        return Ok(Dependency::Lone);
    }
    let mut walk = DependencyWalk {
        text: expression.as_str(),
        ast,
        name,
        is_list: false,
        found: Function {
            is_strict: true,
            ..Function::default()
        },
    };
    walk.expr(ast.root(), true)?;
    walk.found.may_miss = can_miss(ast, ast.root(), &|field| {
        walk.found.variables.contains(&ast.span_bytes(field))
    });
    walk.found.may_be_itself = is_itself(ast, ast.root(), name);
    Ok(Dependency::Function(walk.found))
}

fn is_itself(ast: &Ast, id: ExprId, name: &dyn Fn(&str) -> Name) -> bool {
    match ast.expr(id) {
        Expr::Field(field) => matches!(name(field), Name::Variable),
        Expr::Or(operands) | Expr::And(operands) => operands
            .iter()
            .any(|operand| is_itself(ast, *operand, name)),
        Expr::Pipe(stages) => stages.split_first().is_some_and(|(first, rest)| {
            let changes_nothing = |stage: &ExprId| *ast.expr(*stage) == Expr::Current;
            is_itself(ast, *first, name) && rest.iter().all(changes_nothing)
        }),
        _ => false,
    }
}

/// Returns whether the subexpression's value can be a missing key, wherever it is evaluated. `is_there` returns whether
/// a subexpression is a field that is never missing.
pub(super) fn can_miss(ast: &Ast, id: ExprId, is_there: &dyn Fn(ExprId) -> bool) -> bool {
    match ast.expr(id) {
        Expr::Field(_) => !is_there(id),
        Expr::Path(steps) => steps.iter().any(|step| can_miss(ast, *step, is_there)),
        Expr::And(operands) => operands
            .last()
            .is_some_and(|last| can_miss(ast, *last, is_there)),
        Expr::Current
        | Expr::Index(_)
        | Expr::Slice(_)
        | Expr::Literal(_)
        | Expr::Parameter(_)
        | Expr::Pipe(_)
        | Expr::Or(_)
        | Expr::Not(_)
        | Expr::Compare { .. }
        | Expr::List(_)
        | Expr::Object(_)
        | Expr::Call { .. }
        | Expr::Project { .. }
        | Expr::ProjectValues { .. }
        | Expr::Filter { .. }
        | Expr::Flatten(_) => false,
    }
}

/// Returns whether an expression may read the whole context, rather than only the names in it.
pub(super) fn reads_everything(expression: &Expression) -> bool {
    let ast = expression.ast();
    reads_all(ast, ast.root())
}

fn reads_all(ast: &Ast, id: ExprId) -> bool {
    let any = |exprs: &[ExprId]| exprs.iter().any(|expr| reads_all(ast, *expr));
    match ast.expr(id) {
        Expr::Field(_) | Expr::Literal(_) | Expr::Parameter(_) => false,
        Expr::Path(exprs) | Expr::Pipe(exprs) => any(exprs.get(..1).unwrap_or_default()),
        Expr::Or(exprs) | Expr::And(exprs) | Expr::List(exprs) => any(exprs),
        Expr::Object(entries) => entries.iter().any(|(_, expr)| reads_all(ast, *expr)),
        Expr::Not(expr) | Expr::Flatten(expr) => reads_all(ast, *expr),
        Expr::Compare { left, right, .. } => any(&[*left, *right]),
        Expr::Project { left, .. }
        | Expr::ProjectValues { left, .. }
        | Expr::Filter { left, .. } => reads_all(ast, *left),
        Expr::Call { arguments, .. } => arguments.iter().any(|argument| match argument {
            Argument::Value(expr) => reads_all(ast, *expr),
            Argument::Reference(_) => false,
        }),
        _ => true,
    }
}

/// Returns whether an expression may end with a missing key, where that is an error. It cannot if every use of a
/// field's value accepts null. Returns true for a text that is no expression.
pub fn may_miss_key(expression: &str) -> bool {
    Expression::parse(expression).map_or(true, |expression| {
        let ast = expression.ast();
        can_miss(ast, ast.root(), &|_| false)
    })
}

struct DependencyWalk<'w> {
    text: &'w str,
    ast: &'w Ast,
    name: &'w dyn Fn(&str) -> Name,
    /// The walk is left of `[]` or of a filter.
    is_list: bool,
    found: Function,
}

impl DependencyWalk<'_> {
    /// A subexpression that is evaluated on the context. `strict`: a missing key in it is one of the whole.
    fn expr(&mut self, id: ExprId, strict: bool) -> Result<(), String> {
        charge(1)?;
        if !self.depends(id)? {
            return self.argument(id, strict);
        }
        match self.ast.expr(id) {
            Expr::Field(_) => {
                self.found.variables.push(self.ast.span_bytes(id));
                self.found.is_strict &= strict;
                self.found.forgives_refusals |= self.is_list;
                Ok(())
            }
            Expr::Path(steps) => self.first(steps, strict),
            Expr::Pipe(stages) => self.first(stages, false),
            Expr::Or(operands) => self.all(operands, false),
            Expr::And(operands) => {
                let Some((last, rest)) = operands.split_last() else {
                    return Ok(());
                };
                self.all(rest, false)?;
                // Where it is not evaluated, its missing key is none.
                self.expr(*last, strict)
            }
            Expr::Not(operand) => self.expr(*operand, false),
            Expr::Compare { left, right, .. } => self.all(&[*left, *right], false),
            Expr::Project { left, right } => {
                self.expr(*left, false)?;
                self.inside(*right)
            }
            Expr::Filter {
                left,
                condition,
                right,
            } => {
                self.list(*left)?;
                self.inside(*condition)?;
                self.inside(*right)
            }
            Expr::Flatten(left) => self.list(*left),
            Expr::Call {
                function,
                arguments,
            } => {
                self.call(self.ast.function_name(*function))?;
                arguments.iter().try_for_each(|argument| match argument {
                    Argument::Value(expr) => self.expr(*expr, false),
                    Argument::Reference(expr) => self.inside(*expr),
                })
            }
            Expr::ProjectValues { .. } => Err(of_order(".*")),
            _ => Err("it builds a list or an object of several values".to_owned()),
        }
    }

    /// Walks a subexpression that stands left of `[]` or of a filter.
    fn list(&mut self, id: ExprId) -> Result<(), String> {
        let outer = std::mem::replace(&mut self.is_list, true);
        let outcome = self.expr(id, false);
        self.is_list = outer;
        outcome
    }

    fn all(&mut self, exprs: &[ExprId], strict: bool) -> Result<(), String> {
        exprs.iter().try_for_each(|expr| self.expr(*expr, strict))
    }

    /// Visits the first subexpression on the context, and each further subexpression on the value of the subexpression
    /// before.
    fn first(&mut self, exprs: &[ExprId], strict: bool) -> Result<(), String> {
        let Some((first, rest)) = exprs.split_first() else {
            return Ok(());
        };
        self.expr(*first, strict)?;
        rest.iter().try_for_each(|expr| self.inside(*expr))
    }

    /// A subexpression that is evaluated on something taken of the variable: its parameters are noted.
    fn inside(&mut self, id: ExprId) -> Result<(), String> {
        charge(1)?;
        match self.ast.expr(id) {
            Expr::Parameter(_) => self.found.parameters.push(self.ast.span_bytes(id)),
            Expr::ProjectValues { .. } => return Err(of_order(".*")),
            Expr::Call { function, .. } => self.call(self.ast.function_name(*function))?,
            _ => {}
        }
        let children = self.ast.expr(id).children();
        children.iter().try_for_each(|child| self.inside(*child))
    }

    fn call(&self, function: &str) -> Result<(), String> {
        match function {
            // A rule sees the fields of a fact in another order than where the fact is kept.
            _ if is_order_sensitive(function) => Err(of_order(&format!("{function}()"))),
            _ if is_nondeterministic(function) => {
                Err(format!("`{function}()` speaks of the time or of chance"))
            }
            _ => Ok(()),
        }
    }

    /// A subexpression that has nothing to do with the variable.
    fn argument(&mut self, id: ExprId, strict: bool) -> Result<(), String> {
        let span = self.ast.span_bytes(id);
        match self.ast.expr(id) {
            Expr::Literal(_) => return Ok(()),
            Expr::Parameter(_) => {
                self.found.parameters.push(span);
                return Ok(());
            }
            _ => {}
        }
        let text = self.text.get(span.clone()).unwrap_or_default();
        charge(text.len())?;
        let expression = Expression::parse(text)
            .map_err(|_| format!("`{text}` in it cannot be taken out of it"))?;
        let argument = SubqueryArgument {
            expression,
            is_forgiven: !strict,
            subquery: None,
        };
        self.found.arguments.push((span, argument));
        Ok(())
    }

    /// Returns whether a subexpression that is evaluated on the context depends on the variable.
    fn depends(&self, id: ExprId) -> Result<bool, String> {
        charge(1)?;
        let any = |exprs: &[ExprId]| {
            exprs
                .iter()
                .try_fold(false, |any, expr| Ok(self.depends(*expr)? || any))
        };
        match self.ast.expr(id) {
            Expr::Current => Err("it reads everything that the rule knows".to_owned()),
            Expr::Field(field) => match (self.name)(field) {
                Name::Variable => Ok(true),
                Name::Known | Name::Fact => Ok(false),
            },
            Expr::Path(exprs) | Expr::Pipe(exprs) => any(exprs.get(..1).unwrap_or_default()),
            Expr::Or(exprs) | Expr::And(exprs) | Expr::List(exprs) => any(exprs),
            Expr::Object(entries) => {
                let exprs: Vec<_> = entries.iter().map(|(_, expr)| *expr).collect();
                any(&exprs)
            }
            Expr::Not(expr) | Expr::Flatten(expr) => self.depends(*expr),
            Expr::Compare { left, right, .. } => any(&[*left, *right]),
            Expr::Project { left, .. }
            | Expr::ProjectValues { left, .. }
            | Expr::Filter { left, .. } => self.depends(*left),
            Expr::Call { arguments, .. } => {
                let exprs: Vec<_> = arguments
                    .iter()
                    .filter_map(|argument| match argument {
                        Argument::Value(expr) => Some(*expr),
                        Argument::Reference(_) => None,
                    })
                    .collect();
                any(&exprs)
            }
            Expr::Literal(_) | Expr::Parameter(_) => Ok(false),
            _ => Err("it takes an element of everything that the rule knows".to_owned()),
        }
    }
}

/// Charges steps of compiling.
///
/// # Errors
/// None is left: the policy is not compiled, so nothing of it is asked for.
pub(super) fn charge(steps: usize) -> Result<(), String> {
    match meter::charge(steps as u64) {
        true => Ok(()),
        false => Err(OVER_LIMIT.to_owned()),
    }
}

fn of_order(what: &str) -> String {
    format!("`{what}` depends on the order of an object's fields")
}
