//! A client for one request, over plain HTTP or TLS. A connection of its own each time: nobody
//! measures what the simulator asks others.

use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// Sends `request`, whose URI names scheme and host; the body of the response can be read at leisure,
/// and dropping it closes the connection.
pub(crate) async fn send(
    request: Request<Full<Bytes>>,
    tls: Option<Arc<ClientConfig>>,
) -> anyhow::Result<Response<Incoming>> {
    let (mut parts, body) = request.into_parts();
    let url = std::mem::take(&mut parts.uri);
    let host = url
        .host()
        .context("the url names no host")?
        .trim_matches(['[', ']'])
        .to_owned();
    let secure = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
    parts.uri = url
        .path_and_query()
        .map_or_else(Uri::default, |path| Uri::from(path.clone()));
    parts
        .headers
        .insert(header::HOST, format!("{host}:{port}").parse()?);
    let request = Request::from_parts(parts, body);
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    let mut sender = match (secure, tls) {
        (false, _) => connect(stream).await?,
        (true, Some(tls)) => {
            let name = ServerName::try_from(host)?;
            connect(TlsConnector::from(tls).connect(name, stream).await?).await?
        }
        (true, None) => bail!("https needs a TLS configuration"),
    };
    Ok(sender.send_request(request).await?)
}

async fn connect<S>(stream: S) -> anyhow::Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // It ends with the sender and the response's body; its errors are theirs too.
    tokio::spawn(connection);
    Ok(sender)
}
