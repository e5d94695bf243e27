//! The values that were skipped to get at others.
//!
//! In a document that is read in place, values lie one behind the other: to get at one, those before it are skipped. What
//! that takes depends on the document and not on the expression, so the document counts it, and evaluations charge it.
//! The count is the thread's own, since a cursor has no room for it and an evaluation stays on its thread.

use std::cell::Cell;

/// Values that are skipped in the time of one step.
const STEP_VALUES: u64 = 16;

thread_local! {
    static SKIPPED: Cell<u64> = const { Cell::new(0) };
}

/// Counts values that this thread has skipped.
#[inline]
pub fn count_skipped(values: usize) {
    SKIPPED.with(|skipped| skipped.set(skipped.get().wrapping_add(values as u64)));
}

/// Runs `work` without counting the values that it skips.
pub fn uncounted<R>(work: impl FnOnce() -> R) -> R {
    let before = SKIPPED.get();
    let result = work();
    SKIPPED.set(before);
    result
}

/// The values that an evaluation on this thread has skipped and was not charged for yet.
#[derive(Clone, Copy, Debug)]
pub struct SkippedValues {
    charged_to: u64,
}

impl SkippedValues {
    /// Begins with what is skipped from now on.
    pub fn from_now() -> Self {
        Self {
            charged_to: SKIPPED.get(),
        }
    }

    /// Returns the steps to charge for what was skipped since the last call.
    #[inline]
    pub fn steps(&mut self) -> u64 {
        let steps = SKIPPED.get().wrapping_sub(self.charged_to) / STEP_VALUES;
        self.charged_to = self.charged_to.wrapping_add(steps * STEP_VALUES);
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_values_are_charged_once_and_those_of_other_work_never() {
        count_skipped(1_000);
        let mut skipped = SkippedValues::from_now();
        assert_eq!(skipped.steps(), 0);
        count_skipped(15);
        assert_eq!(skipped.steps(), 0);
        count_skipped(18);
        assert_eq!(skipped.steps(), 2, "and one value is left");
        count_skipped(15);
        uncounted(|| count_skipped(1_000_000));
        assert_eq!(skipped.steps(), 1);
        assert_eq!(skipped.steps(), 0);
    }
}
