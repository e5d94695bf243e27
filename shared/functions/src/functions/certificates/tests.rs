use proptest::prelude::*;

use super::*;

/// Expected: the output of Go for the same certificate and the same request.
#[test]
fn certificates_and_requests_are_read_as_in_go() {
    for (text, expected) in [
        (
            include_str!("testdata/certificate.pem"),
            include_str!("testdata/certificate.json"),
        ),
        (
            include_str!("testdata/request.pem"),
            include_str!("testdata/request.json"),
        ),
    ] {
        let expected: Value = serde_json::from_str(expected).unwrap();
        let found = super::certificate(text).unwrap();
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&found[name], value, "{name}");
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn a_malformed_certificate_is_refused_with_its_reason() {
    let certificate = include_str!("testdata/certificate.pem");
    let lines: Vec<_> = certificate.lines().collect();
    let cut = [&lines[..3], &lines[lines.len() - 1..]].concat().join("\n");
    for (text, says) in [
        ("", "no PEM block"),
        ("-----BEGIN CERTIFICATE-----", "no PEM block"),
        (include_str!("testdata/other_key.pem"), "no RSA key"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
            "neither a `CERTIFICATE`",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "it is no certificate",
        ),
        (&cut, "it is no certificate"),
        (&"x".repeat(TEXT_BYTES_MAX + 1), "longer than 65536 bytes"),
    ] {
        let error = super::certificate(text).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
    let after = format!(
        "# first\n{certificate}{}",
        include_str!("testdata/request.pem")
    );
    assert_eq!(
        super::certificate(&after),
        super::certificate(certificate),
        "the first block counts"
    );
}

/// A value in DER.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let length = match length {
        0..=127 => vec![length as u8],
        128..=255 => vec![0x81, length as u8],
        _ => vec![0x82, (length >> 8) as u8, length as u8],
    };
    [&[tag][..], &length, content].concat()
}

/// Writing a number in decimal takes time by the square of its length.
#[test]
fn a_key_is_read_up_to_its_greatest_length() {
    let rsa = der(0x06, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1]);
    let algorithm = der(0x30, &[rsa, der(0x05, &[])].concat());
    for length in [MODULUS_BYTES_MAX, MODULUS_BYTES_MAX + 1] {
        let modulus = der(0x02, &vec![1; length]);
        let numbers = der(0x30, &[modulus, der(0x02, &[3])].concat());
        let bits = der(0x03, &[vec![0], numbers].concat());
        let written = der(0x30, &[algorithm.clone(), bits].concat());
        let (_, key) = SubjectPublicKeyInfo::from_der(&written).unwrap();
        let read = public_key(&key).map(|key| key["E"].clone());
        let expected = match length {
            MODULUS_BYTES_MAX => Ok(json!(3)),
            _ => Err("the key is longer than 2048 bytes".to_owned()),
        };
        assert_eq!(read, expected, "{length}");
    }
}

/// Expected: the numbers of Go's `crypto/x509`.
#[test]
fn a_signature_by_pss_has_the_number_of_its_digest() {
    for (digest, number) in [(1, 13), (2, 14), (3, 15), (4, 0)] {
        let digest = der(0x06, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, digest]);
        let parameters = der(0x30, &der(0xa0, &der(0x30, &digest)));
        let pss = der(0x06, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10]);
        let written = der(0x30, &[pss, parameters].concat());
        let (_, algorithm) = AlgorithmIdentifier::from_der(&written).unwrap();
        assert_eq!(signature_number(&algorithm), number);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any byte of the certificate may be replaced.
    #[test]
    fn a_spoiled_certificate_never_panics(spoiled in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), is_request: bool) {
        let text = match is_request {
            true => include_str!("testdata/request.pem"),
            false => include_str!("testdata/certificate.pem"),
        };
        let block = Pem::iter_from_buffer(text.as_bytes()).next().unwrap().unwrap();
        let mut contents = block.contents;
        for (at, byte) in spoiled {
            let at = at.index(contents.len());
            contents[at] = byte;
        }
        let label = &block.label;
        let text = format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(contents));
        let _ = super::certificate(&text);
    }
}
