//! Certificates that end at a given second: those that the product makes are valid for whole days.

use std::{fs, path::Path, time::Duration};

use anteroom_runtime::certs::{Pem, issue::Authority};
use anyhow::Context as _;
use jiff::Timestamp;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The files of a certificate and of its key, in a folder of their own.
pub const CHAIN: &str = "tls.crt";
/// See [`CHAIN`].
pub const KEY: &str = "tls.key";

/// Issues a certificate for these names (DNS names and IP addresses), for servers and for clients.
///
/// # Errors
/// A name that is none, an authority that cannot be read, or an end before 1970.
pub fn issue(authority: &Authority, names: &[String], not_after: Timestamp) -> anyhow::Result<Pem> {
    let authority_key = KeyPair::from_pem(&authority.key_pem)?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate_pem, authority_key)?;
    let seconds = u64::try_from(not_after.as_second()).context("the end of a certificate")?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    params.distinguished_name = DistinguishedName::new();
    let name = names.first().context("a name")?.as_str();
    params.distinguished_name.push(DnType::CommonName, name);
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

/// Puts both files into the folder, over those that are there. Nobody reads half of one.
///
/// # Errors
/// Those of the system.
pub fn write(pair: &Pem, folder: &Path) -> anyhow::Result<()> {
    for (name, text) in [(KEY, &pair.key), (CHAIN, &pair.chain)] {
        let (path, next) = (folder.join(name), folder.join(format!("{name}.next")));
        fs::write(&next, text).with_context(|| next.display().to_string())?;
        fs::rename(&next, &path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
