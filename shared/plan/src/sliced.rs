//! Expressions that can be evaluated by slices of the list: each slice gives a part of the result, and
//! the parts make it whole, whatever the slices. Pure.
//!
//! These are [chains](crate::chain), whose results stand one behind the other, and expressions over the
//! lengths of chains, which add up. Here chains may depend on the request.

use anteroom_jmespath::{Budget, BudgetKind, Environment, EvalError, Expression, Shape};
use anteroom_view::ViewNode;
use anteroom_wire::body;
use bytes::Bytes;
use serde_json::Value;

use crate::{
    ChainParameters, Count, CountedExpression, Document, chain::chain, extract_counts, narrow,
};

/// An expression that can be evaluated by slices.
#[derive(Clone, Debug)]
pub struct Sliced(Form);

#[derive(Clone, Debug)]
enum Form {
    /// The expression is a chain.
    Chain(Expression),
    /// The expression takes nothing of the list but these counts.
    Counts(CountedExpression),
}

/// The partial result of one slice.
#[derive(Clone, Debug)]
pub struct SliceResult(Content);

#[derive(Clone, Debug)]
enum Content {
    /// An array, as a body.
    List(Bytes),
    /// The values of the counts, one for each.
    Counts(Vec<u64>),
}

/// The parts of all slices together.
#[derive(Clone, Debug, PartialEq)]
pub enum Whole {
    /// The result.
    Result(Bytes),
    /// The values of [`Sliced::counts`], which stand in [`Sliced::rest`] as parameters.
    Values(Vec<Value>),
}

/// The reason why a slice gives no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPart {
    /// All slices together cost more than they may.
    Budget(EvalError),
    /// The expression fails on an object, or gives no list. The result needs an evaluation over the whole list.
    Failed,
}

impl Sliced {
    /// Returns the expression by slices; `None`: it depends on more than its list, element by element.
    pub fn of(expression: &Expression, document: Document<'_>) -> Option<Self> {
        if let Some(chain) = chain(expression, document) {
            return Some(Self(Form::Chain(chain)));
        }
        let counted = extract_counts(expression, document, ChainParameters::Allowed)?;
        let narrow = narrow(&counted.rest, document).ok()?;
        let needs_no_object = narrow.probes().is_empty();
        needs_no_object.then_some(Self(Form::Counts(counted)))
    }

    /// Returns true if a part depends on the slice's objects alone, so that it can be kept.
    pub fn is_of_objects_alone(&self) -> bool {
        match &self.0 {
            Form::Chain(chain) => chain.parameters().next().is_none(),
            Form::Counts(_) => false, // Counters keep those.
        }
    }

    /// Returns the expression that is evaluated at the end, over no objects, if there is one.
    pub fn rest(&self) -> Option<&Expression> {
        match &self.0 {
            Form::Chain(_) => None,
            Form::Counts(counted) => Some(&counted.rest),
        }
    }

    /// The counts that stand in the rest as parameters.
    pub fn counts(&self) -> &[Count] {
        match &self.0 {
            Form::Chain(_) => &[],
            Form::Counts(counted) => &counted.counts,
        }
    }

    /// Evaluates the part of the expression that concerns these objects, an array, within the rest of a budget.
    ///
    /// # Errors
    /// See [`NoPart`].
    pub fn part<'a>(
        &'a self,
        objects: ViewNode<'a>,
        environment: &Environment<'a>,
        left: &mut Budget,
    ) -> Result<SliceResult, NoPart> {
        let mut list_of = |chain: &'a Expression| {
            let list = chain.evaluate_out_of(objects, environment, left);
            let list = list.map_err(|error| match error {
                EvalError::Budget { .. } => NoPart::Budget(error),
                _ => NoPart::Failed,
            })?;
            match list.shape() {
                Shape::Array(elements) => Ok((list, elements as u64)),
                _ => Err(NoPart::Failed),
            }
        };
        Ok(SliceResult(match &self.0 {
            Form::Chain(chain) => {
                let (list, _) = list_of(chain)?;
                let steps = left.steps;
                let body = body::encode_result(&list, left);
                Content::List(body.map_err(|_| match left.steps {
                    0 => NoPart::Budget(EvalError::Budget {
                        which: BudgetKind::Steps,
                        limit: steps,
                    }),
                    _ => NoPart::Failed,
                })?)
            }
            Form::Counts(counted) => {
                let elements = counted
                    .counts
                    .iter()
                    .map(|count| Ok(list_of(&count.chain)?.1));
                Content::Counts(elements.collect::<Result<_, _>>()?)
            }
        }))
    }

    /// Combines the parts, in the order of their slices. `None`: the result needs an evaluation over the whole list.
    pub fn whole<'p>(&self, parts: impl Iterator<Item = &'p SliceResult> + Clone) -> Option<Whole> {
        match &self.0 {
            Form::Chain(_) => {
                let joined = body::join_arrays(parts.filter_map(SliceResult::list));
                joined.ok().map(Whole::Result)
            }
            Form::Counts(counted) => {
                let mut sums = vec![0_u64; counted.counts.len()];
                for part in parts {
                    let pairs = sums.iter_mut().zip(part.counts());
                    pairs.for_each(|(sum, count)| *sum = sum.saturating_add(*count));
                }
                let values = counted.counts.iter().zip(sums);
                let values = values.map(|(count, sum)| count.measure.value(sum));
                Some(Whole::Values(values.collect()))
            }
        }
    }
}

impl SliceResult {
    /// Returns the result's size on the heap.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Content::List(bytes) => bytes.len(),
            Content::Counts(counts) => size_of_val(&**counts),
        }
    }

    fn list(&self) -> Option<&[u8]> {
        match &self.0 {
            Content::List(bytes) => Some(bytes),
            Content::Counts(_) => None,
        }
    }

    fn counts(&self) -> &[u64] {
        match &self.0 {
            Content::List(_) => &[],
            Content::Counts(counts) => counts,
        }
    }
}
