//! Expressions put together from terms of others.

use crate::ast::{Argument, Ast, Term, TermId};
use crate::expression::Expression;
use crate::parser::Arena;
use crate::parser::EXPRESSION_DEPTH_MAX;

/// A tree that grows from copies of another's terms, for a planner to take a part of an expression by
/// itself.
///
/// The tree may hold what no text parses to (see [`Ast::text`]); it is evaluated all the same. No
/// tree is deeper than [`EXPRESSION_DEPTH_MAX`].
pub struct Graft<'a> {
    from: &'a Ast,
    arena: Arena,
}

impl<'a> Graft<'a> {
    /// Nothing yet, to be grown from terms of this tree.
    pub fn new(from: &'a Ast) -> Self {
        Self {
            from,
            arena: Arena::default(),
        }
    }

    /// A copy of a term, with all that stands below it. `None`: it would be too deep.
    ///
    /// # Panics
    /// If the id came from another, larger tree.
    pub fn copy(&mut self, id: TermId) -> Option<TermId> {
        let term = match self.from.term(id) {
            Term::Path(terms) => Term::Path(self.copies(terms)?),
            Term::Pipe(terms) => Term::Pipe(self.copies(terms)?),
            Term::Or(terms) => Term::Or(self.copies(terms)?),
            Term::And(terms) => Term::And(self.copies(terms)?),
            Term::List(terms) => Term::List(self.copies(terms)?),
            Term::Not(term) => Term::Not(self.copy(*term)?),
            Term::Flatten(term) => Term::Flatten(self.copy(*term)?),
            Term::Compare {
                operator,
                left,
                right,
            } => Term::Compare {
                operator: *operator,
                left: self.copy(*left)?,
                right: self.copy(*right)?,
            },
            Term::Project { left, right } => Term::Project {
                left: self.copy(*left)?,
                right: self.copy(*right)?,
            },
            Term::ProjectValues { left, right } => Term::ProjectValues {
                left: self.copy(*left)?,
                right: self.copy(*right)?,
            },
            Term::Filter {
                left,
                condition,
                right,
            } => Term::Filter {
                left: self.copy(*left)?,
                condition: self.copy(*condition)?,
                right: self.copy(*right)?,
            },
            Term::Object(entries) => {
                let copied = entries
                    .iter()
                    .map(|(name, term)| Some((name.clone(), self.copy(*term)?)));
                Term::Object(copied.collect::<Option<_>>()?)
            }
            Term::Call {
                function,
                arguments,
            } => {
                let function = self.arena.function(self.from.function_name(*function));
                let copied = arguments.iter().map(|argument| {
                    Some(match argument {
                        Argument::Value(term) => Argument::Value(self.copy(*term)?),
                        Argument::Reference(term) => Argument::Reference(self.copy(*term)?),
                    })
                });
                Term::Call {
                    arguments: copied.collect::<Option<_>>()?,
                    function,
                }
            }
            Term::Parameter(slot) => {
                let name = &self.from.parameters()[slot.index()];
                Term::Parameter(self.arena.parameter(name))
            }
            leaf @ (Term::Current
            | Term::Field(_)
            | Term::Index(_)
            | Term::Slice(_)
            | Term::Literal(_)) => leaf.clone(),
        };
        self.add(term)
    }

    /// A new term above what is there. `None`: it would be too deep.
    pub fn add(&mut self, term: Term) -> Option<TermId> {
        self.arena.push(term, 0..0, EXPRESSION_DEPTH_MAX)
    }

    /// A call of the function of this name. `None`: it would be too deep.
    pub fn call(&mut self, function: &str, arguments: Box<[Argument]>) -> Option<TermId> {
        let function = self.arena.function(function);
        self.add(Term::Call {
            function,
            arguments,
        })
    }

    /// Returns the expression of the term `root`, with the tree's own text.
    ///
    /// # Panics
    /// If the id is not of this graft.
    pub fn finish(self, root: TermId) -> Expression {
        Expression::of_ast(self.arena.into_ast(root))
    }

    fn copies(&mut self, terms: &[TermId]) -> Option<Box<[TermId]>> {
        terms.iter().map(|term| self.copy(*term)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_part_of_an_expression_is_an_expression_of_its_own() {
        let whole = Expression::parse("items[?x.y == $p && to_string(z) == 'a'].name").unwrap();
        let Term::Filter { condition, .. } = whole.ast().term(whole.ast().root()) else {
            panic!();
        };
        let mut graft = Graft::new(whole.ast());
        let condition = graft.copy(*condition).unwrap();
        let one = graft.add(Term::Current).unwrap();
        let left = graft.add(Term::List([one].into())).unwrap();
        let right = graft.add(Term::Current).unwrap();
        let filter = graft
            .add(Term::Filter {
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
        let mut term = graft.add(Term::Current).unwrap();
        for _ in 1..EXPRESSION_DEPTH_MAX {
            term = graft.add(Term::Not(term)).unwrap();
        }
        assert_eq!(graft.add(Term::Not(term)), None);
    }
}
