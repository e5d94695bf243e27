//! Calls of functions: what a function sees of the evaluation.

use std::rc::Rc;

use crate::ast::{Argument, ExprId, Slot};
use crate::error::{BudgetKind, EvalError, Fault};
use crate::evaluator::{ELEMENT_BYTES, ENTRY_BYTES, EvalResult, Evaluator};
use crate::function::{Call, Handle, Handles, Host, Types};
use crate::node::{Node, Number, Shape};
use crate::seed::EvalSeed;
use crate::value::{JsonText, NoJson, Text, Value, too_deep};

impl<'a, N: Node<'a>> Evaluator<'a, N> {
    pub(super) fn call(
        &mut self,
        slot: Slot,
        arguments: &'a [Argument],
        current: &Value<'a, N>,
    ) -> EvalResult<'a, N> {
        let base = self.stack.len();
        let outcome = self.call_at(base, slot, arguments, current);
        self.stack.truncate(base);
        outcome
    }

    /// A call whose arguments go on the stack from `base` on.
    fn call_at(
        &mut self,
        base: usize,
        slot: Slot,
        arguments: &'a [Argument],
        current: &Value<'a, N>,
    ) -> EvalResult<'a, N> {
        let name = self.ast.function_name(slot);
        let Some(function) = self.functions[slot.index()] else {
            return Err(EvalError::UnknownFunction {
                function: name.to_owned(),
            }
            .into());
        };
        function.signature().check_arity(name, arguments.len())?;
        for argument in arguments {
            let value = match argument {
                Argument::Value(expr) => self.forgiving(*expr, current)?,
                Argument::Reference(_) => Value::Null,
            };
            self.stack.push(value);
        }
        for (index, argument) in arguments.iter().enumerate() {
            self.check_type(
                name,
                index,
                argument,
                base + index,
                function.signature().types(index),
            )?;
        }
        let first = Handle::new(base);
        let is_nondeterministic = function.signature().is_nondeterministic();
        let held_before = self.meter.json_bytes_held();
        let mut call = Call::new(name, first, arguments, is_nondeterministic, self);
        let result = function.run(&mut call);
        self.meter.release_json(held_before);
        Ok(self.value(result?).clone())
    }

    fn check_type(
        &mut self,
        function: &str,
        index: usize,
        argument: &Argument,
        place: usize,
        expected: Types,
    ) -> Result<(), Fault<'a>> {
        let found = match argument {
            Argument::Reference(_) if expected.has(Types::EXPRESSION) => return Ok(()),
            Argument::Reference(_) => "an expression".to_owned(),
            Argument::Value(_) => {
                let value = &self.stack[place];
                let shape = value.shape();
                if expected.has(Types::of(shape)) {
                    return Ok(());
                }
                if let Shape::Array(length) = shape {
                    self.meter.steps(length)?;
                    if expected
                        .has_array_of(value.elements().map(|element| Types::of(element.shape())))
                    {
                        return Ok(());
                    }
                }
                shape.with_article().to_owned()
            }
        };
        Err(EvalError::InvalidType {
            function: function.to_owned(),
            place: format!("argument {}", index + 1),
            expected: expected.to_string(),
            found,
        }
        .into())
    }

    /// The value of a handle. A handle of a call that is over is null.
    fn value(&self, handle: Handle) -> &Value<'a, N> {
        self.stack.get(handle.index()).unwrap_or(&Value::Null)
    }

    /// Checks that so many more values may be there during calls.
    fn make_room(&self, more: usize) -> Result<(), EvalError> {
        let values = self.stack.len().saturating_add(more);
        self.meter
            .allow_held(values.saturating_mul(size_of::<Value<'a, N>>()))
    }

    fn keep(&mut self, value: Value<'a, N>) -> Handle {
        self.stack.push(value);
        Handle::new(self.stack.len() - 1)
    }

    /// An owned JSON document as a value.
    fn adopt(&mut self, json: &serde_json::Value) -> Result<Value<'a, N>, EvalError> {
        self.meter.enter()?;
        let value = match json {
            serde_json::Value::Array(elements) => {
                self.meter
                    .build(elements.len().saturating_mul(ELEMENT_BYTES))?;
                let elements = elements
                    .iter()
                    .map(|element| self.adopt(element))
                    .collect::<Result<Vec<_>, _>>()?;
                self.build_array(elements)?
            }
            serde_json::Value::Object(entries) => {
                self.meter
                    .build(entries.len().saturating_mul(ENTRY_BYTES))?;
                let mut adopted = Vec::with_capacity(entries.len());
                for (name, value) in entries {
                    adopted.push((self.text(name)?, self.adopt(value)?));
                }
                self.build_object(adopted)?
            }
            scalar => self.built_scalar(scalar.shape())?,
        };
        self.meter.leave();
        Ok(value)
    }

    fn built_scalar(&mut self, scalar: Shape<'_>) -> Result<Value<'a, N>, EvalError> {
        Ok(match scalar {
            Shape::Null | Shape::Array(_) | Shape::Object(_) => Value::Null,
            Shape::Bool(boolean) => Value::Bool(boolean),
            Shape::Number(Number::F64(float)) if !float.is_finite() => Value::Null,
            Shape::Number(number) => Value::Number(number),
            Shape::String(string) => Value::String(self.text(string)?),
        })
    }

    fn text(&mut self, text: &str) -> Result<Text<'a>, EvalError> {
        self.meter.build(text.len())?;
        Ok(Text::Shared(Rc::from(text)))
    }

    /// A value as the key of an entry.
    fn key(&mut self, handle: Handle) -> Result<Text<'a>, EvalError> {
        let borrowed = match self.value(handle) {
            Value::String(text) => Some(text.clone()),
            Value::Borrowed(node) => match node.shape() {
                Shape::String(string) => Some(Text::Borrowed(string)),
                _ => None,
            },
            _ => None,
        };
        borrowed.ok_or_else(|| EvalError::InvalidType {
            function: "object".to_owned(),
            place: "a key".to_owned(),
            expected: Types::STRING.to_string(),
            found: self.value(handle).shape().with_article().to_owned(),
        })
    }
}

