//! Evaluation over a request, within a budget.

mod arithmetic;
mod bind;
mod collections;
mod fact;
mod logic;
mod narrowed;
mod outcome;
mod results;
mod subquery;
mod transform;

use serde_json::Value;

pub use results::{JsonPatchOperation, PatchOp};

use crate::{
    Arrival, Budget, EvalError, Host, Input, Program,
    ast::{Expr, Operator, Root},
    functions::{CallContext, Tools},
    limits::EVALUATION_DEPTH_MAX,
    value::{List, Map, Val, compare, equal, no_overload},
};

/// The values of an expression's roots. A missing one is null, or what [`Roots::absent_is_empty`] says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roots<'v> {
    /// The root `object`.
    pub object: Option<&'v Value>,
    /// The root `oldObject`.
    pub old_object: Option<&'v Value>,
    /// `request`, as in an AdmissionReview. A field that is empty or null is not there, as where the API
    /// server makes the request.
    pub request: Option<&'v Value>,
    /// The value of `request.object`; `None`: `request` has the value, or else it is that of the root `object`.
    pub request_object: Option<&'v Value>,
    /// The value of `request.oldObject`; `None`: `request` has the value, or else it is that of the root `oldObject`.
    pub request_old_object: Option<&'v Value>,
    /// The root `params`.
    pub params: Option<&'v Value>,
    /// The root `namespaceObject`.
    pub namespace: Option<&'v Value>,
    /// `exceptions.allowedImages`: those of the exceptions that apply.
    pub allowed_images: &'v [Value],
    /// `exceptions.allowedValues`: those of the exceptions that apply.
    pub allowed_values: &'v [Value],
    /// A missing root `object` or `oldObject` is an empty map, as in policies of Kyverno's kinds.
    pub absent_is_empty: bool,
}

/// Expressions on their way through one request: what they find out of variables, they share, and their
/// budget.
pub struct Machine<'v> {
    roots: Roots<'v>,
    variables: &'v [Program],
    inputs: &'v [Input<'v>],
    /// The value of each variable, once it is evaluated.
    known: Vec<Option<Result<Val<'v>, EvalError>>>,
    /// The variables of macros, the innermost last.
    locals: Vec<Val<'v>>,
    /// Variables of macros that are evaluated when they are needed, the innermost last.
    lazy: Vec<bind::LazyLocal<'v>>,
    depth: usize,
    tools: Tools,
    host: Option<&'v dyn Host<'v>>,
    /// A fact was asked for that is not there yet.
    lacks: bool,
    /// Facts that may be kept in views are unknown, whoever has them.
    is_without_lists: bool,
    /// The root `object` of each variable; `None`: the root of the expressions.
    pinned: &'v [Option<&'v Value>],
}

impl<'v> Machine<'v> {
    /// `variables` are those that the programs were compiled with, in order.
    pub fn new(roots: Roots<'v>, variables: &'v [Program], budget: Budget) -> Self {
        Self {
            roots,
            variables,
            inputs: &[],
            known: vec![None; variables.len()],
            locals: Vec::new(),
            lazy: Vec::new(),
            depth: 0,
            tools: Tools::new(budget),
            host: None,
            lacks: false,
            is_without_lists: false,
            pinned: &[],
        }
    }

