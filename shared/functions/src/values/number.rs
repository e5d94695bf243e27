//! Numbers that keep their integers.

use std::cmp::Ordering;

/// An integer exactly, or a float.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    /// From decimal text; an integer that is written as one stays exact. Digits may have one `_` between
    /// them. `None` too for what is beyond all floats, unless it is written as infinite.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.contains('_') {
            return Self::parse_plain(&without_underscores(text)?);
        }
        Self::parse_plain(text)
    }

    fn parse_plain(text: &str) -> Option<Self> {
        if let Ok(integer) = text.parse() {
            return Some(Self::Integer(integer));
        }
        let float: f64 = text.parse().ok()?;
        let is_beyond = float.is_infinite() && text.bytes().any(|b| b.is_ascii_digit());
        (!is_beyond).then(|| Self::float(float))
    }

    /// A float without a fraction is an integer, as far as floats are exact at all.
    fn float(float: f64) -> Self {
        const EXACT_MAX: f64 = (1_u128 << 100) as f64;
        if float.fract() == 0.0 && float.abs() < EXACT_MAX {
            Self::Integer(float as i128)
        } else {
            Self::Float(float)
        }
    }

    /// Towards zero, within the range of i64.
    pub(crate) fn whole(self) -> i64 {
        match self {
            Self::Integer(integer) => {
                i64::try_from(integer).unwrap_or(if integer < 0 { i64::MIN } else { i64::MAX })
            }
            Self::Float(float) => float as i64,
        }
    }

    fn as_float(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }
}

/// `None` where one does not stand between two digits.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    let between = |at: usize| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1));
    let all_between = text.match_indices('_').all(|(at, _)| between(at));
    all_between.then(|| text.replace('_', ""))
}

impl From<&serde_json::Number> for Number {
    fn from(number: &serde_json::Number) -> Self {
        if let Some(integer) = number.as_i64() {
            Self::Integer(integer.into())
        } else if let Some(integer) = number.as_u64() {
            Self::Integer(integer.into())
        } else {
            Self::float(number.as_f64().unwrap_or(f64::NAN))
        }
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => Some(left.cmp(right)),
            _ => self.as_float().partial_cmp(&other.as_float()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_stay_exact() {
        let number = |text: &str| Number::parse(text).unwrap();
        assert!(number("9007199254740993") > number("9007199254740992"));
        assert!(number("18446744073709551615") > number("18446744073709551614"));
        assert_eq!(number("5"), number("5.0"));
        assert_eq!(number("+5"), number("5e0"));
        assert!(number("0.1") < number("0.2"));
        assert!(number("1e300") > number("1e299"));
        assert_ne!(number("nan"), number("nan"));
        assert_eq!(number("1_000.5"), number("1000.5"));
        assert!(number("inf") > number("1e308"));
        assert_eq!(number("1e-400"), number("0"));
        for text in [
            "", "5x", "0x10", "_1", "1_", "1__0", "1_.5", "1e400", "-1e400", " 5",
        ] {
            assert!(Number::parse(text).is_none(), "{text}");
        }
    }
}
