//! Lists within objects.

use std::rc::Rc;

use anteroom_jmespath::ast::{Expr, ExprId};

use super::{
    Narrow, dependence,
    document::Search,
    missing_value::{FalsyValue, Miss},
    stream::{Chain, Stream},
};

/// The value of a subexpression within an object, for each element of a chain.
#[derive(Clone, Debug)]
pub(super) enum InnerValue {
    /// The element itself.
    Each(Rc<Chain>),
    /// A value of the object. The chain drops nulls, so only objects with a value matter.
    Value(Rc<Chain>),
    /// A list of the elements of this stream.
    List(Stream),
    /// Null, for each that no way finds.
    Null(Vec<Narrow>),
}

impl Search<'_> {
    /// The value of a subexpression that makes a list, for each element of a chain that no probe finds.
    pub(super) fn missed_list(&self, id: ExprId, chain: &Rc<Chain>) -> Option<Miss> {
        let (ways, value) = match self.inner(id, InnerValue::Each(Rc::clone(chain)))? {
            InnerValue::List(stream) => (stream.ways, FalsyValue::Lists),
            InnerValue::Null(ways) => (ways, FalsyValue::Null),
            InnerValue::Each(_) | InnerValue::Value(_) => return None,
        };
        let narrow = Narrow::all(ways)?;
        Some(Miss { narrow, value })
    }

    fn inner(&self, id: ExprId, at: InnerValue) -> Option<InnerValue> {
        let expr = self.ast.expr(id);
        match (expr, at) {
            (Expr::Current, at) => Some(at),
            (_, InnerValue::Each(chain)) if dependence::is_fixed(self.ast, id) => {
                Some(InnerValue::Value(Rc::new(Chain::Project(chain, id))))
            }
            // Of null there is no name either: those that were left out would be left out here.
            (Expr::Field(_) | Expr::Index(_), InnerValue::Value(chain)) => {
                Some(InnerValue::Value(Rc::new(Chain::Project(chain, id))))
            }
            (Expr::Path(steps) | Expr::Pipe(steps), at) => {
                steps.iter().try_fold(at, |at, step| self.inner(*step, at))
            }
            (Expr::Project { left, right }, at) => {
                let stream = self.spread(*left, at)?;
                Some(InnerValue::List(self.project(stream, *right)))
            }
            (
                Expr::Filter {
                    left,
                    condition,
                    right,
                },
                at,
            ) => {
                let stream = self.spread(*left, at)?;
                Some(InnerValue::List(self.filter(stream, *condition, *right)))
            }
            (Expr::Flatten(left), at) => {
                let stream = self.spread(*left, at)?;
                Some(InnerValue::List(Self::flatten(stream)))
            }
            // Of null or of an empty list there is neither.
            (Expr::Index(_) | Expr::Field(_), InnerValue::List(stream)) => {
                Some(InnerValue::Null(stream.ways))
            }
            (Expr::Index(_) | Expr::Field(_), InnerValue::Null(ways)) => {
                Some(InnerValue::Null(ways))
            }
            _ => None,
        }
    }

    /// The elements of a subexpression's value.
    fn spread(&self, id: ExprId, at: InnerValue) -> Option<Stream> {
        let is_current = matches!(self.ast.expr(id), Expr::Current);
        match at {
            InnerValue::Each(chain) | InnerValue::Value(chain) if is_current => {
                Some(Stream::of(Rc::new(Chain::Flatten(chain))))
            }
            InnerValue::Each(chain) if dependence::is_fixed(self.ast, id) => {
                Some(Stream::of(Rc::new(Chain::Spread(chain, id))))
            }
            InnerValue::Value(chain) if dependence::is_null_on_lists(self.ast, id) => {
                Some(Stream::of(Rc::new(Chain::Spread(chain, id))))
            }
            at => match self.inner(id, at)? {
                InnerValue::List(stream) => Some(stream),
                _ => None,
            },
        }
    }
}
