//! Our own authority and certificate, as they are kept; and when they are made anew. Pure.

use std::{collections::BTreeMap, fmt};

use anteroom_runtime::certs::{
    CertError, Pair, Pem,
    issue::{AUTHORITY_VALIDITY, Authority, SERVING_VALIDITY, is_due},
};
use jiff::Timestamp;

/// The keys of the Secret's parts. The first two are the keys of type `kubernetes.io/tls`.
const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
const TRUST: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const REVIEW_KEY: &str = "review.key";

const END: &str = "-----END CERTIFICATE-----";

/// Our own authority and certificate.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Trusted authorities, the signing authority first. Earlier authorities stay until they expire, so that webhooks
    /// with older certificates stay trusted.
    pub(crate) trust_pem: String,
    authority_key_pem: String,
    /// The key of the paths for reviews. It outlives every certificate, so all webhooks have the same key at any
    /// time.
    pub(crate) review_key: String,
    /// The serving certificate, with its key.
    pub(crate) pair: Pem,
}

/// The keys stay out of logs.
impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored")
            .field("trust_pem", &self.trust_pem)
            .field("pair", &self.pair)
            .finish_non_exhaustive()
    }
}

impl Stored {
    /// Reads the parts from a Secret's data; `None`: a part is missing or no text.
    pub(crate) fn from_data(data: &BTreeMap<String, Vec<u8>>) -> Option<Self> {
        let text = |key| String::from_utf8(data.get(key)?.clone()).ok();
        Some(Self {
            trust_pem: text(TRUST)?,
            authority_key_pem: text(AUTHORITY_KEY)?,
            // An empty key would be known to everybody.
            review_key: text(REVIEW_KEY).filter(|key| !key.is_empty())?,
            pair: Pem {
                chain: text(CHAIN)?,
                key: text(KEY)?,
            },
        })
    }

    /// A Secret's data.
    pub(crate) fn data(&self) -> BTreeMap<String, Vec<u8>> {
        [
            (TRUST, &self.trust_pem),
            (AUTHORITY_KEY, &self.authority_key_pem),
            (REVIEW_KEY, &self.review_key),
            (CHAIN, &self.pair.chain),
            (KEY, &self.pair.key),
        ]
        .map(|(key, text)| (key.to_owned(), text.clone().into_bytes()))
        .into()
    }

    /// Every authority that it trusts.
    fn authorities(&self) -> Vec<&str> {
        let certificates = self.trust_pem.split_inclusive(END).map(str::trim);
        certificates.filter(|pem| pem.ends_with(END)).collect()
    }

    /// The authority that signs.
    fn authority(&self) -> Option<Authority> {
        Some(Authority {
            certificate_pem: (*self.authorities().first()?).to_owned(),
            key_pem: self.authority_key_pem.clone(),
        })
    }
}

/// Returns the certificate to store in place of `found`; `None`: it is good as it stands.
///
/// A serving certificate that is due, or not for all `names`, is issued anew by the same authority. An
/// authority that is due, or unusable, is made anew, and the earlier ones stay trusted.
pub(crate) fn renew(
    found: Option<&Stored>,
    names: &[String],
    now: Timestamp,
) -> Result<Option<Stored>, CertError> {
    if let Some(stored) = found
        && let Some(authority) = stored.authority()
        && authority
            .not_after()
            .is_ok_and(|not_after| !is_due(not_after, AUTHORITY_VALIDITY, now))
    {
        if is_good(&authority, &stored.pair, names, now) {
            return Ok(None);
        }
        // Not so where the authority's certificate and key do not belong together.
        if let Ok(pair) = authority.issue(names, now)
            && is_good(&authority, &pair, names, now)
        {
            return Ok(Some(Stored {
                pair,
                ..stored.clone()
            }));
        }
    }
    let review_key = found.map(|found| found.review_key.clone());
    let authority = Authority::new("anteroom-webhook", now)?;
    let mut trust_pem = authority.certificate_pem.clone();
    for earlier in found.map(Stored::authorities).unwrap_or_default() {
        let earlier = Authority {
            certificate_pem: earlier.to_owned(),
            key_pem: String::new(),
        };
        if earlier.not_after().is_ok_and(|not_after| not_after > now) {
            trust_pem.push_str(&earlier.certificate_pem);
            trust_pem.push('\n');
        }
    }
    Ok(Some(Stored {
        trust_pem,
        pair: authority.issue(names, now)?,
        review_key: review_key.unwrap_or_else(new_review_key),
        authority_key_pem: authority.key_pem,
    }))
}

