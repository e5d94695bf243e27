//! Kubernetes quantities, compared without going through a float.

use std::cmp::Ordering;

/// Kubernetes keeps nothing below a billionth: smaller parts are rounded away from zero.
const EXPONENT_MIN: i64 = -9;

/// Digits of a quantity that are read; one with more is not a quantity.
const DIGITS_MAX: usize = 512;

/// Digits that Kubernetes keeps as an int.
const INT_DIGITS_MAX: usize = 18;

/// The same, where a binary suffix is multiplied out.
const BINARY_DIGITS_MAX: usize = 14;

/// A quantity such as `100m`, `1.5Gi` or `2e3`.
///
/// Exact: a string of decimal digits and a power of ten, which is never written out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    negative: bool,
    /// Most significant first, without zeros at either end; empty for zero.
    digits: Vec<u8>,
    /// The power of ten of the last digit.
    exponent: i64,
}

/// The parts of a quantity's text.
struct Parts<'t> {
    negative: bool,
    whole: &'t str,
    fraction: &'t str,
    suffix: &'t str,
}

impl<'t> Parts<'t> {
    /// `None`: the text is empty.
    fn of(text: &'t str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let digits_end = |text: &str| {
            text.find(|c: char| !c.is_ascii_digit())
                .unwrap_or(text.len())
        };
        let (whole, rest) = rest.split_at(digits_end(rest));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(after) => after.split_at(digits_end(after)),
            None => ("", rest),
        };
        Some(Self {
            negative,
            whole,
            fraction,
            suffix,
        })
    }
}

/// Returns the power of two that a binary suffix stands for.
fn power_of_two(suffix: &str) -> Option<u32> {
    Some(match suffix {
        "Ki" => 10,
        "Mi" => 20,
        "Gi" => 30,
        "Ti" => 40,
        "Pi" => 50,
        "Ei" => 60,
        _ => return None,
    })
}

/// Returns the power of ten that a decimal suffix or an exponent stands for.
fn power_of_ten(suffix: &str) -> Option<i64> {
    Some(match suffix {
        "" => 0,
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => i64::from(suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?),
    })
}

/// The power of ten that Kubernetes keeps beside the digits of a quantity. It depends on how the quantity is written: `1000m`
/// has three decimal places, and `1` has none (`ParseQuantity` of `k8s.io/apimachinery`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Below zero: so many decimal places.
    pub power: i64,
    /// The digits are kept as an int of 64 bits. Else they are kept as a decimal of any length.
    pub is_int: bool,
}

impl Scale {
    /// Returns the scale of a text that [`Quantity::parse`] takes.
    pub fn of(text: &str) -> Option<Self> {
        let parts = Parts::of(text)?;
        let places = parts.fraction.len();
        let digits = parts.whole.trim_start_matches('0').len().max(1) + places;
        Some(match power_of_two(parts.suffix) {
            // Multiplied out, it has three digits more for each power of 1024.
            Some(power) => Self {
                power: -(places as i64),
                is_int: places == 0 && digits + 3 * (power as usize / 10) <= BINARY_DIGITS_MAX,
            },
            None => {
                let power = power_of_ten(parts.suffix)? - places as i64;
                let is_int = digits <= INT_DIGITS_MAX && power >= EXPONENT_MIN;
                Self { power, is_int }
            }
        })
    }
}

impl Quantity {
    /// Reads a signed decimal with a suffix: `n`, `u`, `m`, `k`, `M`, `G`, `T`, `P`, `E`, `Ki` to `Ei`, or
    /// an exponent. Unlike the API server, which reads a lone suffix as zero, it wants a digit.
    pub fn parse(text: &str) -> Option<Self> {
        let Parts {
            negative,
            whole,
            fraction,
            suffix,
        } = Parts::of(text)?;
        let count = whole.len() + fraction.len();
        if count == 0 || count > DIGITS_MAX {
            return None;
        }
        let digits = whole
            .bytes()
            .chain(fraction.bytes())
            .map(|digit| digit - b'0')
            .collect();
        let mut quantity = Self {
            negative,
            digits,
            exponent: -(fraction.len() as i64),
        };
        quantity.apply(suffix)?;
        quantity.normalize();
        Some(quantity)
    }

    /// Returns the number of billionths; `None` where that is beyond an i128.
    pub fn billionths(&self) -> Option<i128> {
        let mut billionths: i128 = 0;
        for digit in &self.digits {
            billionths = billionths
                .checked_mul(10)?
                .checked_add(i128::from(*digit))?;
        }
        let power = u32::try_from(self.exponent - EXPONENT_MIN).ok()?;
        let factor = match billionths {
            0 => 1,
            _ => 10_i128.checked_pow(power)?,
        };
        let billionths = billionths.checked_mul(factor)?;
        Some(if self.negative {
            -billionths
        } else {
            billionths
        })
    }

    fn apply(&mut self, suffix: &str) -> Option<()> {
        if let Some(power) = power_of_two(suffix) {
            self.multiply(1 << power);
            self.round();
            self.cap();
            return Some(());
        }
        self.exponent += power_of_ten(suffix)?;
        self.round();
        Some(())
    }

    fn multiply(&mut self, factor: u64) {
        let mut carry: u128 = 0;
        for digit in self.digits.iter_mut().rev() {
            let product = u128::from(*digit) * u128::from(factor) + carry;
            *digit = (product % 10) as u8;
            carry = product / 10;
        }
        while carry > 0 {
            self.digits.insert(0, (carry % 10) as u8);
            carry /= 10;
        }
    }

