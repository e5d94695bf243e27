//! RFC 6902: operations one after the other, each at a pointer.

mod apply;
mod diff;

use serde_json::{Map, Value};

pub use apply::PADDING_MAX;
pub use diff::{diff_charged, replaced};

use crate::{OPERATIONS_MAX, PatchError, pointer::Pointer, size};

/// Deviations from the RFC that are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leniency {
    /// `-1` is a list's last element, or behind it where something is added.
    pub negative_indexes: bool,
    /// Nothing is done where what is to be removed is not there. `-` is no element that could be there.
    pub removes_missing: bool,
    /// Parents that are missing for an addition are created: a list where the next step is a
    /// number or `-`, else an object.
    pub creates_parents: bool,
    /// A `test` reads a missing field as null.
    pub missing_is_null: bool,
    /// A missing field of an object that is there has no value: a `test` fails, as a wrong value does, `copy` reads null,
    /// and `replace` adds it.
    pub fields_may_be_missing: bool,
}

impl Leniency {
    /// No deviation from the RFC.
    pub const NONE: Self = Self {
        negative_indexes: false,
        removes_missing: false,
        creates_parents: false,
        missing_is_null: false,
        fields_may_be_missing: false,
    };

    /// The deviations of API servers, which apply the patches of admission policies.
    pub const API_SERVER: Self = Self {
        negative_indexes: true,
        fields_may_be_missing: true,
        ..Self::NONE
    };

    /// The deviations that Kyverno's policies count on.
    pub const KYVERNO: Self = Self {
        negative_indexes: true,
        removes_missing: true,
        creates_parents: true,
        missing_is_null: true,
        fields_may_be_missing: false,
    };
}

/// A patch that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch(Vec<Operation>);

#[derive(Clone, Debug, PartialEq)]
struct Operation {
    path: Pointer,
    action: Action,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Add(Value),
    Remove,
    Replace(Value),
    Move(Pointer),
    Copy(Pointer),
    Test(Value),
}

/// The names of the operations.
pub const OPERATIONS: &[&str] = &["add", "copy", "move", "remove", "replace", "test"];

impl Patch {
    /// Reads a list of operations. A member that an operation does not have is passed over, as the RFC
    /// wants it.
    ///
    /// # Errors
    /// [`PatchError::Malformed`], [`PatchError::TooManyOperations`], [`PatchError::TooDeep`].
    pub fn parse(patch: &Value) -> Result<Self, PatchError> {
        size::check_depth(patch)?;
        let Some(operations) = patch.as_array() else {
            return Err(PatchError::malformed("the patch", "it is not a list"));
        };
        if operations.len() > OPERATIONS_MAX {
            let found = operations.len();
            return Err(PatchError::TooManyOperations { found });
        }
        let one = |(at, operation): (usize, &Value)| Operation::parse(operation, at);
        operations.iter().enumerate().map(one).collect()
    }

    /// Applies the patch to a document.
    ///
    /// # Errors
    /// The first operation that does not apply; [`PatchError::TooLarge`], [`PatchError::TooDeep`].
    pub fn apply(&self, document: &Value, leniency: Leniency) -> Result<Value, PatchError> {
        self.apply_charged(document, leniency, &|_| true)
    }

    /// Applies the patch like [`Patch::apply`]. Each operation tells `charge` its work before it does it: looking up, comparing,
    /// copying, shifting elements. The unit is the time to copy a byte of text. The caller counts the first copy of the
    /// document. If `charge` returns `false`, the patch ends there.
    ///
    /// # Errors
    /// Those of [`Patch::apply`]; [`PatchError::TooCostly`] if `charge` has returned `false`.
    pub fn apply_charged(
        &self,
        document: &Value,
        leniency: Leniency,
        charge: &dyn Fn(usize) -> bool,
    ) -> Result<Value, PatchError> {
        apply::apply(&self.0, document, leniency, charge)
    }
}

impl FromIterator<Operation> for Patch {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        Self(operations.into_iter().collect())
    }
}

impl Operation {
    fn parse(operation: &Value, at: usize) -> Result<Self, PatchError> {
        let place = format!("operation {at}");
        let Some(members) = operation.as_object() else {
            return Err(PatchError::malformed(place, "it is not an object"));
        };
        let pointer = |name| Pointer::parse(text(members, name, &place)?, &place);
        let value = || match members.get("value") {
            Some(value) => Ok(value.clone()),
            None => Err(PatchError::malformed(&*place, "it has no `value`")),
        };
        let action = match text(members, "op", &place)? {
            "add" => Action::Add(value()?),
            "remove" => Action::Remove,
            "replace" => Action::Replace(value()?),
            "move" => Action::Move(pointer("from")?),
            "copy" => Action::Copy(pointer("from")?),
            // As many a reader has it, what is not given is null.
            "test" => Action::Test(members.get("value").cloned().unwrap_or_default()),
            other => {
                let known = OPERATIONS.join(", ");
                let problem = format!("`{other}` is none of {known}");
                return Err(PatchError::malformed(place, problem));
            }
        };
        Ok(Self {
            path: pointer("path")?,
            action,
        })
    }

    fn name(&self) -> &'static str {
        match self.action {
            Action::Add(_) => "add",
            Action::Remove => "remove",
            Action::Replace(_) => "replace",
            Action::Move(_) => "move",
            Action::Copy(_) => "copy",
            Action::Test(_) => "test",
        }
    }
}

fn text<'p>(
    members: &'p Map<String, Value>,
    name: &str,
    place: &str,
) -> Result<&'p str, PatchError> {
    match members.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(PatchError::malformed(
            place,
            format!("`{name}` is not a string"),
        )),
        None => Err(PatchError::malformed(place, format!("it has no `{name}`"))),
    }
}

#[cfg(test)]
mod tests;
