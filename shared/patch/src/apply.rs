//! Kubernetes' structured merge: what an object becomes under a partial object of its type, as in an
//! `ApplyConfiguration` of a mutating policy.
//!
//! | in the schema | is merged |
//! |---|---|
//! | an object, a map | field by field; what the patch does not name stays |
//! | a list of type `map` | by its keys, a missing key counting as its default |
//! | a list of type `set` | values that are not there yet are added |
//! | an atomic list, map or object | the patch may not have it; or it is replaced ([`Atomics`]) |
//! | a single value | replaced |
//!
//! Nothing is ever taken away, so `null` is no value of a patch. In a merged list the elements that only the
//! object has stay where they are. The patch's elements are in the patch's order, new ones before the next one
//! that both have. The patch's `apiVersion` and `kind` count for nothing. An empty list stays one, where the
//! API server makes null of one in an expression.
//!
//! The patch must fit the schema. So must the object, but for fields that the schema does not have: these
//! stay as they are, for an API server may be newer than the table of its types.
//!
//! | module | content |
//! |---|---|
//! | [`types`] | types, and [`ObjectSchema`]: a type in a table of types |
//! | [`schema`] | the ways to the type of a kind's objects |
//! | [`openapi`] | types from OpenAPI: of an API server, or of a CustomResourceDefinition |
//! | [`record`] | tables of types as text |
//! | [`smallest`] | the smallest table that says the same |
//! | [`built_in`] | the table of Kubernetes' own types |
//! | [`fits`] | the check that a value fits a type, and the search for what is atomic in a patch |
//! | [`item`] | the identity of an element in its list |
//! | [`union`] | the merge itself |
//! | `path`, `error` | paths in a value; errors |

mod built_in;
mod error;
mod fits;
mod item;
mod openapi;
mod path;
mod record;
mod schema;
mod smallest;
mod types;
mod union;

use serde_json::Value;

pub use error::ApplyError;
use fits::Fits;
pub use openapi::{built_in_table, published};
pub use types::{ObjectSchema, SchemaError, TYPES_MAX};

use crate::size::{self, Budget, Work};

/// The treatment of atomic lists, maps and objects that a patch touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomics {
    /// The patch is refused, as by the API server: its author may have meant to add to one.
    Refused,
    /// The patch replaces atomic parts whole, as server-side apply does.
    Replaced,
}

/// Merges `patch`, a partial object, into `object`, of the type `schema`.
///
/// # Errors
/// [`ApplyError`], all but `NoSchema` and `TooCostly`.
pub fn apply(
    object: &Value,
    patch: &Value,
    schema: &ObjectSchema,
    atomics: Atomics,
) -> Result<Value, ApplyError> {
    apply_charged(object, patch, schema, atomics, &|_| true)
}

/// Merges like [`apply`]. Each part of the merge tells `charge` its work before it does it: the checks, the identities of
/// elements, the copy. The unit is the time to copy a byte of text. If `charge` returns `false`, the merge ends there.
///
/// # Errors
/// [`ApplyError`], all but `NoSchema`.
pub fn apply_charged(
    object: &Value,
    patch: &Value,
    schema: &ObjectSchema,
    atomics: Atomics,
    charge: &dyn Fn(usize) -> bool,
) -> Result<Value, ApplyError> {
    size::check_depth(object)?;
    size::check_depth(patch)?;
    let mut budget = Budget::new();
    budget.take_document(object)?;
    budget.take(patch)?;
    let work = Work::counted_by(charge);
    // Both are checked, and then copied.
    for value in [object, patch] {
        work.charge(2 * size::work(value))?;
    }
    let patch = without_type(patch)?;
    let (types, root) = (schema.types(), schema.root());
    Fits::patch(types, work).check(root, &patch)?;
    if atomics == Atomics::Refused {
        let paths = fits::atomics(types, root, &patch);
        if !paths.is_empty() {
            return Err(ApplyError::Atomic { paths });
        }
    }
    Fits::object(types, work).check(root, object)?;
    Ok(union::merge(types, root, object, &patch, work)?)
}

/// Returns the patch without its `apiVersion` and `kind`: the object's values are used.
fn without_type(patch: &Value) -> Result<Value, ApplyError> {
    let Some(fields) = patch.as_object() else {
        return Err(ApplyError::Patch {
            path: ".".to_owned(),
            problem: format!("expected an object, found {}", fits::shape(patch)),
        });
    };
    let mut fields = fields.clone();
    fields.remove("apiVersion");
    fields.remove("kind");
    Ok(Value::Object(fields))
}

#[cfg(test)]
mod tests;
