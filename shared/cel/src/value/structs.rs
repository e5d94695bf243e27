//! Values of types that have a name: `Object{…}` and `JSONPatch{…}`.

use super::{Val, equal};
use crate::{budget::Budget, error::EvalError};

/// The name of the type of an object, and what the names of the types of its parts begin with.
pub(crate) const OBJECT: &str = "Object";

/// The name of the type of a patch.
pub(crate) const PATCH: &str = "JSONPatch";

/// The operations of a patch.
pub(crate) const OPERATIONS: &[&str] = &["add", "copy", "move", "remove", "replace", "test"];

/// A value of a type that has a name. No plain map equals it.
#[derive(Clone, Debug)]
pub(crate) struct StructVal<'v> {
    pub(crate) type_name: &'v str,
    /// No name twice.
    pub(crate) fields: Vec<(&'v str, Val<'v>)>,
}

impl<'v> StructVal<'v> {
    pub(crate) fn is_patch(&self) -> bool {
        self.type_name == PATCH
    }

    pub(crate) fn field(&self, name: &str) -> Option<&Val<'v>> {
        let found = self.fields.iter().find(|(own, _)| *own == name);
        found.map(|(_, value)| value)
    }

    /// Returns whether both are of one type, and their fields are equal.
    pub(super) fn equals(
        &self,
        other: &StructVal<'_>,
        budget: &mut Budget,
    ) -> Result<bool, EvalError> {
        if self.type_name != other.type_name || self.fields.len() != other.fields.len() {
            return Ok(false);
        }
        for (name, value) in &self.fields {
            match other.field(name) {
                Some(other) if equal(value, other, budget)? => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Returns whether the name is that of an object's type, or of a part of one.
pub(crate) fn is_object_type(name: &str) -> bool {
    let below = name.strip_prefix(OBJECT);
    below.is_some_and(|below| below.is_empty() || below.starts_with('.'))
}

/// The message that an object does not have the type of its place.
pub(crate) fn misplaced(type_name: &str, place: &str) -> String {
    format!("an object of the type `{type_name}` stands where its type has to be `{place}`")
}
