//! What objects have to agree in to make a difference to an expression's value. Pure.
//!
//! A walk down the tree, from the document on. JMESPath has no way back to the document from inside
//! an expression, so the list of objects is reached only through terms that are evaluated on the
//! document itself; each of them is followed until it either filters the list by something that can be
//! looked up, or uses it whole, which ends the search.
//!
//! An object that no lookup finds must make no difference at all. It makes none to what is selected;
//! and it raises no error either, since nothing but the filter's condition is evaluated on it, in which
//! only what cannot fail stands before the comparison that it does not pass.

use anteroom_jmespath::{
    Expression,
    ast::{Argument, Ast, Comparison, Term, TermId},
};
use serde_json::Value;

/// Lookups of one expression. One with more has its objects looked through.
const LOOKUPS_MAX: usize = 16;

/// Functions whose value is another one the next time, or depends on more than their arguments.
pub(crate) const VOLATILE: [&str; 4] = ["random", "time_now", "time_now_utc", "time_since"];

/// What the expression is evaluated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document<'d> {
    /// An object whose field `items` is the list; and that holds the same once more under the plural,
    /// if one is given.
    List {
        /// The other name.
        plural: Option<&'d str>,
    },
    /// The list itself.
    Array,
}

/// Objects of the list that have a value at a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Lookup {
    /// What is taken of each object, without parameters.
    pub key: Expression,
    /// Any element of the key's value may be the one that agrees; else the value itself has to.
    pub any_element: bool,
    /// What it has to agree with.
    pub operand: Operand,
}

/// What a key is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The parameter of this name, without the dollar sign.
    Parameter(String),
    /// A literal.
    Literal(Value),
}

/// The lookups that find, together, every object that can make a difference to the expression's value;
/// `None` where all objects have to be looked through. No lookups: no object makes a difference.
pub fn narrow(expression: &Expression, document: Document<'_>) -> Option<Vec<Lookup>> {
    let mut search = Search {
        expression,
        ast: expression.ast(),
        plural: match document {
            Document::List { plural } => plural,
            Document::Array => None,
        },
        found: Vec::new(),
    };
    let root = match document {
        Document::List { .. } => Place::Root,
        Document::Array => Place::Objects,
    };
    let value = search.term(search.ast.root(), root)?;
    (value == Place::Apart && search.found.len() <= LOOKUPS_MAX).then_some(search.found)
}

/// What a value is, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The document, with the list in it.
    Root,
    /// What stands under the plural.
    Again,
    /// The list of objects.
    Objects,
    /// Nothing that depends on objects that were not found.
    Apart,
}

struct Search<'e> {
    expression: &'e Expression,
    ast: &'e Ast,
    plural: Option<&'e str>,
    found: Vec<Lookup>,
}

