//! Structural equality, whatever the two values are made of.

use std::rc::Rc;

use crate::budget::Meter;
use crate::error::EvalError;
use crate::node::{Node, Shape};
use crate::value::{VALUE_DEPTH_MAX, Value, too_deep};

/// The part of a string that is read in one step.
pub(crate) const STRING_BYTES_PER_STEP: usize = 64;

impl<'a, N: Node<'a>> Value<'a, N> {
    /// Returns whether both are the same JSON value: numbers by exact value, objects whatever their order.
    pub(crate) fn equals(&self, other: &Self, meter: &mut Meter) -> Result<bool, EvalError> {
        equal(self, other, meter, VALUE_DEPTH_MAX)
    }
}

fn equal<'a, N: Node<'a>>(
    left: &Value<'a, N>,
    right: &Value<'a, N>,
    meter: &mut Meter,
    depth_left: u32,
) -> Result<bool, EvalError> {
    meter.step()?;
    match (left.shape(), right.shape()) {
        (Shape::Null, Shape::Null) => Ok(true),
        (Shape::Bool(left), Shape::Bool(right)) => Ok(left == right),
        (Shape::Number(left), Shape::Number(right)) => Ok(left == right),
        (Shape::String(left), Shape::String(right)) if left.len() == right.len() => {
            meter.steps(left.len() / STRING_BYTES_PER_STEP)?;
            Ok(left == right)
        }
        (Shape::Array(length), Shape::Array(other)) if length == other => {
            same(left, right).map_or_else(|| arrays(left, right, meter, depth_left), Ok)
        }
        (Shape::Object(length), Shape::Object(other)) if length == other => {
            same(left, right).map_or_else(|| objects(left, right, meter, depth_left), Ok)
        }
        _ => Ok(false),
    }
}

/// Yes, if both are one shared value, so that sharing can not multiply the work.
fn same<N>(left: &Value<'_, N>, right: &Value<'_, N>) -> Option<bool> {
    let same = match (left, right) {
        (Value::Array(left), Value::Array(right)) => Rc::ptr_eq(left, right),
        (Value::Object(left), Value::Object(right)) => Rc::ptr_eq(left, right),
        _ => false,
    };
    same.then_some(true)
}

fn arrays<'a, N: Node<'a>>(
    left: &Value<'a, N>,
    right: &Value<'a, N>,
    meter: &mut Meter,
    depth_left: u32,
) -> Result<bool, EvalError> {
    let depth_left = deeper(depth_left)?;
    for (left, right) in left.elements().zip(right.elements()) {
        if !equal(&left, &right, meter, depth_left)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn objects<'a, N: Node<'a>>(
    left: &Value<'a, N>,
    right: &Value<'a, N>,
    meter: &mut Meter,
    depth_left: u32,
) -> Result<bool, EvalError> {
    let depth_left = deeper(depth_left)?;
    let mut in_order = right.entries();
    for (key, value) in left.entries() {
        meter.steps(key.len() / STRING_BYTES_PER_STEP)?;
        // Most often both have one order; else the key is looked up, which may take a scan.
        let found = match in_order.next() {
            Some((other, value)) if *other == *key => Some(value),
            _ => {
                meter.steps(length(right))?;
                right.field(&key)
            }
        };
        let Some(other) = found else { return Ok(false) };
        if !equal(&value, &other, meter, depth_left)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn length<'a, N: Node<'a>>(value: &Value<'a, N>) -> usize {
    match value.shape() {
        Shape::Array(length) | Shape::Object(length) => length,
        _ => 0,
    }
}

fn deeper(depth_left: u32) -> Result<u32, EvalError> {
    depth_left.checked_sub(1).ok_or_else(too_deep)
}
