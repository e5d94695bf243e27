//! CEL as Kubernetes' admission policies have it: compiled once, evaluated over borrowed JSON.
//!
//! ```
//! use anteroom_cel::{Budget, Machine, Names, Program, Roots};
//! use serde_json::json;
//!
//! let names = Names::default();
//! let program = Program::compile("object.spec.replicas <= 5", &names)?;
//! let object = json!({"spec": {"replicas": 3}});
//! let roots = Roots { object: Some(&object), ..Roots::default() };
//! let mut machine = Machine::new(roots, &[], Budget::default());
//! assert!(machine.truth(&program)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Text is parsed, and macros are expanded, by the `cel` crate. What it makes of the text is checked
//! ([`Program::compile`]): every name is one that there is, every function is known and takes so many
//! arguments, and what is known of types fits. Evaluation is this crate's own: it has to end in bounded time
//! and memory, whatever a policy and an object come to. It works on the request's JSON in place: nothing is
//! converted, and nothing copied that is only looked at.
//!
//! | module | content |
//! |---|---|
//! | `program` | [`Program`]: a checked expression, with what it reads |
//! | `scan`, `compile` | limits of the text; from text to an expression |
//! | `dialect`, `kind` | names and functions of Kubernetes and Kyverno; static types |
//! | `ast`, `unparse` | a checked expression; its canonical text |
//! | `evaluate`, `value`, `input` | evaluation: [`Machine`]; values; values from outside |
//! | `functions` | all functions, by name and call |
//! | `budget`, `limits`, `chance` | steps and memory; limits; clock and random numbers |
//! | `fact`, `fact_reads` | calls that read facts; facts that an expression asks for |
//! | `split`, `subquery` | parts that are evaluated in a replica |
//! | `narrow`, `probes` | elements that matter; questions to an index |
//! | `key_path`, `key_values` | paths to keys; the keys of an object |
//! | `objects` | lists of objects that are read in place |
//! | `request_reads`, `object_reads`, `list_uses` | what is read of requests, objects and lists |
//! | `error` | errors of compiling and evaluating |
//!
//! # Limits
//!
//! Source text: [`SOURCE_BYTES_MAX`], [`TOKENS_MAX`], [`NESTING_MAX`], [`CONDITIONALS_MAX`],
//! [`EXPRESSION_DEPTH_MAX`]. Evaluation: [`Budget`], [`EVALUATION_DEPTH_MAX`] and [`JSON_DEPTH_MAX`]. Each is an error with
//! the limit in it. At these limits nothing overflows the stack of a 2 MiB thread.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod ast;
mod budget;
mod chance;
mod compile;
mod dialect;
mod error;
mod evaluate;
mod fact;
mod fact_reads;
mod functions;
mod input;
mod key_path;
mod key_values;
mod kind;
mod limits;
mod list_uses;
mod narrow;
mod object_reads;
mod objects;
mod probes;
mod program;
mod request_reads;
mod scan;
mod split;
mod subquery;
mod unparse;
mod value;

pub use budget::Budget;
pub use chance::Arrival;
pub use compile::Names;
pub use dialect::Dialect;
pub use error::{CompileError, EvalError, JsonError};
pub use evaluate::{JsonPatchOperation, Machine, PatchOp, Roots};
pub use fact::{Argument, Fact, FactFunction, FactScope, Host, Site, plural_of_kind};
pub use fact_reads::FactRead;
pub use functions::names as function_names;
pub use input::Input;
pub use key_path::{KeyPath, KeyStep, Missing};
pub use limits::{
    BUILT_BYTES_MAX, EVALUATION_DEPTH_MAX, EXPRESSION_DEPTH_MAX, JSON_BYTES_MAX, JSON_DEPTH_MAX,
    STEPS_MAX,
};
pub use list_uses::{ListAccess, ListInput, ListUse};
pub use object_reads::ReadDepth;
pub use objects::{Candidates, ObjectList};
pub use probes::Probes;
pub use program::Program;
pub use scan::{CONDITIONALS_MAX, NESTING_MAX, SOURCE_BYTES_MAX, TOKENS_MAX};
pub use subquery::{Subquery, SubqueryAnswer, SubqueryRequest};

#[cfg(test)]
mod tests;
