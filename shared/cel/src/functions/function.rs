//! A function, and what it works with.

use anteroom_functions::bounded_regex::BoundedRegex;
use anteroom_jmespath::SkippedValues;

use crate::{
    budget::Budget,
    chance::{Arrival, Draws},
    error::EvalError,
    kind::Kind,
    value::{Val, no_overload},
};

/// The result of a call.
pub(crate) type CallResult<'v> = Result<Val<'v>, EvalError>;

/// A function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// Called as `x.name()`, rather than as `name(x)`.
    pub(super) method: bool,
    /// The least and the largest number of arguments. The receiver of a method is the first.
    pub(crate) arguments: (usize, usize),
    /// The types of the first argument; empty: any.
    pub(crate) of: &'static [Kind],
    pub(crate) result: Kind,
    /// The second argument is a regular expression.
    pub(crate) takes_pattern: bool,
    /// The function's value depends on the moment.
    pub(crate) is_nondeterministic: bool,
    /// The second argument is evaluated only where the first is an empty optional.
    pub(crate) is_fallback: bool,
    /// The result is an argument or a part of an argument, and the function reads no part of its arguments.
    pub(crate) passes_arguments: bool,
    pub(crate) run: for<'v> fn(&mut CallContext<'_>, &[Val<'v>]) -> CallResult<'v>,
}

impl Function {
    /// Its value depends on the moment: it is never evaluated in a replica, nor remembered.
    pub(super) const fn nondeterministic(mut self) -> Self {
        self.is_nondeterministic = true;
        self
    }

    /// Marks a function whose result is an argument or a part of an argument, and which reads no field of any object.
    pub(super) const fn passing(mut self) -> Self {
        self.passes_arguments = true;
        self
    }

    /// Marks a function whose second argument counts only where the first is an empty optional.
    pub(super) const fn falling_back(mut self) -> Self {
        self.is_fallback = true;
        self
    }

    /// Returns whether it is called as `x.name()`, rather than as `name(x)`.
    pub(crate) fn is_method(&self) -> bool {
        self.method
    }
}

/// The context of a call.
pub(crate) struct CallContext<'t> {
    pub(crate) name: &'static str,
    /// The compiled pattern, if it is a literal.
    pub(crate) pattern: Option<&'t BoundedRegex>,
    /// The number of the call.
    pub(crate) site: u64,
    pub(crate) tools: &'t mut Tools,
}

/// State shared by all calls of an evaluation.
pub(crate) struct Tools {
    pub(crate) budget: Budget,
    /// The last pattern that was made for an object, and its text.
    pub(super) made: Option<(String, BoundedRegex)>,
    pub(crate) arrival: Option<Arrival>,
    /// The arrival was asked for.
    pub(crate) depends_on_arrival: bool,
    pub(super) draws: Draws,
    skipped: SkippedValues,
}

impl Tools {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            budget,
            made: None,
            arrival: None,
            depends_on_arrival: false,
            draws: Draws::default(),
            skipped: SkippedValues::from_now(),
        }
    }

    /// An evaluation begins, perhaps on another thread than the last.
    pub(crate) fn begin(&mut self) {
        self.skipped = SkippedValues::from_now();
    }

    /// Charges a step, and the values that the last steps skipped.
    #[inline]
    pub(crate) fn step(&mut self) -> Result<(), EvalError> {
        let skipped = self.skipped.steps();
        self.budget.steps(1 + skipped)
    }
}

impl CallContext<'_> {
    /// The arrival, on which the evaluation depends from now on.
    ///
    /// # Errors
    /// There is none: `missing` is not available.
    pub(super) fn arrival(&mut self, missing: &str) -> Result<Arrival, EvalError> {
        self.tools.depends_on_arrival = true;
        self.tools.arrival.ok_or_else(|| {
            EvalError::refused(format!("{missing} not available where this is evaluated"))
        })
    }

    pub(crate) fn budget(&mut self) -> &mut Budget {
        &mut self.tools.budget
    }

    /// The error that the function does not take these arguments.
    pub(crate) fn mismatch<'v>(&self, arguments: &[Val<'_>]) -> CallResult<'v> {
        Err(no_overload(self.name, arguments))
    }
}

type Run = for<'v> fn(&mut CallContext<'_>, &[Val<'v>]) -> CallResult<'v>;

/// A function that is called like `x.name(…)`.
pub(super) const fn method(
    name: &'static str,
    arguments: (usize, usize),
    of: &'static [Kind],
    result: Kind,
    run: Run,
) -> Function {
    Function {
        name,
        method: true,
        arguments,
        of,
        result,
        takes_pattern: false,
        is_nondeterministic: false,
        is_fallback: false,
        passes_arguments: false,
        run,
    }
}

/// A function that is called like `name(…)`.
pub(super) const fn global(
    name: &'static str,
    arguments: (usize, usize),
    of: &'static [Kind],
    result: Kind,
    run: Run,
) -> Function {
    Function {
        method: false,
        ..method(name, arguments, of, result, run)
    }
}
