//! Parts that are evaluated where their lists are kept.

use super::Machine;
use crate::{
    EvalError, JsonError,
    ast::{Expr, ExprLocation, SubqueryCall},
    subquery::{SubqueryAnswer, SubqueryRequest},
    value::Val,
};

impl<'v> Machine<'v> {
    /// Evaluates a subquery. If its value does not depend on the lists, no replica is asked.
    pub(super) fn subquery(&mut self, call: &'v SubqueryCall) -> Result<Val<'v>, EvalError> {
        let Some(host) = self.host.filter(|host| host.takes_subqueries()) else {
            return self.eval(&call.whole);
        };
        if self.is_without_lists {
            return self.eval(&call.whole);
        }
        match self.without_lists(&call.whole) {
            Err(EvalError::Unknown) => {}
            decided => return decided,
        }
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for places in &call.arguments {
            let mut values = Vec::with_capacity(places.len());
            for place in places {
                match self.value_at(call, place) {
                    Ok(value) => values.push(value),
                    Err(JsonError::Failed(error @ EvalError::Unknown)) => return Err(error),
                    Err(JsonError::Failed(error)) if error.is_budget() => return Err(error),
                    // The evaluation of the whole call reports the fault, if it is reached.
                    Err(_) => return self.eval(&call.whole),
                }
            }
            arguments.push(values);
        }
        let (mut parameters, mut errors) = (Vec::with_capacity(call.parameters.len()), Vec::new());
        let mut lacks = false;
        for place in &call.parameters {
            match self.value_at(call, place) {
                Ok(value) => parameters.push(Ok(value)),
                Err(JsonError::NoJson(_)) => return self.eval(&call.whole),
                Err(JsonError::Failed(EvalError::Unknown)) => lacks = true,
                Err(JsonError::Failed(error)) if error.is_budget() => return Err(error),
                Err(JsonError::Failed(error)) => {
                    errors.push((parameters.len(), error.clone()));
                    parameters.push(Err(error.to_string()));
                }
            }
        }
        if lacks {
            return Err(EvalError::Unknown);
        }
        let request = SubqueryRequest {
            subquery: &call.subquery,
            arguments,
            parameters,
        };
        match host.subquery(request) {
            SubqueryAnswer::Value(value) => Ok(Val::of(value)),
            SubqueryAnswer::Failed(message) => Err(EvalError::Refused(message.to_owned())),
            SubqueryAnswer::Parameter(at) => {
                let error = errors.into_iter().find(|(place, _)| *place == at);
                match error {
                    Some((_, error)) => Err(error),
                    None => self.eval(&call.whole),
                }
            }
            SubqueryAnswer::Unknown => {
                self.lacks = true;
                Err(EvalError::Unknown)
            }
            SubqueryAnswer::Declined => self.eval(&call.whole),
            SubqueryAnswer::Unread(id, message) => Err(EvalError::Fact {
                id,
                message: message.to_owned(),
            }),
        }
    }

    /// Evaluates a subexpression as if no list were known, and makes no call that others see.
    fn without_lists(&mut self, expr: &'v Expr) -> Result<Val<'v>, EvalError> {
        let nothing = vec![None; self.variables.len()];
        let known = std::mem::replace(&mut self.known, nothing);
        let (lazy, lacks) = (self.lazy.clone(), self.lacks);
        self.is_without_lists = true;
        let value = self.eval(expr);
        self.is_without_lists = false;
        // What was found out without lists is forgotten.
        (self.known, self.lazy, self.lacks) = (known, lazy, lacks);
        value
    }

    fn value_at(
        &mut self,
        call: &'v SubqueryCall,
        place: &'v ExprLocation,
    ) -> Result<serde_json::Value, JsonError> {
        let missing =
            || JsonError::Failed(EvalError::refused("a term of the expression is missing"));
        let Some(at) = place.variable else {
            let expr = call.whole.at(&place.path).ok_or_else(missing)?;
            return self.exact_json_of(expr);
        };
        let variable = self.variables.get(at).ok_or_else(missing)?;
        let expr = variable.expr().at(&place.path).ok_or_else(missing)?;
        self.within_variable(at, |machine| machine.exact_json_of(expr))
    }
}
