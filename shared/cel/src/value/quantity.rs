//! Kubernetes quantities.

use std::{cmp::Ordering, fmt};

use anteroom_functions::values;

/// The billionths in one. A part that is finer is rounded away from zero, as Kubernetes does.
pub(crate) const ONE: i128 = 1_000_000_000;

/// The decimal places of a billionth.
const PLACES: i32 = 9;

/// Characters of a quantity; a longer text is none.
const CHARACTERS_MAX: usize = 64;

/// A quantity such as `100m` or `1.5Gi`, in billionths: exact, up to about 10²⁹.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    /// The billionths in two halves: whole, they would make every value of expressions half as large again.
    high: i64,
    low: u64,
    /// The power of ten that Kubernetes keeps beside an int, by how the quantity is written; `None`: it keeps a decimal.
    scale: Option<i32>,
}

impl Quantity {
    /// Reads a quantity; `None` if the text is none, or a larger one than this type holds.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > CHARACTERS_MAX {
            return None;
        }
        let billionths = values::Quantity::parse(text)?.billionths()?;
        let scale = values::Scale::of(text).filter(|scale| scale.is_int);
        let power = scale.and_then(|scale| i32::try_from(scale.power).ok());
        Some(Self::new(billionths, power))
    }

    fn new(billionths: i128, scale: Option<i32>) -> Self {
        Self {
            high: (billionths >> 64) as i64,
            low: billionths as u64,
            scale,
        }
    }

    pub(crate) fn billionths(self) -> i128 {
        i128::from(self.high) << 64 | i128::from(self.low)
    }

    pub(crate) fn negated(self) -> Option<Self> {
        Some(Self::new(self.billionths().checked_neg()?, self.scale))
    }

    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        let sum = self.billionths().checked_add(other.billionths())?;
        Some(Self::new(sum, self.scale_of_sum(other, sum)))
    }

    /// The finer of both scales, as long as both sides and the sum are ints then. A zero has no say.
    fn scale_of_sum(self, other: Self, sum: i128) -> Option<i32> {
        let (left, right) = (self.scale?, other.scale?);
        match (self.billionths(), other.billionths()) {
            (_, 0) => Some(left),
            (0, _) => Some(right),
            (one, another) => {
                let scale = left.min(right);
                let is_int = |billionths| in_units(billionths, scale).is_some();
                (is_int(one) && is_int(another) && is_int(sum)).then_some(scale)
            }
        }
    }

    /// The int that Kubernetes takes it for, by how it is written: `1k` is one, `1.0`, `1000m` and `1Pi` are none.
    pub(crate) fn whole(self) -> Option<i64> {
        match self.scale? {
            scale if scale < 0 => None,
            _ => in_units(self.billionths(), 0),
        }
    }
}

/// So many of a power of ten; `None`: it is no int.
fn in_units(billionths: i128, scale: i32) -> Option<i64> {
    if billionths == 0 {
        return Some(0);
    }
    let power = u32::try_from(PLACES.checked_add(scale)?).ok()?;
    let unit = 10_i128.checked_pow(power)?;
    (billionths % unit == 0).then(|| i64::try_from(billionths / unit).ok())?
}

impl From<i64> for Quantity {
    fn from(whole: i64) -> Self {
        Self::new(i128::from(whole) * ONE, Some(0))
    }
}

/// Quantities of the same amount are equal, in whatever notation.
impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.billionths() == other.billionths()
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.billionths().cmp(&other.billionths())
    }
}

/// In as few digits as say it, without a suffix.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let billionths = self.billionths();
        let sign = if billionths < 0 { "-" } else { "" };
        let (whole, rest) = (billionths.unsigned_abs() / ONE as u128, billionths % ONE);
        match rest.unsigned_abs() {
            0 => write!(f, "{sign}{whole}"),
            rest => {
                let rest = format!("{rest:09}");
                write!(f, "{sign}{whole}.{}", rest.trim_end_matches('0'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|| panic!("{text} is a quantity"))
    }

    #[test]
    fn whether_a_quantity_is_an_int_depends_on_how_it_is_written() {
        for (text, whole) in [
            ("0", 0),
            ("-0", 0),
            ("+01", 1),
            ("1.", 1),
            ("1.5k", 1500),
            ("0.0001M", 100),
            ("1e18", 1_000_000_000_000_000_000),
            ("999999999999999999", 999_999_999_999_999_999),
            ("0e99", 0),
            ("-0Gi", 0),
            ("99999Gi", 107_373_108_658_176),
            ("99Ti", 108_851_651_149_824),
            ("99999999Mi", 104_857_598_951_424),
            ("99999999999Ki", 102_399_999_998_976),
        ] {
            assert_eq!(quantity(text).whole(), Some(whole), "{text}");
        }
        for text in [
            "2000m",
            "1.0",
            "100e-2",
            "0.0",
            "0m",
            "1n",
            "1.5Gi",
            "0.5Ki",
            "0.0Gi",
            "0Pi",
            "1Pi",
            "7Ei",
            "100000Gi",
            "100Ti",
            "100000000Mi",
            "100000000000Ki",
            "1000000000000000000",
            "1e19",
            "9e18k",
            "1e-10",
        ] {
            let found = Quantity::parse(text).and_then(Quantity::whole);
            assert_eq!(found, None, "{text}");
        }
    }

    #[test]
    fn a_sum_is_an_int_if_both_sides_are_and_a_zero_has_no_say() {
        for (left, right, whole) in [
            ("1k", "1", Some(1001)),
            ("9e18", "2e17", Some(9_200_000_000_000_000_000)),
            ("9E", "9E", None),
            ("500m", "500m", None),
            ("1", "2000m", None),
            ("1", "1Pi", None),
            ("9E", "1n", None),
            ("93e17", "-200000000000000001", None),
            ("1", "0m", Some(1)),
            ("0m", "1", Some(1)),
            ("0", "2000m", None),
            ("0", "0m", Some(0)),
            ("0m", "0", None),
            ("0", "1Pi", None),
            ("0e20", "1", Some(1)),
        ] {
            let sum = quantity(left)
                .plus(quantity(right))
                .and_then(Quantity::whole);
            assert_eq!(sum, whole, "{left} {right}");
        }
        let (most, least) = (Quantity::from(i64::MAX), Quantity::from(i64::MIN));
        assert_eq!(most.plus(least).and_then(Quantity::whole), Some(-1));
        assert_eq!(least.negated().and_then(Quantity::whole), None);
        let largest = Quantity::new(i128::MAX, None);
        assert_eq!(largest.plus(largest), None);
        assert_eq!(Quantity::new(i128::MIN, None).negated(), None);
    }

    #[test]
    fn the_halves_of_a_quantity_make_it_whole() {
        for billionths in [
            0,
            1,
            -1,
            i128::MAX,
            i128::MIN,
            1 << 64,
            -(1 << 64),
            (1 << 64) - 1,
        ] {
            assert_eq!(Quantity::new(billionths, None).billionths(), billionths);
        }
    }
}
