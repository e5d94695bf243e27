//! Where the notes of one watch go: each object is read once, whoever wants it.

use std::{sync::Arc, time::Instant};

use anteroom_model::{ObjectKey, ResourceVersion};
use anteroom_seal::Keys;
use anteroom_wire::referenced;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::Span;

use super::{
    hub::{Hub, Outlet},
    plan::Scope,
    references::References,
};
use crate::{
    metrics::WatchMetrics,
    prune,
    publish::{Publisher, Tenure},
    reflect::{Note, RawObject, Sink},
};

#[derive(Clone)]
pub(super) struct FeedSink {
    pub(super) scope: Scope,
    pub(super) hub: Arc<Mutex<Hub>>,
    pub(super) publisher: Publisher,
    pub(super) keys: Keys,
    pub(super) metrics: WatchMetrics,
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Other watches have to be planned.
    pub(super) planned: Arc<Notify>,
}

impl FeedSink {
    async fn put(&self, object: RawObject, event: Span) {
        let (outlets, reference) = {
            let mut hub = self.hub.lock();
            let outlets = hub.put(&self.scope, &object, &event, &self.publisher);
            let RawObject { key, version, json } = &object;
            let immutable = hub.references.of.contains_key(key) && is_immutable(json);
            let news = hub
                .references
                .take(key, version, immutable, event.is_none());
            if immutable && news {
                self.planned.notify_one();
            }
            let (tenure, sealed) = (hub.references.tenure.clone(), hub.references.sealed);
            (
                outlets,
                tenure
                    .filter(|_| news)
                    .map(|tenure| Outlet { tenure, sealed }),
            )
        };
        if outlets.is_empty() && reference.is_none() {
            return;
        }
        self.publisher.room().await;
        let RawObject { key, version, json } = object;
        let body = self.body(&json);
        for outlet in &outlets {
            self.write(outlet, &key, &version, body.clone(), &event);
        }
        if let Some(outlet) = reference {
            let body = body.map(|body| referenced::found(&body));
            self.write(&outlet, &key, &version, body, &event);
        }
    }

    pub(super) fn body(&self, json: &[u8]) -> Result<Bytes, String> {
        prune::body(json, &self.api_version, &self.kind).map_err(|error| error.to_string())
    }

    /// A referenced object, outside of an event.
    pub(super) fn write_reference(
        &self,
        hub: &Hub,
        key: &ObjectKey,
        version: &ResourceVersion,
        json: &[u8],
    ) {
        let References { tenure, sealed, .. } = &hub.references;
        if let Some(tenure) = tenure.clone() {
            let body = self.body(json).map(|body| referenced::found(&body));
            let outlet = Outlet {
                tenure,
                sealed: *sealed,
            };
            self.write(&outlet, key, version, body, &Span::none());
        }
    }

    pub(super) fn write(
        &self,
        outlet: &Outlet,
        key: &ObjectKey,
        version: &ResourceVersion,
        body: Result<Bytes, String>,
        event: &Span,
    ) {
        let Outlet { tenure, sealed } = outlet;
        let body = match body {
            Ok(body) if *sealed => self
                .keys
                .seal(&tenure.view, key, &body)
                .map_err(|error| error.to_string()),
            body => body,
        };
        match body {
            Ok(body) => {
                let (span, now) = (publish_span(tenure, event), Instant::now());
                let (key, version) = (key.clone(), version.clone());
                self.publisher
                    .with(|book| book.put(tenure, key, version, body, now, span));
            }
            Err(problem) => {
                self.metrics.malformed();
                tracing::error!(view = %tenure.view, %key, problem, "object cannot be published");
                self.publisher
                    .with(|book| book.unusable(tenure, key.clone(), problem));
            }
        }
    }
}

/// From the event until its change is in the log. Objects of a list have none: there are thousands
/// of them, and nobody waits for one.
fn publish_span(tenure: &Tenure, event: &Span) -> Span {
    if event.is_none() {
        return Span::none();
    }
    let view = &tenure.view;
    tracing::info_span!(parent: event, "publish", otel.kind = "producer", %view)
}

/// As ConfigMaps and Secrets may be.
pub(super) fn is_immutable(json: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Object {
        #[serde(default)]
        immutable: Option<bool>,
    }
    serde_json::from_slice::<Object>(json).is_ok_and(|object| object.immutable == Some(true))
}

#[async_trait]
impl Sink for FeedSink {
    async fn note(&mut self, note: Note) {
        if let Note::Put { object, span } = note {
            return self.put(object, span).await;
        }
        let (scope, publisher) = (&self.scope, &self.publisher);
        let mut hub = self.hub.lock();
        let replan = match note {
            Note::Begin { afresh } => {
                hub.begin(scope, publisher, afresh);
                false
            }
            Note::Gone { key, version, span } => {
                hub.gone(scope, &key, &version, &span, publisher);
                false
            }
            Note::Skipped => {
                hub.skipped(scope, publisher);
                false
            }
            Note::Listed { version } => hub.listed(scope, &version, publisher),
            Note::Heard { version } => {
                hub.heard(scope, version.as_ref(), false, publisher);
                false
            }
            Note::Refused(failure) => hub.refused(scope, &failure, publisher),
            Note::Troubled(failure) => {
                hub.troubled(scope, &failure, publisher);
                false
            }
            Note::Put { .. } => false,
        };
        if replan {
            self.planned.notify_one();
        }
    }
}
