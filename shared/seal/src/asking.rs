//! Questions about Secrets, and their answers: between services that hold an asker key, and for nobody else.
//!
//! ```text
//! question: 0xC1 | 3 | length of the key's name | the key's name | the asker's public key, 32 bytes | ciphertext and tag
//! answer:   0xC1 | 4 | the answerer's public key, 32 bytes | nonce, 12 bytes | ciphertext and tag
//! ```
//!
//! An asker key is shared by those who ask and those who answer. HKDF-SHA256 makes the key of a question of the
//! asker key and of a public key for this question alone. So a login to the bus cannot ask, and whoever carries
//! a question can neither read nor change it. An answer's key is made of the asker key and of the X25519
//! agreement of both sides' keys for this question, as in the PSK mode of HPKE (RFC 9180, section 5.1.2). So an
//! asker key that leaks later opens no earlier answer.
//!
//! Both are bound to what is asked: a view, or a live read.

use std::fmt;

use anteroom_model::{FactError, ViewId};
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, RandomizedNonceKey, UnboundKey},
    agreement::{PrivateKey, UnparsedPublicKey, X25519, agree},
    hkdf::{HKDF_SHA256, KeyType, Salt},
};
use bytes::Bytes;
use zeroize::Zeroizing;

use crate::{
    KEY_BYTES, MAGIC, SealError,
    ring::{KeyRing, SealKey},
};

/// Bytes of a public key.
const PUBLIC_KEY_BYTES: usize = 32;

/// The format numbers after [`MAGIC`]. Sealed bodies have a different number, so that no format is mistaken for a
/// second.
const QUESTION: u8 = 3;
const ANSWER: u8 = 4;

/// The purposes of the keys, so that they can be for nothing else.
const QUESTION_PURPOSE: &[u8] = b"anteroom question v1";
const ANSWER_PURPOSE: &[u8] = b"anteroom answer v1";

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

/// The addressee of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedOf<'a> {
    /// A view.
    View(&'a ViewId),
    /// A watcher, which makes a live read.
    Live,
}

impl AskedOf<'_> {
    /// A text of its own for each.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::View(view) => view.as_str().as_bytes(),
            // No view has an empty name.
            Self::Live => b"",
        }
    }
}

/// Returns whether a message is a question.
pub fn is_question(message: &[u8]) -> bool {
    message.starts_with(&[MAGIC, QUESTION])
}

/// Returns whether a message is an answer.
pub fn is_answer(message: &[u8]) -> bool {
    message.starts_with(&[MAGIC, ANSWER])
}

/// The asker's side of one question: it opens the answer. There may be several, of all who were asked.
pub struct QuestionSecret {
    private: PrivateKey,
    public: [u8; PUBLIC_KEY_BYTES],
    psk: Salt,
    of: Box<[u8]>,
}

/// The answerer's side of one question: it seals the answers.
pub struct Answering {
    public: [u8; PUBLIC_KEY_BYTES],
    key: RandomizedNonceKey,
}

pub(crate) fn ask(
    ring: &KeyRing,
    of: AskedOf<'_>,
    plain: &[u8],
) -> Result<(Bytes, QuestionSecret), SealError> {
    let with = ring.sealing().ok_or(SealError::NoAskerKey)?;
    let (private, public) = pair()?;
    let id_bytes = u8::try_from(with.id.len()).map_err(|_| SealError::Malformed {
        problem: "the key's name is too long",
    })?;
    let head = [&[MAGIC, QUESTION, id_bytes], with.id.as_bytes(), &public].concat();
    let mut sealed = plain.to_vec();
    question_key(with, &public, of)?
        .seal_in_place_append_tag(only_nonce(), Aad::from(&head), &mut sealed)
        .map_err(|_| SealError::Library { what: "seal" })?;
    let asked = QuestionSecret {
        private,
        public,
        psk: with.psk(),
        of: of.bytes().into(),
    };
    Ok(([head, sealed].concat().into(), asked))
}

pub(crate) fn open_question(
    ring: &KeyRing,
    of: AskedOf<'_>,
    question: &[u8],
) -> Result<(Bytes, Answering), SealError> {
    let malformed = |problem| SealError::Malformed { problem };
    let short = || malformed("it is too short");
    let rest = question
        .strip_prefix(&[MAGIC, QUESTION])
        .ok_or_else(|| malformed("it is no question"))?;
    let (id_bytes, rest) = rest.split_first().ok_or_else(short)?;
    let (id, rest) = rest
        .split_at_checked(usize::from(*id_bytes))
        .ok_or_else(short)?;
    let (asker, sealed) = rest
        .split_first_chunk::<PUBLIC_KEY_BYTES>()
        .ok_or_else(short)?;
    let id = std::str::from_utf8(id).map_err(|_| malformed("the key's name is no text"))?;
    let with = ring
        .key(id)
        .ok_or_else(|| SealError::UnknownAsker { id: id.to_owned() })?;
    let head = &question[..question.len() - sealed.len()];
    let mut opened = sealed.to_vec();
    // The body is opened before the key agreement, so that senders without a key cost no key agreement.
    let plain_bytes = question_key(with, asker, of)?
        .open_in_place(only_nonce(), Aad::from(head), &mut opened)
        .map_err(|_| SealError::Refused { id: id.to_owned() })?
        .len();
    opened.truncate(plain_bytes);
    let (private, public) = pair()?;
    let key = answer_key(&private, asker, &with.psk(), [&public, asker, of.bytes()])?;
    Ok((opened.into(), Answering { public, key }))
}

