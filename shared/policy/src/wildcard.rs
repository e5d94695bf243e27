//! Kyverno's wildcards: `*` for any run of characters, `?` for one character.

/// Whether `pattern` matches the whole of `text`.
///
/// In time proportional to the product of both lengths at worst, whatever the pattern: only the last
/// `*` is ever gone back to, since an earlier one could match nothing that the last one cannot.
pub fn matches(pattern: &str, text: &str) -> bool {
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

/// Whether `text` has a wildcard in it.
pub(crate) fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?'])
}
