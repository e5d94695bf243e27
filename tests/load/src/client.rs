//! One keep-alive connection to a webhook.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The webhook that reviews are posted to.
#[derive(Clone, Debug)]
pub struct Target {
    /// The webhook's address.
    pub address: SocketAddr,
    /// The name for which the server's certificate must be valid.
    pub server_name: String,
    /// The authority that must have signed it.
    pub ca_pem: Vec<u8>,
    /// The path, as in `/validate?timeout=10s`.
    pub path: String,
    /// The longest wait for an answer: the webhook configuration's `timeoutSeconds`.
    pub timeout: Duration,
}

/// Posts reviews in sequence over a connection, which is opened again after an error.
#[derive(Debug)]
pub struct Client {
    target: Target,
    tls: Arc<rustls::ClientConfig>,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// Returns a client that connects at its first post.
    pub fn new(target: Target) -> anyhow::Result<Self> {
        let tls = tls_config(&target.ca_pem, &[])?;
        Ok(Self {
            target,
            tls: Arc::new(tls),
            connection: None,
        })
    }

    /// Posts one review and returns the body of the answer.
    pub async fn post(&mut self, body: Bytes) -> anyhow::Result<Bytes> {
        let timeout = self.target.timeout;
        let answer = tokio::time::timeout(timeout, self.post_untimed(body)).await;
        let answer =
            answer.unwrap_or_else(|_| bail!("no answer within {} ms", timeout.as_millis()));
        if answer.is_err() {
            // After an error, the rest of this exchange must not be read as part of the next.
            self.connection = None;
        }
        answer
    }

    async fn post_untimed(&mut self, body: Bytes) -> anyhow::Result<Bytes> {
        let mut connection = match self.connection.take() {
            Some(mut kept) => match kept.ready().await {
                Ok(()) => kept,
                Err(_closed_meanwhile) => self.connect().await?,
            },
            None => self.connect().await?,
        };
        let request = http::Request::post(&self.target.path)
            .header(http::header::HOST, &self.target.server_name)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let response = connection.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|e| anyhow::anyhow!("reading the answer: {e}"))?
            .to_bytes();
        self.connection = Some(connection);
        if status != http::StatusCode::OK {
            bail!("HTTP {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.target.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(self.target.server_name.clone())?;
        let stream = TlsConnector::from(self.tls.clone())
            .connect(name, stream)
            .await?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Returns a TLS configuration that trusts only this authority, with the given HTTP protocols.
pub(crate) fn tls_config(ca_pem: &[u8], alpn: &[&[u8]]) -> anyhow::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem) {
        roots.add(certificate.context("the webhook's CA is not PEM")?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(tls)
}
