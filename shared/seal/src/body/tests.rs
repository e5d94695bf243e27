//! Tests of the contents that a seal protects, and of the changes that make opening fail.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use proptest::prelude::*;

use super::*;
use crate::KEY_BYTES;

fn ring(keys: &[(&str, u8)]) -> KeyRing {
    let text: String = keys
        .iter()
        .map(|(id, byte)| format!("{id} {}\n", BASE64_STANDARD.encode([*byte; KEY_BYTES])))
        .collect();
    KeyRing::parse(&text).unwrap()
}

fn view() -> ViewId {
    ViewId::new("secrets.v1")
}

fn key() -> ObjectKey {
    ObjectKey::new("apps", "token")
}

/// The log holds other bytes than were sealed, and they come back whole.
#[test]
fn a_sealed_body_opens_again_and_is_not_readable_meanwhile() {
    let ring = ring(&[("k1", 1)]);
    let plain = b"a very secret password";
    let sealed = seal(&ring, &view(), &key(), plain).unwrap();
    assert!(is_sealed(&sealed) && !is_sealed(plain) && !is_sealed(b""));
    assert!(!sealed.windows(6).any(|part| part == b"secret"));
    assert_eq!(sealed.len(), plain.len() + OVERHEAD_BYTES + "k1".len());
    assert_eq!(open(&ring, &view(), &key(), &sealed).unwrap(), &plain[..]);
    let again = seal(&ring, &view(), &key(), plain).unwrap();
    assert_ne!(again, sealed, "equal bodies are not seen to be equal");
}

#[test]
fn a_sealed_body_is_refused_in_any_other_place() {
    let ring = ring(&[("k1", 1)]);
    let sealed = seal(&ring, &view(), &key(), b"x").unwrap();
    for (view, key) in [
        (ViewId::new("secrets.v1~objects"), key()),
        (view(), ObjectKey::new("apps", "other")),
        (view(), ObjectKey::new("shop", "token")),
        // The same letters, cut elsewhere.
        (view(), ObjectKey::new("app", "stoken")),
        (ViewId::new("secrets.v1a"), ObjectKey::new("pps", "token")),
    ] {
        let refused = open(&ring, &view, &key, &sealed);
        assert_eq!(refused, Err(SealError::Refused { id: "k1".into() }));
    }
}

#[test]
fn a_sealed_body_with_any_byte_changed_is_refused() {
    let ring = ring(&[("k1", 1), ("k2", 1)]);
    let sealed = seal(&ring, &view(), &key(), b"x").unwrap();
    for at in 0..sealed.len() {
        for bit in 0..8 {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1 << bit;
            // A changed key name is refused too, even if the named key has the same bytes.
            assert!(open(&ring, &view(), &key(), &changed).is_err(), "byte {at}");
        }
    }
    for short in 0..sealed.len() {
        assert!(open(&ring, &view(), &key(), &sealed[..short]).is_err());
    }
}

/// Keys change without a gap: the new one is known before it seals, the old one after.
#[test]
fn a_key_rotation_leaves_no_body_unreadable() {
    let stages = [
        ring(&[("old", 1)]),
        ring(&[("old", 1), ("new", 2)]),
        ring(&[("new", 2), ("old", 1)]),
        ring(&[("new", 2)]),
    ];
    for (sealing, opening) in [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)] {
        let sealed = seal(&stages[sealing], &view(), &key(), b"x").unwrap();
        assert_eq!(
            open(&stages[opening], &view(), &key(), &sealed).unwrap(),
            &b"x"[..],
            "sealed at stage {sealing}, opened at {opening}"
        );
    }
}

#[test]
fn an_unknown_key_is_named_in_the_error() {
    let sealed = seal(&ring(&[("gone", 1)]), &view(), &key(), b"x").unwrap();
    let refused = open(&ring(&[("a", 1), ("b", 2)]), &view(), &key(), &sealed).unwrap_err();
    assert_eq!(
        refused,
        SealError::UnknownKey {
            id: "gone".into(),
            known: "a, b".into()
        }
    );
    assert_eq!(refused.code().as_str(), "AR116");
    let other = open(&ring(&[("gone", 2)]), &view(), &key(), &sealed);
    assert_eq!(other, Err(SealError::Refused { id: "gone".into() }));
}

proptest! {
    #[test]
    fn sealing_keeps_any_body(plain in prop::collection::vec(any::<u8>(), 0..2_000), namespace: String, name: String) {
        let ring = ring(&[("k1", 1)]);
        let key = ObjectKey::new(namespace, name);
        let sealed = seal(&ring, &view(), &key, &plain).unwrap();
        prop_assert_eq!(open(&ring, &view(), &key, &sealed).unwrap(), plain);
    }

    #[test]
    fn opening_hostile_bytes_fails_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), magic: bool) {
        if magic {
            bytes.splice(0..0, [MAGIC, VERSION, 2, b'k', b'1']);
        }
        prop_assert!(open(&ring(&[("k1", 1)]), &view(), &key(), &bytes).is_err());
    }
}
