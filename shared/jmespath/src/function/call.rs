//! A call as its function sees it.

use crate::ast::{Argument, ExprId};
use crate::error::EvalError;
use crate::node::{Number, Shape};
use crate::seed::EvalSeed;
use crate::value::STRING_BYTES_PER_STEP;

use super::host::{Handle, Handles, Host};
use super::signature::Types;

/// An `&expression` that a function was given, for [`Call::apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference(ExprId);

/// A function call within an evaluation, with its arguments.
///
/// Functions see values as [`Handle`]s, so the same function works on every kind of document. A function reads a
/// value by [`Call::shape`], and returns the handle of its result: an argument's, or a new value's.
pub struct Call<'c> {
    function: &'c str,
    first: Handle,
    arguments: &'c [Argument],
    is_nondeterministic: bool,
    host: &'c mut dyn Host,
}

impl<'c> Call<'c> {
    pub(crate) fn new(
        function: &'c str,
        first: Handle,
        arguments: &'c [Argument],
        is_nondeterministic: bool,
        host: &'c mut dyn Host,
    ) -> Self {
        Call {
            function,
            first,
            arguments,
            is_nondeterministic,
            host,
        }
    }

    /// All arguments. What is an expression reads as null here; see [`Call::reference`].
    pub fn arguments(&self) -> Handles {
        Handles::new(
            self.first.index(),
            self.first.index() + self.arguments.len(),
        )
    }

    /// The argument at `index`; null if there is none.
    pub fn argument(&self, index: usize) -> Handle {
        match index < self.arguments.len() {
            true => Handle::new(self.first.index() + index),
            false => Handle::new(usize::MAX),
        }
    }

    /// The argument at `index` as an expression to apply.
    ///
    /// # Errors
    /// [`EvalError::InvalidType`] if it is a value.
    pub fn reference(&self, index: usize) -> Result<Reference, EvalError> {
        match self.arguments.get(index) {
            Some(Argument::Reference(expr)) => Ok(Reference(*expr)),
            _ => Err(self.invalid_type(
                format!("argument {}", index + 1),
                Types::EXPRESSION,
                self.argument(index),
            )),
        }
    }

