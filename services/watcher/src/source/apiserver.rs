//! The API server: the only module that sends it reads. Requests go through [`kube::Client`] for its TLS and
//! credentials. Responses are read here, since kube's own reader hides parts that this program needs: `Retry-After`,
//! sizes, bookmarks, and lines that are not objects.

mod fault;
pub(crate) mod fuzzing;
mod lines;

use std::{sync::Arc, time::Duration};

use anteroom_model::GroupVersionResource;
use anteroom_runtime::fair_quota::{FairPermit, FairQuota};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt as _;
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::Instant;

pub(crate) use fault::Fault;
pub(crate) use fault::{Status, with_sources};
pub(crate) use lines::{Line, Lines};

/// The longest time for the head of an answer, and then for each further part of its body.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// The largest object that is read back after it was patched.
const PATCHED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The largest error document that is read.
const STATUS_BYTES_MAX: usize = 64 * 1024;

/// The path at which an API server says whether it is ready. Everybody may read it, unless that was taken away.
pub(crate) const READY_PATH: &str = "/readyz";

/// The longest body of a readiness answer that is read.
const READY_BYTES_MAX: usize = 64 * 1024;

/// The readiness of an API server, by its own word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// The API server is ready, or there is no such question.
    Ready,
    /// The API server is not ready, or does not answer.
    NotReady,
    /// The API server forbids to ask.
    Untold,
}

/// Pages of lists that are in memory at once, whatever the number of lists. Policies of a tenant may lead to many lists of
/// large objects.
pub(crate) const PAGES_MAX: u64 = 4;

/// Pages of lists of one type that are in memory at once. A type whose lists are slow, such as one with a conversion
/// webhook or of an aggregated API, leaves places to the others. One list has two: its next page is made meanwhile.
pub(crate) const TYPE_PAGES_MAX: u64 = 2;

/// The longest time until a page is there whole, however steadily its parts come: until then it has its place.
const PAGE_TIME_MAX: Duration = Duration::from_secs(30);

/// The longest wait for a place among the pages in memory. Then the list fails, and is tried again.
const PAGE_WAIT_MAX: Duration = Duration::from_secs(60 * 60);

/// The permit to hold a page in memory.
pub(crate) type PagePermit = FairPermit<GroupVersionResource>;

/// Reads from the API server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ApiServer {
    client: kube::Client,
    pages: Arc<FairQuota<GroupVersionResource>>,
}

impl ApiServer {
    /// Through this client. One without kube's own retries ([`crate::args::client`] makes it so)
    /// lets the watcher see every refusal and wait in its own way.
    pub(crate) fn new(client: kube::Client) -> Self {
        Self {
            client,
            pages: FairQuota::new(PAGES_MAX, TYPE_PAGES_MAX),
        }
    }

    /// Waits for the permit to hold a page in memory. Types get permits in turns, and the lists of one type in the order
    /// in which they ask.
    ///
    /// # Errors
    /// [`Fault::Slow`] if no permit came free within an hour.
    pub(crate) async fn page_permit(
        &self,
        gvr: &GroupVersionResource,
    ) -> Result<PagePermit, Fault> {
        let deadline = Instant::now() + PAGE_WAIT_MAX;
        let permit = self.pages.take(gvr.clone(), 1, deadline).await;
        permit.map_err(|_| Fault::Slow {
            after: PAGE_WAIT_MAX,
        })
    }

    /// The whole body of a GET that has a [`PagePermit`], and therefore has to end soon.
    ///
    /// # Errors
    /// Those of the GET, or [`Fault::Slow`] if the body was not there in time.
    pub(crate) async fn get_page(
        &self,
        path: &str,
        accept: &str,
        bytes_max: usize,
    ) -> Result<Bytes, Fault> {
        let page = self.get_as(path, accept, bytes_max);
        let page = tokio::time::timeout(PAGE_TIME_MAX, page).await;
        page.unwrap_or(Err(Fault::Slow {
            after: PAGE_TIME_MAX,
        }))
    }

    /// Returns the client, for writes.
    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Asks whether the API server is ready. A starting server answers requests before all its rules and types are
    /// loaded.
    pub(crate) async fn readiness(&self) -> Readiness {
        match self.get(READY_PATH, READY_BYTES_MAX).await {
            Err(Fault::Refused { code: 403, .. } | Fault::Server { code: 401, .. }) => {
                Readiness::Untold
            }
            Ok(_) | Err(Fault::Refused { .. }) => Readiness::Ready,
            Err(_) => Readiness::NotReady,
        }
    }

    /// The whole body of a GET.
    pub(crate) async fn get(&self, path: &str, bytes_max: usize) -> Result<Bytes, Fault> {
        self.get_as(path, "application/json", bytes_max).await
    }

