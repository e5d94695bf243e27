//! Results for the outside: JSON, objects and patches.

use serde_json::{Value, json};

use super::Machine;
use crate::{
    EvalError, Program,
    value::{OBJECT, PATCH, StructVal, Val, to_json},
};

/// An operation of a JSON patch (RFC 6902).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchOp {
    /// Adds a value, or replaces the one that is there.
    Add,
    /// Copies what is at another place.
    Copy,
    /// Moves what is at another place.
    Move,
    /// Removes what is there.
    Remove,
    /// Replaces what is there.
    Replace,
    /// Checks what is there.
    Test,
}

impl PatchOp {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "add" => Self::Add,
            "copy" => Self::Copy,
            "move" => Self::Move,
            "remove" => Self::Remove,
            "replace" => Self::Replace,
            "test" => Self::Test,
            _ => return None,
        })
    }

    /// The name, as in a patch.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Copy => "copy",
            Self::Move => "move",
            Self::Remove => "remove",
            Self::Replace => "replace",
            Self::Test => "test",
        }
    }
}

/// One `JSONPatch{…}` of an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatchOperation {
    /// The operation.
    pub op: PatchOp,
    /// The place, as a JSON pointer.
    pub path: String,
    /// The other place, of `copy` and `move`.
    pub from: Option<String>,
    /// The value, of `add`, `replace` and `test`.
    pub value: Option<Value>,
}

impl JsonPatchOperation {
    /// Returns the operation as it stands in a JSON patch.
    pub fn to_json(&self) -> Value {
        let mut json = json!({ "op": self.op.name(), "path": self.path });
        if let Some(from) = &self.from {
            json["from"] = from.as_str().into();
        }
        if let Some(value) = &self.value {
            json["value"] = value.clone();
        }
        json
    }
}

impl<'v> Machine<'v> {
    /// Evaluates an expression, and returns its value as JSON.
    ///
    /// # Errors
    /// The value is an error, or JSON cannot hold it.
    pub fn json(&mut self, program: &'v Program) -> Result<Value, EvalError> {
        let value = self.value(program)?;
        to_json(&value, None, &mut self.tools.budget)
    }

    /// Evaluates an expression that has to be a list of patches, in order.
    ///
    /// # Errors
    /// The value is an error, or no list of patches.
    pub fn patches(&mut self, program: &'v Program) -> Result<Vec<JsonPatchOperation>, EvalError> {
        let list = match self.value(program)? {
            Val::List(list) => list,
            other => return Err(no_patches(other.type_name())),
        };
        self.tools.budget.elements(list.len())?;
        let mut patches = Vec::with_capacity(list.len());
        for element in list.iter() {
            patches.push(match &element {
                Val::Struct(made) if made.is_patch() => self.patch(made)?,
                other => {
                    let message = format!(
                        "a {} stands in the list of patches, and no {PATCH}",
                        other.type_name()
                    );
                    return Err(EvalError::Refused(message));
                }
            });
        }
        Ok(patches)
    }

    fn patch(&mut self, made: &StructVal<'v>) -> Result<JsonPatchOperation, EvalError> {
        let budget = &mut self.tools.budget;
        let mut text = |name: &str| match made.field(name) {
            None => Ok(None),
            Some(Val::Text(text)) => {
                budget.build(text.len())?;
                Ok(Some(text.to_string()))
            }
            Some(other) => Err(EvalError::Refused(format!(
                "the field `{name}` of a {PATCH} is a {}, and not a string",
                other.type_name()
            ))),
        };
        let (op, path, from) = (text("op")?, text("path")?, text("from")?);
        let (op, path) = (needed(op, "op", PATCH)?, needed(path, "path", PATCH)?);
        let Some(op) = PatchOp::of(&op) else {
            let start: String = op.chars().take(40).collect();
            let message = format!("there is no operation `{start}` of a {PATCH}");
            return Err(EvalError::Refused(message));
        };
        let value = made
            .field("value")
            .map(|value| to_json(value, None, budget));
        let (mut value, mut from) = (value.transpose()?, from);
        // Fields that an operation does not have are passed over, as those who apply patches do.
        match op {
            PatchOp::Copy | PatchOp::Move => {
                from = Some(needed(from, "from", op.name())?);
                value = None;
            }
            PatchOp::Add | PatchOp::Replace | PatchOp::Test => {
                value = Some(needed(value, "value", op.name())?);
                from = None;
            }
            PatchOp::Remove => (value, from) = (None, None),
        }
        Ok(JsonPatchOperation {
            op,
            path,
            from,
            value,
        })
    }

    /// Evaluates an expression that has to be an `Object{…}` or a map, and returns it as JSON, nulls included; `None`:
    /// null. The types of the objects in it have to be those of their places.
    ///
    /// # Errors
    /// The value is an error, or no object.
    pub fn object(&mut self, program: &'v Program) -> Result<Option<Value>, EvalError> {
        let value = self.value(program)?;
        match &value {
            Val::Null => Ok(None),
            Val::Map(_) => to_json(&value, None, &mut self.tools.budget).map(Some),
            Val::Struct(made) if !made.is_patch() => {
                to_json(&value, Some(OBJECT), &mut self.tools.budget).map(Some)
            }
            other => Err(EvalError::Refused(format!(
                "it came to a {}, and not to an {OBJECT}",
                other.type_name()
            ))),
        }
    }
}

fn no_patches(type_name: &str) -> EvalError {
    EvalError::Refused(format!(
        "it came to a {type_name}, and not to a list of {PATCH}es"
    ))
}

fn needed<T>(field: Option<T>, name: &str, of: &str) -> Result<T, EvalError> {
    field
        .ok_or_else(|| EvalError::Refused(format!("a {PATCH} has no `{name}`, which `{of}` needs")))
}
