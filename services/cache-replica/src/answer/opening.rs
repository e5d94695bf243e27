//! Opens requests: their seal, then the message.
//!
//! A few bytes of a message may be values of hundreds of bytes. So they are counted before any is made. Small requests are opened
//! where they arrive. Large ones are counted and decoded on threads of their own, few at once, and are decoded only once they
//! are admitted. So a request that is refused takes little of the replica's time.

use std::sync::Arc;

use anteroom_model::{FactError, ViewId};
use anteroom_runtime::fair_quota::FairQuota;
use anteroom_seal::{Answering, AskedOf, Keys, is_question};
use anteroom_wire::{
    WireError,
    beneficiary::Beneficiary,
    body::json_bytes,
    query::{self, QueryRequest},
};
use bytes::Bytes;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::request_quota::RequestQuota;
use crate::{deadline::Deadline, sealed};

/// The bytes of a message that is counted where it arrives, which takes a fraction of a millisecond.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// The memory of the values that are decoded where they arrive, which takes a millisecond or two.
const INLINE_MEMORY_BYTES_MAX: u64 = 512 * 1024;

/// The number of long messages that are counted at once, and that of large requests that are decoded at once.
const LARGE_AT_ONCE: u32 = 2;

/// A message without its seal.
pub(super) struct PlainRequest {
    /// The encoded request.
    pub(super) encoded: EncodedRequest,
    /// The key that seals the answer, if the request was sealed.
    pub(super) answering: Option<Answering>,
}

/// A request that is not decoded yet.
pub(super) struct EncodedRequest {
    body: Bytes,
    /// The memory of its values.
    pub(super) memory: u64,
    /// The party for which a large request is counted; `None`: the request is not large.
    large_of: Option<Beneficiary>,
}

/// Opens requests.
#[derive(Debug)]
pub(super) struct RequestOpener {
    asker_keys: Keys,
    counting: Arc<Semaphore>,
    decoding: Arc<FairQuota<Beneficiary>>,
}

impl RequestOpener {
    pub(super) fn new(asker_keys: Keys) -> Self {
        Self {
            asker_keys,
            counting: Arc::new(Semaphore::new(LARGE_AT_ONCE as usize)),
            decoding: FairQuota::new(LARGE_AT_ONCE.into(), LARGE_AT_ONCE.into()),
        }
    }

    /// Opens the seal of a message to a view, and counts its values. Without a seal, a message to a sealed view is refused.
    pub(super) async fn open(
        &self,
        view: &ViewId,
        is_sealed: bool,
        message: &Bytes,
        deadline: Deadline,
    ) -> Result<PlainRequest, FactError> {
        if message.len() <= INLINE_BYTES_MAX {
            return plain(&self.asker_keys, view, is_sealed, message);
        }
        // In a box, so that the future of a small request stays small.
        Box::pin(self.open_long(view, is_sealed, message, deadline)).await
    }

    async fn open_long(
        &self,
        view: &ViewId,
        is_sealed: bool,
        message: &Bytes,
        deadline: Deadline,
    ) -> Result<PlainRequest, FactError> {
        let permit = Arc::clone(&self.counting).acquire_owned();
        let Ok(Ok(permit)) = timeout(deadline.left(), permit).await else {
            return Err(deadline.exceeded());
        };
        let (keys, view, message) = (self.asker_keys.clone(), view.clone(), message.clone());
        on_worker(move || {
            let _permit = permit;
            plain(&keys, &view, is_sealed, &message)
        })
        .await
    }

    /// Decodes a request. `quota` has to admit a large one before.
    pub(super) async fn decode(
        &self,
        encoded: EncodedRequest,
        quota: &RequestQuota,
        deadline: Deadline,
    ) -> Result<QueryRequest, FactError> {
        let EncodedRequest {
            body,
            memory,
            large_of,
        } = encoded;
        match large_of {
            None => decoded(&body),
            Some(beneficiary) => {
                let decoding = self.decode_large(body, memory, beneficiary, quota, deadline);
                Box::pin(decoding).await
            }
        }
    }

    async fn decode_large(
        &self,
        body: Bytes,
        memory: u64,
        beneficiary: Beneficiary,
        quota: &RequestQuota,
        deadline: Deadline,
    ) -> Result<QueryRequest, FactError> {
        // Until it is decoded: its evaluation is admitted by itself.
        let _admitted = quota.admit(&beneficiary, memory)?;
        let is_of_namespace = beneficiary.is_of_namespace();
        let until = Instant::now() + deadline.left();
        let permit = self.decoding.take(beneficiary, 1, until).await;
        let permit =
            permit.map_err(|full| deadline.exceeded_over(full.over_part && is_of_namespace))?;
        on_worker(move || {
            // Held until it is done, though nobody may wait for it any more.
            let _permit = permit;
            decoded(&body)
        })
        .await
    }
}

