//! `cel.bind`: a value that is evaluated where it is first needed, once.

use super::Machine;
use crate::{
    EvalError,
    ast::{Expr, Macro},
    value::Val,
};

/// A variable of `cel.bind`.
#[derive(Clone, Debug)]
pub(super) struct LazyLocal<'v> {
    /// Its place among the variables around the body.
    place: usize,
    expr: &'v Expr,
    known: Option<Result<Val<'v>, EvalError>>,
}

impl<'v> Machine<'v> {
    pub(super) fn bind(&mut self, made: &'v Macro) -> Result<Val<'v>, EvalError> {
        let (place, outer) = (self.locals.len(), self.lazy.len());
        self.lazy.push(LazyLocal {
            place,
            expr: &made.range,
            known: None,
        });
        // The placeholder is never read.
        self.locals.push(Val::Null);
        let value = self.eval(&made.body);
        self.locals.truncate(place);
        self.lazy.truncate(outer);
        value
    }

    /// The variable at a place.
    pub(super) fn local(&mut self, place: usize) -> Result<Val<'v>, EvalError> {
        let found = self.lazy.iter().rposition(|bound| bound.place == place);
        let Some(at) = found else {
            return Ok(self.locals.get(place).cloned().unwrap_or(Val::Null));
        };
        let expr = match self.lazy.get(at) {
            Some(LazyLocal {
                known: Some(known), ..
            }) => return known.clone(),
            Some(bound) => bound.expr,
            None => return Ok(Val::Null),
        };
        // The variable's expression sees only the variables defined before.
        let inner = self.locals.split_off(place);
        let mut later = self.lazy.split_off(at);
        let value = self.eval(expr);
        self.locals.truncate(place);
        self.locals.extend(inner);
        // Nothing is known of what was not evaluated to its end.
        if let Some(bound) = later.first_mut()
            && !matches!(value, Err(EvalError::TooDeep))
        {
            bound.known = Some(value.clone());
        }
        self.lazy.truncate(at);
        self.lazy.append(&mut later);
        value
    }
}
