//! The check that a value fits a type, and the search for what is atomic in a patch.

use std::{borrow::Cow, cell::RefCell, collections::BTreeSet};

use serde_json::{Map as Fields, Value};

use super::{
    error::ApplyError,
    item,
    path::{Path, PathStep},
    types::{List, Map, Scalar, Type, TypeId, Types},
};
use crate::size::Work;

/// A check of values against types.
pub(super) struct Fits<'t> {
    types: &'t Types,
    /// A patch has no nulls, no unknown fields, and each element once.
    is_patch: bool,
    /// The first element that is there twice. As at the API server, any other fault is told rather than that.
    twice: RefCell<Option<ApplyError>>,
    /// Counts the identities that are written.
    work: Work<'t>,
}

impl<'t> Fits<'t> {
    pub(super) fn patch(types: &'t Types, work: Work<'t>) -> Self {
        Self {
            is_patch: true,
            ..Self::object(types, work)
        }
    }

    pub(super) fn object(types: &'t Types, work: Work<'t>) -> Self {
        Self {
            types,
            is_patch: false,
            twice: RefCell::new(None),
            work,
        }
    }

    /// Checks a whole value, whose nesting was checked, and whose bytes were counted as work.
    pub(super) fn check(self, root: TypeId, value: &Value) -> Result<(), ApplyError> {
        self.value(root, value, &Path::ROOT)?;
        self.twice.into_inner().map_or(Ok(()), Err)
    }

    fn value(&self, id: TypeId, value: &Value, path: &Path<'_>) -> Result<(), ApplyError> {
        let Some(of) = self.types.get(id) else {
            return Err(self.misfit(path, "the schema has no such type"));
        };
        match (value, &of.map, &of.list, of.scalar) {
            (Value::Null, ..) if self.is_patch => {
                Err(self.misfit(path, "null is no value here: a merge takes nothing away"))
            }
            (Value::Null, ..) => Ok(()),
            (Value::Object(fields), Some(map), ..) => self.fields(map, fields, path),
            (Value::Array(elements), _, Some(list), _) => self.elements(list, elements, path),
            (single, .., Some(scalar)) if is_a(single, scalar) => Ok(()),
            (value, ..) => {
                let problem = format!("expected {}, found {}", expected(of), shape(value));
                Err(self.misfit(path, problem))
            }
        }
    }

    fn fields(
        &self,
        map: &Map,
        fields: &Fields<String, Value>,
        path: &Path<'_>,
    ) -> Result<(), ApplyError> {
        for (name, value) in fields {
            let path = path.below(PathStep::Field(name));
            match map.field(name) {
                Some(id) => self.value(id, value, &path)?,
                None if self.is_patch => {
                    return Err(self.misfit(&path, "the field is not declared in the schema"));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn elements(&self, list: &List, elements: &[Value], path: &Path<'_>) -> Result<(), ApplyError> {
        if !list.is_atomic {
            self.work.charge(item::IDENTITY_BYTES * elements.len())?;
        }
        let mut seen = BTreeSet::new();
        for (place, element) in elements.iter().enumerate() {
            if list.is_atomic {
                self.value(list.element, element, &path.below(PathStep::Index(place)))?;
                continue;
            }
            let item = item::identity(list, element)
                .map_err(|problem| self.misfit(&path.below(PathStep::Index(place)), problem))?;
            let path = path.below(PathStep::Item(&item));
            self.value(list.element, element, &path)?;
            if self.is_patch && !seen.insert(item.clone()) {
                let twice = || self.misfit(&path, "the element is there twice");
                self.twice.borrow_mut().get_or_insert_with(twice);
            }
        }
        Ok(())
    }

    /// Returns the error that says where a value does not fit, and why.
    fn misfit(&self, path: &Path<'_>, problem: impl Into<String>) -> ApplyError {
        let (path, problem) = (path.text(), problem.into());
        match self.is_patch {
            true => ApplyError::Patch { path, problem },
            false => ApplyError::Object { path, problem },
        }
    }
}

fn is_a(value: &Value, scalar: Scalar) -> bool {
    match scalar {
        Scalar::Text => value.is_string(),
        Scalar::Number => value.is_number(),
        Scalar::Boolean => value.is_boolean(),
        Scalar::Any => value.is_string() || value.is_number() || value.is_boolean(),
    }
}

/// A value's shape in words.
pub(super) fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn expected(of: &Type) -> Cow<'static, str> {
    let scalar = of.scalar.map(|scalar| match scalar {
        Scalar::Text => "a text",
        Scalar::Number => "a number",
        Scalar::Boolean => "a boolean",
        Scalar::Any => "a single value",
    });
    let list = of.list.as_ref().map(|_| "a list");
    let map = of.map.as_ref().map(|_| "an object");
    let all: Vec<&str> = map.into_iter().chain(list).chain(scalar).collect();
    match all[..] {
        [] => "nothing".into(),
        [one] => one.into(),
        _ => all.join(" or ").into(),
    }
}

/// Returns the paths of all atomic lists, maps and objects in a patch that fits its type. As the API server
/// does, it looks into declared fields and elements of lists, not into what is in a map.
pub(super) fn atomics(types: &Types, root: TypeId, patch: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(types, root, patch, &Path::ROOT, &mut found);
    found
}

fn collect(types: &Types, id: TypeId, value: &Value, path: &Path<'_>, found: &mut Vec<String>) {
    let of = types.get(id);
    match value {
        Value::Object(fields) => {
            let Some(map) = of.and_then(|of| of.map.as_ref()) else {
                return;
            };
            if map.is_atomic {
                found.push(path.text());
            }
            for (name, value) in fields {
                if let Some(id) = map.fields.get(name) {
                    collect(types, *id, value, &path.below(PathStep::Field(name)), found);
                }
            }
        }
        Value::Array(elements) => {
            let Some(list) = of.and_then(|of| of.list.as_ref()) else {
                return;
            };
            if list.is_atomic {
                found.push(path.text());
            }
            for (place, element) in elements.iter().enumerate() {
                let path = path.below(PathStep::Index(place));
                collect(types, list.element, element, &path, found);
            }
        }
        _ => {}
    }
}
