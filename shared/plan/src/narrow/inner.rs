//! Lists within objects.

use std::rc::Rc;

use anteroom_jmespath::ast::{Term, TermId};

use super::{
    Narrow,
    document::Search,
    missing_value::{Gone, Miss},
    stream::{Chain, Stream},
    terms,
};

/// The value of a term within an object, for each element of a chain.
#[derive(Clone, Debug)]
pub(super) enum Inner {
    /// The element itself.
    Each(Rc<Chain>),
    /// A value of it; the chain leaves out nulls, so that only what is in the others matters.
    Value(Rc<Chain>),
    /// A list of what is in it.
    List(Stream),
    /// Null, for each that no way finds.
    Null(Vec<Narrow>),
}

impl Search<'_> {
    /// The value of a term that makes a list, for each element of a chain that no probe finds.
    pub(super) fn missed_list(&self, id: TermId, chain: &Rc<Chain>) -> Option<Miss> {
        let (ways, value) = match self.inner(id, Inner::Each(Rc::clone(chain)))? {
            Inner::List(stream) => (stream.ways, Gone::Lists),
            Inner::Null(ways) => (ways, Gone::Null),
            Inner::Each(_) | Inner::Value(_) => return None,
        };
        let narrow = Narrow::all(ways)?;
        Some(Miss { narrow, value })
    }

    fn inner(&self, id: TermId, at: Inner) -> Option<Inner> {
        let term = self.ast.term(id);
        match (term, at) {
            (Term::Current, at) => Some(at),
            (_, Inner::Each(chain)) if terms::is_fixed(self.ast, id) => {
                Some(Inner::Value(Rc::new(Chain::Project(chain, id))))
            }
            // Of null there is no name either: those that were left out would be left out here.
            (Term::Field(_) | Term::Index(_), Inner::Value(chain)) => {
                Some(Inner::Value(Rc::new(Chain::Project(chain, id))))
            }
            (Term::Path(steps) | Term::Pipe(steps), at) => {
                steps.iter().try_fold(at, |at, step| self.inner(*step, at))
            }
            (Term::Project { left, right }, at) => {
                let stream = self.spread(*left, at)?;
                Some(Inner::List(self.project(stream, *right)))
            }
            (
                Term::Filter {
                    left,
                    condition,
                    right,
                },
                at,
            ) => {
                let stream = self.spread(*left, at)?;
                Some(Inner::List(self.filter(stream, *condition, *right)))
            }
            (Term::Flatten(left), at) => {
                let stream = self.spread(*left, at)?;
                Some(Inner::List(Self::flatten(stream)))
            }
            // Of null or of an empty list there is neither.
            (Term::Index(_) | Term::Field(_), Inner::List(stream)) => {
                Some(Inner::Null(stream.ways))
            }
            (Term::Index(_) | Term::Field(_), Inner::Null(ways)) => Some(Inner::Null(ways)),
            _ => None,
        }
    }

    /// The elements of a term's value.
    fn spread(&self, id: TermId, at: Inner) -> Option<Stream> {
        let is_current = matches!(self.ast.term(id), Term::Current);
        match at {
            Inner::Each(chain) | Inner::Value(chain) if is_current => {
                Some(Stream::of(Rc::new(Chain::Flatten(chain))))
            }
            Inner::Each(chain) if terms::is_fixed(self.ast, id) => {
                Some(Stream::of(Rc::new(Chain::Spread(chain, id))))
            }
            Inner::Value(chain) if terms::is_null_on_lists(self.ast, id) => {
                Some(Stream::of(Rc::new(Chain::Spread(chain, id))))
            }
            at => match self.inner(id, at)? {
                Inner::List(stream) => Some(stream),
                _ => None,
            },
        }
    }
}
