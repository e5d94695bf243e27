//! One call of an endpoint outside of the API server: HTTP/1.1, a connection of its own, every part
//! limited. No proxy, no cookies, nothing kept.

mod body;
mod redirect;
mod tls;

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
    uri::{Authority, Scheme},
};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::TlsConnector;

use super::CallFault;
pub(crate) use tls::{SystemRoots, client_config};

/// Redirects that are followed; one more is a fault.
pub(super) const REDIRECTS_MAX: usize = 3;

/// The longest error document of which something is told.
const PROBLEM_BYTES_MAX: usize = 16 * 1024;

/// Of the addresses that a host was found to have, those that may be connected to.
pub(crate) type Gate =
    dyn Fn(&Authority, Vec<SocketAddr>) -> Result<Vec<SocketAddr>, CallFault> + Send + Sync;

/// A call to make.
#[derive(Clone)]
pub(crate) struct HttpCall {
    /// `http` or `https`.
    pub url: Uri,
    /// What is sent with it, to that very origin alone.
    pub headers: HeaderMap,
    /// `None`: GET. Otherwise POST with this body, of JSON where the headers say nothing else.
    pub data: Option<Bytes>,
    /// What the answer is checked against.
    pub tls: Arc<ClientConfig>,
    /// The largest answer.
    pub bytes_max: usize,
    /// Asked before each connection, those of redirects too. `None`: they go anywhere.
    pub gate: Option<Arc<Gate>>,
}

/// What tells one answer from the next, as the endpoint said it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validators {
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
}

/// What was said, whatever it was; of what is no success only the beginning.
#[derive(Debug)]
pub(crate) struct Said {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// By another origin than the one that was called: a redirect led there.
    pub elsewhere: bool,
}

impl Said {
    /// # Errors
    /// [`CallFault::Status`] where it is no success.
    pub(crate) fn succeeded(self) -> Result<Self, CallFault> {
        match self.status.is_success() {
            true => Ok(self),
            false => Err(CallFault::status(self.status.as_u16(), &self.body)),
        }
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is as it was (304).
    Unchanged,
    /// This body.
    Body(Bytes, Validators),
}

impl HttpCall {
    /// Makes the call. With `known`, an endpoint that offers it may say that nothing changed.
    ///
    /// # Errors
    /// [`CallFault`].
    pub(crate) async fn make(
        &self,
        known: &Validators,
        timeout: Duration,
    ) -> Result<Answer, CallFault> {
        let made = tokio::time::timeout(timeout, self.follow(known)).await;
        made.unwrap_or(Err(CallFault::Slow { timeout }))
    }

    async fn follow(&self, known: &Validators) -> Result<Answer, CallFault> {
        // The connection ends with the set that drives it.
        let mut driver = JoinSet::new();
        let (response, elsewhere) = self.arrive(known, &mut driver).await?;
        if response.status() == StatusCode::NOT_MODIFIED && *known != Validators::default() {
            return Ok(Answer::Unchanged);
        }
        let validators = Validators::of(response.headers());
        let said = self.said(response, elsewhere).await?.succeeded()?;
        Ok(Answer::Body(said.body, validators))
    }

    /// Makes the call, and gives whatever is said where it ends.
    ///
    /// # Errors
    /// [`CallFault`], but for an answer that is no success.
    pub(crate) async fn ask(&self, timeout: Duration) -> Result<Said, CallFault> {
        let asked = tokio::time::timeout(timeout, async {
            let mut driver = JoinSet::new();
            let (response, elsewhere) = self.arrive(&Validators::default(), &mut driver).await?;
            self.said(response, elsewhere).await
        });
        asked.await.unwrap_or(Err(CallFault::Slow { timeout }))
    }

    async fn said(&self, response: Response<Incoming>, elsewhere: bool) -> Result<Said, CallFault> {
        let (head, body) = response.into_parts();
        let body = match head.status.is_success() {
            true => body::read(body, self.bytes_max).await?,
            false => body::read(body, PROBLEM_BYTES_MAX)
                .await
                .unwrap_or_default(),
        };
        Ok(Said {
            status: head.status,
            headers: head.headers,
            body,
            elsewhere,
        })
    }

