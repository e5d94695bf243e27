//! Results that travel: sealed to a key pair that the reader makes for one request.
//!
//! ```text
//! 0xC1 | 2 | the sealer's public key, 32 bytes | nonce, 12 bytes | ciphertext and tag
//! ```
//!
//! The key is HKDF-SHA256 of the X25519 agreement between the reader's pair and one that the sealer
//! makes for this reply. Whoever reads along on the bus sees both public keys, and nothing more.

use std::fmt;

use anteroom_model::FactError;
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    agreement::{PrivateKey, UnparsedPublicKey, X25519, agree},
    hkdf::{HKDF_SHA256, KeyType, Salt},
};
use bytes::Bytes;
use zeroize::Zeroizing;

use crate::{KEY_BYTES, MAGIC, SealError};

/// Bytes of a public key.
pub const PUBLIC_KEY_BYTES: usize = 32;

/// The number of this format, after [`MAGIC`]. A body's is another, so that neither is taken for the other.
const VERSION: u8 = 2;

/// The purpose of the keys, so that they can be for nothing else.
const PURPOSE: &[u8] = b"anteroom reply v1";

/// In place of what functions say of the data that they were given.
const WITHHELD: &str = "what it failed on is withheld, since the data are sealed";

/// An error over sealed data, for whoever reads along: with its code, without what functions quote of
/// their arguments. Which key is missing is said by the expression, and the reader goes by that.
#[must_use]
pub fn withheld(error: FactError) -> FactError {
    match error {
        FactError::EvaluationFailed { message } if !message.starts_with("Unknown key \"") => {
            FactError::EvaluationFailed {
                message: WITHHELD.to_owned(),
            }
        }
        error => error,
    }
}

/// The reader's pair, for one request.
pub struct ReplyKey {
    private: PrivateKey,
    public: [u8; PUBLIC_KEY_BYTES],
}

impl ReplyKey {
    /// A new pair.
    ///
    /// # Errors
    /// [`SealError::Library`].
    pub fn generate() -> Result<Self, SealError> {
        let (private, public) = pair()?;
        Ok(Self { private, public })
    }

    /// Returns the public key that goes with the request.
    pub fn public(&self) -> Bytes {
        Bytes::copy_from_slice(&self.public)
    }

    /// Opens one result of the reply.
    ///
    /// # Errors
    /// [`SealError::Malformed`] or [`SealError::Refused`].
    pub fn open(&self, sealed: &[u8]) -> Result<Bytes, SealError> {
        let malformed = |problem| SealError::Malformed { problem };
        let rest = sealed
            .strip_prefix(&[MAGIC, VERSION])
            .ok_or_else(|| malformed("it is not sealed to a reader"))?;
        let short = || malformed("it is too short");
        let (sealer, rest) = rest
            .split_first_chunk::<PUBLIC_KEY_BYTES>()
            .ok_or_else(short)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>().ok_or_else(short)?;
        let refused = || SealError::Refused {
            id: "of this request".to_owned(),
        };
        let key = agreed(&self.private, sealer, sealer, &self.public).map_err(|_| refused())?;
        let mut opened = rest.to_vec();
        let plain_bytes = key
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::empty(),
                &mut opened,
            )
            .map_err(|_| refused())?
            .len();
        opened.truncate(plain_bytes);
        Ok(opened.into())
    }
}

impl fmt::Debug for ReplyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyKey").finish_non_exhaustive()
    }
}

/// Seals the results of one reply.
pub struct ReplySealer {
    public: [u8; PUBLIC_KEY_BYTES],
    key: RandomizedNonceKey,
}

impl ReplySealer {
    /// Returns the sealer of replies to the reader of this public key.
    ///
    /// # Errors
    /// [`SealError::ReplyKey`] if it is none, or [`SealError::Library`].
    pub fn to(reader: &[u8]) -> Result<Self, SealError> {
        let (private, public) = pair()?;
        let key = agreed(&private, reader, &public, reader)?;
        Ok(Self { public, key })
    }

    /// Seals one result.
    ///
    /// # Errors
    /// [`SealError::Library`].
    pub fn seal(&self, plain: &[u8]) -> Result<Bytes, SealError> {
        let mut sealed = Vec::with_capacity(plain.len() + self.key.algorithm().tag_len());
        sealed.extend_from_slice(plain);
        let nonce = self
            .key
            .seal_in_place_append_tag(Aad::empty(), &mut sealed)
            .map_err(|_| SealError::Library { what: "seal" })?;
        let head = [MAGIC, VERSION];
        Ok([&head[..], &self.public, nonce.as_ref(), &sealed]
            .concat()
            .into())
    }
}

