//! Go's durations, as in `1h30m`.

const SECOND_NS: i128 = 1_000_000_000;

/// A duration in nanoseconds. Wider than Go's, so that a number of seconds never overflows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(i128);

impl Duration {
    /// Whole seconds, as a number beside a duration is read.
    pub(crate) fn from_seconds(seconds: i64) -> Self {
        Self(i128::from(seconds) * SECOND_NS)
    }

    /// The whole duration in nanoseconds.
    pub fn nanoseconds(self) -> i128 {
        self.0
    }

    /// Reads a signed sequence of decimals with a unit each; `0` needs none. `None` beyond Go's own range
    /// of 2⁶³ nanoseconds.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, mut rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(Self(0));
        }
        if rest.is_empty() {
            return None;
        }
        let mut total: i128 = 0;
        while !rest.is_empty() {
            let (part, after) = part(rest)?;
            total = total.checked_add(part)?;
            rest = after;
        }
        let limit = i128::from(i64::MAX) + i128::from(negative);
        (total <= limit).then_some(Self(if negative { -total } else { total }))
    }
}

/// Returns a duration as Go writes it, as in `1h30m`, in nanoseconds; `None` where the text is none.
pub fn duration_ns(text: &str) -> Option<i128> {
    Duration::parse(text).map(Duration::nanoseconds)
}

/// Parses one decimal with its unit; returns the nanoseconds and the rest of the text.
fn part(text: &str) -> Option<(i128, &str)> {
    let digits_end = |text: &str| {
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len())
    };
    let (whole, rest) = text.split_at(digits_end(text));
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(after) => after.split_at(digits_end(after)),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    let unit_ns: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND_NS,
        "m" => 60 * SECOND_NS,
        "h" => 3600 * SECOND_NS,
        _ => return None,
    };
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // Further digits are below a nanosecond whatever the unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let fraction_ns = if fraction.is_empty() {
        0
    } else {
        fraction.parse::<i128>().ok()? * unit_ns / 10_i128.pow(fraction.len() as u32)
    };
    Some((whole.checked_mul(unit_ns)?.checked_add(fraction_ns)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, ns) in [
            ("0", 0),
            ("-0", 0),
            ("1s", SECOND_NS),
            ("1h30m", 5400 * SECOND_NS),
            ("-1.5h", -5400 * SECOND_NS),
            ("+.5s", SECOND_NS / 2),
            ("1.s", SECOND_NS),
            ("100ms5us7ns", 100_005_007),
            ("3µs", 3_000),
            ("3μs", 3_000),
            ("0.1234567891234567891234s", 123_456_789),
            // 1.14 ns: a fraction is scaled as a whole, not digit by digit.
            ("0.000000000019m", 1),
            ("9223372036854775807ns", i128::from(i64::MAX)),
            ("-9223372036854775808ns", i128::from(i64::MIN)),
        ] {
            assert_eq!(Duration::parse(text), Some(Duration(ns)), "{text}");
        }
        for text in [
            "",
            "-",
            "1",
            "00",
            ".s",
            "s",
            "1x",
            "1d",
            "1 s",
            "1h ",
            "9223372036854775808ns",
            "99999999999999999999999999999999999999999h",
        ] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
    }
}
