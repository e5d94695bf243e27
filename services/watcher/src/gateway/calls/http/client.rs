//! Clients by the certificates that they trust and the addresses that they connect to. TLS 1.2 at least.

use std::{collections::HashMap, error::Error, fmt, net::IpAddr, sync::Arc};

use http::uri::Authority;
use parking_lot::Mutex;
use reqwest::{
    Certificate, Client, ClientBuilder, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
    tls,
};
use rustls::CertificateError;

use crate::gateway::calls::CallFault;

/// The number of clients that are kept. With one more, all are made again.
const CLIENTS_MAX: usize = 64;

/// The addresses that clients may connect to. A name is judged when it is resolved, and is not resolved again.
pub(crate) trait AddressFilter: Send + Sync {
    /// Returns whether the host, with its port if it has one, may be at any address.
    fn is_trusted(&self, host: &Authority) -> bool;

    /// Returns whether calls to this address are permitted.
    fn permits(&self, address: IpAddr) -> bool;

    /// Returns the network of a refused host, and the option by which an administrator can allow it, for people.
    fn refusal(&self) -> &'static str;
}

/// Clients that connect to permitted addresses alone, by the bundle that they trust. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HttpClients {
    filter: Arc<dyn AddressFilter>,
    made: Arc<Mutex<HashMap<ClientKey, Client>>>,
}

/// The purpose of a client.
#[derive(PartialEq, Eq, Hash)]
struct ClientKey {
    ca_bundle: Option<String>,
    /// True if it connects to hosts that may be at any address.
    is_trusted: bool,
}

impl HttpClients {
    /// Returns clients that connect only to addresses that the filter permits.
    pub(crate) fn new(filter: Arc<dyn AddressFilter>) -> Self {
        Self {
            filter,
            made: Arc::default(),
        }
    }

    /// Returns the client for a URL. It trusts the certificates of a PEM bundle alone, or else the system's roots.
    ///
    /// # Errors
    /// [`CallFault::NotAsked`] if the URL has an address that is not permitted. [`CallFault::Bundle`] if the bundle
    /// holds no certificate, or an unreadable one.
    pub(super) fn client_for(
        &self,
        url: &Url,
        ca_bundle: Option<&str>,
    ) -> Result<Client, CallFault> {
        let key = ClientKey {
            ca_bundle: ca_bundle.map(str::to_owned),
            is_trusted: self.is_trusted(url)?,
        };
        let mut made = self.made.lock();
        if let Some(client) = made.get(&key) {
            return Ok(client.clone());
        }
        let mut builder = builder();
        if let Some(bundle) = ca_bundle {
            builder = builder.tls_certs_only(certificates(bundle)?);
        }
        if !key.is_trusted {
            builder = builder.dns_resolver(Filtering(Arc::clone(&self.filter)));
        }
        let client = builder.build().map_err(|error| CallFault::bundle(&error))?;
        if made.len() >= CLIENTS_MAX {
            made.clear();
        }
        made.insert(key, client.clone());
        Ok(client)
    }

    fn is_trusted(&self, url: &Url) -> Result<bool, CallFault> {
        let host: Authority = url.authority().parse().map_err(|_| CallFault::no_host())?;
        if self.filter.is_trusted(&host) {
            return Ok(true);
        }
        // An IP address is not resolved, so the filter is applied here.
        let bare = host.host().trim_start_matches('[').trim_end_matches(']');
        match bare.parse() {
            Ok(address) if !self.filter.permits(address) => Err(self.not_asked(url)),
            _ => Ok(false),
        }
    }

    fn not_asked(&self, url: &Url) -> CallFault {
        CallFault::NotAsked {
            host: url.authority().to_owned(),
            refusal: self.filter.refusal(),
        }
    }

    /// Returns the fault of a broken exchange, without the URL's path and query: they may hold a secret.
    pub(super) fn fault(&self, url: &Url, error: reqwest::Error) -> CallFault {
        let error = error.without_url();
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(error) = cause {
            if error.is::<NotPermitted>() {
                return self.not_asked(url);
            }
            if let Some(rustls::Error::InvalidCertificate(problem)) = error.downcast_ref()
                && let Some(message) = in_words(problem)
            {
                let message = message.to_owned();
                return CallFault::Unreachable { message };
            }
            // An IO error's source is that of its inner error, which is passed over then.
            let inner = error.downcast_ref::<std::io::Error>();
            let inner = inner.and_then(std::io::Error::get_ref);
            cause = match inner {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        CallFault::unreachable(&error)
    }
}

fn builder() -> ClientBuilder {
    Client::builder()
        .http1_only()
        .no_proxy()
        .referer(false)
        .redirect(Policy::none())
        .min_tls_version(tls::Version::TLS_1_2)
}

fn certificates(bundle: &str) -> Result<Vec<Certificate>, CallFault> {
    let certificates = Certificate::from_pem_bundle(bundle.as_bytes());
    let certificates = certificates.map_err(|error| CallFault::bundle(&error))?;
    if certificates.is_empty() {
        return Err(CallFault::Bundle {
            problem: "it holds no certificate".to_owned(),
        });
    }
    Ok(certificates)
}

/// Prints nothing of the connections.
impl fmt::Debug for HttpClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClients").finish_non_exhaustive()
    }
}

/// Resolves names as the system does, to permitted addresses alone.
struct Filtering(Arc<dyn AddressFilter>);

/// A name has no address that is permitted.
#[derive(Debug, thiserror::Error)]
#[error("the host is at no permitted address")]
struct NotPermitted;

impl Resolve for Filtering {
    fn resolve(&self, name: Name) -> Resolving {
        let filter = Arc::clone(&self.0);
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let permitted = found.filter(|address| filter.permits(address.ip()));
            let permitted: Vec<_> = permitted.collect();
            if permitted.is_empty() {
                return Err(NotPermitted.into());
            }
            Ok(Box::new(permitted.into_iter()) as Addrs)
        })
    }
}

/// Returns the usual reasons for which a certificate is refused, and the remedy.
fn in_words(problem: &CertificateError) -> Option<&'static str> {
    Some(match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "its certificate is signed by an authority that is not trusted: add that authority to `caBundle`"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another host: its subject alternative names lack the host of the URL"
        }
        CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => {
            "its certificate is that of an authority (CA:TRUE), not of a server: let the authority sign a certificate \
             for the host"
        }
        _ => return None,
    })
}
