//! Evaluation: a walk over the tree, by reference.

use std::rc::Rc;

use crate::ast::{Ast, CompareOperator, Expr, ExprId};
use crate::budget::{Budget, Meter};
use crate::environment::{Environment, MissingKey};
use crate::error::{EvalError, Fault};
use crate::function::Function;
use crate::node::{Node, Shape};
use crate::seed::EvalSeed;
use crate::value::{Array, Object, Text, Value};

mod call;
mod project;

/// The charge for an element of a built array.
const ELEMENT_BYTES: usize = 32;

/// The charge for an entry of a built object.
const ENTRY_BYTES: usize = 56;

type EvalResult<'a, N> = Result<Value<'a, N>, Fault<'a>>;

/// One evaluation.
pub(crate) struct Evaluator<'a, N> {
    ast: &'a Ast,
    /// The functions by slot; `None` where no function has the name.
    functions: Vec<Option<&'a Function>>,
    /// The parameters by slot.
    parameters: Vec<&'a serde_json::Value>,
    missing_key: MissingKey,
    meter: Meter,
    seed: Option<&'a EvalSeed>,
    /// The values of the calls in progress.
    stack: Vec<Value<'a, N>>,
}

impl<'a, N: Node<'a>> Evaluator<'a, N> {
    pub(crate) fn new(ast: &'a Ast, environment: &Environment<'a>) -> Result<Self, EvalError> {
        let bound = |name: &'a str| {
            let unbound = || EvalError::UnboundParameter {
                name: name.to_owned(),
            };
            environment.parameters.parameter(name).ok_or_else(unbound)
        };
        Ok(Evaluator {
            ast,
            functions: ast
                .functions
                .iter()
                .map(|name| environment.functions.get(name))
                .collect(),
            parameters: ast
                .parameters
                .iter()
                .map(|name| bound(name))
                .collect::<Result<_, _>>()?,
            missing_key: environment.missing_key,
            meter: Meter::new(environment.budget),
            seed: environment.seed,
            stack: Vec::new(),
        })
    }

    pub(crate) fn run(mut self, root: N) -> Result<Value<'a, N>, EvalError> {
        Ok(self.evaluate(self.ast.root, &Value::document(root))?)
    }

    /// Evaluates the expression, and sets `left` to the rest of the budget.
    pub(crate) fn run_out_of(
        mut self,
        root: N,
        left: &mut Budget,
    ) -> Result<Value<'a, N>, EvalError> {
        let outcome = self.evaluate(self.ast.root, &Value::document(root));
        *left = self.meter.left();
        Ok(outcome?)
    }

    /// The value of a subexpression on the current value.
    fn evaluate(&mut self, id: ExprId, current: &Value<'a, N>) -> EvalResult<'a, N> {
        self.meter.enter()?;
        let outcome = self.expr(id, current);
        self.meter.leave();
        outcome
    }

    fn expr(&mut self, id: ExprId, current: &Value<'a, N>) -> EvalResult<'a, N> {
        match self.ast.expr(id) {
            Expr::Current => Ok(current.clone()),
            Expr::Field(name) => self.look_up(name, current),
            Expr::Index(index) => Ok(element(*index, current)),
            Expr::Literal(value) => Ok(Value::json(value)),
            Expr::Parameter(slot) => Ok(Value::json(self.parameters[slot.index()])),
            Expr::Path(steps) => self.path(steps, current),
            Expr::Pipe(stages) => self.pipe(stages, current),
            Expr::Or(operands) => self.or(operands, current),
            Expr::And(operands) => self.and(operands, current),
            Expr::Not(operand) => {
                let operand = self.forgiving(*operand, current)?;
                Ok(Value::Bool(!operand.is_truthy()))
            }
            Expr::Compare {
                operator,
                left,
                right,
            } => self.compare(*operator, *left, *right, current),
            Expr::List(elements) => self.list(elements, current),
            Expr::Object(entries) => self.object(entries, current),
            Expr::Call {
                function,
                arguments,
            } => self.call(*function, arguments, current),
            Expr::Slice(_)
            | Expr::Project { .. }
            | Expr::ProjectValues { .. }
            | Expr::Filter { .. }
            | Expr::Flatten(_) => self.collect(id, current),
        }
    }

    /// The value of a subexpression, null for a missing key.
    fn forgiving(&mut self, id: ExprId, current: &Value<'a, N>) -> EvalResult<'a, N> {
        match self.evaluate(id, current) {
            Err(fault) if fault.is_missing_key() => Ok(Value::Null),
            outcome => outcome,
        }
    }

    fn look_up(&self, name: &'a str, current: &Value<'a, N>) -> EvalResult<'a, N> {
        match current.field(name) {
            Some(value) => Ok(value),
            None if self.missing_key == MissingKey::Error
                && matches!(current.shape(), Shape::Object(_)) =>
            {
                Err(Fault::Missing(name))
            }
            None => Ok(Value::Null),
        }
    }

    fn path(&mut self, steps: &'a [ExprId], current: &Value<'a, N>) -> EvalResult<'a, N> {
        let Some((first, rest)) = steps.split_first() else {
            return Ok(current.clone());
        };
        let mut value = self.evaluate(*first, current)?;
        for step in rest {
            value = self.evaluate(*step, &value)?;
        }
        Ok(value)
    }

    fn pipe(&mut self, stages: &'a [ExprId], current: &Value<'a, N>) -> EvalResult<'a, N> {
        let Some((first, rest)) = stages.split_first() else {
            return Ok(current.clone());
        };
        let mut value = self.forgiving(*first, current)?;
        for stage in rest {
            value = self.forgiving(*stage, &value)?;
        }
        Ok(value)
    }

    fn or(&mut self, operands: &'a [ExprId], current: &Value<'a, N>) -> EvalResult<'a, N> {
        let mut value = Value::Null;
        for operand in operands {
            value = self.forgiving(*operand, current)?;
            if value.is_truthy() {
                break;
            }
        }
        Ok(value)
    }

    fn and(&mut self, operands: &'a [ExprId], current: &Value<'a, N>) -> EvalResult<'a, N> {
        let Some((last, rest)) = operands.split_last() else {
            return Ok(Value::Null);
        };
        for operand in rest {
            let value = self.forgiving(*operand, current)?;
            if !value.is_truthy() {
                return Ok(value);
            }
        }
        self.evaluate(*last, current)
    }

    fn compare(
        &mut self,
        operator: CompareOperator,
        left: ExprId,
        right: ExprId,
        current: &Value<'a, N>,
    ) -> EvalResult<'a, N> {
        let left = self.forgiving(left, current)?;
        let right = self.forgiving(right, current)?;
        let holds = match operator {
            CompareOperator::Equal => left.equals(&right, &mut self.meter)?,
            CompareOperator::NotEqual => !left.equals(&right, &mut self.meter)?,
            _ => {
                let (Shape::Number(left), Shape::Number(right)) = (left.shape(), right.shape())
                else {
                    return Ok(Value::Null);
                };
                let order = left.order(right);
                match operator {
                    CompareOperator::Less => order.is_lt(),
                    CompareOperator::LessOrEqual => order.is_le(),
                    CompareOperator::Greater => order.is_gt(),
                    _ => order.is_ge(),
                }
            }
        };
        Ok(Value::Bool(holds))
    }

    fn list(&mut self, exprs: &'a [ExprId], current: &Value<'a, N>) -> EvalResult<'a, N> {
        if current.is_null() {
            return Ok(Value::Null);
        }
        let mut elements = Vec::with_capacity(exprs.len());
        for expr in exprs {
            elements.push(self.forgiving(*expr, current)?);
        }
        self.meter.build(elements.len() * ELEMENT_BYTES)?;
        Ok(self.build_array(elements)?)
    }

    fn object(
        &mut self,
        exprs: &'a [(Box<str>, ExprId)],
        current: &Value<'a, N>,
    ) -> EvalResult<'a, N> {
        if current.is_null() {
            return Ok(Value::Null);
        }
        let mut entries = Vec::with_capacity(exprs.len());
        for (name, expr) in exprs {
            entries.push((Text::Borrowed(name), self.forgiving(*expr, current)?));
        }
        self.meter.build(entries.len() * ENTRY_BYTES)?;
        Ok(self.build_object(entries)?)
    }

    /// An array of these elements, whose bytes have been charged.
    fn build_array(&self, elements: Vec<Value<'a, N>>) -> Result<Value<'a, N>, EvalError> {
        let array = Value::Array(Rc::new(Array::new(elements)));
        self.meter.allow_depth(array.built_depth())?;
        Ok(array)
    }

    /// An object of these entries, whose bytes have been charged.
    fn build_object(
        &self,
        entries: Vec<(Text<'a>, Value<'a, N>)>,
    ) -> Result<Value<'a, N>, EvalError> {
        let object = Value::Object(Rc::new(Object::new(entries)));
        self.meter.allow_depth(object.built_depth())?;
        Ok(object)
    }
}

/// The element at an index that counts from the end if negative; null if there is none.
fn element<'a, N: Node<'a>>(index: i64, array: &Value<'a, N>) -> Value<'a, N> {
    let index = match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => match (array.shape(), usize::try_from(index.unsigned_abs())) {
            (Shape::Array(length), Ok(from_end)) => length.checked_sub(from_end),
            _ => None,
        },
    };
    index
        .and_then(|index| array.element(index))
        .unwrap_or(Value::Null)
}
