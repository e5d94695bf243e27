//! Kyverno's wildcards: `*` for any run of characters, `?` for one character.

use crate::meter;

/// Characters that are compared in one step of the [`meter`].
const CHARACTERS_PER_STEP: u64 = 16;

/// Bytes of a pattern that are looked through in one step of the [`meter`].
const PATTERN_BYTES_PER_STEP: usize = 256;

/// Characters that are compared before the [`meter`] is charged.
const CHARACTERS_PER_CHARGE: u64 = 1 << 12;

/// Returns whether `pattern` matches the whole of `text`.
///
/// In time proportional to the product of both lengths at worst, whatever the pattern: only the last
/// `*` is ever gone back to, since an earlier one could match nothing that the last one cannot. The work is charged to
/// the [`meter`]; where nothing is left of it, nothing matches.
pub fn matches(pattern: &str, text: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    // A long pattern is looked through for its first wildcard.
    if !meter::charge((pattern.len() / PATTERN_BYTES_PER_STEP) as u64) {
        return false;
    }
    if !has_wildcard(pattern) {
        return pattern == text;
    }
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Where to resume when what follows the last `*` did not match: the pattern after it, and the
    // text with one more character given to it.
    let mut resume = None;
    let mut compared = CHARACTERS_PER_STEP;
    let matches = loop {
        compared += 1;
        if compared >= CHARACTERS_PER_CHARGE {
            if !meter::charge(compared / CHARACTERS_PER_STEP) {
                return false;
            }
            compared = 0;
        }
        let before = text.clone();
        match (pattern.next(), text.next()) {
            (None, None) => break true,
            (Some('*'), _) => {
                text = before;
                resume = Some((pattern.clone(), text.clone()));
            }
            (Some('?'), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => {
                let Some((after_star, taken)) = &mut resume else {
                    break false;
                };
                if taken.next().is_none() {
                    break false;
                }
                pattern = after_star.clone();
                text = taken.clone();
            }
        }
    };
    meter::charge(compared / CHARACTERS_PER_STEP) && matches
}

/// Returns whether `text` has a wildcard in it.
pub fn has_wildcard(text: &str) -> bool {
    text.bytes().any(|byte| matches!(byte, b'*' | b'?'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A slow and simple matcher.
    fn model(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|taken| model(rest, &text[taken..])),
            Some(('?', rest)) => !text.is_empty() && model(rest, &text[1..]),
            Some((c, rest)) => text.first() == Some(c) && model(rest, &text[1..]),
        }
    }

    #[test]
    fn wildcards_match_as_in_these_examples() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "anything", true),
            ("?", "", false),
            ("?", "é", true),
            ("a*c", "abcbc", true),
            ("a*b?", "abab", false),
            ("*.example.com", "www.example.com", true),
            ("*.example.com", "example.com", false),
            ("a.c", "abc", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn no_wildcard_pattern_takes_exponential_time() {
        let pattern = "a*".repeat(1_000) + "b";
        assert!(!matches(&pattern, &"a".repeat(1_000)));
    }

    #[test]
    fn work_beyond_the_meter_is_not_done() {
        let (pattern, text) = (
            "*".to_owned() + &"a".repeat(250_000) + "b",
            "a".repeat(250_000),
        );
        let (matched, left) = meter::within(100_000, || matches(&pattern, &text));
        assert_eq!((matched, left), (false, 0));
        let (matched, left) =
            meter::within(100_000, || matches("*.example.com", "www.example.com"));
        assert!(matched && left >= 99_990, "{left}");
    }

    proptest! {
        #[test]
        fn wildcard_matching_agrees_with_the_model(pattern in "[ab*?é]{0,8}", text in "[abé]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &text), model(&chars(&pattern), &chars(&text)));
        }
    }
}