impl QuestionSecret {
    /// Opens an answer.
    ///
    /// # Errors
    /// [`SealError::Malformed`] or [`SealError::Refused`].
    pub fn open(&self, sealed: &[u8]) -> Result<Bytes, SealError> {
        let malformed = |problem| SealError::Malformed { problem };
        let rest = sealed
            .strip_prefix(&[MAGIC, ANSWER])
            .ok_or_else(|| malformed("it is no answer"))?;
        let short = || malformed("it is too short");
        let (answerer, rest) = rest
            .split_first_chunk::<PUBLIC_KEY_BYTES>()
            .ok_or_else(short)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>().ok_or_else(short)?;
        let refused = || SealError::Refused {
            id: "of this question".to_owned(),
        };
        let parties: [&[u8]; 3] = [answerer, &self.public, &self.of];
        let key = answer_key(&self.private, answerer, &self.psk, parties);
        let key = key.map_err(|_| refused())?;
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

impl fmt::Debug for QuestionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuestionSecret").finish_non_exhaustive()
    }
}

impl Answering {
    /// Seals the answer.
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
        let head = [MAGIC, ANSWER];
        Ok([&head[..], &self.public, nonce.as_ref(), &sealed]
            .concat()
            .into())
    }
}

impl fmt::Debug for Answering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").finish_non_exhaustive()
    }
}

fn pair() -> Result<(PrivateKey, [u8; PUBLIC_KEY_BYTES]), SealError> {
    let failed = || SealError::Library { what: "make a key" };
    let private = PrivateKey::generate(&X25519).map_err(|_| failed())?;
    let public = private.compute_public_key().map_err(|_| failed())?;
    let public = public.as_ref().try_into().map_err(|_| failed())?;
    Ok((private, public))
}

/// The nonce of a key that encrypts once.
fn only_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

/// The key of one question: nobody makes the same public key twice.
fn question_key(
    with: &SealKey,
    asker: &[u8; PUBLIC_KEY_BYTES],
    of: AskedOf<'_>,
) -> Result<LessSafeKey, SealError> {
    let bytes = derived(
        &with.psk(),
        asker,
        [QUESTION_PURPOSE, asker, of.bytes(), &[]],
    )?;
    let key = UnboundKey::new(&AES_256_GCM, bytes.as_ref()).map_err(derive_failed)?;
    Ok(LessSafeKey::new(key))
}

/// The key of an answer, from one's private key and the other's public one. `parties`: the answerer, the asker, and
/// what was asked.
fn answer_key(
    mine: &PrivateKey,
    theirs: &[u8],
    psk: &Salt,
    [answerer, asker, of]: [&[u8]; 3],
) -> Result<RandomizedNonceKey, SealError> {
    let theirs = UnparsedPublicKey::new(&X25519, theirs);
    let refused = SealError::Malformed {
        problem: "its public key is none",
    };
    agree(mine, theirs, refused, |secret| {
        let bytes = derived(psk, secret, [ANSWER_PURPOSE, answerer, asker, of])?;
        RandomizedNonceKey::new(&AES_256_GCM, bytes.as_ref()).map_err(derive_failed)
    })
}

fn derived(
    psk: &Salt,
    secret: &[u8],
    purpose: [&[u8]; 4],
) -> Result<Zeroizing<[u8; KEY_BYTES]>, SealError> {
    let mut bytes = Zeroizing::new([0_u8; KEY_BYTES]);
    // All parts but the last have fixed lengths, so no two purposes are the same text.
    psk.extract(secret)
        .expand(&purpose, AeadKey)
        .and_then(|derived| derived.fill(bytes.as_mut()))
        .map_err(derive_failed)?;
    Ok(bytes)
}

fn derive_failed(_: aws_lc_rs::error::Unspecified) -> SealError {
    SealError::Library {
        what: "derive a key",
    }
}

impl SealKey {
    /// The key's bytes, as the salt of HKDF: its output is secret as long as they are.
    fn psk(&self) -> Salt {
        Salt::new(HKDF_SHA256, self.bytes.as_ref())
    }
}

struct AeadKey;

impl KeyType for AeadKey {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    use super::*;

    fn ring(keys: &[(&str, u8)]) -> KeyRing {
        let line = |(id, byte): &(&str, u8)| {
            format!("{id} {}\n", BASE64_STANDARD.encode([*byte; KEY_BYTES]))
        };
        KeyRing::parse(&keys.iter().map(line).collect::<String>()).unwrap()
    }

