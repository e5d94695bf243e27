//! Looking into values, and making lists and maps.

use std::sync::Arc;

use super::{
    Machine,
    fact::{complete, known},
};
use crate::{
    EvalError,
    ast::{Element, Expr, StructLiteral},
    value::{List, Map, StructVal, Val, no_overload, same_key},
};

impl<'v> Machine<'v> {
    pub(super) fn select(
        &mut self,
        operand: &'v Expr,
        field: &'v str,
    ) -> Result<Val<'v>, EvalError> {
        match self.eval(operand)? {
            Val::Map(map) => {
                self.tools.budget.look_up(map.len())?;
                map.field(field)
                    .ok_or_else(|| EvalError::NoSuchKey(field.to_owned()))
            }
            Val::Struct(made) => made
                .field(field)
                .cloned()
                .ok_or_else(|| EvalError::NoSuchKey(field.to_owned())),
            Val::Optional(None) => Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => {
                inside(&inner, &Val::Text(crate::value::Text::Lent(field)))
            }
            other => Err(no_field(&other, field)),
        }
    }

    pub(super) fn has(&mut self, operand: &'v Expr, field: &'v str) -> Result<Val<'v>, EvalError> {
        match self.eval(operand)? {
            Val::Map(map) => {
                self.tools.budget.look_up(map.len())?;
                Ok(Val::Bool(map.field(field).is_some()))
            }
            Val::Struct(made) => Ok(Val::Bool(made.field(field).is_some())),
            Val::Optional(None) => Ok(Val::Bool(false)),
            Val::Optional(Some(inner)) => match &*inner {
                Val::Map(map) => Ok(Val::Bool(map.field(field).is_some())),
                other => has_no_field(other, field),
            },
            other => has_no_field(&other, field),
        }
    }

    pub(super) fn index(
        &mut self,
        operand: &'v Expr,
        index: &'v Expr,
    ) -> Result<Val<'v>, EvalError> {
        let (operand, index) = self.both(operand, index)?;
        match &operand {
            Val::List(list) => {
                let Some(at) = whole(&index) else {
                    return Err(no_overload("_[_]", &[operand, index]));
                };
                element(list, at).ok_or(EvalError::IndexOutOfBounds(at))
            }
            Val::Map(map) if Map::is_key(&index) => {
                self.tools.budget.look_up_value(&index, map.len())?;
                map.get(&index).ok_or_else(|| no_such_key(&index))
            }
            Val::Optional(None) => Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => inside(inner, &index),
            _ => Err(no_overload("_[_]", &[operand, index])),
        }
    }

    pub(super) fn optional_index(
        &mut self,
        operand: &'v Expr,
        index: &'v Expr,
    ) -> Result<Val<'v>, EvalError> {
        let (operand, index) = self.both(operand, index)?;
        match &operand {
            Val::Optional(None) => Ok(Val::Optional(None)),
            Val::Optional(Some(inner)) => inside(inner, &index),
            operand => {
                if let Val::Map(map) = operand {
                    self.tools.budget.look_up_value(&index, map.len())?;
                }
                inside(operand, &index)
            }
        }
    }

    pub(super) fn struct_value(
        &mut self,
        literal: &'v StructLiteral,
    ) -> Result<Val<'v>, EvalError> {
        let mut fields = Vec::with_capacity(literal.fields.len());
        let mut lacks = false;
        for (name, element) in &literal.fields {
            if let Some(value) = known(self.element(element), &mut lacks)?.flatten() {
                fields.push((&**name, value));
            }
        }
        complete(lacks)?;
        self.tools.budget.elements(2 * fields.len())?;
        let type_name = &*literal.type_name;
        Ok(Val::Struct(Arc::new(StructVal { type_name, fields })))
    }

    pub(super) fn list(&mut self, elements: &'v [Element]) -> Result<Val<'v>, EvalError> {
        let mut list = Vec::with_capacity(elements.len());
        let mut lacks = false;
        for element in elements {
            list.extend(known(self.element(element), &mut lacks)?.flatten());
        }
        complete(lacks)?;
        self.tools.budget.elements(list.len())?;
        Ok(Val::list(list))
    }

    /// `None` where it is an empty optional.
    fn element(&mut self, element: &'v Element) -> Result<Option<Val<'v>>, EvalError> {
        let value = self.eval(&element.value)?;
        match (element.optional, value) {
            (false, value) => Ok(Some(value)),
            (true, Val::Optional(None)) => Ok(None),
            (true, Val::Optional(Some(inner))) => Ok(Some((*inner).clone())),
            (true, other) => Err(no_overload("?_", &[other])),
        }
    }

    pub(super) fn map(&mut self, entries: &'v [(Expr, Element)]) -> Result<Val<'v>, EvalError> {
        let mut map: Vec<(Val<'v>, Val<'v>)> = Vec::with_capacity(entries.len());
        let mut lacks = false;
        for (key, value) in entries {
            let key = self.eval(key)?;
            if !Map::is_key(&key) || matches!(key, Val::Double(_)) {
                return Err(EvalError::Refused(format!(
                    "a {} is no key of a map",
                    key.type_name()
                )));
            }
            self.tools.budget.steps(map.len() as u64 / 8)?;
            if let Some(value) = known(self.element(value), &mut lacks)?.flatten() {
                // Of values with the same key, the last counts.
                match map.iter_mut().find(|(known, _)| same_key(known, &key)) {
                    Some(entry) => *entry = (key, value),
                    None => map.push((key, value)),
                }
            }
        }
        complete(lacks)?;
        self.tools.budget.elements(2 * map.len())?;
        Ok(Val::Map(Map::Own(map.into())))
    }
}

/// Returns that a value which is no map has no fields, as in [`inside`]. A list is looked into by numbers alone.
fn has_no_field<'v>(operand: &Val<'_>, field: &str) -> Result<Val<'v>, EvalError> {
    match operand {
        Val::List(_) | Val::Struct(_) | Val::Optional(_) => Err(no_field(operand, field)),
        _ => Ok(Val::Bool(false)),
    }
}

