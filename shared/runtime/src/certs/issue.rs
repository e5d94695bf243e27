//! Making certificates.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};

use super::{CertError, Pem};

/// Validity of an authority: long, since replacing it means to tell everyone who trusts it.
pub const AUTHORITY_VALIDITY: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// Validity of a serving certificate.
pub const SERVING_VALIDITY: SignedDuration = SignedDuration::from_hours(365 * 24);

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The time before now from which a certificate is valid. Clocks may be wrong by months: what is made by one that is ahead
/// must be good for all others, or each would replace the certificate of the other.
const SKEW: SignedDuration = AUTHORITY_VALIDITY;

/// Certificates begin and end at midnight UTC: `rcgen` takes dates without a further crate.
fn year_month_day(at: Timestamp) -> (i32, u8, u8) {
    let date = at.to_zoned(TimeZone::UTC).date();
    let positive = |number: i8| u8::try_from(number).unwrap_or(1); // Always within 1..=31.
    (
        i32::from(date.year()),
        positive(date.month()),
        positive(date.day()),
    )
}

/// Sets the validity to whole days, so that it covers all of `from..to`.
fn set_validity(params: &mut CertificateParams, from: Timestamp, to: Timestamp) {
    let (year, month, day) = year_month_day(from);
    params.not_before = rcgen::date_time_ymd(year, month, day);
    let (year, month, day) = year_month_day(to + (DAY - SignedDuration::from_nanos(1)));
    params.not_after = rcgen::date_time_ymd(year, month, day);
}

/// A certificate is due for renewal in the last third of its life.
pub fn is_due(not_after: Timestamp, validity: SignedDuration, now: Timestamp) -> bool {
    now + validity / 3 >= not_after
}

/// An authority of our own, which signs our serving certificates.
#[derive(Clone, PartialEq, Eq)]
pub struct Authority {
    /// The authority's certificate, which clients trust.
    pub certificate_pem: String,
    /// Its private key, in PKCS#8.
    pub key_pem: String,
}

/// The key stays out of logs.
impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("certificate_pem", &self.certificate_pem)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// A new one, valid for [`AUTHORITY_VALIDITY`]. `name` is read by people.
    pub fn new(name: &str, now: Timestamp) -> Result<Self, CertError> {
        Self::valid_for(name, AUTHORITY_VALIDITY, now)
    }

    /// A new one, valid for so long. `name` is read by people.
    pub fn valid_for(
        name: &str,
        validity: SignedDuration,
        now: Timestamp,
    ) -> Result<Self, CertError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        set_validity(&mut params, now - SKEW, now + validity);
        params.distinguished_name.push(DnType::CommonName, name);
        // It signs serving certificates, never another authority.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self {
            certificate_pem: params.self_signed(&key)?.pem(),
            key_pem: key.serialize_pem(),
        })
    }

    /// When it expires. An error if its certificate cannot be read.
    pub fn not_after(&self) -> Result<Timestamp, CertError> {
        let certificate =
            CertificateDer::from_pem_slice(self.certificate_pem.as_bytes()).map_err(|source| {
                CertError::Pem {
                    what: "certificate",
                    source,
                }
            })?;
        super::not_after(&certificate)
    }

    /// Returns true if a client that trusts this authority accepts `pair` for `name` (a DNS name or an IP
    /// address) at `now`.
    pub fn vouches_for(&self, pair: &Pem, name: &str, now: Timestamp) -> bool {
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).ok();
        let accepted = || {
            let mut roots = RootCertStore::empty();
            roots.add(der(&self.certificate_pem)?).ok()?;
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .ok()?;
            let seconds = u64::try_from(now.as_second()).ok()?;
            let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            let name = ServerName::try_from(name).ok()?;
            verifier
                .verify_server_cert(&der(&pair.chain)?, &[], &name, &[], now)
                .ok()
        };
        accepted().is_some()
    }

    /// A serving certificate for `names` (DNS names and IP addresses), valid for
    /// [`SERVING_VALIDITY`] and never longer than the authority.
    pub fn issue(&self, names: &[String], now: Timestamp) -> Result<Pem, CertError> {
        self.issue_for(names, SERVING_VALIDITY, now)
    }

    /// A serving certificate as from [`Authority::issue`], valid for so long and never longer than the authority. Servers
    /// of one cluster present it to each other too.
    pub fn issue_for(
        &self,
        names: &[String],
        validity: SignedDuration,
        now: Timestamp,
    ) -> Result<Pem, CertError> {
        let issuer =
            Issuer::from_ca_cert_pem(&self.certificate_pem, KeyPair::from_pem(&self.key_pem)?)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names)?;
        let not_after = (now + validity).min(self.not_after()?);
        set_validity(&mut params, now - SKEW, not_after);
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(name) = names.first() {
            params
                .distinguished_name
                .push(DnType::CommonName, name.as_str());
        }
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        Ok(Pem {
            chain: params.signed_by(&key, &issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_valid_for_as_long_as_was_asked_for_and_a_day_more_at_most() {
        for (now, end) in [
            ("2026-11-26T23:59:59Z", "2026-11-28T00:00:00Z"),
            ("2026-11-26T00:00:00Z", "2026-11-27T00:00:00Z"),
            ("2026-11-26T00:00:01Z", "2026-11-28T00:00:00Z"),
        ] {
            let now: Timestamp = now.parse().unwrap();
            let authority = Authority::valid_for("a", DAY, now).unwrap();
            let end: Timestamp = end.parse().unwrap();
            assert_eq!(authority.not_after().unwrap(), end, "{now}");
            let pair = authority.issue(&["a.b".into()], now).unwrap();
            let second = SignedDuration::from_secs(1);
            for (at, expected) in [(now, true), (now + DAY, true), (end + second, false)] {
                assert_eq!(
                    authority.vouches_for(&pair, "a.b", at),
                    expected,
                    "{now} {at}"
                );
            }
        }
    }
}
