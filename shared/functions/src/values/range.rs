//! Ranges of durations or quantities, as in `10Mi-1Gi`.

use super::{duration::Duration, quantity::Quantity};

/// A range between two ends, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range<'a> {
    from: &'a str,
    to: &'a str,
}

impl<'a> Range<'a> {
    /// Two signed decimals with an optional suffix of letters, and a `-` between them.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (from, rest) = split_end(text)?;
        let (to, rest) = split_end(rest.strip_prefix('-')?)?;
        rest.is_empty().then_some(Self { from, to })
    }

    /// Returns whether `text` lies within; not where it cannot be compared with the ends.
    pub(crate) fn contains(self, text: &str) -> bool {
        compare(text, self.from).is_some_and(std::cmp::Ordering::is_ge)
            && compare(text, self.to).is_some_and(std::cmp::Ordering::is_le)
    }

    /// Returns whether `text` lies outside; not where it cannot be compared with the ends.
    pub(crate) fn excludes(self, text: &str) -> bool {
        compare(text, self.from).is_some_and(std::cmp::Ordering::is_lt)
            || compare(text, self.to).is_some_and(std::cmp::Ordering::is_gt)
    }
}

fn compare(left: &str, right: &str) -> Option<std::cmp::Ordering> {
    if let (Some(left), Some(right)) = (Duration::parse(left), Duration::parse(right)) {
        return Some(left.cmp(&right));
    }
    Some(Quantity::parse(left)?.cmp(&Quantity::parse(right)?))
}

/// Splits one end of a range from the rest of the text.
fn split_end(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let skip = |from: usize, accept: fn(&u8) -> bool| {
        from + bytes
            .get(from..)
            .map_or(0, |rest| rest.iter().take_while(|&b| accept(b)).count())
    };
    let sign = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let mut end = skip(sign, u8::is_ascii_digit);
    if end == sign {
        return None;
    }
    if bytes.get(end) == Some(&b'.') {
        let fraction_end = skip(end + 1, u8::is_ascii_digit);
        if fraction_end == end + 1 {
            return None;
        }
        end = fraction_end;
    }
    Some(text.split_at(skip(end, u8::is_ascii_alphabetic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_ranges_are_read_and_others_refused() {
        for (text, ends) in [
            ("1-10", Some(("1", "10"))),
            ("-10--8", Some(("-10", "-8"))),
            ("+0Mi-+1.5Gi", Some(("+0Mi", "+1.5Gi"))),
            ("1h-2h", Some(("1h", "2h"))),
            ("1", None),
            ("1-", None),
            ("a-b", None),
            ("1!-2", None),
            ("1-2-3", None),
            ("1.-2", None),
            ("2024-01-02", None),
        ] {
            assert_eq!(
                Range::parse(text).map(|range| (range.from, range.to)),
                ends,
                "{text}"
            );
        }
    }

    #[test]
    fn a_range_includes_both_its_ends() {
        let within = |range: &str, text: &str| Range::parse(range).unwrap().contains(text);
        let outside = |range: &str, text: &str| Range::parse(range).unwrap().excludes(text);
        for (range, text, is_within) in [
            ("1-10", "1", true),
            ("1-10", "10", true),
            ("1-10", "11", false),
            ("10Mi-1Gi", "512Mi", true),
            ("1h-2h", "90m", true),
            ("1h-2h", "30m", false),
        ] {
            assert_eq!(within(range, text), is_within, "{text} in {range}");
            assert_eq!(outside(range, text), !is_within, "{text} outside {range}");
        }
        assert!(!within("1-10", "x") && !outside("1-10", "x"));
    }
}
