//! `&&`, `||` and the macros that are made of them. What one side says for good stands, whatever
//! error the other side comes to, unless a limit was hit.

use super::{
    Machine,
    fact::{complete, known},
    transform::{Bindings, Range},
};
use crate::{
    EvalError,
    ast::{Expr, Macro, MacroKind},
    value::{Val, equal, no_overload},
};

/// The state of an `&&` or `||` after one side.
enum OperandState {
    Says(bool),
    Fails(EvalError),
    /// A fact is not there yet.
    Unknown,
}

impl<'v> Machine<'v> {
    pub(super) fn and(&mut self, left: &'v Expr, right: &'v Expr) -> Result<Val<'v>, EvalError> {
        self.either(left, right, false, "_&&_")
    }

    pub(super) fn or(&mut self, left: &'v Expr, right: &'v Expr) -> Result<Val<'v>, EvalError> {
        self.either(left, right, true, "_||_")
    }

    /// `decides` is the operand value that decides the result alone.
    fn either(
        &mut self,
        left: &'v Expr,
        right: &'v Expr,
        decides: bool,
        name: &str,
    ) -> Result<Val<'v>, EvalError> {
        let left = match self.side(left, name)? {
            OperandState::Says(value) if value == decides => return Ok(Val::Bool(decides)),
            left => left,
        };
        match (left, self.side(right, name)?) {
            (_, OperandState::Says(value)) if value == decides => Ok(Val::Bool(decides)),
            (OperandState::Unknown, _) | (_, OperandState::Unknown) => Err(EvalError::Unknown),
            (OperandState::Fails(error), _) | (_, OperandState::Fails(error)) => Err(error),
            _ => Ok(Val::Bool(!decides)),
        }
    }

    /// An error here is a limit's.
    fn side(&mut self, expr: &'v Expr, name: &str) -> Result<OperandState, EvalError> {
        match self.eval(expr) {
            Ok(Val::Bool(value)) => Ok(OperandState::Says(value)),
            Ok(other) => Ok(OperandState::Fails(no_overload(name, &[other]))),
            Err(EvalError::Unknown) => Ok(OperandState::Unknown),
            Err(error) if error.is_budget() => Err(error),
            Err(error) => Ok(OperandState::Fails(error)),
        }
    }

    pub(super) fn run_macro(&mut self, made: &'v Macro) -> Result<Val<'v>, EvalError> {
        if made.kind == MacroKind::Bind {
            return self.bind(made);
        }
        let range = self.eval(&made.range)?;
        if let MacroKind::OptionalMap | MacroKind::OptionalFlatMap = made.kind {
            return self.optional_macro(made, range);
        }
        let range = Range::of(made, range, &mut self.tools.budget)?;
        let range = self.narrowed(made, range)?;
        let place = self.locals.len();
        let result = match made.kind {
            MacroKind::All => self.any(made, &range, false),
            MacroKind::Exists => self.any(made, &range, true),
            MacroKind::ExistsOne => self.exists_one(made, &range),
            MacroKind::SortBy => self.sort_by(made, &range),
            MacroKind::TransformMap | MacroKind::TransformMapEntry => self.transform(made, &range),
            _ => self.collect(made, &range),
        };
        self.locals.truncate(place);
        result
    }

    /// Evaluates the body of a macro for an element.
    pub(super) fn of_element(
        &mut self,
        body: &'v Expr,
        (first, second): Bindings<'v>,
    ) -> Result<Val<'v>, EvalError> {
        let place = self.locals.len();
        self.locals.push(first);
        self.locals.extend(second);
        let value = self.eval(body);
        self.locals.truncate(place);
        value
    }

    /// Returns whether the body is `decides` for any element.
    fn any(
        &mut self,
        made: &'v Macro,
        range: &Range<'v>,
        decides: bool,
    ) -> Result<Val<'v>, EvalError> {
        if let Range::Found(candidates) = range {
            return self.any_found(made, &**candidates, decides);
        }
        let (mut failed, mut lacks) = (None, false);
        for element in range.iter() {
            match self.of_element(&made.body, element) {
                Ok(Val::Bool(value)) if value == decides => return Ok(Val::Bool(decides)),
                Ok(Val::Bool(_)) => {}
                Ok(other) => failed = failed.or(Some(no_overload("_&&_", &[other]))),
                Err(EvalError::Unknown) => lacks = true,
                Err(error) if error.is_budget() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        complete(lacks)?;
        match failed {
            Some(error) => Err(error),
            None => Ok(Val::Bool(!decides)),
        }
    }

    fn exists_one(&mut self, made: &'v Macro, range: &Range<'v>) -> Result<Val<'v>, EvalError> {
        let (mut count, mut lacks) = (0_usize, false);
        for element in range.iter() {
            match known(self.of_element(&made.body, element), &mut lacks)? {
                Some(Val::Bool(value)) => count += usize::from(value),
                Some(other) => return Err(no_overload("_?_:_", &[other])),
                None => {}
            }
        }
        complete(lacks)?;
        Ok(Val::Bool(count == 1))
    }

    fn collect(&mut self, made: &'v Macro, range: &Range<'v>) -> Result<Val<'v>, EvalError> {
        let (mut all, mut lacks) = (Vec::new(), false);
        for element in range.iter() {
            if known(self.passes(made, &element), &mut lacks)? != Some(true) {
                continue;
            }
            self.tools.budget.elements(1)?;
            all.extend(known(self.of_element(&made.body, element), &mut lacks)?);
        }
        complete(lacks)?;
        Ok(Val::list(all))
    }

    /// Returns whether the macro's filter lets an element pass.
    pub(super) fn passes(
        &mut self,
        made: &'v Macro,
        element: &Bindings<'v>,
    ) -> Result<bool, EvalError> {
        let Some(filter) = &made.filter else {
            return Ok(true);
        };
        match self.of_element(filter, element.clone())? {
            Val::Bool(passes) => Ok(passes),
            other => Err(no_overload("_?_:_", &[other])),
        }
    }

    fn optional_macro(&mut self, made: &'v Macro, range: Val<'v>) -> Result<Val<'v>, EvalError> {
        let inner = match range {
            Val::Optional(Some(inner)) => (*inner).clone(),
            Val::Optional(None) => return Ok(Val::Optional(None)),
            other => return Err(no_overload("optMap", &[other])),
        };
        let value = self.of_element(&made.body, (inner, None))?;
        match (made.kind, value) {
            // As in Go, which asks for an optional only where types are known.
            (MacroKind::OptionalFlatMap, value) => Ok(value),
            (_, value) => Ok(Val::some(value)),
        }
    }

    pub(super) fn contains(&mut self, value: &Val<'v>, of: &Val<'v>) -> Result<Val<'v>, EvalError> {
        match of {
            Val::List(elements) => {
                for element in elements.iter() {
                    if equal(value, &element, &mut self.tools.budget)? {
                        return Ok(Val::Bool(true));
                    }
                }
                Ok(Val::Bool(false))
            }
            Val::Map(entries) => {
                self.tools.budget.look_up_value(value, entries.len())?;
                Ok(Val::Bool(entries.get(value).is_some()))
            }
            _ => Err(no_overload("@in", &[value.clone(), of.clone()])),
        }
    }
}
