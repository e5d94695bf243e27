//! One HTTPS request to a webhook. A connection of its own each time: nobody measures the
//! simulator's calls.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig as TlsConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::rules::ClientConfig;

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Posts an AdmissionReview and returns the answer's body.
pub(super) async fn post(config: &ClientConfig, body: String) -> anyhow::Result<Bytes> {
    let url = address(config)?;
    exchange(config, &url, body)
        .await
        .with_context(|| format!("Post {url:?}", url = url.to_string()))
}

fn address(config: &ClientConfig) -> anyhow::Result<Uri> {
    let url = match (&config.url, &config.service) {
        (Some(url), None) => url.clone(),
        (None, Some(service)) => {
            let path = service.path.trim_start_matches('/');
            format!(
                "https://{}.{}.svc:{}/{path}",
                service.name, service.namespace, service.port
            )
        }
        _ => bail!("a webhook's clientConfig has either a url or a service"),
    };
    let url: Uri = url
        .parse()
        .with_context(|| format!("the url {url:?} cannot be read"))?;
    ensure!(
        url.scheme_str() == Some("https"),
        "the url {url} is not https"
    );
    Ok(url)
}

async fn exchange(config: &ClientConfig, url: &Uri, body: String) -> anyhow::Result<Bytes> {
    let host = url
        .host()
        .context("the url names no host")?
        .trim_matches(['[', ']'])
        .to_owned();
    let port = url.port_u16().unwrap_or(443);
    let tcp = TcpStream::connect((host.as_str(), port)).await?;
    let connector = TlsConnector::from(Arc::new(tls(&config.ca_bundle)?));
    let stream = connector
        .connect(ServerName::try_from(host.clone())?, tcp)
        .await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::post(path)
        .header(header::HOST, format!("{host}:{port}"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let answer = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        ensure!(status == StatusCode::OK, "the webhook answered {status}");
        anyhow::Ok(body)
    };
    // The connection lives until the answer is there, and ends with it.
    tokio::pin!(answer);
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        ended = connection => {
            ended?;
            answer.await
        }
    }
}

fn tls(ca_bundle: &str) -> anyhow::Result<TlsConfig> {
    let pem = BASE64_STANDARD
        .decode(ca_bundle)
        .context("the caBundle is not base64")?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.context("the caBundle is not PEM")?)?;
    }
    let builder = TlsConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    Ok(builder
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
