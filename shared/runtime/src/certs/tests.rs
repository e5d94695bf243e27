use std::time::Duration;

use jiff::SignedDuration;

use super::{issue::Authority, *};
use crate::wall_clock;

const DAY: SignedDuration = SignedDuration::from_hours(24);

fn names() -> Vec<String> {
    vec!["webhook.anteroom.svc".into(), "127.0.0.1".into()]
}

#[test]
fn an_issued_certificate_is_trusted_by_its_own_authority_alone() {
    let now = wall_clock::now();
    let authority = Authority::new("anteroom", now).unwrap();
    let other = Authority::new("anteroom", now).unwrap();
    let pem = authority.issue(&names(), now).unwrap();
    for name in ["webhook.anteroom.svc", "127.0.0.1"] {
        assert!(authority.vouches_for(&pem, name, now));
        assert!(!other.vouches_for(&pem, name, now));
        assert!(!authority.vouches_for(&pem, name, now + DAY * 366));
    }
    assert!(!authority.vouches_for(&pem, "elsewhere.svc", now));
}

#[test]
fn a_certificate_ends_with_its_authority_and_is_renewed_before_expiry() {
    let now = wall_clock::now();
    let authority = Authority::new("anteroom", now).unwrap();
    let late = now + issue::AUTHORITY_VALIDITY - DAY * 10;
    let pem = authority.issue(&names(), late).unwrap();
    let pair = Pair::parse(&pem, late).unwrap();
    assert_eq!(pair.not_after(), authority.not_after().unwrap());

    let (expiry, validity) = (now + DAY * 90, DAY * 90);
    assert!(!issue::is_due(expiry, validity, now + DAY * 59));
    assert!(issue::is_due(expiry, validity, now + DAY * 60));
    assert!(issue::is_due(expiry, validity, now + DAY * 91));
}

#[test]
fn an_unusable_key_pair_is_refused_with_its_reason() {
    let now = wall_clock::now();
    let authority = Authority::new("anteroom", now).unwrap();
    let good = authority.issue(&names(), now).unwrap();
    let other = authority.issue(&names(), now).unwrap();
    let pem = |chain: &str, key: &str| Pem {
        chain: chain.to_owned(),
        key: key.to_owned(),
    };
    let cases = [
        (pem("", &good.key), now, "no certificate"),
        (pem("no PEM", &good.key), now, "no certificate"),
        (pem(&good.chain, ""), now, "private key is not PEM"),
        (pem(&good.key, &good.key), now, "no certificate"),
        (pem(&good.chain, &other.key), now, "does not fit"),
        (good.clone(), now + DAY * 366, "expired"),
    ];
    for (pem, at, expected) in cases {
        let error = Pair::parse(&pem, at).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} for {expected:?}");
    }
}

#[tokio::test]
async fn files_are_followed_and_a_bad_pair_keeps_the_good_one() {
    let now = wall_clock::now();
    let authority = Authority::new("anteroom", now).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (chain, key) = (
        directory.path().join("tls.crt"),
        directory.path().join("tls.key"),
    );
    let certificates = Certificates::new(&Metrics::new("test"));
    let mut attempts = certificates.attempts();
    let follower = tokio::spawn({
        let (chain, key, certificates) = (chain.clone(), key.clone(), certificates.clone());
        async move { files::follow(&chain, &key, &certificates, Duration::from_millis(1)).await }
    });

    // Not there yet: said once, however often it is read.
    let refused = attempts.wait_for(|a| a.refused == 1).await.unwrap().clone();
    assert!(refused.last_error.unwrap().contains("tls.crt"));
    assert!(certificates.current().is_none());

    // The key is written first, so that no reader sees a certificate with a foreign key.
    let one = authority.issue(&names(), now).unwrap();
    std::fs::write(&key, &one.key).unwrap();
    let staged = directory.path().join("staged");
    std::fs::write(&staged, &one.chain).unwrap();
    std::fs::rename(&staged, &chain).unwrap();
    attempts.wait_for(|a| a.accepted == 1).await.unwrap();
    let first = certificates.current().unwrap();

    std::fs::write(&staged, "rubbish").unwrap();
    std::fs::rename(&staged, &chain).unwrap();
    attempts.wait_for(|a| a.last_error.is_some()).await.unwrap();
    assert!(Arc::ptr_eq(&first, &certificates.current().unwrap()));

    let two = authority.issue(&names(), now).unwrap();
    std::fs::write(&staged, &two.key).unwrap();
    std::fs::rename(&staged, &key).unwrap();
    std::fs::write(&staged, &two.chain).unwrap();
    std::fs::rename(&staged, &chain).unwrap();
    attempts.wait_for(|a| a.accepted == 2).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &certificates.current().unwrap()));
    follower.abort();
}
