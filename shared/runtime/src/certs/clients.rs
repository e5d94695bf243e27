//! Certificates that clients have to present: of an authority in a file, and of given names.

use std::{fmt, path::PathBuf, sync::Arc};

use arc_swap::ArcSwapOption;
use clap::Args;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject as _};
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer as _, X509Certificate},
};

use super::CertError;
use crate::watched_file::{POLL_INTERVAL, WatchedFile};

/// The bytes of a file of authorities.
const AUTHORITIES_BYTES_MAX: u64 = 1024 * 1024;

/// Options that say which clients a server takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "TLS")]
pub struct ClientCaArgs {
    /// Take connections only from clients with a certificate of these authorities, in PEM; read again every 10 seconds.
    /// The API server presents one if its AdmissionConfiguration says so.
    #[arg(long, env = "ANTEROOM_CLIENT_CA_FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Take only certificates with one of these names, as the common name or a DNS name [default: any name].
    #[arg(
        long,
        env = "ANTEROOM_CLIENT_NAMES",
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "client_ca_file"
    )]
    pub client_names: Vec<String>,
}

impl ClientCaArgs {
    /// Returns the clients to take; `None`: any, with or without a certificate.
    pub fn clients(&self) -> Option<Clients> {
        self.client_ca_file.as_ref()?;
        Some(Clients(Arc::new(State {
            authorities: ArcSwapOption::empty(),
            names: self.client_names.clone(),
        })))
    }
}

/// The clients that a server takes. Cheap to clone; all clones are one. Until an authority is known, handshakes fail.
#[derive(Clone, Debug)]
pub struct Clients(Arc<State>);

struct State {
    authorities: ArcSwapOption<Authorities>,
    names: Vec<String>,
}

struct Authorities(Arc<dyn ClientCertVerifier>);

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl Clients {
    /// Trusts the authorities in this PEM from the next handshake on.
    ///
    /// # Errors
    /// [`CertError::Pem`], [`CertError::Empty`], or [`CertError::Parse`] for what is no authority; those before stay.
    pub fn trust(&self, pem: &str) -> Result<(), CertError> {
        let parse = |problem: String| CertError::Parse { problem };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|source| CertError::Pem {
                what: "certificate",
                source,
            })?;
            let added = roots.add(certificate);
            added.map_err(|error| parse(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(CertError::Empty);
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().map_err(|error| parse(error.to_string()))?;
        let authorities = Authorities(verifier);
        self.0.authorities.store(Some(Arc::new(authorities)));
        Ok(())
    }

    /// Reads the file of authorities now and then again every [`POLL_INTERVAL`]. Never ends; drop it to stop.
    pub async fn follow(&self, path: PathBuf) -> std::convert::Infallible {
        let mut file = WatchedFile::new(path.clone(), AUTHORITIES_BYTES_MAX);
        loop {
            if let Some(found) = file.changed().await {
                let found = found.map_err(CertError::from);
                match found.and_then(|pem| self.trust(&pem)) {
                    Ok(()) => tracing::info!(file = %path.display(), "client authorities loaded"),
                    Err(error) => {
                        let error = format!("{:#}", anyhow::Error::new(error));
                        tracing::error!(error, "--client-ca-file refused: correct the file");
                    }
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn verifier(&self) -> Result<Arc<Authorities>, Error> {
        let authorities = self.0.authorities.load_full();
        authorities.ok_or_else(|| Error::General("no client authority is known yet".to_owned()))
    }
}

impl State {
    fn names(&self, certificate: &CertificateDer<'_>) -> bool {
        if self.names.is_empty() {
            return true;
        }
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
            return false;
        };
        let is_taken = |name: &str| self.names.iter().any(|taken| taken == name);
        let mut common = certificate.subject().iter_common_name();
        if common.any(|name| name.as_str().is_ok_and(is_taken)) {
            return true;
        }
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        alternatives.is_some_and(|alternatives| {
            let mut names = alternatives.value.general_names.iter();
            names.any(|name| matches!(name, GeneralName::DNSName(name) if is_taken(name)))
        })
    }
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[] // They may change while a handshake is under way.
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verifier = &self.verifier()?.0;
        let verified = verifier.verify_client_cert(end_entity, intermediates, now)?;
        match self.0.names(end_entity) {
            true => Ok(verified),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verifier = &self.verifier()?.0;
        verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verifier = &self.verifier()?.0;
        verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };

    use super::*;

    fn named(name: &str) -> CertificateParams {
        let mut params = CertificateParams::new(vec![format!("{name}.example")]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    /// An authority in PEM, and a certificate that it gives a client of this name.
    fn issued(name: &str) -> (String, CertificateDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut authority = named("authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let pem = authority.self_signed(&key).unwrap().pem();
        let mut client = named(name);
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let issuer = Issuer::from_params(&authority, &key);
        let client = client.signed_by(&KeyPair::generate().unwrap(), &issuer);
        (pem, client.unwrap().der().clone())
    }

    #[test]
    fn only_a_trusted_client_of_a_given_name_is_taken() {
        let (pem, certificate) = issued("kube-apiserver");
        let (_, of_others) = issued("kube-apiserver");
        let clients = |names: &[&str]| {
            let args = ClientCaArgs {
                client_ca_file: Some("ca.pem".into()),
                client_names: names.iter().map(ToString::to_string).collect(),
            };
            args.clients().unwrap()
        };
        for (names, certificate, expected) in [
            (&[][..], &certificate, true),
            (&["kube-apiserver"], &certificate, true),
            (&["else", "kube-apiserver.example"], &certificate, true),
            (&["kube-apiserver.else"], &certificate, false),
            (&["kube-apiserver"], &of_others, false),
        ] {
            let clients = clients(names);
            let is_taken = || {
                let verified = clients.verify_client_cert(certificate, &[], UnixTime::now());
                verified.is_ok()
            };
            assert!(!is_taken(), "nobody is trusted yet");
            clients.trust(&pem).unwrap();
            assert_eq!(is_taken(), expected, "{names:?}");
            assert!(clients.trust("no certificate").is_err());
            assert_eq!(is_taken(), expected, "what was trusted stays");
        }
        assert!(ClientCaArgs::default().clients().is_none());
    }
}
