//! A call of an endpoint outside of the API server, with limits for every part: time, size, redirects, addresses.
//!
//! `reqwest` connects and speaks HTTP/1.1. It follows no redirect by itself and uses no proxy and no cookies. Redirects are
//! followed here, since another origin may get none of the call's headers.

mod client;
pub(crate) mod fuzzing;
mod redirect;

use std::{fmt, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use reqwest::{Response, Url};

use super::CallFault;
pub(crate) use client::{AddressFilter, HttpClients};
pub(crate) use redirect::Redirects;

/// The number of redirects that are followed. One more is a fault.
pub(super) const REDIRECTS_MAX: usize = 3;

/// The longest body of an error answer that is read.
const PROBLEM_BYTES_MAX: usize = 16 * 1024;

/// A call to make.
#[derive(Clone)]
pub(crate) struct HttpCall {
    /// `http` or `https`.
    pub url: Uri,
    /// Headers for the origin of `url` alone.
    pub headers: HeaderMap,
    /// The body of a POST, JSON unless the headers say otherwise. `None`: GET.
    pub data: Option<Bytes>,
    /// Connect, also after redirects.
    pub clients: HttpClients,
    /// The certificates to trust, in PEM. `None`: the system's roots.
    pub ca_bundle: Option<String>,
    /// The redirects that are followed.
    pub redirects: Redirects,
    /// The largest answer.
    pub bytes_max: usize,
    /// True if an error answer is read as whole as a success. Otherwise a problem's text is taken from its beginning.
    pub reads_errors_whole: bool,
}

/// The validators of an answer (`ETag`, `Last-Modified`), for a conditional request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validators {
    etag: Option<HeaderValue>,
    modified: Option<HeaderValue>,
}

/// An answer of any status.
#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// True if another origin answered, after a redirect.
    pub from_other_origin: bool,
}

impl HttpAnswer {
    /// Returns the answer if its status is a success.
    ///
    /// # Errors
    /// [`CallFault::Status`] otherwise.
    pub(crate) fn succeeded(self) -> Result<Self, CallFault> {
        match self.status.is_success() {
            true => Ok(self),
            false => Err(CallFault::status(self.status.as_u16(), &self.body)),
        }
    }
}

/// The result of a conditional call.
#[derive(Debug)]
pub(crate) enum CallAnswer {
    /// The content is unchanged (304).
    Unchanged,
    /// A new body.
    Body(Bytes, Validators),
}

impl HttpCall {
    /// Makes the call. With `known`, an endpoint that supports it may answer that nothing changed.
    ///
    /// # Errors
    /// [`CallFault`].
    pub(crate) async fn make(
        &self,
        known: &Validators,
        timeout: Duration,
    ) -> Result<CallAnswer, CallFault> {
        let answer = self.follow_within(known, timeout).await?;
        if answer.status == StatusCode::NOT_MODIFIED && *known != Validators::default() {
            return Ok(CallAnswer::Unchanged);
        }
        let validators = Validators::of(&answer.headers);
        Ok(CallAnswer::Body(answer.succeeded()?.body, validators))
    }

    /// Makes the call, and returns its answer, whatever the status.
    ///
    /// # Errors
    /// [`CallFault`], but for an error status.
    pub(crate) async fn ask(&self, timeout: Duration) -> Result<HttpAnswer, CallFault> {
        self.follow_within(&Validators::default(), timeout).await
    }

    async fn follow_within(
        &self,
        known: &Validators,
        timeout: Duration,
    ) -> Result<HttpAnswer, CallFault> {
        let followed = tokio::time::timeout(timeout, self.follow(known)).await;
        followed.unwrap_or(Err(CallFault::Slow { timeout }))
    }

    /// Follows redirects to the answer at their end.
    async fn follow(&self, known: &Validators) -> Result<HttpAnswer, CallFault> {
        let url = self.url.to_string();
        let mut hop = Hop {
            url: Url::parse(&url).map_err(|_| CallFault::no_host())?,
            data: self.data.clone(),
            headers: self.request_headers(known)?,
        };
        let mut from_other_origin = false;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(&hop).await?;
            match redirect::next(&hop, self.redirects, response.status(), response.headers())? {
                Some(next) => {
                    from_other_origin |= hop.url.origin() != next.url.origin();
                    hop = next;
                }
                None => return self.read(response, from_other_origin).await,
            }
        }
        Err(CallFault::Redirected {
            problem: format!("more than {REDIRECTS_MAX} redirects"),
        })
    }

    async fn send(&self, hop: &Hop) -> Result<Response, CallFault> {
        let method = match &hop.data {
            None => Method::GET,
            Some(_) => Method::POST,
        };
        let client = self
            .clients
            .client_for(&hop.url, self.ca_bundle.as_deref())?;
        let mut request = client.request(method, hop.url.clone());
        request = request.headers(hop.headers.clone());
        if let Some(data) = &hop.data {
            request = request.body(data.clone());
        }
        let sent = request.send().await;
        sent.map_err(|error| self.clients.fault(&hop.url, error))
    }

    async fn read(
        &self,
        response: Response,
        from_other_origin: bool,
    ) -> Result<HttpAnswer, CallFault> {
        let (status, headers) = (response.status(), response.headers().clone());
        let body = match status.is_success() || self.reads_errors_whole {
            true => self.read_body(response, self.bytes_max).await?,
            false => self
                .read_body(response, PROBLEM_BYTES_MAX)
                .await
                .unwrap_or_default(),
        };
        Ok(HttpAnswer {
            status,
            headers,
            body,
            from_other_origin,
        })
    }

    /// Reads a whole body.
    ///
    /// # Errors
    /// [`CallFault::TooLarge`] over the limit, before the rest of the body is read.
    async fn read_body(
        &self,
        mut response: Response,
        bytes_max: usize,
    ) -> Result<Bytes, CallFault> {
        let mut whole = BytesMut::new();
        loop {
            let part = response.chunk().await;
            let part = part.map_err(|error| self.clients.fault(response.url(), error))?;
            let Some(part) = part else {
                return Ok(whole.freeze());
            };
            if whole.len() + part.len() > bytes_max {
                return Err(CallFault::TooLarge { bytes_max });
            }
            whole.extend_from_slice(&part);
        }
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
        // The limit is on the bytes that are read, so nothing may be compressed.
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
}

/// A request in a chain of redirects.
pub(super) struct Hop {
    url: Url,
    data: Option<Bytes>,
    headers: HeaderMap,
}

impl Validators {
    fn of(headers: &HeaderMap) -> Self {
        Self {
            etag: headers.get(header::ETAG).cloned(),
            modified: headers.get(header::LAST_MODIFIED).cloned(),
        }
    }
}

/// Prints nothing: the URL and the headers may be secret.
impl fmt::Debug for HttpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCall").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
