//! Uses of a fact that are asked for in place of the fact.
//!
//! A subquery only saves work. If it cannot be asked or answered (`None`), the rule evaluates the use over the fact
//! itself, with the same result and the same errors.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_jmespath::{EvalError, json_memory};
use anteroom_model::FactError;
use serde_json::Value;

use super::{Scope, states::EntryState};
use crate::{
    evaluate::{
        facts::{Lookup, Question},
        interrupt::Interrupt,
    },
    ir::{
        VariableErrorKind,
        context::Loader,
        subquery::{ConditionSide, Subquery, SubqueryArgument},
        template::{Bound, Prepared, Resolve as _, ValueTemplate},
    },
};

impl Scope<'_> {
    /// The value of an expression, if it can be asked for.
    pub(super) fn asked_value(
        &mut self,
        prepared: &Prepared,
    ) -> Result<Option<Arc<Value>>, Interrupt> {
        let subqueries = self.pushdown.subqueries(prepared.id());
        match subqueries.and_then(|found| found.value.as_ref()) {
            Some(subquery) => self.ask(prepared, subquery, None),
            None => Ok(None),
        }
    }

    /// Asks for the verdict of a condition, if it can be asked: `prepared` is one operand of the condition, `other`
    /// is the other operand.
    ///
    /// The question is made of the other side's value. As long as that is waited for, nothing is asked;
    /// an error of either side is left to who evaluates both.
    pub(crate) fn asked_verdict(
        &mut self,
        prepared: &Prepared,
        other: &ValueTemplate,
    ) -> Result<Option<bool>, Interrupt> {
        let subqueries = self.pushdown.subqueries(prepared.id());
        let verdict = subqueries.and_then(|found| found.verdict.as_ref());
        let Some((subquery, side)) = verdict.filter(|(subquery, _)| self.may_ask(subquery)) else {
            return Ok(None);
        };
        let verdict = match other.value(self) {
            Ok(value) => self.ask(prepared, subquery, Some((*side, value)))?,
            Err(Interrupt::Pending) => return Err(Interrupt::Pending),
            Err(_) => None,
        };
        Ok(verdict.and_then(|verdict| verdict.as_bool()))
    }

    /// Returns whether a subquery may be asked. A loaded entry needs none.
    fn may_ask(&self, subquery: &Subquery) -> bool {
        self.facts.takes_subqueries()
            && self.find(&subquery.variable) == Some(subquery.entry)
            && matches!(self.states.0[subquery.entry], EntryState::Unloaded)
    }

    fn ask(
        &mut self,
        prepared: &Prepared,
        subquery: &Subquery,
        side: Option<(ConditionSide, Arc<Value>)>,
    ) -> Result<Option<Arc<Value>>, Interrupt> {
        if !self.may_ask(subquery) {
            return Ok(None);
        }
        let Some(mut asked) = self.question(prepared, subquery)? else {
            return Ok(None);
        };
        if let Some((side, value)) = side {
            let Some(value) = unless_failed(self.parameter(value))? else {
                return Ok(None);
            };
            let parameters = Arc::make_mut(&mut asked.parameters);
            parameters.insert(side.other().to_owned(), value);
        }
        let error = match self.facts.look_up(&subquery.variable, asked) {
            Lookup::Answer(Ok(value)) => return Ok(Some(value)),
            Lookup::Pending => return Err(Interrupt::Pending),
            Lookup::TooMany | Lookup::TooLarge | Lookup::Declined | Lookup::LeftOut => {
                return Ok(None);
            }
            Lookup::Answer(Err(error)) => error,
        };
        match missing_key(&error).filter(|_| subquery.misses_itself) {
            Some(error) => Err(self.variable_error(prepared.source(), &error).into()),
            None => {
                if !error.class().subject.is_of_query()
                    && let Some(whole) = unless_failed(self.whole_of(subquery))?
                {
                    self.facts.refuse(whole, error);
                }
                Ok(None)
            }
        }
    }

    /// Returns the question; `None` where a value that it needs is missing.
    fn question(
        &mut self,
        prepared: &Prepared,
        subquery: &Subquery,
    ) -> Result<Option<Question>, Interrupt> {
        unless_failed(self.question_of(prepared, subquery)).map(Option::flatten)
    }

    fn question_of(
        &mut self,
        prepared: &Prepared,
        subquery: &Subquery,
    ) -> Result<Option<Question>, Interrupt> {
        let bound = prepared.bind(self)?;
        let mut arguments = BTreeMap::new();
        for (name, value) in &subquery.arguments {
            let Some(value) = self.argument(value, &bound, prepared)? else {
                return Ok(None);
            };
            arguments.insert(name.clone(), value);
        }
        let Bound { mut parameters, .. } = bound;
        for (name, renamed) in &subquery.renamed {
            if let Some(value) = parameters.remove(name) {
                arguments.insert(renamed.clone(), value);
            }
        }
        let mut asked = self.whole_of(subquery)?;
        (asked.is_pushed_down, asked.is_large) = (true, false);
        subquery
            .expression
            .as_str()
            .clone_into(&mut asked.expression);
        Arc::make_mut(&mut asked.parameters).extend(arguments);
        Ok(Some(asked))
    }

    /// Returns a value as a parameter of a question.
    fn parameter(&mut self, value: Arc<Value>) -> Result<Value, Interrupt> {
        self.bind_value(copied_bytes(&value), 0)?;
        Ok(Arc::unwrap_or_clone(value))
    }

    /// The question that it stands in for.
    fn whole_of(&mut self, subquery: &Subquery) -> Result<Question, Interrupt> {
        let Loader::Fact(fact) = &self.entries[subquery.entry].loader else {
            return Err(Interrupt::Pending); // No part is made of anything else.
        };
        self.before(subquery.entry).whole(&subquery.variable, fact)
    }

    /// Returns an argument of the subquery; `None`: the argument uses another fact and needs that fact whole. Then
    /// the use itself decides whether the other fact is needed.
    fn argument(
        &mut self,
        argument: &SubqueryArgument,
        bound: &Bound,
        prepared: &Prepared,
    ) -> Result<Option<Value>, Interrupt> {
        let null = || Ok(Some(Value::Null));
        if let Some(subquery) = &argument.subquery {
            return match self.ask(prepared, subquery, None) {
                Ok(Some(value)) => self.parameter(value).map(Some),
                Ok(None) => Ok(None),
                Err(Interrupt::Variable(error))
                    if argument.is_forgiven && error.kind == VariableErrorKind::Missing =>
                {
                    null()
                }
                Err(interrupt) => Err(interrupt),
            };
        }
        let copied = bound.parameters.values().map(copied_bytes);
        self.bind_value(copied.fold(0, u64::saturating_add), 0)?;
        let own = Bound {
            expression: argument.expression.clone(),
            parameters: bound.parameters.clone(),
        };
        match self.searched(&own, prepared.source())? {
            Ok(value) => self.parameter(value).map(Some),
            // A missing key gives null if a `||` forgives the key; a variable without a value is still an error.
            Err(EvalError::MissingKey { .. }) if argument.is_forgiven => null(),
            Err(error) => Err(self.variable_error(prepared.source(), &error).into()),
        }
    }
}

/// Returns the memory of a value.
fn copied_bytes(value: &Value) -> u64 {
    json_memory::copied_bytes(value, u64::MAX).unwrap_or(u64::MAX)
}

/// Passes waiting on, and makes `None` of a failure, which the expression itself then tells.
fn unless_failed<T>(result: Result<T, Interrupt>) -> Result<Option<T>, Interrupt> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Interrupt::Pending) => Err(Interrupt::Pending),
        Err(Interrupt::Rule(_) | Interrupt::Variable(_)) => Ok(None),
    }
}

/// Returns the missing key that a replica's evaluation reported, parsed from the error's message.
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