    /// The whole body of a GET with this `Accept`.
    pub(crate) async fn get_as(
        &self,
        path: &str,
        accept: &str,
        bytes_max: usize,
    ) -> Result<Bytes, Fault> {
        let accept = HeaderValue::from_str(accept).map_err(Fault::transport)?;
        let request = Request::get(path).header(header::ACCEPT, accept);
        let request = request.body(Body::empty()).map_err(Fault::transport)?;
        let response = self.open(request).await?;
        read(response.into_body(), bytes_max).await
    }

    /// The lines of a watch, with this `Accept`.
    pub(crate) async fn watch(
        &self,
        path: &str,
        accept: &str,
        line_bytes_max: usize,
    ) -> Result<Lines, Fault> {
        let accept = HeaderValue::from_str(accept).map_err(Fault::transport)?;
        let request = Request::get(path)
            .header(header::ACCEPT, accept)
            // From 1.37 on the API server may compress a watch as one gzip member per event, of
            // which the client's decoder reads only the first.
            .header(header::ACCEPT_ENCODING, "identity");
        let request = request.body(Body::empty()).map_err(Fault::transport)?;
        let response = self.open(request).await?;
        let stream = response.into_body().into_data_stream();
        let stream = stream.map_err(Fault::transport);
        Ok(Lines::new(Box::pin(stream), line_bytes_max))
    }

    /// Merges `patch` into the object at `path`, and returns the changed object.
    pub(crate) async fn merge_patch(
        &self,
        path: &str,
        patch: &serde_json::Value,
    ) -> Result<Bytes, Fault> {
        let request = Request::patch(path)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/merge-patch+json");
        let body = Body::from(patch.to_string().into_bytes());
        let response = self
            .open(request.body(body).map_err(Fault::transport)?)
            .await?;
        read(response.into_body(), PATCHED_BYTES_MAX).await
    }

    /// Makes a call, and returns any answer with its status code and body. `data`: POST of this JSON; `None`: GET.
    pub(crate) async fn call(
        &self,
        path: &str,
        data: Option<Bytes>,
        bytes_max: usize,
    ) -> Result<(u16, Bytes), Fault> {
        let method = if data.is_some() {
            http::Method::POST
        } else {
            http::Method::GET
        };
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::ACCEPT, "application/json");
        if data.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = data.map_or_else(Body::empty, |data| Body::from(data.to_vec()));
        let request = request.body(body).map_err(Fault::transport)?;
        self.answer(request, bytes_max).await
    }

    /// Puts a JSON body at `path`; returns any answer with its status code and body.
    pub(crate) async fn put(
        &self,
        path: &str,
        data: Bytes,
        bytes_max: usize,
    ) -> Result<(u16, Bytes), Fault> {
        let request = Request::put(path)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(data.to_vec()))
            .map_err(Fault::transport)?;
        self.answer(request, bytes_max).await
    }

    async fn answer(
        &self,
        request: Request<Body>,
        bytes_max: usize,
    ) -> Result<(u16, Bytes), Fault> {
        let sent = tokio::time::timeout(SILENCE_MAX, self.client.send(request));
        let response = sent
            .await
            .map_err(|_| Fault::Silent { after: SILENCE_MAX })?;
        let (head, body) = response.map_err(Fault::transport)?.into_parts();
        Ok((head.status.as_u16(), read(body, bytes_max).await?))
    }

    /// Sends, and turns an answer that is no success into its fault.
    async fn open(&self, request: Request<Body>) -> Result<Response<Body>, Fault> {
        let sent = tokio::time::timeout(SILENCE_MAX, self.client.send(request));
        let response = sent
            .await
            .map_err(|_| Fault::Silent { after: SILENCE_MAX })?;
        let response = response.map_err(Fault::transport)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let text = read(body, STATUS_BYTES_MAX).await.unwrap_or_default();
        Err(Fault::from_response(&head, &text))
    }
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

async fn read(mut body: Body, bytes_max: usize) -> Result<Bytes, Fault> {
    let mut whole = BytesMut::new();
    loop {
        let frame = tokio::time::timeout(SILENCE_MAX, body.frame()).await;
        let frame = frame.map_err(|_| Fault::Silent { after: SILENCE_MAX })?;
        let Some(frame) = frame else {
            return Ok(whole.freeze());
        };
        let Ok(data) = frame.map_err(Fault::transport)?.into_data() else {
            continue; // Trailers say nothing that is needed.
        };
        if whole.len() + data.len() > bytes_max {
            return Err(Fault::TooLarge { bytes_max });
        }
        whole.extend_from_slice(&data);
    }
}