    /// Sets the root `object` of variables, in their order; `None`: that of the expressions.
    #[must_use]
    pub fn with_pinned(self, pinned: &'v [Option<&'v Value>]) -> Self {
        Self { pinned, ..self }
    }

    /// Returns the places of the variables that were evaluated.
    pub fn evaluated(&self) -> impl Iterator<Item = usize> {
        let all = self.known.iter().enumerate();
        all.filter_map(|(at, known)| known.is_some().then_some(at))
    }

    /// Sets the clock and the random numbers; if absent, `time.now()` and `random()` fail.
    #[must_use]
    pub fn with_arrival(mut self, arrival: Arrival) -> Self {
        self.tools.arrival = Some(arrival);
        self
    }

    /// Returns whether the arrival was asked for: with another one, expressions may come to another value.
    pub fn depends_on_arrival(&self) -> bool {
        self.tools.depends_on_arrival
    }

    /// With facts. Where one is not there yet, an expression comes to [`EvalError::Unknown`], unless what is there
    /// decides.
    #[must_use]
    pub fn with_host(mut self, host: &'v dyn Host<'v>) -> Self {
        self.host = Some(host);
        self
    }

    /// With the values of the [inputs](crate::Names::add_input), in the order in which they were added.
    #[must_use]
    pub fn with_inputs(self, inputs: &'v [Input<'v>]) -> Self {
        Self { inputs, ..self }
    }

    /// The rest of the budget.
    pub fn budget(&self) -> &Budget {
        &self.tools.budget
    }

    /// Evaluates an expression that has to be true or false.
    ///
    /// # Errors
    /// The value is an error, or neither true nor false.
    pub fn truth(&mut self, program: &'v Program) -> Result<bool, EvalError> {
        match self.value(program)? {
            Val::Bool(value) => Ok(value),
            other => Err(EvalError::Refused(format!(
                "it came to a {}, and not to true or false",
                other.type_name()
            ))),
        }
    }

    /// Evaluates an expression that has to be a string; `None`: null.
    ///
    /// # Errors
    /// The value is an error, or no string.
    pub fn text(&mut self, program: &'v Program) -> Result<Option<String>, EvalError> {
        match self.value(program)? {
            Val::Text(text) => Ok(Some(text.to_string())),
            Val::Null => Ok(None),
            other => Err(EvalError::Refused(format!(
                "it came to a {}, and not to a string",
                other.type_name()
            ))),
        }
    }

    pub(crate) fn value(&mut self, program: &'v Program) -> Result<Val<'v>, EvalError> {
        self.tools.begin();
        self.eval(program.expr())
    }

    fn eval(&mut self, expr: &'v Expr) -> Result<Val<'v>, EvalError> {
        self.tools.step()?;
        if self.depth == EVALUATION_DEPTH_MAX {
            return Err(EvalError::TooDeep);
        }
        self.depth += 1;
        let value = self.expr(expr);
        self.depth -= 1;
        value
    }

    fn expr(&mut self, expr: &'v Expr) -> Result<Val<'v>, EvalError> {
        match expr {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Root(root) => Ok(self.root(*root)),
            Expr::Request(field) => self
                .request(field)
                .ok_or_else(|| EvalError::NoSuchKey((*field).to_owned())),
            Expr::HasRequest(field) => Ok(Val::Bool(self.request(field).is_some())),
            Expr::Variable(at) => self.variable(*at),
            Expr::Input(at) => match self.inputs.get(*at) {
                Some(Input(value)) => value.clone(),
                None => Err(EvalError::refused("an input is missing")),
            },
            Expr::Local(at) if self.lazy.is_empty() => {
                Ok(self.locals.get(*at).cloned().unwrap_or(Val::Null))
            }
            Expr::Local(at) => self.local(*at),
            Expr::Select(operand, field) => self.select(operand, field),
            Expr::Has(operand, field) => self.has(operand, field),
            Expr::Index(pair) => self.index(&pair.0, &pair.1),
            Expr::OptionalIndex(pair) => self.optional_index(&pair.0, &pair.1),
            Expr::Not(operand) => match self.eval(operand)? {
                Val::Bool(value) => Ok(Val::Bool(!value)),
                other => Err(no_overload("!_", &[other])),
            },
            Expr::Negate(operand) => arithmetic::negate(&self.eval(operand)?),
            Expr::And(pair) => self.and(&pair.0, &pair.1),
            Expr::Or(pair) => self.or(&pair.0, &pair.1),
            Expr::Conditional(parts) => match self.eval(&parts.0)? {
                Val::Bool(true) => self.eval(&parts.1),
                Val::Bool(false) => self.eval(&parts.2),
                other => Err(no_overload("_?_:_", &[other])),
            },
            Expr::Binary(operator, pair) => self.binary(*operator, &pair.0, &pair.1),
            Expr::List(elements) => self.list(elements),
            Expr::Map(entries) => self.map(entries),
            Expr::Struct(literal) => self.struct_value(literal),
            Expr::Macro(made) => self.run_macro(made),
            Expr::Fact(call) => self.fact(call),
            Expr::Subquery(call) => self.subquery(call),
            Expr::Call(call) => {
                let arguments = match call.function.is_fallback {
                    true => self.fallback(&call.arguments)?,
                    false => self.all(&call.arguments)?,
                };
                // Functions look through the texts that they are given, at least once.
                for argument in &arguments {
                    if let Val::Text(text) = argument {
                        self.tools.budget.charge_scan(text.len())?;
                    }
                }
                let mut context = CallContext {
                    name: call.function.name,
                    pattern: call.pattern.as_deref(),
                    site: call.site,
                    tools: &mut self.tools,
                };
                (call.function.run)(&mut context, &arguments)
            }
        }
    }

    fn root(&self, root: Root) -> Val<'v> {
        let value = match root {
            Root::Object => return self.subject(self.roots.object),
            Root::OldObject => return self.subject(self.roots.old_object),
            Root::Params => self.roots.params,
            Root::Namespace => self.roots.namespace,
            Root::RequestObject => self
                .of_request("object", self.roots.request_object)
                .or(self.roots.object),
            Root::RequestOldObject => self
                .of_request("oldObject", self.roots.request_old_object)
                .or(self.roots.old_object),
            Root::AllowedImages => return Val::List(List::Json(self.roots.allowed_images)),
            Root::AllowedValues => return Val::List(List::Json(self.roots.allowed_values)),
        };
        value.map_or(Val::Null, Val::of)
    }

    /// The root `object` or `oldObject`.
    fn subject(&self, object: Option<&'v Value>) -> Val<'v> {
        match object {
            Some(object) => Val::of(object),
            None if self.roots.absent_is_empty => Val::Map(Map::Own([].into())),
            None => Val::Null,
        }
    }

    /// An object that the request itself holds, `apart` or among its fields.
    fn of_request(&self, field: &str, apart: Option<&'v Value>) -> Option<&'v Value> {
        let found = apart.or_else(|| self.roots.request?.get(field))?;
        (!found.is_null()).then_some(found)
    }

    fn request(&self, field: &str) -> Option<Val<'v>> {
        let value = self.roots.request?.get(field)?;
        let is_there = !value.is_null() && value.as_str() != Some("");
        is_there.then(|| Val::of(value))
    }

    /// Evaluated where it is first referred to, once.
    fn variable(&mut self, at: usize) -> Result<Val<'v>, EvalError> {
        if let Some(Some(known)) = self.known.get(at) {
            return known.clone();
        }
        let Some(program) = self.variables.get(at) else {
            return Err(EvalError::refused("a variable is missing"));
        };
        let value = self.within_variable(at, |machine| machine.eval(program.expr()));
        // Nothing is known of what was not evaluated to its end.
        if !matches!(value, Err(EvalError::TooDeep)) {
            self.known[at] = Some(value.clone());
        }
        value
    }

    /// Evaluates what stands in the variable at this place: without the variables of macros around, and on the object
    /// that the variable is pinned to.
    fn within_variable<T>(&mut self, at: usize, evaluate: impl FnOnce(&mut Self) -> T) -> T {
        let around = std::mem::take(&mut self.locals);
        let lazy = std::mem::take(&mut self.lazy);
        let object = self.roots.object;
        self.roots.object = self.pinned.get(at).copied().flatten().or(object);
        let found = evaluate(self);
        self.roots.object = object;
        (self.locals, self.lazy) = (around, lazy);
        found
    }

    fn binary(
        &mut self,
        operator: Operator,
        left: &'v Expr,
        right: &'v Expr,
    ) -> Result<Val<'v>, EvalError> {
        let (left, right) = self.both(left, right)?;
        let budget = &mut self.tools.budget;
        Ok(Val::Bool(match operator {
            Operator::Equal => equal(&left, &right, budget)?,
            Operator::NotEqual => !equal(&left, &right, budget)?,
            Operator::In => return self.contains(&left, &right),
            Operator::Less
            | Operator::LessOrEqual
            | Operator::Greater
            | Operator::GreaterOrEqual => {
                let Some(order) = compare(&left, &right, budget)? else {
                    return Err(no_overload(operator.name(), &[left, right]));
                };
                order.is_some_and(|order| match operator {
                    Operator::Less => order.is_lt(),
                    Operator::LessOrEqual => order.is_le(),
                    Operator::Greater => order.is_gt(),
                    _ => order.is_ge(),
                })
            }
            _ => return arithmetic::compute(operator, left, right, budget),
        }))
    }
}

#[cfg(test)]
mod tests;
