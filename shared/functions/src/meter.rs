//! A meter of the work on this thread, charged where the work is done.
//!
//! Comparisons take time that grows with both sides, and whoever sends a request chooses both. So they charge
//! steps, of about 50 ns each, to the meter that runs on their thread. Where it has nothing left they stop at
//! once, and what they return means nothing: whoever started the meter looks at what is left. Without a
//! meter nothing is counted, which costs one read of a thread's variable.
//!
//! It is a variable of the thread, since it is charged below signatures of expressions, patterns and
//! operators alike. An evaluation never leaves its thread between two waits.

use std::cell::Cell;

/// Bytes of text that are compared or copied in one step.
pub const BYTES_PER_STEP: usize = 16;

thread_local! {
    /// [`u64::MAX`]: no meter runs.
    static STEPS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// Runs `work` with a meter of `steps`. Returns its value and the steps that are left; if none is left, the value
/// means nothing. A meter around it is not charged.
pub fn within<T>(steps: u64, work: impl FnOnce() -> T) -> (T, u64) {
    /// Restores the outer meter, even after a panic.
    struct Around(u64);
    impl Drop for Around {
        fn drop(&mut self) {
            STEPS_LEFT.set(self.0);
        }
    }
    // The largest number is that of no meter.
    let around = Around(STEPS_LEFT.replace(steps.min(u64::MAX - 1)));
    let value = work();
    let left = STEPS_LEFT.get();
    drop(around);
    (value, left)
}

/// Charges steps. Returns whether some are left.
pub fn charge(steps: u64) -> bool {
    let left = STEPS_LEFT.get();
    if left == u64::MAX {
        return true;
    }
    let left = left.saturating_sub(steps);
    STEPS_LEFT.set(left);
    left > 0
}

/// Charges the reading of so many bytes. Returns whether steps are left.
pub fn charge_bytes(bytes: usize) -> bool {
    charge((bytes / BYTES_PER_STEP) as u64)
}

/// Returns the steps that are left; [`u64::MAX`] without a meter.
pub fn left() -> u64 {
    STEPS_LEFT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_counts_down_to_nothing_and_stays_there() {
        assert!(charge(1_000), "no meter runs");
        let (values, left) = within(10, || (charge(4), left(), charge(5), charge(1), charge(7)));
        assert_eq!(values, (true, 6, true, false, false));
        assert_eq!(left, 0);
        assert_eq!(super::left(), u64::MAX);
    }

    #[test]
    fn a_meter_inside_another_charges_only_itself() {
        let ((inner, outer), left) = within(10, || {
            charge(1);
            let (_, inner) = within(5, || charge_bytes(3 * BYTES_PER_STEP));
            (inner, super::left())
        });
        assert_eq!((inner, outer, left), (2, 9, 9));
    }
}
