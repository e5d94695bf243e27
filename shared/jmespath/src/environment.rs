//! The inputs of an evaluation besides the expression and the document.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use serde_json::Value;

use crate::budget::Budget;
use crate::function::FunctionTable;
use crate::seed::EvalSeed;

/// Functions, parameters, and rules of one evaluation.
#[derive(Clone, Copy)]
pub struct Environment<'e> {
    /// The functions that the expression may call.
    pub functions: &'e FunctionTable,
    /// The values of the expression's `$names`.
    pub parameters: &'e dyn Parameters,
    /// The rule for a key that an object lacks.
    pub missing_key: MissingKey,
    /// The limits of the evaluation.
    pub budget: Budget,
    /// The clock and the random numbers; if absent, `time_now()` and `random()` fail.
    pub seed: Option<&'e EvalSeed>,
}

impl Environment<'_> {
    /// The standard functions, no parameters, null for a missing key, the default budget.
    pub fn standard() -> Environment<'static> {
        Environment {
            functions: FunctionTable::standard_shared(),
            parameters: &(),
            missing_key: MissingKey::Null,
            budget: Budget::default(),
            seed: None,
        }
    }
}

impl<'e> Environment<'e> {
    /// The environment with other functions.
    #[must_use]
    pub fn with_functions(self, functions: &'e FunctionTable) -> Self {
        Environment { functions, ..self }
    }

    /// The environment with these parameters.
    #[must_use]
    pub fn with_parameters(self, parameters: &'e dyn Parameters) -> Self {
        Environment { parameters, ..self }
    }

    /// The environment with another rule for missing keys.
    #[must_use]
    pub fn with_missing_key(self, missing_key: MissingKey) -> Self {
        Environment {
            missing_key,
            ..self
        }
    }

    /// The environment with another budget.
    #[must_use]
    pub fn with_budget(self, budget: Budget) -> Self {
        Environment { budget, ..self }
    }

    /// The environment with this clock and these random numbers.
    #[must_use]
    pub fn with_seed(self, seed: Option<&'e EvalSeed>) -> Self {
        Environment { seed, ..self }
    }
}

impl Default for Environment<'_> {
    fn default() -> Self {
        Environment::standard()
    }
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Environment")
            .field("missing_key", &self.missing_key)
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

/// The value of a field that an object does not have.
///
/// A field of what is not an object (null, a string, an array) is null under both rules.
///
/// [`MissingKey::Error`] has the semantics of Kyverno's fork of go-jmespath
/// (`github.com/kyverno/go-jmespath` v0.4.1-0.20231124160150-95e59c162877, `interpreter.go`,
/// `NotFoundError`). The error travels up only
///
/// * through a path: `missing.b`, `missing[0]` and `missing.b[*]` are errors;
/// * out of the last operand of `&&`.
///
/// It is forgiven, that is, it becomes null, in
///
/// * every operand of `||`, every operand of `&&` but the last, the operand of `!`;
/// * both sides of a comparison;
/// * every stage of a pipe, the last one included;
/// * what is projected (`missing[*]`, `missing[]`, `missing[?x]`, `missing.*`), a filter's condition,
///   and what a projection does with each element;
/// * the elements of `[a, b]` and the values of `{k: a}`;
/// * every argument of a function, and what a function does with `&missing`.
///
/// As in the fork, wrong arguments read as null inside what is flattened, filtered or projected with `.*`:
/// `abs(text)[]`. An argument is wrong if its type is one that the function does not take, or if there are too
/// few or too many. There that is so of *any* error; here a value of the right type that a function cannot use
/// stays an error. So does whatever is not known or takes too much.
///
/// Two faults of the fork are not copied: `.*` visits a null for every value; and `sort_by`, `max_by` and
/// `min_by` do not look at the key of an only element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// Null, as the specification says.
    #[default]
    Null,
    /// An error, unless forgiven.
    Error,
}

/// The values of an expression's `$names`.
pub trait Parameters {
    /// The value bound to `name` (without the dollar sign), if there is one.
    fn parameter(&self, name: &str) -> Option<&Value>;
}

/// No parameters.
impl Parameters for () {
    fn parameter(&self, _name: &str) -> Option<&Value> {
        None
    }
}

impl Parameters for BTreeMap<String, Value> {
    fn parameter(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }
}

impl<P: Parameters> Parameters for Arc<P> {
    fn parameter(&self, name: &str) -> Option<&Value> {
        P::parameter(self, name)
    }
}

impl<S: BuildHasher> Parameters for HashMap<String, Value, S> {
    fn parameter(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }
}

impl Parameters for serde_json::Map<String, Value> {
    fn parameter(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }
}

/// A few parameters, looked through in order.
impl<const LENGTH: usize> Parameters for [(&str, &Value); LENGTH] {
    fn parameter(&self, name: &str) -> Option<&Value> {
        self.iter()
            .find(|(bound, _)| *bound == name)
            .map(|(_, value)| *value)
    }
}
