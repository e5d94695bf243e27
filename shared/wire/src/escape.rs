//! Text as a token that may stand in a subject or a header.
//!
//! Every byte outside `[A-Za-z0-9_-]` is written as `=XX` in upper-case hex, and the empty text as
//! `=` alone. One text has one token and one token one text: the decoder takes no other spelling.

/// Appends the token of `text`.
pub(crate) fn push(text: &str, to: &mut String) {
    if text.is_empty() {
        to.push('=');
    }
    for byte in text.bytes() {
        if is_plain(byte) {
            to.push(char::from(byte));
        } else {
            to.push('=');
            to.push(hex_digit(byte >> 4));
            to.push(hex_digit(byte & 0x0f));
        }
    }
}

/// Returns the length of the token of `text`.
pub(crate) fn token_bytes(text: &str) -> usize {
    let bytes = text.bytes().map(|b| if is_plain(b) { 1 } else { 3 });
    bytes.sum::<usize>().max(1)
}

/// The token of `text`.
pub(crate) fn escape(text: &str) -> String {
    let mut token = String::with_capacity(text.len() + 8);
    push(text, &mut token);
    token
}

/// The text of `token`; `None` if [`escape`] never writes it.
pub(crate) fn unescape(token: &str) -> Option<String> {
    if token == "=" {
        return Some(String::new());
    }
    let mut text = Vec::with_capacity(token.len());
    let mut bytes = token.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'=' {
            let byte = (hex_value(bytes.next()?)? << 4) | hex_value(bytes.next()?)?;
            if is_plain(byte) {
                return None;
            }
            text.push(byte);
        } else if is_plain(byte) {
            text.push(byte);
        } else {
            return None;
        }
    }
    if text.is_empty() {
        return None;
    }
    String::from_utf8(text).ok()
}

/// Returns whether a byte stands for itself.
pub(crate) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn hex_digit(nibble: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(nibble & 0x0f)])
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_escaped_as_documented() {
        for (text, token) in [
            ("", "="),
            ("web", "web"),
            ("a.b", "a=2Eb"),
            ("system:node", "system=3Anode"),
            ("* >", "=2A=20=3E"),
            ("=", "=3D"),
            ("ü", "=C3=BC"),
        ] {
            assert_eq!(escape(text), token);
            assert_eq!(unescape(token).as_deref(), Some(text));
        }
    }

    #[test]
    fn other_spellings_of_a_token_are_refused() {
        for token in ["", "a.b", "=2e", "=61", "=2", "==", "=FF", "a=", "ü"] {
            assert_eq!(unescape(token), None, "{token}");
        }
    }

    proptest! {
        #[test]
        fn any_text_survives_escaping(text in any::<String>()) {
            let token = escape(&text);
            prop_assert!(!token.is_empty() && token.bytes().all(|b| is_plain(b) || b == b'='));
            prop_assert_eq!(unescape(&token), Some(text));
        }

        #[test]
        fn a_token_is_read_only_as_it_is_written(token in "[=0-9A-Fa-f.]{0,8}") {
            if let Some(text) = unescape(&token) {
                prop_assert_eq!(escape(&text), token);
            }
        }
    }
}