    /// Away from zero to a billionth.
    fn round(&mut self) {
        if self.exponent >= EXPONENT_MIN {
            return;
        }
        let surplus = usize::try_from(EXPONENT_MIN - self.exponent).unwrap_or(usize::MAX);
        let kept = self.digits.len().saturating_sub(surplus);
        let lost = self.digits.split_off(kept).iter().any(|&digit| digit != 0);
        self.exponent = EXPONENT_MIN;
        if lost {
            self.increment();
        }
    }

    fn increment(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        self.digits.insert(0, 1);
    }

    /// Quantities in powers of two stop at the largest i64.
    fn cap(&mut self) {
        let mut limit = Self {
            negative: self.negative,
            digits: i64::MAX
                .to_string()
                .bytes()
                .map(|digit| digit - b'0')
                .collect(),
            exponent: 0,
        };
        limit.normalize();
        self.normalize();
        if self.compare_magnitude(&limit).is_gt() {
            *self = limit;
        }
    }

    fn normalize(&mut self) {
        let leading = self.digits.iter().take_while(|&&digit| digit == 0).count();
        self.digits.drain(..leading);
        while self.digits.last() == Some(&0) {
            self.digits.pop();
            self.exponent += 1;
        }
        if self.digits.is_empty() {
            (self.negative, self.exponent) = (false, 0);
        }
    }

    fn compare_magnitude(&self, other: &Self) -> Ordering {
        let magnitude = |quantity: &Self| {
            (!quantity.digits.is_empty()).then(|| quantity.digits.len() as i64 + quantity.exponent)
        };
        // Of two with one leading position, the one with fewer digits has zeros there, and sorts
        // first if it is a prefix of the other.
        magnitude(self)
            .cmp(&magnitude(other))
            .then_with(|| self.digits.cmp(&other.digits))
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.compare_magnitude(other),
            (true, true) => other.compare_magnitude(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|| panic!("{text} is a quantity"))
    }

    #[test]
    fn spellings_of_one_quantity_are_equal() {
        for spellings in [
            &[
                "1",
                "1.0",
                "+1",
                "1000m",
                "0.001k",
                "1e0",
                "1E0",
                "001",
                "1000000000n",
            ][..],
            &["1Ki", "1024", "1.024k", "1024000m"],
            &["1.5Gi", "1536Mi", "1610612736"],
            &["0", "-0", "0Ki", "0.0", "0e99999"],
            &["1E", "1e18", "1000P"],
            &["1Pi", "1024Ti", "1048576Gi"],
            &["1T", "1000G", "1e12"],
            &["1u", "1000n"],
            // A rest counts as a whole billionth.
            &["1.0000000001", "1000000001n"],
            &["9.9999999999", "10"],
            &["-500m", "-0.5"],
            &["8Ei", "9223372036854775807", "16Ei"],
            &["0.1n", "1n", "0.9999999999e-9", "1e-2000000000"],
        ] {
            for spelling in spellings {
                assert_eq!(quantity(spelling), quantity(spellings[0]), "{spelling}");
            }
        }
    }

    #[test]
    fn the_order_of_quantities_is_exact() {
        for (less, more) in [
            ("1", "2"),
            ("9", "10"),
            ("-2", "-1"),
            ("-1", "0"),
            ("0", "1n"),
            ("999m", "1"),
            ("1023", "1Ki"),
            ("1M", "1Mi"),
            ("12", "120"),
            ("12", "121"),
            ("9223372036854775806", "9223372036854775807"),
            (
                "100000000000000000000000000000000000001m",
                "100000000000000000000000000000000000002m",
            ),
            ("1e2000000000", "2e2000000000"),
        ] {
            assert!(quantity(less) < quantity(more), "{less} < {more}");
            assert!(quantity(more) > quantity(less), "{more} > {less}");
        }
    }

    #[test]
    fn malformed_quantities_are_refused() {
        for text in [
            "", "-", ".", "Mi", "k", "1K", "1mi", "1 Mi", "1Mi ", "1.2.3", "1e", "1e1.5", "e5",
            "0x10", "one", "1h", "１",
        ] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        assert_eq!(Quantity::parse(&"9".repeat(DIGITS_MAX + 1)), None);
        assert!(Quantity::parse(&"9".repeat(DIGITS_MAX)).is_some());
    }

    proptest! {
        #[test]
        fn the_order_of_quantities_agrees_with_integers(left in any::<i64>(), right in any::<i64>()) {
            prop_assert_eq!(quantity(&left.to_string()).cmp(&quantity(&right.to_string())), left.cmp(&right));
            let thousandths = |n: i64| quantity(&format!("{n}m"));
            prop_assert_eq!(thousandths(left).cmp(&thousandths(right)), left.cmp(&right));
        }

        #[test]
        fn a_binary_suffix_multiplies_by_its_power_of_two(value in 0_u32..1_000_000) {
            let expected = u64::from(value) << 20;
            prop_assert_eq!(quantity(&format!("{value}Mi")), quantity(&expected.to_string()));
        }

        #[test]
        fn parsing_a_quantity_never_panics(text in "[-+]?[0-9.]{0,20}[eEKMGimnu]{0,2}[-+]?[0-9]{0,12}") {
            let _ = Quantity::parse(&text);
        }
    }
}
