//! An endpoint on loopback that answers as a test says, and counts.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, uri::Authority};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
};

use super::{Caller, Services};
use crate::source::apiserver::ApiServer;

/// The answer to a request; the first request has number 0. `None`: no answer, ever.
pub(crate) type Answers =
    dyn Fn(usize, &Request<Incoming>) -> Option<Response<String>> + Send + Sync;

/// An endpoint. It ends with the test.
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    served: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Plain HTTP.
    pub(crate) async fn start(
        answers: impl Fn(usize, &Request<Incoming>) -> Option<Response<String>> + Send + Sync + 'static,
    ) -> Self {
        Self::run(None, None, Arc::new(answers)).await
    }

    /// Starts an endpoint with this certificate.
    pub(crate) async fn start_tls(
        certificate: &Certificate,
        answers: impl Fn(usize, &Request<Incoming>) -> Option<Response<String>> + Send + Sync + 'static,
    ) -> Self {
        Self::run(Some(certificate.server.clone()), None, Arc::new(answers)).await
    }

    /// Plain HTTP, where each answer waits for a permit of `gate`.
    pub(crate) async fn start_held(
        gate: Arc<Semaphore>,
        answers: impl Fn(usize, &Request<Incoming>) -> Option<Response<String>> + Send + Sync + 'static,
    ) -> Self {
        Self::run(None, Some(gate), Arc::new(answers)).await
    }

    async fn run(
        tls: Option<tokio_rustls::TlsAcceptor>,
        gate: Option<Arc<Semaphore>>,
        answers: Arc<Answers>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&served);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (answers, counted) = (Arc::clone(&answers), Arc::clone(&counted));
                let gate = gate.clone();
                let service = service_fn(move |request| {
                    let at = counted.fetch_add(1, Ordering::SeqCst);
                    answer(answers(at, &request), gate.clone())
                });
                let tls = tls.clone();
                connections.spawn(async move {
                    let server = http1::Builder::new();
                    // A client that does not trust us says so itself.
                    match tls {
                        None => drop(server.serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                let _ =
                                    server.serve_connection(TokioIo::new(stream), service).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            served,
            task,
        }
    }

    /// Requests so far.
    pub(crate) fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    response: Option<Response<String>>,
    gate: Option<Arc<Semaphore>>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    if let Some(gate) = gate {
        gate.acquire().await.unwrap().forget();
    }
    match response {
        Some(response) => Ok(response.map(Full::from)),
        None => std::future::pending().await,
    }
}

/// A certificate for `localhost` that signs itself.
pub(crate) struct Certificate {
    pub(crate) pem: String,
    server: tokio_rustls::TlsAcceptor,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        Self::made(IsCa::NoCa)
    }

    /// An authority's own, as `openssl req -x509` makes it by default.
    pub(crate) fn authority() -> Self {
        Self::made(IsCa::Ca(BasicConstraints::Unconstrained))
    }

    fn made(is_ca: IsCa) -> Self {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.is_ca = is_ca;
        let key_pair = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key_pair).unwrap();
        let key = PrivateKeyDer::try_from(key_pair.serialize_der()).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Self {
            pem: certificate.pem(),
            server: tokio_rustls::TlsAcceptor::from(Arc::new(config)),
        }
    }
}

/// 200 with this text.
pub(crate) fn ok(text: &str) -> Option<Response<String>> {
    Some(Response::new(text.to_owned()))
}

/// Returns a response with this status and text.
pub(crate) fn status(code: u16, text: &str) -> Option<Response<String>> {
    let response = Response::builder().status(code);
    Some(response.body(text.to_owned()).unwrap())
}

/// The API server of this function.
pub(crate) fn api_server(
    answers: impl Fn(&Request<kube::client::Body>) -> Response<String> + Send + Sync + 'static,
) -> ApiServer {
    let answers = Arc::new(answers);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let response = answers(&request).map(|text| kube::client::Body::from(text.into_bytes()));
        async move { Ok::<_, std::io::Error>(response) }
    });
    ApiServer::new(kube::Client::new(service, "default"))
}

/// Returns a caller that reaches no API server.
pub(crate) fn caller(bytes_max: usize) -> Caller {
    let api = api_server(|request| panic!("nobody asks the API server: {}", request.uri()));
    caller_of(api, bytes_max)
}

/// Returns a caller that calls endpoints on loopback too.
pub(crate) fn caller_of(api: ApiServer, bytes_max: usize) -> Caller {
    Caller::new(api, bytes_max, Arc::new(on_loopback()))
}

/// The services of tests.
pub(crate) fn on_loopback() -> Services {
    let trusted = ["127.0.0.1", "localhost"];
    Services {
        trusted: trusted.map(Authority::from_static).to_vec(),
    }
}