/// Returns the element or value at an index, as an optional.
fn inside<'v>(operand: &Val<'v>, index: &Val<'_>) -> Result<Val<'v>, EvalError> {
    let found = match operand {
        Val::List(list) => match whole(index) {
            Some(at) => element(list, at),
            None => return Err(overload(operand, index)),
        },
        Val::Map(map) if Map::is_key(index) => map.get(index),
        Val::Map(_) | Val::Struct(_) | Val::Optional(_) => return Err(overload(operand, index)),
        // As in cel-go: nothing is in what holds nothing, as null.
        _ => None,
    };
    Ok(Val::Optional(found.map(Arc::new)))
}

fn overload(operand: &Val<'_>, index: &Val<'_>) -> EvalError {
    no_overload("_[?_]", &[operand.clone(), index.clone()])
}

fn element<'v>(list: &List<'v>, at: i64) -> Option<Val<'v>> {
    list.get(usize::try_from(at).ok()?)
}

/// A place in a list: a whole number of any type, as long as it is an int.
fn whole(index: &Val<'_>) -> Option<i64> {
    match index {
        Val::Int(at) => Some(*at),
        Val::Uint(at) => i64::try_from(*at).ok(),
        Val::Double(at) if at.fract() == 0.0 && at.abs() < i64::MAX as f64 => Some(*at as i64),
        _ => None,
    }
}

fn no_field(value: &Val<'_>, field: &str) -> EvalError {
    EvalError::NoSuchOverload {
        function: format!(".{field}"),
        types: value.type_name().to_owned(),
    }
}

fn no_such_key(key: &Val<'_>) -> EvalError {
    EvalError::NoSuchKey(shown(key))
}

/// A key, for people.
fn shown(key: &Val<'_>) -> String {
    match key {
        Val::Text(text) => text.to_string(),
        Val::Bool(value) => value.to_string(),
        Val::Int(value) => value.to_string(),
        Val::Uint(value) => value.to_string(),
        Val::Double(value) => value.to_string(),
        other => other.type_name().to_owned(),
    }
}
