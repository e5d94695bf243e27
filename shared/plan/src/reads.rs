//! What of each object an expression can read. Pure.
//!
//! A walk down the tree with, for every value, the places of the objects that it may come from. A step
//! to a field goes on from place to place; whatever uses a value otherwise (a comparison, a function, a
//! truth, the result itself) reads all that stands there. Lists are passed through: what is read of one
//! element is read of all. What is not known here reads whatever it is given.
//!
//! The promise: an expression over objects of which only this is kept gives what it gives over the whole
//! objects, errors included.

use std::collections::BTreeSet;

use anteroom_jmespath::{
    Expression,
    ast::{Argument, Ast, Term, TermId},
};
use anteroom_model::Kept;
use serde_json::Value;

use crate::Document;

/// The most places that are followed. An expression with more reads everything.
const PLACES_MAX: usize = 256;

/// What an expression reads of each object, where it is evaluated on a list of them.
pub fn reads(expression: &Expression, document: Document<'_>) -> Kept {
    let (root, plural) = match document {
        Document::List { plural } => (Reached::Document, plural),
        Document::Array => (Reached::objects(), None),
    };
    walk(expression, plural, &root, Outcome::Read)
}

/// What an expression reads of each object, where it is evaluated on an array of them, and only the
/// number of elements of its value counts.
pub(crate) fn reads_to_count(expression: &Expression) -> Kept {
    walk(expression, None, &Reached::objects(), Outcome::Counted)
}

/// What an expression reads of an object that it is evaluated on.
pub(crate) fn reads_of_one(expression: &Expression) -> Kept {
    let root = Reached::objects().listed(false);
    walk(expression, None, &root, Outcome::Read)
}

/// What becomes of an expression's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Read,
    /// Its elements are counted.
    Counted,
}

fn walk(expression: &Expression, plural: Option<&str>, root: &Reached, result: Outcome) -> Kept {
    let mut walk = Walk {
        ast: expression.ast(),
        plural,
        read: Kept::default(),
        places: 0,
    };
    let value = walk.term(walk.ast.root(), root);
    let counted = result == Outcome::Counted && value.is_listed();
    if !counted {
        walk.whole(&value);
    }
    walk.read
}

/// Of an object only what is kept.
#[must_use]
pub fn pruned(value: &Value, kept: &Kept) -> Value {
    let Kept::Fields(fields) = kept else {
        return value.clone();
    };
    match value {
        Value::Object(object) => {
            let kept = object.iter().filter_map(|(name, value)| {
                let kept = fields.get(name)?;
                Some((name.clone(), pruned(value, kept)))
            });
            Value::Object(kept.collect())
        }
        Value::Array(elements) => elements.iter().map(|value| pruned(value, kept)).collect(),
        scalar => scalar.clone(),
    }
}

/// A place in an object: the fields that lead to it.
type Place = Vec<Box<str>>;

/// Where a value may come from.
#[derive(Clone, Debug)]
enum Reached {
    /// The document that has the list of objects in it.
    Document,
    /// One of these places of an object. `listed`: it is surely a list, whose elements come from there.
    Places {
        places: BTreeSet<Place>,
        listed: bool,
    },
    /// Nothing that has not been read already.
    Apart,
}

impl Reached {
    /// The list of all objects.
    fn objects() -> Self {
        Self::Places {
            places: BTreeSet::from([Place::new()]),
            listed: true,
        }
    }

    /// Whether it is surely a list.
    fn is_listed(&self) -> bool {
        matches!(self, Self::Places { listed: true, .. })
    }

    fn listed(self, listed: bool) -> Self {
        match self {
            Self::Places { places, .. } => Self::Places { places, listed },
            other => other,
        }
    }
}

struct Walk<'e> {
    ast: &'e Ast,
    plural: Option<&'e str>,
    read: Kept,
    places: usize,
}

