//! A sealed body: what stands in the log in a Secret's place.
//!
//! ```text
//! 0xC1 | 1 | length of the key's name | the key's name | nonce, 12 bytes | ciphertext and tag
//! ```
//!
//! 0xC1 is the one byte that MessagePack never uses, so a sealed body is told from an open one by its
//! first byte. What stands before the nonce is authenticated, and so are the view and the object's
//! key, which stand in the record's subject.

use anteroom_model::{ObjectKey, ViewId};
use aws_lc_rs::aead::{Aad, NONCE_LEN, Nonce};
use bytes::Bytes;

use crate::{
    SealError,
    ring::{KeyRing, SealKey},
};

/// The first byte of what is sealed. No MessagePack value begins with it.
pub const MAGIC: u8 = 0xC1;

/// The number of this format, after [`MAGIC`].
const VERSION: u8 = 1;

/// Returns whether a body is sealed, by its first byte.
pub fn is_sealed(body: &[u8]) -> bool {
    body.first() == Some(&MAGIC)
}

/// Bytes that sealing adds, beside the key's name.
#[cfg(test)]
pub(crate) const OVERHEAD_BYTES: usize = 3 + NONCE_LEN + 16;

pub(crate) fn seal(
    ring: &KeyRing,
    view: &ViewId,
    key: &ObjectKey,
    plain: &[u8],
) -> Result<Bytes, SealError> {
    let with = ring.sealing().ok_or(SealError::NoKey)?;
    let head = head(with)?;
    let aad = Aad::from(bound_to(&head, view, key));
    // Room for the tag, so that the plain text is not left behind in memory that was outgrown.
    let mut sealed = Vec::with_capacity(plain.len() + with.aead.algorithm().tag_len());
    sealed.extend_from_slice(plain);
    let nonce = with
        .aead
        .seal_in_place_append_tag(aad, &mut sealed)
        .map_err(|_| SealError::Library { what: "seal" })?;
    Ok([head.as_slice(), nonce.as_ref(), &sealed].concat().into())
}

pub(crate) fn open(
    ring: &KeyRing,
    view: &ViewId,
    key: &ObjectKey,
    sealed: &[u8],
) -> Result<Bytes, SealError> {
    let parts = SealedParts::of(sealed)?;
    let with = ring.key(parts.id).ok_or_else(|| SealError::UnknownKey {
        id: parts.id.to_owned(),
        known: ring.ids().collect::<Vec<_>>().join(", "),
    })?;
    let aad = Aad::from(bound_to(parts.head, view, key));
    let mut opened = parts.rest.to_vec();
    let plain_bytes = with
        .aead
        .open_in_place(Nonce::assume_unique_for_key(parts.nonce), aad, &mut opened)
        .map_err(|_| SealError::Refused {
            id: with.id.clone(),
        })?
        .len();
    opened.truncate(plain_bytes);
    Ok(opened.into())
}

fn head(key: &SealKey) -> Result<Vec<u8>, SealError> {
    let length = u8::try_from(key.id.len()).map_err(|_| SealError::Malformed {
        problem: "the key's name is too long",
    })?;
    let mut head = vec![MAGIC, VERSION, length];
    head.extend_from_slice(key.id.as_bytes());
    Ok(head)
}

/// Returns the data to which a body is bound. The data has lengths, so that different places never encode alike.
fn bound_to(head: &[u8], view: &ViewId, key: &ObjectKey) -> Vec<u8> {
    let mut bound = Vec::new();
    for part in [
        head,
        view.as_str().as_bytes(),
        key.namespace.as_bytes(),
        key.name.as_bytes(),
    ] {
        bound.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bound.extend_from_slice(part);
    }
    bound
}

struct SealedParts<'a> {
    head: &'a [u8],
    id: &'a str,
    nonce: [u8; NONCE_LEN],
    rest: &'a [u8],
}

impl<'a> SealedParts<'a> {
    fn of(sealed: &'a [u8]) -> Result<Self, SealError> {
        let malformed = |problem| SealError::Malformed { problem };
        let [first, version, length, rest @ ..] = sealed else {
            return Err(malformed("it is too short"));
        };
        if *first != MAGIC {
            return Err(malformed("it is not sealed"));
        }
        if *version != VERSION {
            return Err(malformed("it is of another version"));
        }
        let short = || malformed("it is too short");
        let (id, rest) = rest
            .split_at_checked(usize::from(*length))
            .ok_or_else(short)?;
        let (nonce, rest) = rest.split_first_chunk().ok_or_else(short)?;
        Ok(Self {
            head: &sealed[..3 + id.len()],
            id: std::str::from_utf8(id).map_err(|_| malformed("the key's name is not text"))?,
            nonce: *nonce,
            rest,
        })
    }
}

#[cfg(test)]
mod tests;
