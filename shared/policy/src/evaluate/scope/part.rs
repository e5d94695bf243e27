//! Uses of a fact that are asked for in place of the fact.
//!
//! What is asked for here is never more than a shorter way. Wherever it leads nowhere (`None`), the use
//! is evaluated over the fact itself, and comes to what it comes to there, errors included.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_jmespath::EvalError;
use anteroom_model::FactError;
use serde_json::Value;

use super::{Interrupt, Scope, State};
use crate::{
    VariableErrorKind,
    evaluate::facts::{Lookup, Question},
    policy::Loader,
    template::{Bound, Prepared, ValueTemplate},
    uses::{Given, Part, Side},
};

impl Scope<'_> {
    /// The value of an expression, if it can be asked for.
    pub(super) fn asked_value(
        &mut self,
        prepared: &Prepared,
    ) -> Result<Option<Arc<Value>>, Interrupt> {
        match prepared.parts().and_then(|parts| parts.value.as_ref()) {
            Some(part) => self.ask(prepared, part, None),
            None => Ok(None),
        }
    }

    /// Whether a condition is met one side of which is `prepared`, if it can be asked; `other` is the
    /// other side.
    ///
    /// The question is made of the other side's value. As long as that is waited for, nothing is asked;
    /// an error of either side is left to who evaluates both.
    pub(in crate::evaluate) fn asked_verdict(
        &mut self,
        prepared: &Prepared,
        other: &ValueTemplate,
    ) -> Result<Option<bool>, Interrupt> {
        let probe = prepared.parts().and_then(|parts| parts.probe.as_ref());
        let Some((part, side)) = probe.filter(|(part, _)| self.may_ask(part)) else {
            return Ok(None);
        };
        let verdict = match other.value(self) {
            Ok(value) => self.ask(prepared, part, Some((*side, value)))?,
            Err(Interrupt::Pending) => return Err(Interrupt::Pending),
            Err(_) => None,
        };
        Ok(verdict.and_then(|verdict| verdict.as_bool()))
    }

    /// What is loaded already needs no asking.
    fn may_ask(&self, part: &Part) -> bool {
        self.facts.asks_for_parts()
            && self.find(&part.variable) == Some(part.entry)
            && matches!(self.states.0[part.entry], State::Unloaded)
    }

    fn ask(
        &mut self,
        prepared: &Prepared,
        part: &Part,
        side: Option<(Side, Arc<Value>)>,
    ) -> Result<Option<Arc<Value>>, Interrupt> {
        if !self.may_ask(part) {
            return Ok(None);
        }
        let Some(mut asked) = self.question(prepared, part)? else {
            return Ok(None);
        };
        if let Some((side, value)) = side {
            let value = Arc::unwrap_or_clone(value);
            asked.parameters.insert(side.other().to_owned(), value);
        }
        let error = match self.facts.look_up(&part.variable, asked) {
            Lookup::Answer(Ok(value)) => return Ok(Some(value)),
            Lookup::Pending => return Err(Interrupt::Pending),
            Lookup::TooMany | Lookup::Declined | Lookup::LeftOut => return Ok(None),
            Lookup::Answer(Err(error)) => error,
        };
        match missing_key(&error).filter(|_| part.misses_itself) {
            Some(error) => Err(self.variable_error(prepared.source(), &error).into()),
            None => {
                if !is_of_evaluation(&error)
                    && let Some(whole) = unless_failed(self.whole_of(part))?
                {
                    self.facts.refuse(whole, error);
                }
                Ok(None)
            }
        }
    }

    /// What to ask; `None` where something in it has no value.
    fn question(
        &mut self,
        prepared: &Prepared,
        part: &Part,
    ) -> Result<Option<Question>, Interrupt> {
        unless_failed(self.question_of(prepared, part)).map(Option::flatten)
    }

    fn question_of(
        &mut self,
        prepared: &Prepared,
        part: &Part,
    ) -> Result<Option<Question>, Interrupt> {
        let bound = prepared.bind(self)?;
        let mut given = BTreeMap::new();
        for (name, value) in &part.givens {
            let Some(value) = self.given(value, &bound, prepared)? else {
                return Ok(None);
            };
            given.insert(name.clone(), value);
        }
        let Bound { mut parameters, .. } = bound;
        for (name, renamed) in &part.renamed {
            if let Some(value) = parameters.remove(name) {
                given.insert(renamed.clone(), value);
            }
        }
        let mut asked = self.whole_of(part)?;
        (asked.is_part, asked.is_large) = (true, false);
        part.expression.as_str().clone_into(&mut asked.expression);
        asked.parameters.extend(given);
        Ok(Some(asked))
    }

    /// The question that it stands in for.
    fn whole_of(&mut self, part: &Part) -> Result<Question, Interrupt> {
        let Loader::Fact(fact) = &self.entries[part.entry].loader else {
            return Err(Interrupt::Pending); // No part is made of anything else.
        };
        self.before(part.entry).whole(&part.variable, fact)
    }

    /// `None`: it is of another fact, and not to be had without that fact. Whether that is needed is said
    /// by the use alone.
    fn given(
        &mut self,
        given: &Given,
        bound: &Bound,
        prepared: &Prepared,
    ) -> Result<Option<Value>, Interrupt> {
        let null = || Ok(Some(Value::Null));
        if let Some(part) = &given.part {
            return match self.ask(prepared, part, None) {
                Ok(value) => Ok(value.map(Arc::unwrap_or_clone)),
                Err(Interrupt::Variable(error))
                    if given.is_forgiven && error.kind == VariableErrorKind::Missing =>
                {
                    null()
                }
                Err(interrupt) => Err(interrupt),
            };
        }
        let own = Bound {
            expression: given.expression.clone(),
            parameters: bound.parameters.clone(),
        };
        match self.searched(&own, prepared.source())? {
            Ok(value) => Ok(Some(Arc::unwrap_or_clone(value))),
            // A key that it misses is nothing to a `||`; a variable that it names and that has no value is an
            // error all the same.
            Err(EvalError::MissingKey { .. }) if given.is_forgiven => null(),
            Err(error) => Err(self.variable_error(prepared.source(), &error).into()),
        }
    }
}

/// Who waits goes on waiting; who failed leaves it to who evaluates the use itself.
fn unless_failed<T>(result: Result<T, Interrupt>) -> Result<Option<T>, Interrupt> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Interrupt::Pending) => Err(Interrupt::Pending),
        Err(Interrupt::Rule(_) | Interrupt::Variable(_)) => Ok(None),
    }
}

/// Whether an error says something of the query, rather than of what it is about.
pub(in crate::evaluate) fn is_of_evaluation(error: &FactError) -> bool {
    matches!(
        error,
        FactError::ExpressionInvalid { .. }
            | FactError::EvaluationFailed { .. }
            | FactError::BudgetExceeded { .. }
            | FactError::RequestInvalid { .. }
    )
}

/// The missing key that an evaluation elsewhere ended with, by what it says of it.
fn missing_key(error: &FactError) -> Option<EvalError> {
    let FactError::EvaluationFailed { message } = error else {
        return None;
    };
    let key = message
        .strip_prefix("Unknown key \"")?
        .strip_suffix("\" in path")?;
    let error = EvalError::MissingKey {
        key: key.to_owned(),
    };
    (error.to_string() == *message).then_some(error)
}
