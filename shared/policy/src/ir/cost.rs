//! The work of compiling one policy or exception.
//!
//! Whoever may write a policy chooses its size and its shape, and services compile it beside their other work. So the
//! compiler charges steps to the [`meter`] where its work or its memory can grow faster than the manifest.

use anteroom_functions::meter;
use anteroom_model::ErrorCode;

use super::Problem;

/// The most steps of compiling one policy or exception: a quarter of a second of work, and 64 MiB of memory.
pub const COMPILE_STEPS_MAX: u64 = 2_000_000;

/// Steps of each text, however short: a template takes some hundred bytes.
const STEPS_PER_TEXT: usize = 8;

/// The reason why a part of a policy is not looked at any more. The policy's own problem is told in its place.
pub(crate) const OVER_LIMIT: &str = "compiling takes too many steps";

/// Charges the reading of a text. Returns whether steps are left.
pub(crate) fn charge_read(bytes: usize) -> bool {
    meter::charge((STEPS_PER_TEXT + bytes / meter::BYTES_PER_STEP) as u64)
}

/// Charges the parsing of so many bytes, each of which becomes many bytes of a syntax tree. Returns whether steps are
/// left.
pub(crate) fn charge_parsed(bytes: usize) -> bool {
    meter::charge(1 + bytes as u64)
}

/// Compiles within the limit.
///
/// # Errors
/// The problems that `compile` found, or the only one that it takes too many steps.
pub(crate) fn limited<T>(
    compile: impl FnOnce() -> Result<T, Vec<Problem>>,
) -> Result<T, Vec<Problem>> {
    let (compiled, left) = meter::within(COMPILE_STEPS_MAX, compile);
    match left {
        0 => Err(vec![Problem {
            code: ErrorCode::POLICY_INVALID,
            path: "spec".to_owned(),
            message: format!(
                "compiling takes more than {COMPILE_STEPS_MAX} steps: divide it, or use fewer variables in variables"
            ),
        }]),
        _ => compiled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_steps_for_each_of_its_bytes_and_one_of_none_too() {
        let text = 100 * meter::BYTES_PER_STEP;
        assert_eq!(meter::within(9, || charge_read(0)), (true, 1));
        assert_eq!(meter::within(8, || charge_read(0)), (false, 0));
        assert_eq!(meter::within(200, || charge_read(text)), (true, 92));
        assert_eq!(meter::within(100, || charge_read(text)), (false, 0));
        assert_eq!(meter::within(200, || charge_parsed(100)), (true, 99));
        assert_eq!(meter::within(100, || charge_parsed(100)), (false, 0));
    }

    #[test]
    fn compiling_without_steps_left_is_a_problem() {
        let compiled = |bytes| {
            limited(|| {
                charge_parsed(bytes);
                Ok(())
            })
        };
        assert_eq!(compiled(1_000), Ok(()));
        assert!(compiled(2_000_000).is_err());
    }
}
