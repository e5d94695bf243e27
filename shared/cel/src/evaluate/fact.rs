//! Facts that an expression reads, and what it comes to where one is not there yet.
//!
//! Such a fact is *unknown*. A value that decides an `&&`, `||`, `all` or `exists` stands whatever is unknown beside
//! it; everything else that depends on it is unknown too. So where an expression comes to a value or an error, it
//! comes to the same with any facts in place of the unknown ones. What stands beside something unknown is
//! evaluated all the same, so that all facts are asked for at once.

use super::Machine;
use crate::{
    EvalError,
    ast::{Expr, FactCall},
    fact::Fact,
    value::{Val, to_json},
};

/// Takes a value out of a result; `None`: it is unknown, which is noted.
pub(super) fn known<T>(
    result: Result<T, EvalError>,
    lacks: &mut bool,
) -> Result<Option<T>, EvalError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(EvalError::Unknown) => {
            *lacks = true;
            Ok(None)
        }
        // An earlier operand is still unknown, and may turn out to be a different error.
        Err(error) if *lacks && !error.is_budget() => Ok(None),
        Err(error) => Err(error),
    }
}

/// # Errors
/// Something is unknown.
pub(super) fn complete(lacks: bool) -> Result<(), EvalError> {
    match lacks {
        true => Err(EvalError::Unknown),
        false => Ok(()),
    }
}

impl<'v> Machine<'v> {
    pub(super) fn fact(&mut self, call: &'v FactCall) -> Result<Val<'v>, EvalError> {
        let site = &call.site;
        if self.is_without_lists && (site.may_be_kept() || site.function().has_effect()) {
            return Err(EvalError::Unknown);
        }
        let arguments = self.all(&call.arguments)?;
        let mut values = Vec::with_capacity(arguments.len());
        for argument in &arguments {
            values.push(to_json(argument, None, &mut self.tools.budget)?);
        }
        let Some(host) = self.host else {
            return Err(EvalError::refused("no facts can be read here"));
        };
        match host.read(site, values, !self.lacks) {
            Fact::Value(value) => Ok(Val::of(value)),
            Fact::Unknown => {
                self.lacks = true;
                Err(EvalError::Unknown)
            }
            Fact::Failed(id, message) => Err(EvalError::Fact {
                id,
                message: message.to_owned(),
            }),
        }
    }

    /// Evaluates subexpressions that are all needed.
    pub(super) fn all(&mut self, exprs: &'v [Expr]) -> Result<Vec<Val<'v>>, EvalError> {
        let mut values = Vec::with_capacity(exprs.len());
        let mut left = exprs;
        while let [expr, others @ ..] = left {
            match self.eval(expr) {
                Ok(value) => values.push(value),
                Err(error) => return Err(self.failed_beside(error, others)),
            }
            left = others;
        }
        Ok(values)
    }

    /// Evaluates the first subexpression, and the others only where that is an empty optional.
    pub(super) fn fallback(&mut self, exprs: &'v [Expr]) -> Result<Vec<Val<'v>>, EvalError> {
        let Some((first, others)) = exprs.split_first() else {
            return Ok(Vec::new());
        };
        let mut values = match self.eval(first) {
            Ok(value) => vec![value],
            Err(error) => return Err(self.failed_beside(error, others)),
        };
        if let [Val::Optional(None)] = *values {
            values.extend(self.all(others)?);
        }
        Ok(values)
    }

    /// Evaluates two subexpressions that are both needed.
    #[inline]
    pub(super) fn both(
        &mut self,
        left: &'v Expr,
        right: &'v Expr,
    ) -> Result<(Val<'v>, Val<'v>), EvalError> {
        match self.eval(left) {
            Ok(left) => Ok((left, self.eval(right)?)),
            Err(error) => Err(self.failed_beside(error, std::slice::from_ref(right))),
        }
    }

    /// Returns the error of a list of subexpressions, one of which failed with `error`. If the failed one is unknown, the
    /// others are evaluated too, within the limits, so that they ask for their facts.
    #[cold]
    fn failed_beside(&mut self, error: EvalError, others: &'v [Expr]) -> EvalError {
        if error != EvalError::Unknown {
            return error;
        }
        let mut lacks = true;
        for expr in others {
            if let Err(error) = known(self.eval(expr), &mut lacks) {
                return error;
            }
        }
        EvalError::Unknown
    }
}
