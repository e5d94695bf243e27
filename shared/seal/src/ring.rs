//! The keys of a file: the first seals, all of them open.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, RandomizedNonceKey};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use zeroize::Zeroizing;

use crate::{KeysError, SealError};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The longest name of a key.
pub const KEY_ID_BYTES_MAX: usize = 64;

/// The largest file of keys; a larger one is refused.
pub const KEYS_FILE_BYTES_MAX: usize = 64 * 1024;

/// The keys of a file, in its order.
///
/// # Limits
/// Nonces are random, so one key may seal about 2³² bodies before two of them become likely to be
/// the same: at a hundred changes of Secrets a second, a year and more.
pub struct KeyRing {
    keys: Vec<SealKey>,
}

pub(crate) struct SealKey {
    pub(crate) id: String,
    pub(crate) bytes: Zeroizing<[u8; KEY_BYTES]>,
    pub(crate) aead: RandomizedNonceKey,
}

impl KeyRing {
    /// The keys of a file's text: one `ID BASE64` a line. Blank lines and lines that begin with `#`
    /// mean nothing.
    ///
    /// # Errors
    /// The first line that is wrong, by number; nothing of a key is quoted.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        if text.len() > KEYS_FILE_BYTES_MAX {
            return Err(KeysError::TooLarge {
                bytes: text.len(),
                bytes_max: KEYS_FILE_BYTES_MAX,
            });
        }
        let mut keys: Vec<SealKey> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = key(line).map_err(|problem| KeysError::Line {
                line: line_number,
                problem,
            })?;
            if keys.iter().any(|other| other.id == key.id) {
                return Err(KeysError::Twice {
                    line: line_number,
                    id: key.id,
                });
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(KeysError::Empty);
        }
        Ok(Self { keys })
    }

    /// One key, made now.
    pub(crate) fn ephemeral() -> Result<Self, SealError> {
        let failed = |_| SealError::Library { what: "make a key" };
        let mut bytes = Zeroizing::new([0_u8; KEY_BYTES]);
        aws_lc_rs::rand::fill(bytes.as_mut()).map_err(failed)?;
        let aead = RandomizedNonceKey::new(&AES_256_GCM, bytes.as_ref()).map_err(failed)?;
        let id = "ephemeral".to_owned();
        Ok(Self {
            keys: vec![SealKey { id, bytes, aead }],
        })
    }

    /// The names of the keys, the one that seals first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.id.as_str())
    }

    pub(crate) fn sealing(&self) -> Option<&SealKey> {
        self.keys.first()
    }

    pub(crate) fn key(&self, id: &str) -> Option<&SealKey> {
        self.keys.iter().find(|key| key.id == id)
    }
}

fn key(line: &str) -> Result<SealKey, &'static str> {
    let mut words = line.split_ascii_whitespace();
    let (Some(id), Some(base64), None) = (words.next(), words.next(), words.next()) else {
        return Err("not two words");
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if id.len() > KEY_ID_BYTES_MAX || !id.bytes().all(plain) {
        return Err("the name is not 1 to 64 letters, digits, `-`, `_` or `.`");
    }
    let decoded = BASE64_STANDARD.decode(base64);
    let decoded = Zeroizing::new(decoded.map_err(|_| "the key is not base64")?);
    let mut bytes = Zeroizing::new([0_u8; KEY_BYTES]);
    if decoded.len() != KEY_BYTES {
        return Err("the key is not of 32 bytes");
    }
    bytes.copy_from_slice(&decoded);
    let aead = RandomizedNonceKey::new(&AES_256_GCM, bytes.as_ref());
    Ok(SealKey {
        id: id.to_owned(),
        aead: aead.map_err(|_| "the key is refused")?,
        bytes,
    })
}

/// Names alone.
impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, byte: u8) -> String {
        format!("{id} {}\n", BASE64_STANDARD.encode([byte; KEY_BYTES]))
    }

    #[test]
    fn the_first_key_seals_and_all_keys_open() {
        let text = format!("# keys\n\n  {}{}", line("k2", 2), line("k1", 1));
        let ring = KeyRing::parse(&text).unwrap();
        assert_eq!(ring.ids().collect::<Vec<_>>(), ["k2", "k1"]);
        assert_eq!(ring.sealing().unwrap().id, "k2");
        assert!(ring.key("k1").is_some() && ring.key("k3").is_none());
    }

    #[test]
    fn a_line_that_is_no_key_is_named_and_not_quoted() {
        let secret = BASE64_STANDARD.encode([7; KEY_BYTES]);
        let long = "x".repeat(KEY_ID_BYTES_MAX + 1);
        for (text, expected) in [
            (secret.clone(), "not two words"),
            (format!("a b {secret}"), "not two words"),
            (format!("{long} {secret}"), "the name"),
            (format!("a/b {secret}"), "the name"),
            ("a !!!!".to_owned(), "not base64"),
            (format!("a {}", &secret[4..]), "not of 32 bytes"),
        ] {
            let error = KeyRing::parse(&format!("# first\n{text}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains("line 2"), "{error}");
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains(&secret[4..]), "{error}");
        }
    }

    #[test]
    fn repeated_key_names_and_an_empty_key_file_are_refused() {
        let twice = format!("{}{}", line("a", 1), line("a", 2));
        assert_eq!(
            KeyRing::parse(&twice).unwrap_err(),
            KeysError::Twice {
                line: 2,
                id: "a".into()
            }
        );
        assert_eq!(KeyRing::parse("# none\n").unwrap_err(), KeysError::Empty);
    }

    #[test]
    fn the_sizes_of_key_names_and_key_files_are_limited() {
        let longest = "x".repeat(KEY_ID_BYTES_MAX);
        assert!(KeyRing::parse(&line(&longest, 1)).is_ok());
        let mut text = line("a", 1);
        text.push_str(&"#".repeat(KEYS_FILE_BYTES_MAX - text.len()));
        assert!(KeyRing::parse(&text).is_ok());
        text.push('#');
        let refused = KeyRing::parse(&text);
        assert!(matches!(refused, Err(KeysError::TooLarge { .. })));
    }

    #[test]
    fn a_key_ring_does_not_print_its_keys() {
        let ring = KeyRing::parse(&line("k1", 0xab)).unwrap();
        assert_eq!(format!("{ring:?}"), r#"["k1"]"#);
    }
}
