//! JMESPath, parsed once and evaluated by reference over a borrowed [`Node`].
//!
//! ```
//! use anteroom_jmespath::{Environment, Expression};
//!
//! let pods = serde_json::json!({"items": [{"name": "a", "ready": true}, {"name": "b"}]});
//! let ready = Expression::parse("items[?ready].name")?;
//! assert_eq!(ready.evaluate_json(&pods, &Environment::default())?, serde_json::json!(["a"]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # From text to value
//!
//! [`Expression::parse`] (lexer, Pratt parser) makes an [`ast::Ast`], a flat arena that is cheap to
//! share and that a planner may read. [`Expression::evaluate`] walks it over a document through
//! [`Node`] alone and gives a [`Value`], which borrows from the document whatever it did not compute.
//! [`FunctionTable`] holds the functions; an [`Environment`] brings them together with the named
//! parameters, the rule for missing keys and the [`Budget`].
//!
//! | module | content |
//! |---|---|
//! | `expression` | [`Expression`]: parsed text, ready to evaluate |
//! | `lexer`, `parser`, `number` | text into tokens; tokens into a tree; numbers |
//! | [`ast`], `tree_builder` | the syntax tree; trees put together from others |
//! | `evaluator`, `environment`, `budget` | the walk over the tree; its inputs; its limits |
//! | `node`, `value`, `scalar` | the document; values; values to look up |
//! | `function`, `seed` | functions and signatures; clock and random numbers |
//! | `reads` | the parts of a document that are read |
//! | [`json_memory`] | the memory of JSON documents |
//! | `error`, `fuzzing` | errors; the bodies of fuzz targets |
//!
//! # What differs from plain JMESPath
//!
//! * `$name` is a *parameter*: a primary expression whose value the [`Environment`] binds. An
//!   expression is compiled once and never has text pasted into it.
//! * Integers are exact, and compare exactly with floats: see [`Number`].
//! * With [`MissingKey::Error`], a key that an object lacks is an error, as in Kyverno.
//! * What time it is, and what chance gives, is handed in as an [`EvalSeed`].
//! * `&expression` is only what the specification's grammar says, an argument of a function, so an
//!   expression can not call itself. The separators of a list are required, and none may trail.
//!
//! # Limits
//!
//! Parsing is limited by [`Limits`], evaluation by [`Budget`], each with a typed error. Neither can
//! overflow the stack of a 2 MiB thread at the default limits, which the tests check in debug builds.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod ast;
mod budget;
mod environment;
mod error;
mod evaluator;
mod expression;
mod function;
#[doc(hidden)]
pub mod fuzzing;
pub mod json_memory;
mod lexer;
mod node;
mod number;
mod parser;
pub mod reads;
mod scalar;
mod seed;
mod tree_builder;
mod value;

pub use budget::{BUILT_BYTES_MAX, Budget, DEPTH_MAX, JSON_BYTES_MAX, STEPS_MAX};
pub use environment::{Environment, MissingKey, Parameters};
pub use error::{BudgetKind, EvalError, ParseError, ParseErrorKind};
pub use expression::Expression;
pub use function::{Call, Function, FunctionTable, Handle, Handles, Reference, Signature, Types};
pub use node::{Node, Number, Shape, SkippedValues, count_skipped, uncounted};
pub use parser::{EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, Limits};
pub use scalar::Scalar;
pub use seed::EvalSeed;
pub use tree_builder::Graft;
pub use value::{
    Array, Borrowed, Object, Text, VALUE_DEPTH_MAX, Value, json_text, json_text_within,
};