impl Search<'_> {
    /// What the value of a term on `at` is; `None` where it depends on the list as a whole.
    fn term(&mut self, id: TermId, at: Place) -> Option<Place> {
        if at == Place::Apart {
            return Some(Place::Apart);
        }
        match self.ast.term(id) {
            Term::Current => Some(at),
            Term::Field(name) => Some(self.field(name, at)),
            Term::Literal(_) | Term::Parameter(_) => Some(Place::Apart),
            Term::Index(_) | Term::Slice(_) => self.apart(at),
            Term::Path(steps) | Term::Pipe(steps) => {
                steps.iter().try_fold(at, |at, step| self.term(*step, at))
            }
            Term::Or(terms) | Term::And(terms) | Term::List(terms) => self.all(terms, at),
            Term::Object(entries) => {
                let terms: Vec<_> = entries.iter().map(|(_, term)| *term).collect();
                self.all(&terms, at)
            }
            Term::Not(term) => self.all(&[*term], at),
            Term::Compare { left, right, .. } => self.all(&[*left, *right], at),
            Term::Flatten(left) => self.term(*left, at),
            Term::Project { left, right } => {
                let left = self.term(*left, at)?;
                match (left, self.ast.term(*right)) {
                    (Place::Objects, Term::Current) => Some(Place::Objects),
                    (left, _) => self.projected(left),
                }
            }
            Term::ProjectValues { left, .. } => {
                let left = self.term(*left, at)?;
                self.apart(left)
            }
            Term::Filter {
                left, condition, ..
            } => {
                let left = self.term(*left, at)?;
                if left == Place::Objects {
                    let found = self.lookups(*condition)?;
                    self.found.extend(found);
                    return Some(Place::Apart);
                }
                self.projected(left)
            }
            Term::Call { arguments, .. } => {
                let value = |argument: &Argument| match argument {
                    Argument::Value(term) => Some(*term),
                    Argument::Reference(_) => None, // On what the other arguments hold.
                };
                let terms: Vec<_> = arguments.iter().filter_map(value).collect();
                self.all(&terms, at)
            }
            _ => None,
        }
    }

    /// Each of the terms is evaluated on `at`, and their values are used whole.
    fn all(&mut self, terms: &[TermId], at: Place) -> Option<Place> {
        for term in terms {
            let value = self.term(*term, at)?;
            self.apart(value)?;
        }
        Some(Place::Apart)
    }

    /// It is used whole.
    fn apart(&self, at: Place) -> Option<Place> {
        (at == Place::Apart).then_some(Place::Apart)
    }

    /// Something is taken of each element. Of a document there is none.
    fn projected(&self, at: Place) -> Option<Place> {
        (at != Place::Objects).then_some(Place::Apart)
    }

    fn field(&self, name: &str, at: Place) -> Place {
        match at {
            Place::Root | Place::Again if name == "items" => Place::Objects,
            Place::Root if self.plural == Some(name) => Place::Again,
            _ => Place::Apart,
        }
    }

    /// What an object has to agree in to pass a condition.
    fn lookups(&self, condition: TermId) -> Option<Vec<Lookup>> {
        match self.ast.term(condition) {
            Term::Compare {
                operator: Comparison::Equal,
                left,
                right,
            } => {
                let lookup = self
                    .equal(*left, *right)
                    .or_else(|| self.equal(*right, *left))?;
                Some(vec![lookup])
            }
            Term::And(terms) => {
                let before = |at: usize| terms[..at].iter().all(|term| self.cannot_fail(*term));
                let mut found = (0..terms.len())
                    .take_while(|at| before(*at))
                    .filter_map(|at| self.lookups(terms[at]));
                found.next()
            }
            Term::Or(terms) => {
                let found = terms.iter().map(|term| self.lookups(*term));
                let found: Option<Vec<_>> = found.collect();
                Some(found?.into_iter().flatten().collect())
            }
            // `contains(list, value)` of a text looks for a part of it: such an object is always
            // looked at.
            Term::Call {
                function,
                arguments,
            } if self.ast.function_name(*function) == "contains" => match &**arguments {
                [Argument::Value(list), Argument::Value(value)] => Some(vec![Lookup {
                    key: self.key(*list)?,
                    any_element: true,
                    operand: self.operand(*value)?,
                }]),
                _ => None,
            },
            _ => None,
        }
    }

    fn equal(&self, key: TermId, operand: TermId) -> Option<Lookup> {
        Some(Lookup {
            operand: self.operand(operand)?,
            key: self.key(key)?,
            any_element: false,
        })
    }

    fn operand(&self, id: TermId) -> Option<Operand> {
        match self.ast.term(id) {
            Term::Parameter(slot) => {
                let name = &self.ast.parameters()[slot.index()];
                Some(Operand::Parameter(name.to_string()))
            }
            Term::Literal(value) => Some(Operand::Literal(value.clone())),
            _ => None,
        }
    }

    /// The term as an expression of its own, where its value depends on the object alone.
    fn key(&self, id: TermId) -> Option<Expression> {
        if !self.is_of_the_object(id) {
            return None;
        }
        let text = &self.expression.as_str()[self.ast.span_bytes(id)];
        Expression::parse(text).ok()
    }

    fn is_of_the_object(&self, id: TermId) -> bool {
        let term = self.ast.term(id);
        let own = match term {
            Term::Parameter(_) | Term::Literal(_) => false,
            Term::Call { function, .. } => !VOLATILE.contains(&self.ast.function_name(*function)),
            _ => true,
        };
        let inner = |id: &TermId| {
            matches!(self.ast.term(*id), Term::Literal(_)) || self.is_of_the_object(*id)
        };
        own && term.children().iter().all(inner)
    }

    /// Nothing but a function can fail on a body, and a missing key, which a condition forgives.
    fn cannot_fail(&self, id: TermId) -> bool {
        let term = self.ast.term(id);
        !matches!(term, Term::Call { .. })
            && term.children().iter().all(|child| self.cannot_fail(*child))
    }
}

#[cfg(test)]
mod tests;