fn plain(
    asker_keys: &Keys,
    view: &ViewId,
    is_sealed: bool,
    message: &Bytes,
) -> Result<PlainRequest, FactError> {
    let (body, answering) = match is_question(message) {
        true => {
            let heard = asker_keys.open_question(AskedOf::View(view), message);
            let (body, answering) = heard.map_err(|error| FactError::AskerUnknown {
                message: error.to_string(),
            })?;
            (body, Some(answering))
        }
        false if is_sealed => return Err(sealed::refused(view)),
        false => (message.clone(), None),
    };
    Ok(PlainRequest {
        encoded: EncodedRequest::new(body),
        answering,
    })
}

impl EncodedRequest {
    fn new(body: Bytes) -> Self {
        let memory = json_bytes(&body);
        let is_large = memory > INLINE_MEMORY_BYTES_MAX;
        Self {
            large_of: is_large.then(|| query::encoded_beneficiary(&body)),
            body,
            memory,
        }
    }
}

fn decoded(body: &[u8]) -> Result<QueryRequest, FactError> {
    query::decode_request(body).map_err(|error| invalid(&error))
}

fn invalid(error: &WireError) -> FactError {
    FactError::RequestInvalid {
        message: error.to_string(),
    }
}

/// Does work on a thread of its own.
async fn on_worker<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FactError> + Send + 'static,
) -> Result<T, FactError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(FactError::RequestInvalid {
            message: "the request was not read to its end".to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use anteroom_wire::query::Query;
    use serde_json::{Value, json};

    use super::*;
    use crate::Args;

    fn opener() -> RequestOpener {
        RequestOpener::new(Args::default().asker_keys)
    }

    fn deadline() -> Deadline {
        Deadline::after(Duration::from_secs(1))
    }

    /// A request of a namespace whose parameter has so many objects: each takes four bytes, and hundreds in memory.
    fn request(objects: usize) -> QueryRequest {
        let value: Value = vec![json!({ "a": 0 }); objects].into();
        QueryRequest {
            queries: vec![Query {
                parameters: Arc::new(BTreeMap::from([("p".to_owned(), value)])),
                ..Query::default()
            }],
            review_namespace: "shop".to_owned(),
            ..QueryRequest::default()
        }
    }

    async fn encoded(opener: &RequestOpener, body: &Bytes) -> EncodedRequest {
        let view = ViewId::new("v");
        let opened = opener.open(&view, false, body, deadline()).await;
        opened.unwrap().encoded
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_any_size_are_read() {
        let (opener, quota) = (opener(), RequestQuota::new(8));
        for (objects, is_long, is_large) in [
            (10, false, false),
            (10_000, false, true),
            (40_000, true, true),
        ] {
            let request = request(objects);
            let body = query::encode_request(&request).unwrap();
            assert_eq!(body.len() > INLINE_BYTES_MAX, is_long, "{objects}");
            let encoded = encoded(&opener, &body).await;
            assert_eq!(encoded.large_of.is_some(), is_large, "{objects}");
            let read = opener.decode(encoded, &quota, deadline()).await;
            assert_eq!(read, Ok(request));
        }
    }

    /// This body has very many values, and is no request: a reader of the body would fail.
    #[tokio::test(start_paused = true)]
    async fn a_large_request_that_is_not_admitted_is_not_read() {
        let (opener, quota) = (opener(), RequestQuota::new(1));
        let value: Value = vec![json!({ "a": 0 }); 10_000].into();
        let body = anteroom_wire::body::encode_json(&value).unwrap();
        let read = async |quota: &RequestQuota| {
            let encoded = encoded(&opener, &body).await;
            opener.decode(encoded, quota, deadline()).await
        };
        let error = read(&quota).await.unwrap_err();
        assert!(matches!(error, FactError::RequestInvalid { .. }), "{error}");
        let other = Beneficiary::of("", "other", false);
        let _running = quota.admit(&other, 0).unwrap();
        let error = read(&quota).await.unwrap_err();
        assert!(matches!(error, FactError::Busy { .. }), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn few_large_requests_are_read_at_once_and_small_ones_never_wait() {
        let (opener, quota) = (opener(), RequestQuota::new(8));
        let large = query::encode_request(&request(10_000)).unwrap();
        let small = query::encode_request(&request(10)).unwrap();
        let read = async |body: &Bytes| {
            let encoded = encoded(&opener, body).await;
            opener.decode(encoded, &quota, deadline()).await
        };
        let other = Beneficiary::of("", "other", false);
        let held = opener.decoding.try_take(other, LARGE_AT_ONCE.into());
        assert!(held.is_ok() && read(&small).await.is_ok());
        let error = read(&large).await.unwrap_err();
        assert_eq!(error, deadline().exceeded());
        drop(held);
        assert!(read(&large).await.is_ok());
    }
}