    /// Returns the type of a value, with the content of a scalar or the size of a collection.
    pub fn shape(&self, value: Handle) -> Shape<'_> {
        self.host.shape(value)
    }

    /// The string that a value is.
    ///
    /// # Errors
    /// [`EvalError::InvalidType`] if it is none.
    pub fn string(&self, value: Handle) -> Result<&str, EvalError> {
        match self.shape(value) {
            Shape::String(string) => Ok(string),
            _ => Err(self.invalid_type("a value", Types::STRING, value)),
        }
    }

    /// The number that a value is.
    ///
    /// # Errors
    /// [`EvalError::InvalidType`] if it is none.
    pub fn number(&self, value: Handle) -> Result<Number, EvalError> {
        match self.shape(value) {
            Shape::Number(number) => Ok(number),
            _ => Err(self.invalid_type("a value", Types::NUMBER, value)),
        }
    }

    /// Returns the field `name` of an object; `None` for a different value or a missing field.
    pub fn field(&mut self, object: Handle, name: &str) -> Option<Handle> {
        self.host.field(object, name)
    }

    /// The elements of an array, in order; none of what is not one.
    ///
    /// # Errors
    /// [`EvalError::Budget`]: each element is a step.
    pub fn elements(&mut self, array: Handle) -> Result<Handles, EvalError> {
        self.host.elements(array)
    }

    /// The entries of an object, key and value; none of what is not one.
    ///
    /// # Errors
    /// [`EvalError::Budget`]: each entry is a step.
    pub fn entries(
        &mut self,
        object: Handle,
    ) -> Result<impl Iterator<Item = (Handle, Handle)> + use<>, EvalError> {
        let keys = self.host.entries(object)?.step_by(2);
        Ok(keys.map(|key| (key, Handle::new(key.index() + 1))))
    }

    /// The value of the expression on `current`; null for a missing key, under either rule.
    ///
    /// # Errors
    /// Those of the expression.
    pub fn apply(&mut self, expression: Reference, current: Handle) -> Result<Handle, EvalError> {
        self.host.apply(expression.0, current)
    }

    /// Returns whether two values are the same, by structure.
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn equal(&mut self, left: Handle, right: Handle) -> Result<bool, EvalError> {
        self.host.equal(left, right)
    }

    /// Returns whether an array has an element that is the same as `element`.
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn contains(&mut self, array: Handle, element: Handle) -> Result<bool, EvalError> {
        self.host.contains(array, element)
    }

    /// A copy of a value as JSON, which the function holds until it returns.
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn to_json(&mut self, value: Handle) -> Result<serde_json::Value, EvalError> {
        self.host.to_json(value)
    }

    /// Charges the memory of a JSON document that the function makes and holds until it returns, by the figures of
    /// [`json_memory`](crate::json_memory).
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn charge_json(&mut self, bytes: u64) -> Result<(), EvalError> {
        self.host.hold_json(bytes)
    }

    /// Returns the memory that [`Call::charge_json`] still allows.
    pub fn json_bytes_max(&self) -> u64 {
        self.host.json_bytes_max()
    }

    /// Null.
    ///
    /// # Errors
    /// None.
    pub fn new_null(&mut self) -> Result<Handle, EvalError> {
        self.host.scalar(Shape::Null)
    }

    /// A boolean.
    ///
    /// # Errors
    /// None.
    pub fn new_boolean(&mut self, boolean: bool) -> Result<Handle, EvalError> {
        self.host.scalar(Shape::Bool(boolean))
    }

    /// A number.
    ///
    /// # Errors
    /// [`EvalError::InvalidValue`] for what JSON can not say: NaN and the infinities.
    pub fn new_number(&mut self, number: Number) -> Result<Handle, EvalError> {
        if !number.float().is_finite() {
            return Err(self.invalid_value("the result is too large for a number"));
        }
        self.host.scalar(Shape::Number(number))
    }

    /// A string.
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn new_string(&mut self, string: &str) -> Result<Handle, EvalError> {
        self.host.scalar(Shape::String(string))
    }

    /// An array.
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn new_array(&mut self, elements: &[Handle]) -> Result<Handle, EvalError> {
        self.host.array(elements)
    }

    /// An object of keys and values; of equal keys the last wins.
    ///
    /// # Errors
    /// [`EvalError::Budget`], and [`EvalError::InvalidType`] for a key that is not a string.
    pub fn new_object(&mut self, entries: &[(Handle, Handle)]) -> Result<Handle, EvalError> {
        self.host.object(entries)
    }

    /// A value from JSON.
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn new_json(&mut self, json: &serde_json::Value) -> Result<Handle, EvalError> {
        self.host.json(json)
    }

    /// The JSON text of a value, as a string.
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn new_json_text(&mut self, value: Handle) -> Result<Handle, EvalError> {
        self.host.json_text(value)
    }

    /// Charges work that grows with the input and is not seen by the evaluator.
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn charge_steps(&mut self, steps: usize) -> Result<(), EvalError> {
        self.host.steps(steps)
    }

    /// Returns the steps that are left of the budget.
    pub fn steps_left(&self) -> u64 {
        self.host.steps_left()
    }

    /// Charges the reading of a string: the steps that its length is worth.
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn charge_string(&mut self, value: Handle) -> Result<(), EvalError> {
        let Shape::String(string) = self.shape(value) else {
            return Ok(());
        };
        let steps = string.len() / STRING_BYTES_PER_STEP;
        self.charge_steps(steps)
    }

    /// The time, in nanoseconds after 1970-01-01T00:00:00Z.
    ///
    /// # Errors
    /// [`EvalError::InvalidValue`] where the evaluation has no clock, or the function's signature is not
    /// [`Signature::nondeterministic`](crate::Signature::nondeterministic).
    pub fn now_ns(&self) -> Result<i128, EvalError> {
        Ok(self
            .seed("the time is not available where this is evaluated")?
            .now_ns())
    }

    /// A random number.
    ///
    /// # Errors
    /// [`EvalError::InvalidValue`] where the evaluation has no random numbers, or the function's signature is
    /// not [`Signature::nondeterministic`](crate::Signature::nondeterministic).
    pub fn draw(&self) -> Result<u64, EvalError> {
        Ok(self
            .seed("random numbers are not available where this is evaluated")?
            .draw())
    }

    fn seed(&self, unknown: &str) -> Result<&EvalSeed, EvalError> {
        if !self.is_nondeterministic {
            return Err(self.invalid_value("it is not registered as nondeterministic"));
        }
        self.host.seed().ok_or_else(|| self.invalid_value(unknown))
    }

    /// Charges bytes that the function is about to allocate for itself.
    ///
    /// # Errors
    /// [`EvalError::Budget`]
    pub fn charge_bytes(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.host.build(bytes)
    }

    /// The error for a value of the right type that the function can not use.
    pub fn invalid_value(&self, message: impl Into<String>) -> EvalError {
        EvalError::InvalidValue {
            function: self.function.to_owned(),
            message: message.into(),
        }
    }

    /// The error for a value of the wrong type; `place` says which value.
    pub fn invalid_type(
        &self,
        place: impl Into<String>,
        expected: Types,
        found: Handle,
    ) -> EvalError {
        EvalError::InvalidType {
            function: self.function.to_owned(),
            place: place.into(),
            expected: expected.to_string(),
            found: self.shape(found).with_article().to_owned(),
        }
    }
}