impl fmt::Debug for ReplySealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplySealer").finish_non_exhaustive()
    }
}

/// Seals one result to the reader of this public key.
///
/// # Errors
/// As [`ReplySealer::to`].
pub fn seal_to(reader: &[u8], plain: &[u8]) -> Result<Bytes, SealError> {
    ReplySealer::to(reader)?.seal(plain)
}

fn pair() -> Result<(PrivateKey, [u8; PUBLIC_KEY_BYTES]), SealError> {
    let failed = || SealError::Library { what: "make a key" };
    let private = PrivateKey::generate(&X25519).map_err(|_| failed())?;
    let public = private.compute_public_key().map_err(|_| failed())?;
    let public = public.as_ref().try_into().map_err(|_| failed())?;
    Ok((private, public))
}

/// The key of a reply from `sealer` to `reader`, from one's private key and the other's public one.
fn agreed(
    mine: &PrivateKey,
    theirs: &[u8],
    sealer: &[u8],
    reader: &[u8],
) -> Result<RandomizedNonceKey, SealError> {
    let theirs = UnparsedPublicKey::new(&X25519, theirs);
    agree(mine, theirs, SealError::ReplyKey, |secret| {
        let failed = |_| SealError::Library {
            what: "derive a key",
        };
        let purpose = [PURPOSE, sealer, reader];
        let extracted = Salt::new(HKDF_SHA256, &[]).extract(secret);
        let mut bytes = Zeroizing::new([0_u8; KEY_BYTES]);
        extracted
            .expand(&purpose, AeadKey)
            .and_then(|derived| derived.fill(bytes.as_mut()))
            .map_err(failed)?;
        RandomizedNonceKey::new(&AES_256_GCM, bytes.as_ref()).map_err(failed)
    })
}

struct AeadKey;

impl KeyType for AeadKey {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_nothing_of_sealed_data() {
        let failed = |message: &str| FactError::EvaluationFailed {
            message: message.to_owned(),
        };
        let quoting = withheld(failed("add(): `hunter2` is no number"));
        assert_eq!(quoting, failed(WITHHELD));
        let others = [
            failed("Unknown key \"x\" in path"),
            FactError::Busy { limit: 1 },
        ];
        for other in others {
            assert_eq!(withheld(other.clone()), other);
        }
    }

    /// Only the asker can read a replica's answer about a Secret.
    #[test]
    fn only_the_asker_opens_a_sealed_reply() {
        let (asker, other) = (ReplyKey::generate().unwrap(), ReplyKey::generate().unwrap());
        let sealer = ReplySealer::to(&asker.public()).unwrap();
        for plain in [&b"first secret"[..], b"", b"second secret"] {
            let sealed = sealer.seal(plain).unwrap();
            assert!(!sealed.windows(6).any(|part| part == b"secret"));
            assert_eq!(asker.open(&sealed).unwrap(), plain);
            assert!(matches!(
                other.open(&sealed),
                Err(SealError::Refused { .. })
            ));
        }
        let one = seal_to(&asker.public(), b"x").unwrap();
        assert_eq!(asker.open(&one).unwrap(), &b"x"[..]);
    }

    #[test]
    fn a_sealed_reply_with_any_byte_changed_is_refused() {
        let asker = ReplyKey::generate().unwrap();
        let sealed = seal_to(&asker.public(), b"x").unwrap();
        // The highest bit of a public key means nothing to X25519, but the derived key knows it.
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.to_vec();
                changed[at] ^= 1 << bit;
                assert!(asker.open(&changed).is_err(), "byte {at}, bit {bit}");
            }
        }
        for short in 0..sealed.len() {
            assert!(asker.open(&sealed[..short]).is_err());
        }
    }

    #[test]
    fn a_malformed_reply_key_is_refused() {
        for none in [&[][..], &[7; 31], &[7; 33], &[0; 32]] {
            let refused = ReplySealer::to(none).err();
            assert_eq!(refused, Some(SealError::ReplyKey), "{none:?}");
        }
    }

    #[test]
    fn reply_keys_are_not_printed() {
        let key = ReplyKey::generate().unwrap();
        assert_eq!(format!("{key:?}"), "ReplyKey { .. }");
        let sealer = ReplySealer::to(&key.public()).unwrap();
        assert_eq!(format!("{sealer:?}"), "ReplySealer { .. }");
    }
}