fn new_review_key() -> String {
    let random: [u8; 32] = rand::random();
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_good(authority: &Authority, pair: &Pem, names: &[String], now: Timestamp) -> bool {
    Pair::parse(pair, now).is_ok_and(|pair| !is_due(pair.not_after(), SERVING_VALIDITY, now))
        && names
            .iter()
            .all(|name| authority.vouches_for(pair, name, now))
}

#[cfg(test)]
mod tests {
    use anteroom_runtime::wall_clock;
    use jiff::SignedDuration;

    use super::*;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    fn names() -> Vec<String> {
        vec!["a.b.svc".into(), "127.0.0.1".into()]
    }

    #[test]
    fn a_good_certificate_stays_and_a_due_one_keeps_its_authority() {
        let now = wall_clock::now();
        let first = renew(None, &names(), now).unwrap().unwrap();
        assert_eq!(renew(Some(&first), &names(), now).unwrap(), None);
        assert_eq!(
            renew(Some(&first), &names(), now + DAY * 200).unwrap(),
            None
        );

        let later = now + DAY * 300;
        let second = renew(Some(&first), &names(), later).unwrap().unwrap();
        assert_eq!(second.trust_pem, first.trust_pem);
        assert_ne!(second.pair, first.pair);
        assert_eq!(renew(Some(&second), &names(), later).unwrap(), None);

        let more = [names(), vec!["c".into()]].concat();
        let third = renew(Some(&second), &more, later).unwrap().unwrap();
        assert_eq!(third.trust_pem, first.trust_pem);
        assert!(
            renew(Some(&third), &names(), later).unwrap().is_none(),
            "fewer names are covered"
        );
    }

    #[test]
    fn a_new_authority_leaves_the_earlier_one_trusted_until_it_expires() {
        let now = wall_clock::now();
        let first = renew(None, &names(), now).unwrap().unwrap();
        let due = now + DAY * (365 * 9);
        let second = renew(Some(&first), &names(), due).unwrap().unwrap();
        assert_eq!(second.authorities().len(), 2);
        assert_eq!(second.authorities()[1], first.authorities()[0]);
        assert_eq!(renew(Some(&second), &names(), due).unwrap(), None);

        let expired = due + DAY * (365 * 9);
        let third = renew(Some(&second), &names(), expired).unwrap().unwrap();
        assert_eq!(third.authorities().len(), 2, "the first has expired");
    }

    #[test]
    fn a_webhook_with_a_wrong_clock_replaces_no_certificate_of_others_for_long() {
        let right = wall_clock::now();
        for days in [-200, -1, 1, 200, 365 * 3, 365 * 8] {
            let wrong = right + DAY * days;
            for first in [right, wrong] {
                let mut stored = renew(None, &names(), first).unwrap().unwrap();
                let mut renewals = 0;
                for clock in [wrong, right, wrong, right] {
                    if let Some(renewed) = renew(Some(&stored), &names(), clock).unwrap() {
                        stored = renewed;
                        renewals += 1;
                    }
                }
                assert!(renewals <= 1, "{days} days: {renewals}");
                let authority = stored.authority().unwrap();
                let is_good = is_good(&authority, &stored.pair, &names(), right);
                assert!(is_good, "{days} days");
            }
        }
    }

    #[test]
    fn a_broken_certificate_is_issued_anew() {
        let now = wall_clock::now();
        let good = renew(None, &names(), now).unwrap().unwrap();
        let other = renew(None, &names(), now).unwrap().unwrap();
        let broken = [
            Stored {
                trust_pem: String::new(),
                ..good.clone()
            },
            Stored {
                trust_pem: "rubbish".into(),
                ..good.clone()
            },
            Stored {
                trust_pem: other.trust_pem.clone(),
                ..good.clone()
            },
            Stored {
                pair: other.pair.clone(),
                ..good.clone()
            },
            Stored {
                pair: Pem {
                    key: "rubbish".into(),
                    ..good.pair.clone()
                },
                ..good.clone()
            },
        ];
        for stored in broken {
            let renewed = renew(Some(&stored), &names(), now).unwrap().unwrap();
            assert_eq!(
                renew(Some(&renewed), &names(), now).unwrap(),
                None,
                "{stored:?}"
            );
        }
    }

    #[test]
    fn a_certificate_is_stored_whole_and_not_read_in_part() {
        let stored = renew(None, &names(), wall_clock::now()).unwrap().unwrap();
        let data = stored.data();
        assert_eq!(Stored::from_data(&data), Some(stored.clone()));
        for missing in data.keys() {
            let mut data = data.clone();
            data.remove(missing);
            assert_eq!(Stored::from_data(&data), None, "{missing}");
        }
        let mut data = data;
        data.insert(REVIEW_KEY.to_owned(), Vec::new());
        assert_eq!(Stored::from_data(&data), None, "an empty key is none");
    }

    #[test]
    fn a_review_key_outlives_every_certificate() {
        let now = wall_clock::now();
        let first = renew(None, &names(), now).unwrap().unwrap();
        assert_eq!(first.review_key.len(), 64);
        for later in [DAY * 300, DAY * (365 * 9)] {
            let renewed = renew(Some(&first), &names(), now + later).unwrap().unwrap();
            assert_eq!(renewed.review_key, first.review_key);
        }
    }
}
