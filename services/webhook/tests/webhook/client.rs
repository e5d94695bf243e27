//! An API server's side of a webhook call.

use std::{net::SocketAddr, sync::Arc};

use anteroom_webhook::Webhook;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The version of HTTP. An API server speaks 1.1 to a Service.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Http {
    One,
    Two,
}

/// A client of a single webhook, which trusts only the webhook's authority.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    roots: Arc<RootCertStore>,
}

impl Client {
    pub(crate) async fn of(webhook: &Webhook) -> Self {
        let mut trust = webhook.trust();
        let pem = trust
            .wait_for(Option::is_some)
            .await
            .unwrap()
            .clone()
            .unwrap();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        Self {
            address: webhook.address(),
            roots: Arc::new(roots),
        }
    }

    /// Posts a review; the answer's `response`.
    pub(crate) async fn review(&self, path: &str, review: &Value) -> Value {
        let (status, answer) = self.post(Http::One, path, review.to_string().into()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["kind"], "AdmissionReview");
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
        answer["response"].clone()
    }

    /// The first answer that admits, or does not: as soon as a change has come by the log, since each request
    /// waits for an answer.
    pub(crate) async fn until(&self, path: &str, review: &Value, allowed: bool) -> Value {
        loop {
            let answer = self.review(path, review).await;
            if answer["allowed"] == allowed {
                return answer;
            }
        }
    }

    pub(crate) async fn post(&self, http: Http, path: &str, body: Bytes) -> (StatusCode, Value) {
        let request = Request::post(format!("https://{}{path}", self.address))
            .header(header::HOST, self.address.to_string())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .unwrap();
        let io = TokioIo::new(self.connect(http).await);
        let response = match http {
            Http::One => {
                let (mut sender, connection) =
                    hyper::client::conn::http1::handshake(io).await.unwrap();
                tokio::spawn(connection);
                sender.send_request(request).await.unwrap()
            }
            Http::Two => {
                let executor = TokioExecutor::new();
                let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io)
                    .await
                    .unwrap();
                tokio::spawn(connection);
                sender.send_request(request).await.unwrap()
            }
        };
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    pub(crate) async fn connect(&self, http: Http) -> TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = match http {
            Http::One => vec![b"http/1.1".to_vec()],
            Http::Two => vec![b"h2".to_vec()],
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        // As an API server names a webhook behind a Service.
        let name = ServerName::try_from("anteroom-webhook.anteroom.svc").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.unwrap()
    }
}

/// A review of an Ingress with one host.
pub(crate) fn ingress(operation: &str, name: &str, host: &str) -> Value {
    let object = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "name": name, "namespace": "shop" },
        "spec": { "rules": [{ "host": host }] },
    });
    let deleted = operation == "DELETE";
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": format!("uid-of-{name}"),
            "kind": { "group": "networking.k8s.io", "version": "v1", "kind": "Ingress" },
            "resource": { "group": "networking.k8s.io", "version": "v1", "resource": "ingresses" },
            "name": name, "namespace": "shop", "operation": operation,
            "userInfo": { "username": "alice" },
            "object": if deleted { Value::Null } else { object.clone() },
            "oldObject": if deleted { object } else { Value::Null },
        },
    })
}
