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
    prune::Pruned,
    publish::{Brought, Publisher, Tenure, Width},
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
        // Before anything is taken down as known: the watch may be stopped while it waits.
        self.publisher.room().await;
        let (outlets, referenced) = {
            let mut hub = self.hub.lock();
            let outlets = hub.put(&self.scope, &object, &event, &self.publisher);
            let RawObject { key, version, json } = &object;
            let immutable = hub.references.of.contains_key(key) && is_immutable(json);
            let by = event.is_none().then(|| self.scope.width());
            let news = hub.references.take(key, version, immutable, by);
            if immutable && news {
                self.planned.notify_one();
            }
            (outlets, news)
        };
        if outlets.is_empty() && !referenced {
            return;
        }
        let RawObject { key, version, json } = object;
        let mut object = self.read(&json);
        for outlet in &outlets {
            let body = object.body(outlet.kept.as_deref());
            self.write(outlet, &key, &version, body, &event);
        }
        if referenced {
            let hub = self.hub.lock();
            // Another watch may have brought something newer meanwhile.
            if hub.references.is_found_as(&key, &version) {
                self.write_reference(&hub, &key, &version, object.body(None), &event);
            }
        }
    }

    pub(super) fn read(&self, json: &[u8]) -> Pruned {
        Pruned::new(json, &self.api_version, &self.kind)
    }

    /// A referenced object. `event` as in [`Note::Put`].
    pub(super) fn write_reference(
        &self,
        hub: &Hub,
        key: &ObjectKey,
        version: &ResourceVersion,
        body: Result<Bytes, String>,
        event: &Span,
    ) {
        let References { tenure, sealed, .. } = &hub.references;
        if let Some(tenure) = tenure.clone() {
            let outlet = Outlet {
                tenure,
                sealed: *sealed,
                kept: None,
                // All that is referenced belongs to the view, whoever brings it.
                by: Some(Width::Own),
            };
            let body = body.map(|body| referenced::found(&body));
            self.write(&outlet, key, version, body, event);
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
        let Outlet {
            tenure, sealed, by, ..
        } = outlet;
        let body = match body {
            Ok(body) if *sealed => self
                .keys
                .seal(&tenure.view, key, &body)
                .map_err(|error| error.to_string()),
            body => body,
        };
        if let Err(problem) = &body {
            self.metrics.malformed();
            tracing::error!(view = %tenure.view, %key, problem, "object cannot be published");
        }
        let brought = Brought {
            key: key.clone(),
            version: version.clone(),
            by: *by,
            since: Instant::now(),
            span: publish_span(tenure, event),
        };
        self.publisher
            .with(|book| book.bring(tenure, brought, body));
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