impl<'a, N: Node<'a>> Host for Evaluator<'a, N> {
    fn shape(&self, handle: Handle) -> Shape<'_> {
        self.value(handle).shape()
    }

    fn field(&mut self, handle: Handle, name: &str) -> Option<Handle> {
        let value = self.value(handle).field(name)?;
        Some(self.keep(value))
    }

    fn elements(&mut self, handle: Handle) -> Result<Handles, EvalError> {
        let array = self.value(handle).clone();
        let Shape::Array(length) = array.shape() else {
            return Ok(Handles::none());
        };
        self.meter.steps(length)?;
        self.make_room(length)?;
        let first = self.stack.len();
        self.stack.extend(array.elements());
        Ok(Handles::new(first, self.stack.len()))
    }

    fn entries(&mut self, handle: Handle) -> Result<Handles, EvalError> {
        let object = self.value(handle).clone();
        let Shape::Object(length) = object.shape() else {
            return Ok(Handles::none());
        };
        self.meter.steps(length)?;
        self.make_room(length.saturating_mul(2))?;
        let first = self.stack.len();
        for (key, value) in object.entries() {
            self.stack.push(Value::String(key));
            self.stack.push(value);
        }
        Ok(Handles::new(first, self.stack.len()))
    }

    fn scalar(&mut self, scalar: Shape<'_>) -> Result<Handle, EvalError> {
        let value = self.built_scalar(scalar)?;
        Ok(self.keep(value))
    }

    fn json(&mut self, json: &serde_json::Value) -> Result<Handle, EvalError> {
        let value = self.adopt(json)?;
        Ok(self.keep(value))
    }

    fn array(&mut self, elements: &[Handle]) -> Result<Handle, EvalError> {
        self.meter
            .build(elements.len().saturating_mul(ELEMENT_BYTES))?;
        let elements = elements
            .iter()
            .map(|handle| self.value(*handle).clone())
            .collect();
        let array = self.build_array(elements)?;
        Ok(self.keep(array))
    }

    fn object(&mut self, entries: &[(Handle, Handle)]) -> Result<Handle, EvalError> {
        self.meter
            .build(entries.len().saturating_mul(ENTRY_BYTES))?;
        let mut built = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            built.push((self.key(*key)?, self.value(*value).clone()));
        }
        let object = self.build_object(built)?;
        Ok(self.keep(object))
    }

    fn apply(&mut self, reference: ExprId, current: Handle) -> Result<Handle, EvalError> {
        self.make_room(1)?;
        let current = self.value(current).clone();
        let value = self.forgiving(reference, &current)?;
        Ok(self.keep(value))
    }

    fn equal(&mut self, left: Handle, right: Handle) -> Result<bool, EvalError> {
        let (left, right) = (self.value(left).clone(), self.value(right).clone());
        left.equals(&right, &mut self.meter)
    }

    fn contains(&mut self, array: Handle, element: Handle) -> Result<bool, EvalError> {
        let (array, wanted) = (self.value(array).clone(), self.value(element).clone());
        for element in array.elements() {
            if element.equals(&wanted, &mut self.meter)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn json_text(&mut self, handle: Handle) -> Result<Handle, EvalError> {
        let text = JsonText::of(self.value(handle), self.meter.text_bytes_max());
        let text = text.map_err(|which| match which {
            BudgetKind::Depth => too_deep(),
            _ => self.meter.over_text(),
        })?;
        self.scalar(Shape::String(&text))
    }

    fn to_json(&mut self, handle: Handle) -> Result<serde_json::Value, EvalError> {
        let bytes_max = self.meter.json_limits().bytes_max();
        let (json, bytes) = self.value(handle).convert_within(bytes_max);
        match json {
            Ok(json) => self.meter.hold_json(bytes).map(|()| json),
            Err(NoJson::TooDeep) => Err(too_deep()),
            Err(NoJson::TooLarge) => Err(self.meter.over_json()),
        }
    }

    fn hold_json(&mut self, bytes: u64) -> Result<(), EvalError> {
        self.meter.hold_json(bytes)
    }

    fn json_bytes_max(&self) -> u64 {
        self.meter.json_limits().bytes_max()
    }

    fn steps(&mut self, steps: usize) -> Result<(), EvalError> {
        self.meter.steps(steps)
    }

    fn steps_left(&self) -> u64 {
        self.meter.left().steps
    }

    fn build(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.meter.build(bytes)
    }

    fn seed(&self) -> Option<&EvalSeed> {
        self.seed
    }
}
