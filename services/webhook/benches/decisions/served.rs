//! The same reviews over TLS, sent by a client on a thread of its own (callgrind's `--separate-threads=yes` separates
//! it from the webhook).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use clap::ValueEnum;
use futures::future::join_all;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::world::{Reviews, World};

/// The version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Http {
    /// A connection for each review that is under way.
    Http1,
    /// A client's connection.
    Http2,
}

/// The requests of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) over: Http,
    pub(crate) at_once: usize,
    pub(crate) reviews: usize,
    pub(crate) objects: usize,
}

/// Posts all reviews; how many were denied.
pub(crate) async fn post_all(world: &World, load: Load) -> usize {
    let to = world.served().await;
    let (done, over) = tokio::sync::oneshot::channel();
    let client = thread::Builder::new().name("client".to_owned());
    let client = client.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let denied = runtime.block_on(post(to, load));
        done.send(denied).unwrap();
    });
    let denied = over.await.unwrap();
    client.unwrap().join().unwrap();
    denied
}

/// The webhook's address, and the CA of its certificate.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) authority: Arc<str>,
}

async fn post(to: Served, load: Load) -> usize {
    let next = AtomicUsize::new(0);
    let reviews = Reviews::new();
    let shared = match load.over {
        Http::Http1 => None,
        Http::Http2 => {
            let io = TokioIo::new(connect(&to, b"h2").await);
            let (sender, connection) = conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .unwrap();
            tokio::spawn(connection);
            Some(sender)
        }
    };
    let workers = (0..load.at_once).map(async |_| {
        let mut own = match shared {
            Some(_) => None,
            None => {
                let io = TokioIo::new(connect(&to, b"http/1.1").await);
                let (sender, connection) = conn::http1::handshake(io).await.unwrap();
                tokio::spawn(connection);
                Some(sender)
            }
        };
        let mut shared = shared.clone();
        let mut denied = 0;
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= load.reviews {
                return denied;
            }
            let (uid, body) = reviews.number(n, load.objects);
            let uri = format!("https://{}/validate?timeout=10s", to.address);
            let request = Request::post(uri)
                .header(header::HOST, "webhook")
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::new(bytes::Bytes::from(body)))
                .unwrap();
            let response = match (&mut own, &mut shared) {
                (Some(sender), _) => sender.send_request(request).await,
                (None, Some(sender)) => sender.send_request(request).await,
                (None, None) => return denied,
            };
            let answer = response.unwrap().into_body().collect().await.unwrap();
            let answer = answer.to_bytes();
            let text = std::str::from_utf8(&answer).unwrap();
            assert!(text.contains(&uid) && !text.contains("AR1"), "{text}");
            denied += usize::from(!text.contains(r#""allowed":true"#));
        }
    });
    join_all(workers).await.into_iter().sum()
}

async fn connect(to: &Served, alpn: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(to.authority.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(to.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let name = ServerName::try_from("anteroom-webhook.anteroom.svc").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.unwrap()
}