    fn view(name: &str) -> ViewId {
        ViewId::new(name)
    }

    #[test]
    fn an_error_says_nothing_of_sealed_data() {
        let failed = |message: &str| FactError::EvaluationFailed {
            message: message.to_owned(),
        };
        let quoting = withheld(failed("add(): `hunter2` is no number"));
        assert_eq!(quoting, failed(WITHHELD));
        let others = [
            failed("Unknown key \"x\" in path"),
            FactError::Busy {
                limit: 1,
                over_part: false,
            },
        ];
        for other in others {
            assert_eq!(withheld(other.clone()), other);
        }
    }

    #[test]
    fn only_the_asker_opens_an_answer() {
        let keys = ring(&[("k", 7)]);
        let secrets = view("secrets.v1");
        let of = AskedOf::View(&secrets);
        let (question, asked) = ask(&keys, of, b"items[].data").unwrap();
        assert!(is_question(&question) && !question.windows(5).any(|part| part == b"items"));
        assert!(!is_answer(&question));
        let (heard, answering) = open_question(&keys, of, &question).unwrap();
        assert_eq!(heard, &b"items[].data"[..]);
        let (_, other) = ask(&keys, of, b"items[].data").unwrap();
        for plain in [&b"first secret"[..], b"", b"second secret"] {
            let sealed = answering.seal(plain).unwrap();
            assert!(is_answer(&sealed) && !is_question(&sealed));
            assert!(!sealed.windows(6).any(|part| part == b"secret"));
            assert_eq!(asked.open(&sealed).unwrap(), plain);
            assert!(matches!(
                other.open(&sealed),
                Err(SealError::Refused { .. })
            ));
        }
    }

    #[test]
    fn a_question_with_an_unknown_or_different_key_is_refused() {
        let keys = ring(&[("k", 7)]);
        let secrets = view("secrets.v1");
        let of = AskedOf::View(&secrets);
        let of_other_key = ask(&ring(&[("k", 8)]), of, b"x").unwrap().0;
        let refused = open_question(&keys, of, &of_other_key).unwrap_err();
        assert!(matches!(refused, SealError::Refused { .. }));
        let unknown = ask(&ring(&[("other", 7)]), of, b"x").unwrap().0;
        let refused = open_question(&keys, of, &unknown).unwrap_err();
        assert!(matches!(refused, SealError::UnknownAsker { .. }));
    }

    #[test]
    fn a_question_opens_only_for_the_view_that_it_was_sealed_for() {
        let keys = ring(&[("k", 7)]);
        let (one, other) = (view("secrets.v1"), view("secrets.v1~0123"));
        let all = [AskedOf::View(&one), AskedOf::View(&other), AskedOf::Live];
        for asked in all {
            let (question, _) = ask(&keys, asked, b"x").unwrap();
            for heard in all {
                assert_eq!(
                    open_question(&keys, heard, &question).is_ok(),
                    asked == heard
                );
            }
        }
    }

    #[test]
    fn a_question_or_an_answer_with_any_bit_changed_is_refused() {
        let keys = ring(&[("k", 7)]);
        let (question, asked) = ask(&keys, AskedOf::Live, b"x").unwrap();
        let (_, answering) = open_question(&keys, AskedOf::Live, &question).unwrap();
        let answer = answering.seal(b"x").unwrap();
        let refused = |is_question: bool, bytes: &[u8]| match is_question {
            true => open_question(&keys, AskedOf::Live, bytes).is_err(),
            false => asked.open(bytes).is_err(),
        };
        for (is_question, message) in [(true, &question), (false, &answer)] {
            for at in 0..message.len() {
                for bit in 0..8 {
                    let mut changed = message.to_vec();
                    changed[at] ^= 1 << bit;
                    assert!(refused(is_question, &changed), "byte {at}, bit {bit}");
                }
            }
            for short in 0..message.len() {
                assert!(refused(is_question, &message[..short]));
            }
        }
    }

    /// Keys are changed without a gap: a new one is added last everywhere, then moved to the front.
    #[test]
    fn the_first_key_asks_and_all_keys_are_heard() {
        let (old, both) = (ring(&[("a", 1), ("b", 2)]), ring(&[("b", 2), ("a", 1)]));
        for (asker, answerer) in [(&old, &both), (&both, &old)] {
            let (question, asked) = ask(asker, AskedOf::Live, b"x").unwrap();
            let (_, answering) = open_question(answerer, AskedOf::Live, &question).unwrap();
            assert_eq!(
                asked.open(&answering.seal(b"y").unwrap()).unwrap(),
                &b"y"[..]
            );
        }
    }

    #[test]
    fn keys_are_not_printed() {
        let keys = ring(&[("k", 7)]);
        let (question, asked) = ask(&keys, AskedOf::Live, b"x").unwrap();
        let (_, answering) = open_question(&keys, AskedOf::Live, &question).unwrap();
        assert_eq!(format!("{asked:?}"), "QuestionSecret { .. }");
        assert_eq!(format!("{answering:?}"), "Answering { .. }");
    }
}
