//! Limits on the steps, depth and memory of one evaluation.

use crate::{
    error::{BudgetKind, EvalError},
    json_memory,
    node::SkippedValues,
};

/// The steps of one evaluation unless its budget says otherwise: about a second of work.
pub const STEPS_MAX: u64 = 20_000_000;

/// The depth of one evaluation, and of what it builds, unless its budget says otherwise. A stack of
/// 2 MiB holds it in a debug build.
pub const DEPTH_MAX: u32 = 256;

/// The default limit of the bytes that one evaluation builds.
pub const BUILT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The default limit of the memory of JSON documents that values are converted to: 16 times the largest result of a
/// query.
pub const JSON_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes that are built in one step.
const STEP_BYTES: u64 = 64;

/// Limits of one evaluation. At each limit it ends with
/// [`EvalError::Budget`](crate::EvalError::Budget).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Subexpressions evaluated, elements visited, values compared, each 64 bytes built, and each 16 values of the
    /// document skipped.
    pub steps: u64,
    /// Levels of nesting of the evaluation, and of a built value. Above [`DEPTH_MAX`] the caller
    /// answers for the size of the stack.
    pub depth: u32,
    /// Bytes of all that is built on the way: strings by their length, elements and entries by what
    /// they take in memory.
    pub built_bytes: u64,
    /// Memory of the JSON documents that there are at once, by the figures of [`json_memory`]: a result as JSON, and what
    /// functions convert and parse on the way.
    pub json_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            steps: STEPS_MAX,
            depth: DEPTH_MAX,
            built_bytes: BUILT_BYTES_MAX,
            json_bytes: JSON_BYTES_MAX,
        }
    }
}

/// The limits of one conversion to a JSON document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonLimits {
    steps: u64,
    bytes: u64,
}

impl JsonLimits {
    pub(crate) fn new(steps: u64, bytes: u64) -> Self {
        JsonLimits { steps, bytes }
    }

    /// The memory that the document may take.
    pub(crate) fn bytes_max(self) -> u64 {
        self.bytes.min(json_memory::bytes_within(self.steps))
    }

    /// Returns whether a document that takes more takes too many steps, rather than too much memory.
    pub(crate) fn are_of_steps(self) -> bool {
        json_memory::bytes_within(self.steps) < self.bytes
    }

    /// The error of a document that takes more.
    pub(crate) fn error(self) -> EvalError {
        match self.are_of_steps() {
            true => over(BudgetKind::Steps, self.steps),
            false => over(BudgetKind::BuiltBytes, self.bytes),
        }
    }
}

/// A budget while it is spent.
#[derive(Debug)]
pub(crate) struct Meter {
    budget: Budget,
    steps_left: u64,
    built_bytes_left: u64,
    /// The memory of JSON documents that calls in progress hold.
    json_bytes_held: u64,
    depth: u32,
    skipped: SkippedValues,
}

impl Meter {
    pub(crate) fn new(budget: Budget) -> Self {
        Meter {
            budget,
            steps_left: budget.steps,
            built_bytes_left: budget.built_bytes,
            json_bytes_held: 0,
            depth: 0,
            skipped: SkippedValues::from_now(),
        }
    }

    /// One step.
    #[inline]
    pub(crate) fn step(&mut self) -> Result<(), EvalError> {
        self.steps(1)
    }

    /// So many steps.
    #[inline]
    pub(crate) fn steps(&mut self, steps: usize) -> Result<(), EvalError> {
        match self.steps_left.checked_sub(steps as u64) {
            Some(left) => {
                self.steps_left = left;
                Ok(())
            }
            None => {
                // The work may have been done already, and whoever shares the budget is charged all of it.
                self.steps_left = 0;
                Err(over(BudgetKind::Steps, self.budget.steps))
            }
        }
    }

    /// So many bytes, before they are allocated where they may be many, and the steps that it takes to write them.
    #[inline]
    pub(crate) fn build(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.write(bytes as u64)?;
        match self.built_bytes_left.checked_sub(bytes as u64) {
            Some(left) => {
                self.built_bytes_left = left;
                Ok(())
            }
            None => Err(self.over_built_bytes()),
        }
    }

