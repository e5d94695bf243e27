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