impl Walk<'_> {
    /// The value of a term on `at`.
    fn term(&mut self, id: TermId, at: &Reached) -> Reached {
        if matches!(at, Reached::Apart) {
            return Reached::Apart;
        }
        match self.ast.term(id) {
            Term::Current => at.clone(),
            Term::Field(name) => self.field(name, at),
            Term::Literal(_) | Term::Parameter(_) => Reached::Apart,
            // Of the elements of what stands there; the document has none.
            Term::Index(_) => Self::elements(at).listed(false),
            Term::Slice(_) => Self::elements(at).listed(true),
            Term::Flatten(left) => {
                let left = self.term(*left, at);
                Self::elements(&left).listed(true)
            }
            Term::Path(steps) | Term::Pipe(steps) => steps
                .iter()
                .fold(at.clone(), |at, step| self.term(*step, &at)),
            Term::Project { left, right } => {
                let left = self.term(*left, at);
                let element = Self::elements(&left).listed(false);
                self.term(*right, &element).listed(true)
            }
            Term::Filter {
                left,
                condition,
                right,
            } => {
                let left = self.term(*left, at);
                let element = Self::elements(&left).listed(false);
                self.used(*condition, &element);
                self.term(*right, &element).listed(true)
            }
            Term::ProjectValues { left, right } => {
                let left = self.term(*left, at);
                self.whole(&left);
                self.used(*right, &left);
                Reached::Apart
            }
            Term::Or(terms) | Term::And(terms) | Term::List(terms) => {
                terms.iter().for_each(|term| self.used(*term, at));
                Reached::Apart
            }
            Term::Object(entries) => {
                entries.iter().for_each(|(_, term)| self.used(*term, at));
                Reached::Apart
            }
            Term::Not(term) => {
                self.used(*term, at);
                Reached::Apart
            }
            Term::Compare { left, right, .. } => {
                self.used(*left, at);
                self.used(*right, at);
                Reached::Apart
            }
            Term::Call {
                function,
                arguments,
            } => {
                let counts = self.ast.function_name(*function) == "length";
                arguments
                    .iter()
                    .for_each(|argument| self.argument(*argument, at, counts));
                Reached::Apart
            }
            _ => {
                self.whole(at);
                Reached::Apart
            }
        }
    }

    fn argument(&mut self, argument: Argument, at: &Reached, counts: bool) {
        match argument {
            Argument::Value(term) => {
                let value = self.term(term, at);
                // Elements are kept, however little of each.
                if !(counts && value.is_listed()) {
                    self.whole(&value);
                }
            }
            // It is evaluated on parts of the other arguments, which are read whole.
            Argument::Reference(_) => {}
        }
    }

    fn used(&mut self, term: TermId, at: &Reached) {
        let value = self.term(term, at);
        self.whole(&value);
    }

    fn field(&mut self, name: &str, at: &Reached) -> Reached {
        match at {
            Reached::Document if name == "items" => Reached::objects(),
            // The same once more.
            Reached::Document if self.plural == Some(name) => Reached::Document,
            Reached::Document | Reached::Apart => Reached::Apart,
            // A list has no fields.
            Reached::Places { listed: true, .. } => Reached::Apart,
            Reached::Places { places, .. } => {
                let inner = places.iter().map(|place| {
                    let mut inner = place.clone();
                    inner.push(name.into());
                    inner
                });
                let places: BTreeSet<_> = inner.collect();
                self.places += places.len();
                if self.places > PLACES_MAX {
                    self.read = Kept::Whole;
                }
                for place in &places {
                    self.read.touch(&fields(place));
                }
                Reached::Places {
                    places,
                    listed: false,
                }
            }
        }
    }

    /// The elements of a list, or of what may be one.
    fn elements(at: &Reached) -> Reached {
        match at {
            Reached::Places { .. } => at.clone(),
            Reached::Document | Reached::Apart => Reached::Apart,
        }
    }

    /// All of it is read.
    fn whole(&mut self, value: &Reached) {
        match value {
            Reached::Document => self.read = Kept::Whole,
            Reached::Places { places, .. } => {
                for place in places {
                    self.read.keep(&fields(place));
                }
            }
            Reached::Apart => {}
        }
    }
}

fn fields(place: &Place) -> Vec<&str> {
    place.iter().map(|field| &**field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(expression: &str) -> Kept {
        let expression = Expression::parse(expression).unwrap();
        reads(
            &expression,
            Document::List {
                plural: Some("pods"),
            },
        )
    }

    fn kept(whole: &[&str], touched: &[&str]) -> Kept {
        let mut kept = Kept::default();
        for path in touched {
            kept.touch(&path.split('.').collect::<Vec<_>>());
        }
        for path in whole {
            kept.keep(&path.split('.').collect::<Vec<_>>());
        }
        kept
    }

    #[test]
    fn what_is_read_is_found_without_being_told() {
        for (expression, expected) in [
            ("length(items)", kept(&[], &[])),
            ("length(pods.items[?spec.a == $a])", kept(&["spec.a"], &[])),
            ("items[].spec.rules[].host", kept(&["spec.rules.host"], &[])),
            (
                "items[*].metadata.labels.app | length(@)",
                kept(&[], &["metadata.labels.app"]),
            ),
            (
                "items[?metadata.labels.app == 'x' && !(spec.paused)].{n: metadata.name}",
                kept(
                    &["metadata.labels.app", "spec.paused", "metadata.name"],
                    &[],
                ),
            ),
            ("items[0].spec", kept(&["spec"], &[])),
            ("items[0:5].status.phase", kept(&["status.phase"], &[])),
            ("sort_by(items, &spec.a)", Kept::Whole),
            ("items[].spec.* | [0]", kept(&["spec"], &[])),
            ("length(items[0].spec.list)", kept(&["spec.list"], &[])),
            (
                "items[?contains(spec.hosts, $h)] | [0].kind",
                kept(&["spec.hosts", "kind"], &[]),
            ),
            ("kind", kept(&[], &[])),
            ("items.spec", kept(&[], &[])),
            ("@", Kept::Whole),
            ("items", Kept::Whole),
            ("[items[].a, 'x']", kept(&["a"], &[])),
            ("items[].a || `[]`", kept(&["a"], &[])),
        ] {
            assert_eq!(read(expression), expected, "{expression}");
        }
    }

    #[test]
    fn too_many_places_are_everything() {
        let fields: Vec<_> = (0..300).map(|n| format!("f{n}: spec.f{n}")).collect();
        let expression = format!("items[].{{{}}}", fields.join(", "));
        assert_eq!(read(&expression), Kept::Whole);
    }
}
