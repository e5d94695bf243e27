//! Expressions put together from subexpressions of others.

use crate::ast::{Argument, Ast, Expr, ExprId};
use crate::expression::Expression;
use crate::parser::Arena;
use crate::parser::EXPRESSION_DEPTH_MAX;

/// A tree that grows from copies of another's subexpressions, for a planner to take a part of an expression by
/// itself.
///
/// The tree may hold what no text parses to (see [`Ast::text`]); it is evaluated all the same. No
/// tree is deeper than [`EXPRESSION_DEPTH_MAX`].
pub struct Graft<'a> {
    from: &'a Ast,
    arena: Arena,
}

impl<'a> Graft<'a> {
    /// Nothing yet, to be grown from subexpressions of this tree.
    pub fn new(from: &'a Ast) -> Self {
        Self {
            from,
            arena: Arena::default(),
        }
    }

    /// A copy of a subexpression, with all that stands below it. `None`: it would be too deep.
    ///
    /// # Panics
    /// If the id came from another, larger tree.
    pub fn copy(&mut self, id: ExprId) -> Option<ExprId> {
        let expr = match self.from.expr(id) {
            Expr::Path(exprs) => Expr::Path(self.copies(exprs)?),
            Expr::Pipe(exprs) => Expr::Pipe(self.copies(exprs)?),
            Expr::Or(exprs) => Expr::Or(self.copies(exprs)?),
            Expr::And(exprs) => Expr::And(self.copies(exprs)?),
            Expr::List(exprs) => Expr::List(self.copies(exprs)?),
            Expr::Not(expr) => Expr::Not(self.copy(*expr)?),
            Expr::Flatten(expr) => Expr::Flatten(self.copy(*expr)?),
            Expr::Compare {
                operator,
                left,
                right,
            } => Expr::Compare {
                operator: *operator,
                left: self.copy(*left)?,
                right: self.copy(*right)?,
            },
            Expr::Project { left, right } => Expr::Project {
                left: self.copy(*left)?,
                right: self.copy(*right)?,
            },
            Expr::ProjectValues { left, right } => Expr::ProjectValues {
                left: self.copy(*left)?,
                right: self.copy(*right)?,
            },
            Expr::Filter {
                left,
                condition,
                right,
            } => Expr::Filter {
                left: self.copy(*left)?,
                condition: self.copy(*condition)?,
                right: self.copy(*right)?,
            },
            Expr::Object(entries) => {
                let copied = entries
                    .iter()
                    .map(|(name, expr)| Some((name.clone(), self.copy(*expr)?)));
                Expr::Object(copied.collect::<Option<_>>()?)
            }
            Expr::Call {
                function,
                arguments,
            } => {
                let function = self.arena.function(self.from.function_name(*function));
                let copied = arguments.iter().map(|argument| {
                    Some(match argument {
                        Argument::Value(expr) => Argument::Value(self.copy(*expr)?),
                        Argument::Reference(expr) => Argument::Reference(self.copy(*expr)?),
                    })
                });
                Expr::Call {
                    arguments: copied.collect::<Option<_>>()?,
                    function,
                }
            }
            Expr::Parameter(slot) => {
                let name = &self.from.parameters()[slot.index()];
                Expr::Parameter(self.arena.parameter(name))
            }
            leaf @ (Expr::Current
            | Expr::Field(_)
            | Expr::Index(_)
            | Expr::Slice(_)
            | Expr::Literal(_)) => leaf.clone(),
        };
        self.add(expr)
    }

    /// A new subexpression above what is there. `None`: it would be too deep.
    pub fn add(&mut self, expr: Expr) -> Option<ExprId> {
        self.arena.push(expr, 0..0, EXPRESSION_DEPTH_MAX)
    }

    /// A call of the function of this name. `None`: it would be too deep.
    pub fn call(&mut self, function: &str, arguments: Box<[Argument]>) -> Option<ExprId> {
        let function = self.arena.function(function);
        self.add(Expr::Call {
            function,
            arguments,
        })
    }

    /// Returns the expression of the subexpression `root`, with the tree's own text.
    ///
    /// # Panics
    /// If the id is not of this graft.
    pub fn finish(self, root: ExprId) -> Expression {
        Expression::of_ast(self.arena.into_ast(root))
    }

    fn copies(&mut self, exprs: &[ExprId]) -> Option<Box<[ExprId]>> {
        exprs.iter().map(|expr| self.copy(*expr)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_part_of_an_expression_is_an_expression_of_its_own() {
        let whole = Expression::parse("items[?x.y == $p && to_string(z) == 'a'].name").unwrap();
        let Expr::Filter { condition, .. } = whole.ast().expr(whole.ast().root()) else {
            panic!();
        };
        let mut graft = Graft::new(whole.ast());
        let condition = graft.copy(*condition).unwrap();
        let one = graft.add(Expr::Current).unwrap();
        let left = graft.add(Expr::List([one].into())).unwrap();
        let right = graft.add(Expr::Current).unwrap();
        let filter = graft
            .add(Expr::Filter {
                left,
                condition,
                right,
            })
            .unwrap();
        let made = graft.finish(filter);
        let text = "[@][?x.y == $p && to_string(z) == 'a']";
        assert_eq!(made.as_str(), text);
        let (p, z) = (
            serde_json::json!("v"),
            serde_json::json!({"x": {"y": "v"}, "z": "a"}),
        );
        let parameters = std::collections::BTreeMap::from([("p".to_owned(), p)]);
        let environment = crate::Environment {
            parameters: &parameters,
            ..crate::Environment::standard()
        };
        let found = made.evaluate_json(&z, &environment).unwrap();
        assert_eq!(found, serde_json::json!([z]));
        assert_eq!(Expression::parse(text).unwrap().as_str(), text);
    }

    #[test]
    fn a_grafted_expression_never_exceeds_the_depth_limit() {
        let empty = Expression::parse("@").unwrap();
        let mut graft = Graft::new(empty.ast());
        let mut expr = graft.add(Expr::Current).unwrap();
        for _ in 1..EXPRESSION_DEPTH_MAX {
            expr = graft.add(Expr::Not(expr)).unwrap();
        }
        assert_eq!(graft.add(Expr::Not(expr)), None);
    }
}