    /// The steps for so many bytes that are written.
    #[inline]
    pub(crate) fn write(&mut self, bytes: u64) -> Result<(), EvalError> {
        self.steps((bytes / STEP_BYTES) as usize)
    }

    /// The limits of a JSON document that a call is about to make.
    pub(crate) fn json_limits(&self) -> JsonLimits {
        let bytes_left = self.budget.json_bytes.saturating_sub(self.json_bytes_held);
        JsonLimits::new(self.steps_left, bytes_left)
    }

    /// Memory of a JSON document that a call holds until [`Meter::release_json`], and the steps that it takes to make it.
    pub(crate) fn hold_json(&mut self, bytes: u64) -> Result<(), EvalError> {
        if bytes > self.json_limits().bytes_max() {
            return Err(self.over_json());
        }
        self.json_bytes_held += bytes;
        self.steps((bytes / json_memory::STEP_BYTES) as usize)
    }

    /// Returns the memory of JSON documents that calls in progress hold.
    pub(crate) fn json_bytes_held(&self) -> u64 {
        self.json_bytes_held
    }

    /// A call has ended, before which so much was held.
    pub(crate) fn release_json(&mut self, held_before: u64) {
        self.json_bytes_held = held_before;
    }

    /// The error of a JSON document that is over its limits. What was made of it took steps.
    pub(crate) fn over_json(&mut self) -> EvalError {
        let limits = self.json_limits();
        if limits.are_of_steps() {
            self.steps_left = 0;
            return over(BudgetKind::Steps, self.budget.steps);
        }
        let steps = limits.bytes_max() / json_memory::STEP_BYTES;
        self.steps_left = self.steps_left.saturating_sub(steps);
        over(BudgetKind::BuiltBytes, self.budget.json_bytes)
    }

    /// Checks the memory of the values of calls in progress, which are not built and yet there.
    #[inline]
    pub(crate) fn allow_held(&self, bytes: usize) -> Result<(), EvalError> {
        let built_bytes = self.budget.built_bytes.saturating_mul(2);
        let bytes_max = self.budget.json_bytes.max(built_bytes);
        match bytes as u64 <= bytes_max {
            true => Ok(()),
            false => Err(over(BudgetKind::BuiltBytes, bytes_max)),
        }
    }

    /// Returns the bytes of a text that may be written.
    pub(crate) fn text_bytes_max(&self) -> u64 {
        let within_steps = self.steps_left.saturating_add(1).saturating_mul(STEP_BYTES) - 1;
        self.built_bytes_left.min(within_steps)
    }

    /// The error of a text that is longer.
    pub(crate) fn over_text(&mut self) -> EvalError {
        match self.text_bytes_max() < self.built_bytes_left {
            true => {
                self.steps_left = 0;
                over(BudgetKind::Steps, self.budget.steps)
            }
            false => self.over_built_bytes(),
        }
    }

    /// The rest of the budget.
    pub(crate) fn left(&self) -> Budget {
        Budget {
            steps: self.steps_left,
            built_bytes: self.built_bytes_left,
            ..self.budget
        }
    }

    fn over_built_bytes(&self) -> EvalError {
        over(BudgetKind::BuiltBytes, self.budget.built_bytes)
    }

    /// A step one level further down, with the values that the last steps skipped.
    #[inline]
    pub(crate) fn enter(&mut self) -> Result<(), EvalError> {
        if self.depth >= self.budget.depth {
            return Err(over(BudgetKind::Depth, u64::from(self.budget.depth)));
        }
        let skipped = self.skipped.steps();
        self.steps(1 + skipped as usize)?;
        self.depth += 1;
        Ok(())
    }

    /// Back from where [`Meter::enter`] succeeded.
    #[inline]
    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// Returns whether a value of this depth may be built.
    pub(crate) fn allow_depth(&self, depth: u32) -> Result<(), EvalError> {
        if depth > self.budget.depth {
            return Err(over(BudgetKind::Depth, u64::from(self.budget.depth)));
        }
        Ok(())
    }
}

#[cold]
fn over(which: BudgetKind, limit: u64) -> EvalError {
    EvalError::Budget { which, limit }
}
