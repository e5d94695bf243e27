//! Keys for texts that only their holders can make.

use std::fmt;

use aws_lc_rs::{constant_time, hmac};

/// A key for HMAC-SHA-256 (RFC 2104). Cheap to clone.
#[derive(Clone)]
pub struct MacKey(hmac::Key);

/// The key stays out of logs.
impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MacKey").finish_non_exhaustive()
    }
}

impl MacKey {
    /// A key of these bytes, of any length.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Returns the tag of all parts, one after the other, as lower-case hexadecimal digits: 64 of them.
    pub fn tag(&self, parts: &[&[u8]]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        parts.iter().for_each(|part| context.update(part));
        let tag = context.sign();
        tag.as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Compares two texts in a time that tells nothing but their lengths.
pub fn is_equal(one: &str, other: &str) -> bool {
    constant_time::verify_slices_are_equal(one.as_bytes(), other.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test case 2 of RFC 4231.
    #[test]
    fn a_tag_is_that_of_the_standard_however_the_text_is_cut() {
        let key = MacKey::new(b"Jefe");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(key.tag(&[b"what do ya want ", b"for nothing?"]), expected);
        assert!(is_equal(
            expected,
            &key.tag(&[b"what do ya want for nothing?"])
        ));
        assert!(!is_equal(expected, &MacKey::new(b"other").tag(&[b""])));
        assert!(!is_equal("", "a"));
    }
}