    /// The answer at the end of all redirects, and whether one of them led to another origin.
    async fn arrive(
        &self,
        known: &Validators,
        driver: &mut JoinSet<()>,
    ) -> Result<(Response<Incoming>, bool), CallFault> {
        let mut hop = Hop {
            url: self.url.clone(),
            data: self.data.clone(),
            headers: self.request_headers(known)?,
        };
        let mut elsewhere = false;
        for _ in 0..=REDIRECTS_MAX {
            driver.abort_all();
            let response = self.send(&hop, driver).await?;
            match redirect::next(&hop, &response)? {
                Some(next) => {
                    elsewhere |= !redirect::same_origin(&hop.url, &next.url);
                    hop = next;
                }
                None => return Ok((response, elsewhere)),
            }
        }
        Err(CallFault::Redirected {
            problem: format!("more than {REDIRECTS_MAX} redirects"),
        })
    }

    fn request_headers(&self, known: &Validators) -> Result<HeaderMap, CallFault> {
        let mut headers = self.headers.clone();
        let json = HeaderValue::from_static("application/json");
        headers
            .entry(header::ACCEPT)
            .or_insert_with(|| json.clone());
        if self.data.is_some() {
            headers.entry(header::CONTENT_TYPE).or_insert(json);
        }
        // What is limited is what is read, so nothing may unfold.
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        );
        if let Some(etag) = &known.etag {
            headers.insert(header::IF_NONE_MATCH, etag.clone());
        }
        if let Some(modified) = &known.modified {
            headers.insert(header::IF_MODIFIED_SINCE, modified.clone());
        }
        for length in [
            header::HOST,
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
        ] {
            headers.remove(length);
        }
        Ok(headers)
    }

    async fn send(
        &self,
        hop: &Hop,
        driver: &mut JoinSet<()>,
    ) -> Result<Response<Incoming>, CallFault> {
        let authority = hop.url.authority().ok_or_else(CallFault::no_host)?;
        let host = authority.host();
        let secure = hop.url.scheme() == Some(&Scheme::HTTPS);
        let port = authority
            .port_u16()
            .unwrap_or(if secure { 443 } else { 80 });
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = self.connect(authority, (bare, port)).await?;
        let request = hop.request(authority.as_str())?;
        if !secure {
            return exchange(stream, request, driver).await;
        }
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| CallFault::no_host())?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await;
        exchange(
            stream.map_err(|error| CallFault::unreachable(&error))?,
            request,
            driver,
        )
        .await
    }

    async fn connect(
        &self,
        authority: &Authority,
        place: (&str, u16),
    ) -> Result<TcpStream, CallFault> {
        let stream = match &self.gate {
            None => TcpStream::connect(place).await,
            Some(gate) => {
                let found = tokio::net::lookup_host(place).await;
                let found = found.map_err(|error| CallFault::unreachable(&error))?;
                let permitted = gate(authority, found.collect())?;
                TcpStream::connect(&*permitted).await
            }
        };
        stream.map_err(|error| CallFault::unreachable(&error))
    }
}

/// One request of a chain of redirects.
pub(super) struct Hop {
    url: Uri,
    data: Option<Bytes>,
    headers: HeaderMap,
}

impl Hop {
    fn request(&self, host: &str) -> Result<Request<Full<Bytes>>, CallFault> {
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::new(Full::new(self.data.clone().unwrap_or_default()));
        *request.uri_mut() = path.parse().map_err(|_| CallFault::no_host())?;
        if self.data.is_some() {
            *request.method_mut() = Method::POST;
        }
        *request.headers_mut() = self.headers.clone();
        let host = HeaderValue::from_str(host).map_err(|_| CallFault::no_host())?;
        request.headers_mut().insert(header::HOST, host);
        Ok(request)
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    driver: &mut JoinSet<()>,
) -> Result<Response<Incoming>, CallFault> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| CallFault::unreachable(&error))?;
    driver.spawn(async move {
        // What fails here fails the request too, which tells of it.
        let _ = connection.await;
    });
    let response = sender.send_request(request).await;
    response.map_err(|error| CallFault::unreachable(&error))
}

impl Validators {
    fn of(headers: &HeaderMap) -> Self {
        Self {
            etag: headers.get(header::ETAG).cloned(),
            modified: headers.get(header::LAST_MODIFIED).cloned(),
        }
    }
}

/// Without what may be secret.
impl fmt::Debug for HttpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCall").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
