//! Whom a case is about, and how it asks.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::time::timeout;

use crate::http as client;

/// The longest that anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes the server forget its history, so that older versions and tokens expire. etcd's own
/// compaction, or the simulator's fault.
pub type Compact = Arc<dyn Fn() -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>;

/// An API server.
#[derive(Clone)]
pub struct Target {
    /// Without a slash at its end.
    pub url: String,
    /// Sent along with every request, as for authentication.
    pub headers: HeaderMap,
    /// For `https`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Compacts the store; `None`: conformance cases about expiry are left out.
    pub compact: Option<Compact>,
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Target")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// A response, read whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its HTTP status.
    pub code: u16,
    /// Its body; text that is no JSON is a JSON string.
    pub body: Value,
    /// Its headers.
    pub headers: HeaderMap,
}

impl Answer {
    /// The body, if the status is as expected.
    pub fn expect(&self, code: u16) -> anyhow::Result<Value> {
        ensure!(
            self.code == code,
            "expected HTTP {code}, got {}: {}",
            self.code,
            self.body
        );
        Ok(self.body.clone())
    }
}

impl Target {
    /// Sends a GET.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, "", None).await
    }

    /// GET with an `Accept` header.
    pub async fn get_as(&self, path: &str, accept: &str) -> anyhow::Result<Answer> {
        self.send(Method::GET, path, accept, None).await
    }

    /// Sends a POST.
    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(Method::POST, path, "", Some(("application/json", body)))
            .await
    }

    /// Sends a PUT.
    pub async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.send(Method::PUT, path, "", Some(("application/json", body)))
            .await
    }

    /// PATCH of a kind: `merge-patch+json`, `json-patch+json`, `apply-patch+yaml`.
    pub async fn patch(&self, path: &str, kind: &str, body: &Value) -> anyhow::Result<Answer> {
        let content_type = format!("application/{kind}");
        self.send(Method::PATCH, path, "", Some((&content_type, body)))
            .await
    }

    /// Sends a DELETE.
    pub async fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.send(Method::DELETE, path, "", None).await
    }

    /// Asks until the answer has this status.
    pub async fn until(&self, path: &str, code: u16) -> anyhow::Result<()> {
        let asked = async {
            while self.get(path).await?.code != code {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, asked)
            .await
            .with_context(|| format!("{path} never answered {code}"))?
    }

    /// Opens a watch; `path` has the query, `watch=true` included.
    pub async fn watch(&self, path: &str) -> anyhow::Result<Watch> {
        let response = timeout(
            PATIENCE,
            client::send(self.request(Method::GET, path, "", None)?, self.tls.clone()),
        );
        let response = response.await.context("the watch was not answered")??;
        let code = response.status().as_u16();
        if code != 200 {
            let body = response.into_body().collect().await?.to_bytes();
            bail!(
                "expected a watch, got HTTP {code}: {}",
                String::from_utf8_lossy(&body)
            );
        }
        Ok(Watch {
            body: response.into_body(),
            buffer: BytesMut::new(),
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<(&str, &Value)>,
    ) -> anyhow::Result<Answer> {
        let place = format!("{method} {path}");
        let exchange = async {
            let response =
                client::send(self.request(method, path, accept, body)?, self.tls.clone()).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
            let body = serde_json::from_slice(&body).unwrap_or_else(|_| text());
            anyhow::Ok(Answer {
                code: parts.status.as_u16(),
                body,
                headers: parts.headers,
            })
        };
        timeout(PATIENCE, exchange)
            .await
            .context("no answer")?
            .context(place)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<(&str, &Value)>,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = method;
        *request.uri_mut() = format!("{}{path}", self.url).parse()?;
        *request.headers_mut() = self.headers.clone();
        let accept = if accept.is_empty() {
            "application/json"
        } else {
            accept
        };
        request
            .headers_mut()
            .insert(header::ACCEPT, HeaderValue::from_str(accept)?);
        if let Some((content_type, body)) = body {
            request
                .headers_mut()
                .insert(header::CONTENT_TYPE, HeaderValue::from_str(content_type)?);
            *request.body_mut() = Full::new(Bytes::from(body.to_string()));
        }
        Ok(request)
    }
}

/// An open watch.
#[derive(Debug)]
pub struct Watch {
    body: Incoming,
    buffer: BytesMut,
}

impl Watch {
    /// The next event, bookmarks included; `None` at the proper end.
    pub async fn next(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            let frame = timeout(PATIENCE, self.body.frame())
                .await
                .context("the watch is silent")?;
            match frame.transpose()? {
                None if self.buffer.is_empty() => return Ok(None),
                None => bail!("the watch ended within an event"),
                Some(frame) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
            }
        }
    }

    /// The next event that is no bookmark: its type, and the object's name.
    pub async fn next_change(&mut self) -> anyhow::Result<(String, Value)> {
        loop {
            let event = self.next().await?.context("the watch ended")?;
            let kind = event["type"].as_str().unwrap_or_default().to_owned();
            if kind != "BOOKMARK" {
                return Ok((kind, event["object"].clone()));
            }
        }
    }

    /// The next change must be this.
    pub async fn expect(&mut self, kind: &str, name: &str) -> anyhow::Result<Value> {
        let (got, object) = self.next_change().await?;
        let same = got == kind && object["metadata"]["name"] == name;
        ensure!(same, "expected {kind} of {name}, got {got}: {object}");
        Ok(object)
    }

    /// Reads to the proper end.
    pub async fn end(&mut self) -> anyhow::Result<()> {
        while self.next().await?.is_some() {}
        Ok(())
    }
}
