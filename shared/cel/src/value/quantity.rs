//! Kubernetes quantities.

use std::fmt;

use anteroom_functions::values;

/// The billionths in one. A part that is finer is rounded away from zero, as Kubernetes does.
pub(crate) const ONE: i128 = 1_000_000_000;

/// Characters of a quantity; a longer text is none.
const CHARACTERS_MAX: usize = 64;

/// A quantity such as `100m` or `1.5Gi`, in billionths: exact, up to about 10²⁹.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity(pub(crate) i128);

impl Quantity {
    /// Reads a quantity; `None` if the text is none, or a larger one than this type holds.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > CHARACTERS_MAX {
            return None;
        }
        values::Quantity::parse(text)?.billionths().map(Self)
    }
}

/// In as few digits as say it, without a suffix.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (self.0.unsigned_abs() / ONE as u128, self.0 % ONE);
        match rest.unsigned_abs() {
            0 => write!(f, "{sign}{whole}"),
            rest => {
                let rest = format!("{rest:09}");
                write!(f, "{sign}{whole}.{}", rest.trim_end_matches('0'))
            }
        }
    }
}
