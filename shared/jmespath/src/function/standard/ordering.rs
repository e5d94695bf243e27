//! `max`, `min` and `sort`. Numbers compare by exact value, strings by code points.

use std::cmp::Ordering;

use crate::error::EvalError;
use crate::function::{Call, Handle, Types};
use crate::node::Shape;
use crate::value::STRING_BYTES_PER_STEP;

pub(super) fn max(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let elements = keyed_by_themselves(call)?;
    extreme(call, &elements, Ordering::Greater)
}

pub(super) fn min(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let elements = keyed_by_themselves(call)?;
    extreme(call, &elements, Ordering::Less)
}

pub(super) fn max_by(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let elements = keyed_by_expression(call)?;
    extreme(call, &elements, Ordering::Greater)
}

pub(super) fn min_by(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let elements = keyed_by_expression(call)?;
    extreme(call, &elements, Ordering::Less)
}

pub(super) fn sort(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let elements = keyed_by_themselves(call)?;
    sorted(call, elements)
}

pub(super) fn sort_by(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let elements = keyed_by_expression(call)?;
    sorted(call, elements)
}

/// An element, with its sort key.
struct Keyed {
    key: Handle,
    element: Handle,
}

fn keyed_by_themselves(call: &mut Call<'_>) -> Result<Vec<Keyed>, EvalError> {
    Ok(call
        .elements(call.argument(0))?
        .map(|element| Keyed {
            key: element,
            element,
        })
        .collect())
}

/// Keys are all numbers or all strings.
fn keyed_by_expression(call: &mut Call<'_>) -> Result<Vec<Keyed>, EvalError> {
    let expression = call.reference(1)?;
    let mut keyed = Vec::new();
    let mut expected = Types::NUMBER | Types::STRING;
    for element in call.elements(call.argument(0))? {
        let key = call.apply(expression, element)?;
        let found = Types::of(call.shape(key));
        if !expected.has(found) {
            return Err(call.invalid_type("a value of the expression", expected, key));
        }
        expected = found;
        keyed.push(Keyed { key, element });
    }
    Ok(keyed)
}

/// The first of the elements that no other exceeds in this direction; null of nothing.
fn extreme(
    call: &mut Call<'_>,
    elements: &[Keyed],
    direction: Ordering,
) -> Result<Handle, EvalError> {
    charge_comparisons(call, elements, 1)?;
    let mut best: Option<&Keyed> = None;
    for candidate in elements {
        if best.is_none_or(|best| order(call, candidate.key, best.key) == direction) {
            best = Some(candidate);
        }
    }
    best.map_or_else(|| call.new_null(), |best| Ok(best.element))
}

/// The elements in ascending order, equal ones as they came.
fn sorted(call: &mut Call<'_>, mut elements: Vec<Keyed>) -> Result<Handle, EvalError> {
    let comparisons_per_element = elements.len().checked_ilog2().unwrap_or(0);
    charge_comparisons(call, &elements, comparisons_per_element)?;
    elements.sort_by(|left, right| order(call, left.key, right.key));
    let elements: Vec<_> = elements.into_iter().map(|keyed| keyed.element).collect();
    call.new_array(&elements)
}

/// Charges comparing each key so many times.
fn charge_comparisons(
    call: &mut Call<'_>,
    elements: &[Keyed],
    times: u32,
) -> Result<(), EvalError> {
    let steps_of = |keyed: &Keyed| match call.shape(keyed.key) {
        Shape::String(string) => 1 + string.len() / STRING_BYTES_PER_STEP,
        _ => 1,
    };
    let steps: usize = elements.iter().map(steps_of).sum();
    call.charge_steps(steps.saturating_mul(times as usize))
}

fn order(call: &Call<'_>, left: Handle, right: Handle) -> Ordering {
    match (call.shape(left), call.shape(right)) {
        (Shape::Number(left), Shape::Number(right)) => left.order(right),
        (Shape::String(left), Shape::String(right)) => left.cmp(right),
        _ => Ordering::Equal,
    }
}
