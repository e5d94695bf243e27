//! Posting a review to a webhook.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use rustls::{
    ClientConfig as TlsConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::rules::ClientConfig;
use crate::http as client;

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Posts an AdmissionReview and returns the answer's body.
pub(super) async fn post(config: &ClientConfig, body: String) -> anyhow::Result<Bytes> {
    let url = address(config)?;
    let place = url.to_string();
    exchange(config, url, body)
        .await
        .with_context(|| format!("Post {place:?}"))
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

async fn exchange(config: &ClientConfig, url: Uri, body: String) -> anyhow::Result<Bytes> {
    let request = Request::post(url)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let response = client::send(request, Some(Arc::new(tls(&config.ca_bundle)?))).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    ensure!(status == StatusCode::OK, "the webhook answered {status}");
    Ok(body)
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
    let builder = builder.with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
