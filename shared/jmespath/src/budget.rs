//! Limits on the steps, depth and memory of one evaluation.

use crate::{
    error::{BudgetKind, EvalError},
    node::SkippedValues,
};

/// The steps of one evaluation unless its budget says otherwise: about a second of work.
pub const STEPS_MAX: u64 = 20_000_000;

/// The depth of one evaluation, and of what it builds, unless its budget says otherwise. A stack of
/// 2 MiB holds it in a debug build.
pub const DEPTH_MAX: u32 = 256;

/// The default limit of the bytes that one evaluation builds.
pub const BUILT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes that are built in one step.
const STEP_BYTES: u64 = 64;

/// Bytes of a JSON document that a value is converted to in one step: each number, text and key is allocated.
const CONVERTED_STEP_BYTES: u64 = 8;

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
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            steps: STEPS_MAX,
            depth: DEPTH_MAX,
            built_bytes: BUILT_BYTES_MAX,
        }
    }
}

/// A budget while it is spent.
#[derive(Debug)]
pub(crate) struct Meter {
    budget: Budget,
    steps_left: u64,
    built_bytes_left: u64,
    depth: u32,
    skipped: SkippedValues,
}

impl Meter {
    pub(crate) fn new(budget: Budget) -> Self {
        Meter {
            budget,
            steps_left: budget.steps,
            built_bytes_left: budget.built_bytes,
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

    /// The steps for a value that is converted to a JSON document of so many bytes.
    pub(crate) fn convert(&mut self, bytes: u64) -> Result<(), EvalError> {
        self.steps((bytes / CONVERTED_STEP_BYTES) as usize)
    }

    /// The rest of the budget.
    pub(crate) fn left(&self) -> Budget {
        Budget {
            steps: self.steps_left,
            built_bytes: self.built_bytes_left,
            ..self.budget
        }
    }

    pub(crate) fn built_bytes_left(&self) -> u64 {
        self.built_bytes_left
    }

    pub(crate) fn over_built_bytes(&self) -> EvalError {
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
