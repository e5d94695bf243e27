//! Takes reviews over TLS, by HTTP/1.1 and HTTP/2, and asks the holder about each.

use std::{convert::Infallible, fs, net::SocketAddr, path::PathBuf, sync::Arc};

use anteroom_runtime::{
    Service,
    certs::{Certificates, Pair, Pem},
    wall_clock,
};
use anyhow::{Context, anyhow};
use async_nats::Client;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::BufReader,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    SUBJECT,
    review::{LookUp, Review},
    stream::Collecting,
};

/// The path that reviews are posted to.
const PATH: &str = "/validate";

/// Bytes of one read of the socket and of one write, as in our own webhook.
const BUFFER_BYTES: usize = 16 * 1024;

/// The headers of a request, as in our own webhook.
const HEADER_BYTES_MAX: u32 = 64 * 1024;

/// Requests at once on one connection of HTTP/2, as in our own webhook.
const STREAMS_MAX: u32 = 200;

/// Options of the webhook.
#[derive(clap::Args)]
pub(crate) struct WebhookArgs {
    /// The address that reviews are posted to.
    #[arg(long)]
    listen_address: SocketAddr,

    /// The certificate chain, in PEM.
    #[arg(long)]
    certificate_file: PathBuf,

    /// The private key, in PEM.
    #[arg(long)]
    key_file: PathBuf,

    /// The keys that the holder is asked about.
    #[arg(long, value_enum)]
    look_up: LookUp,
}

impl WebhookArgs {
    /// Returns the settings of TLS, by the code that our own webhook has them from.
    fn tls(&self) -> anyhow::Result<TlsAcceptor> {
        let pem = Pem {
            chain: fs::read_to_string(&self.certificate_file).context("--certificate-file")?,
            key: fs::read_to_string(&self.key_file).context("--key-file")?,
        };
        let certificates = Certificates::new(&Service::new("floor").metrics);
        certificates.offer(Ok(Pair::parse(&pem, wall_clock::now())?));
        Ok(TlsAcceptor::from(certificates.server_config(None)?))
    }
}

/// The state that all requests share.
struct App {
    client: Client,
    look_up: LookUp,
}

/// Serves for as long as the process lives.
pub(crate) async fn run(client: Client, args: &WebhookArgs) -> anyhow::Result<()> {
    let tls = args.tls()?;
    let listener = TcpListener::bind(args.listen_address).await?;
    let app = Arc::new(App {
        client,
        look_up: args.look_up,
    });
    loop {
        let (stream, _) = listener.accept().await?;
        let (tls, app) = (tls.clone(), Arc::clone(&app));
        tokio::spawn(async move {
            // The generator sees the error of a connection as well, and counts it.
            let _ = serve(stream, &tls, app).await;
        });
    }
}

/// Serves one connection.
async fn serve(stream: TcpStream, tls: &TlsAcceptor, app: Arc<App>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let stream = BufReader::with_capacity(BUFFER_BYTES, stream);
    let stream = tls.accept(stream).await?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
    let stream = TokioIo::new(Collecting::new(BUFFER_BYTES, stream));
    let service = service_fn(move |request| answer(Arc::clone(&app), request));
    if is_http2 {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.max_header_list_size(HEADER_BYTES_MAX);
        http.max_concurrent_streams(STREAMS_MAX);
        http.serve_connection(stream, service).await?;
    } else {
        let mut http = http1::Builder::new();
        http.max_buf_size(HEADER_BYTES_MAX as usize);
        http.serve_connection(stream, service).await?;
    }
    Ok(())
}

/// Answers one request.
async fn answer(
    app: Arc<App>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_review = request.method() == Method::POST && request.uri().path() == PATH;
    let answered = match is_review {
        true => app.decide(request.into_body()).await,
        false => Err(anyhow!("reviews are posted to {PATH}")),
    };
    let (status, body) = match answered {
        Ok(body) => (StatusCode::OK, Bytes::from(body)),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            Bytes::from(format!("{error:#}")),
        ),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

impl App {
    async fn decide(&self, body: Incoming) -> anyhow::Result<Vec<u8>> {
        let body = body.collect().await?.to_bytes();
        let review = Review::parse(&body)?;
        let keys = review.keys(self.look_up);
        let taken = match keys.is_empty() {
            true => Bytes::new(),
            false => self.client.request(SUBJECT, keys.into()).await?.payload,
        };
        Ok(review.answer(&taken)?)
    }
}
