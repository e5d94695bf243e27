//! Kyverno's wildcards: `*` for any run of characters, `?` for one character.

/// Returns whether `pattern` matches the whole of `text`.
///
/// In time proportional to the product of both lengths at worst, whatever the pattern: only the last
/// `*` is ever gone back to, since an earlier one could match nothing that the last one cannot.
pub fn matches(pattern: &str, text: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    if !has_wildcard(pattern) {
        return pattern == text;
    }
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Where to resume when what follows the last `*` did not match: the pattern after it, and the
    // text with one more character given to it.
    let mut resume = None;
    loop {
        let before = text.clone();
        match (pattern.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                text = before;
                resume = Some((pattern.clone(), text.clone()));
            }
            (Some('?'), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => {
                let Some((after_star, taken)) = &mut resume else {
                    return false;
                };
                if taken.next().is_none() {
                    return false;
                }
                pattern = after_star.clone();
                text = taken.clone();
            }
        }
    }
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

    proptest! {
        #[test]
        fn wildcard_matching_agrees_with_the_model(pattern in "[ab*?é]{0,8}", text in "[abé]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &text), model(&chars(&pattern), &chars(&text)));
        }
    }
}
