//! Whom an endpoint's certificate is checked against: the bundle alone where there is one, else the
//! system's roots. TLS 1.2 at least.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    version::{TLS12, TLS13},
};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};

use crate::calls::CallFault;

/// The configuration for the system's roots, made once. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SystemRoots {
    config: Arc<Mutex<Option<Arc<ClientConfig>>>>,
}

impl SystemRoots {
    fn get(&self) -> Result<Arc<ClientConfig>, CallFault> {
        let mut config = self.config.lock();
        if let Some(config) = &*config {
            return Ok(Arc::clone(config));
        }
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a certificate of the system cannot be read");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        let made = with_roots(roots)?;
        *config = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// For this bundle of PEM certificates, or for the system's roots.
///
/// # Errors
/// [`CallFault::Bundle`] where the bundle holds no certificate, or one that cannot be read.
pub(crate) fn client_config(
    ca_bundle: Option<&str>,
    system: &SystemRoots,
) -> Result<Arc<ClientConfig>, CallFault> {
    let Some(bundle) = ca_bundle else {
        return system.get();
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        let certificate = certificate.map_err(|error| CallFault::bundle(&error))?;
        roots
            .add(certificate)
            .map_err(|error| CallFault::bundle(&error))?;
    }
    if roots.is_empty() {
        return Err(CallFault::Bundle {
            problem: "it holds no certificate".to_owned(),
        });
    }
    with_roots(roots)
}

fn with_roots(roots: RootCertStore) -> Result<Arc<ClientConfig>, CallFault> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&TLS13, &TLS12]);
    let builder = builder.map_err(|error| CallFault::bundle(&error))?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}
