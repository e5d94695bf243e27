//! Projections. Each element is handed on at once, so that a chain of projections builds a single array, at its end.

use crate::ast::{Expr, ExprId, Slice};
use crate::environment::MissingKey;
use crate::error::Fault;
use crate::evaluator::{ELEMENT_BYTES, EvalResult, Evaluator};
use crate::node::{Node, Shape};
use crate::value::Value;

/// The receiver of the elements.
type Sink<'s, 'a, N> = dyn FnMut(&mut Evaluator<'a, N>, Value<'a, N>) -> Result<(), Fault<'a>> + 's;

impl<'a, N: Node<'a>> Evaluator<'a, N> {
    /// The elements of a projection as an array; null if what is projected is none.
    pub(super) fn collect(&mut self, id: ExprId, current: &Value<'a, N>) -> EvalResult<'a, N> {
        let mut elements = Vec::new();
        let is_array = self.each_projected(id, current, &mut |evaluator, element| {
            evaluator.meter.build(ELEMENT_BYTES)?;
            elements.push(element);
            Ok(())
        })?;
        Ok(if is_array {
            self.build_array(elements)?
        } else {
            Value::Null
        })
    }

    /// Hands the elements of a subexpression's value to `sink`. Says whether the value is an array; if not, what `sink`
    /// was handed counts for nothing.
    fn each(
        &mut self,
        id: ExprId,
        current: &Value<'a, N>,
        sink: &mut Sink<'_, 'a, N>,
    ) -> Result<bool, Fault<'a>> {
        self.meter.enter()?;
        let outcome = self.each_projected(id, current, sink);
        self.meter.leave();
        outcome
    }

    fn each_projected(
        &mut self,
        id: ExprId,
        current: &Value<'a, N>,
        sink: &mut Sink<'_, 'a, N>,
    ) -> Result<bool, Fault<'a>> {
        match self.ast.expr(id) {
            Expr::Project { left, right } => {
                self.each(*left, current, &mut |evaluator, element| {
                    evaluator.project(*right, element, sink)
                })
            }
            Expr::Filter {
                left,
                condition,
                right,
            } => self.each_unless_refused(*left, current, &mut |evaluator, element| {
                if evaluator.forgiving(*condition, &element)?.is_truthy() {
                    evaluator.project(*right, element, sink)?;
                }
                Ok(())
            }),
            Expr::ProjectValues { left, right } => self.each_value(*left, *right, current, sink),
            Expr::Flatten(left) => {
                self.each_unless_refused(*left, current, &mut |evaluator, element| {
                    evaluator.each_flat(element, sink)
                })
            }
            Expr::Slice(slice) => self.each_in_slice(*slice, current, sink),
            _ => self.each_element(id, current, sink),
        }
    }

    /// Passes each element of a subexpression's value to `sink`. Under [`MissingKey::Error`], a value counts as no
    /// array if a function refuses something on the way to it. What is refused behind the value, in `sink`, stays an
    /// error. It is kept until all of the value is known, since nothing is behind what is no array.
    fn each_unless_refused(
        &mut self,
        id: ExprId,
        current: &Value<'a, N>,
        sink: &mut Sink<'_, 'a, N>,
    ) -> Result<bool, Fault<'a>> {
        if self.missing_key == MissingKey::Null {
            return self.each(id, current, sink);
        }
        let mut behind = None;
        let outcome = self.each(id, current, &mut |evaluator, element| {
            if behind.is_some() {
                return Ok(());
            }
            match sink(evaluator, element) {
                Err(fault) if fault.is_refusal() => behind = Some(fault),
                outcome => outcome?,
            }
            Ok(())
        });
        match (outcome, behind) {
            (Err(fault), _) if fault.is_refusal() => Ok(false),
            (Ok(true), Some(fault)) => Err(fault),
            (outcome, _) => outcome,
        }
    }

    /// Hands on what the right side takes of an element, unless it is null.
    fn project(
        &mut self,
        right: ExprId,
        element: Value<'a, N>,
        sink: &mut Sink<'_, 'a, N>,
    ) -> Result<(), Fault<'a>> {
        let value = match self.ast.expr(right) {
            Expr::Current => element,
            _ => self.forgiving(right, &element)?,
        };
        if value.is_null() {
            Ok(())
        } else {
            sink(self, value)
        }
    }

    fn each_value(
        &mut self,
        left: ExprId,
        right: ExprId,
        current: &Value<'a, N>,
        sink: &mut Sink<'_, 'a, N>,
    ) -> Result<bool, Fault<'a>> {
        let object = match self.forgiving(left, current) {
            Err(fault) if self.missing_key == MissingKey::Error && fault.is_refusal() => {
                return Ok(false);
            }
            outcome => outcome?,
        };
        if !matches!(object.shape(), Shape::Object(_)) {
            return Ok(false);
        }
        for (_, value) in object.entries() {
            self.meter.step()?;
            self.project(right, value, sink)?;
        }
        Ok(true)
    }

    fn each_flat(
        &mut self,
        element: Value<'a, N>,
        sink: &mut Sink<'_, 'a, N>,
    ) -> Result<(), Fault<'a>> {
        if !matches!(element.shape(), Shape::Array(_)) {
            return sink(self, element);
        }
        for inner in element.elements() {
            self.meter.step()?;
            sink(self, inner)?;
        }
        Ok(())
    }

    fn each_in_slice(
        &mut self,
        slice: Slice,
        array: &Value<'a, N>,
        sink: &mut Sink<'_, 'a, N>,
    ) -> Result<bool, Fault<'a>> {
        let Shape::Array(length) = array.shape() else {
            return Ok(false);
        };
        if slice.step == 1 {
            // In order: one pass, where reaching each index may take one.
            let mut indexes = slice.indexes(length);
            let Some(first) = indexes.next() else {
                return Ok(true);
            };
            let taken = 1 + indexes.count();
            self.meter.steps(first)?;
            for element in array.elements().skip(first).take(taken) {
                self.meter.step()?;
                sink(self, element)?;
            }
            return Ok(true);
        }
        // Any other order: the elements are laid out once.
        self.meter.steps(length)?;
        self.meter.build(length.saturating_mul(ELEMENT_BYTES))?;
        let elements: Vec<_> = array.elements().collect();
        for element in slice
            .indexes(length)
            .filter_map(|index| elements.get(index))
        {
            self.meter.step()?;
            sink(self, element.clone())?;
        }
        Ok(true)
    }

    fn each_element(
        &mut self,
        id: ExprId,
        current: &Value<'a, N>,
        sink: &mut Sink<'_, 'a, N>,
    ) -> Result<bool, Fault<'a>> {
        let array = match self.expr(id, current) {
            Err(fault) if fault.is_missing_key() => return Ok(false),
            outcome => outcome?,
        };
        if !matches!(array.shape(), Shape::Array(_)) {
            return Ok(false);
        }
        for element in array.elements() {
            self.meter.step()?;
            sink(self, element)?;
        }
        Ok(true)
    }
}
