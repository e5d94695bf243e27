//! Expressions that can be evaluated by slices of the list: each slice gives a part of the result, and
//! the parts make it whole, whatever the slices. Pure.
//!
//! So are chains (see [`crate::aggregate()`]), whose results stand one behind the other, and functions
//! over chains that can be put together: counts, sums, the largest. Here chains may depend on the
//! request.

use anteroom_jmespath::{Budget, Environment, EvalError, Expression, Shape};
use anteroom_view::ViewNode;
use anteroom_wire::body;
use bytes::Bytes;
use serde_json::Value;

use crate::{
    AggregateTerm, Aggregated, Document, Parameters,
    aggregate::{Tally, Way, aggregate, chain},
    narrow,
};

/// An expression that can be evaluated by slices.
#[derive(Clone, Debug)]
pub struct Sliced(Of);

#[derive(Clone, Debug)]
enum Of {
    /// It is a chain.
    Chain(Expression),
    /// It takes nothing of the list but these terms.
    Terms(Aggregated),
}

/// What one slice gives.
#[derive(Clone, Debug)]
pub struct Part(Gives);

#[derive(Clone, Debug)]
enum Gives {
    /// An array, as a body.
    List(Bytes),
    /// By term.
    Tallies(Vec<Tally>),
}

/// What all slices give together.
#[derive(Clone, Debug, PartialEq)]
pub enum Whole {
    /// The result.
    Result(Bytes),
    /// The values of [`Sliced::terms`], which stand in [`Sliced::rest`] as parameters.
    Values(Vec<Value>),
}

/// Why a slice gives nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPart {
    /// The slices cost more than they may, all together.
    Budget(EvalError),
    /// It fails, or is no list because of what a function refuses. What the whole list comes to, only an
    /// evaluation over it can tell.
    Failed,
}

impl Sliced {
    /// The expression by slices; `None` where it depends on more than its list, element by element.
    pub fn of(expression: &Expression, document: Document<'_>) -> Option<Self> {
        if let Some(chain) = chain(expression, document, Parameters::Allowed) {
            return Some(Self(Of::Chain(chain)));
        }
        let aggregated = aggregate(expression, document, Parameters::Allowed)?;
        let narrow = narrow(&aggregated.rest, document).ok()?;
        let of_none = narrow.probes().is_empty();
        of_none.then_some(Self(Of::Terms(aggregated)))
    }

    /// Whether what a slice gives depends on its objects alone, so that it can be kept.
    pub fn is_of_objects_alone(&self) -> bool {
        match &self.0 {
            Of::Chain(chain) => chain.parameters().next().is_none(),
            Of::Terms(_) => false, // Those are kept otherwise.
        }
    }

    /// What is evaluated in the end, over no objects; `None` where nothing is.
    pub fn rest(&self) -> Option<&Expression> {
        match &self.0 {
            Of::Chain(_) => None,
            Of::Terms(aggregated) => Some(&aggregated.rest),
        }
    }

    /// What stands in the rest as parameters.
    pub fn terms(&self) -> &[AggregateTerm] {
        match &self.0 {
            Of::Chain(_) => &[],
            Of::Terms(aggregated) => &aggregated.terms,
        }
    }

    /// What these objects give, an array, out of what is left of a budget.
    ///
    /// # Errors
    /// See [`NoPart`].
    pub fn part<'a>(
        &'a self,
        objects: ViewNode<'a>,
        environment: &Environment<'a>,
        left: &mut Budget,
    ) -> Result<Part, NoPart> {
        let fault = |error| match error {
            EvalError::Budget { .. } => NoPart::Budget(error),
            _ => NoPart::Failed,
        };
        Ok(Part(match &self.0 {
            Of::Chain(chain) => {
                let list = chain.evaluate_out_of(objects, environment, left);
                let list = list.map_err(fault)?;
                if !matches!(list.shape(), Shape::Array(_)) {
                    return Err(NoPart::Failed);
                }
                let bytes = body::encode_value(&list);
                Gives::List(bytes.map_err(|_| NoPart::Failed)?)
            }
            Of::Terms(aggregated) => {
                let tally = |term: &'a AggregateTerm| {
                    let list = term.chain.evaluate_out_of(objects, environment, left);
                    let list = list.map_err(fault)?;
                    let mut tally = Tally::new(term.measure.kind());
                    match tally.take_all(&list, Way::In) {
                        true => Ok(tally),
                        false => Err(NoPart::Failed),
                    }
                };
                let tallies = aggregated.terms.iter().map(tally);
                Gives::Tallies(tallies.collect::<Result<_, _>>()?)
            }
        }))
    }

    /// What the parts come to, in the order of their slices; `None` where only an evaluation over the
    /// whole list can tell: it is an error, or depends on an order that is lost.
    pub fn whole<'p>(&self, parts: impl Iterator<Item = &'p Part> + Clone) -> Option<Whole> {
        let Of::Terms(aggregated) = &self.0 else {
            let list = |part: &'p Part| match &part.0 {
                Gives::List(bytes) => Some(&bytes[..]),
                Gives::Tallies(_) => None,
            };
            let joined = body::join_arrays(parts.filter_map(list));
            return joined.ok().map(Whole::Result);
        };
        let new = |term: &AggregateTerm| Tally::new(term.measure.kind());
        let mut whole: Vec<_> = aggregated.terms.iter().map(new).collect();
        for part in parts {
            if let Gives::Tallies(tallies) = &part.0 {
                let pairs = whole.iter_mut().zip(tallies);
                pairs.for_each(|(whole, tally)| whole.merge(tally));
            }
        }
        let terms = whole.iter().zip(&aggregated.terms);
        let values = terms.map(|(tally, term)| tally.value(term.measure));
        values.collect::<Option<_>>().map(Whole::Values)
    }
}

impl Part {
    /// What it takes on the heap.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Gives::List(bytes) => bytes.len(),
            Gives::Tallies(tallies) => {
                let heap: usize = tallies.iter().map(Tally::bytes).sum();
                tallies.len() * size_of::<Tally>() + heap
            }
        }
    }
}
