//! The sink of a watch: reads each object once for all views that take it.

use std::sync::Arc;

use anteroom_model::{Failure, ObjectKey, ResourceVersion, own_reason};
use anteroom_seal::Keys;
use anteroom_wire::{referenced, unreadable};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{
    hub::Hub, member::RecipientView, plan::WatchScope, references::References,
    shared_hub::SharedHub,
};
use crate::{
    log_writer::publish::{ChangeOrigin, Incoming, WriteHandle},
    source::{
        metrics::WatchMetrics,
        prune::{Pruned, Unreadable},
        reflect::{Note, Origin, RawObject, Sink},
    },
};

/// Receives the lists and events of one watch, and writes them to the views that hear the watch.
#[derive(Clone)]
pub(super) struct WatchSink {
    pub(super) scope: WatchScope,
    pub(super) hub: SharedHub,
    pub(super) keys: Keys,
    pub(super) metrics: WatchMetrics,
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Asks the feeder to plan the type's watches again.
    pub(super) planned: Arc<Notify>,
}

impl WatchSink {
    async fn put(&self, object: RawObject, origin: Origin) {
        // This waits before the hub notes the object as known: the watch may be stopped during the wait.
        self.hub.publisher().wait_for_room().await;
        let (recipients, referenced) = self.hub.locked(|hub, queue| {
            let recipients = hub.put(&self.scope, &object, &origin, queue);
            let by = origin.is_list().then_some(&self.scope);
            let news = hub.references.take(&object.key, &object.version, by);
            (recipients, news)
        });
        if recipients.is_empty() && !referenced {
            return;
        }
        let RawObject { key, version, json } = object;
        let mut object = self.read(&json);
        // The hub is not locked here, so that other watches of the type go on. The order of writes holds nevertheless:
        // - This watch's next list or event waits until this call returns, and no other watch brings the object to these
        //   views.
        // - A view that starts over in between has a new epoch, and the queue ignores writes under the earlier handle.
        // - The queue ignores a version that is older than the one it has.
        for recipient in &recipients {
            let body = object.body(recipient.retained.as_deref());
            self.write(recipient, &key, &version, body, Instant::now(), &origin);
        }
        if referenced {
            let hub = self.hub.lock();
            // Several watches may bring a referenced object: another one may have brought a newer version meanwhile.
            if hub.references.is_found_as(&key, &version) {
                self.write_reference(&hub, &key, &version, object.body(None), &origin);
            }
        }
    }

    pub(super) fn read<'j>(&self, json: &'j [u8]) -> Pruned<'j> {
        Pruned::new(json, &self.api_version, &self.kind)
    }

    /// Writes a referenced object.
    pub(super) fn write_reference(
        &self,
        hub: &Hub,
        key: &ObjectKey,
        version: &ResourceVersion,
        body: Result<Bytes, Unreadable>,
        origin: &Origin,
    ) {
        let now = Instant::now();
        // The object may have changed at any time between the watch's last event before the list and now.
        let since = match hub.watches.get(&self.scope) {
            Some(watch) if origin.is_list() => watch.heard.unwrap_or(now),
            _ => now,
        };
        let References { handle, sealed, .. } = &hub.references;
        if let Some(handle) = handle.clone() {
            let recipient = RecipientView {
                handle,
                sealed: *sealed,
                retained: None,
            };
            let found = body.and_then(|body| {
                let found = referenced::found(&body);
                // The record nests one level deeper than the object.
                let checked = anteroom_wire::body::validate(&found);
                checked.map(|()| found).map_err(Unreadable::of)
            });
            let body = found.or_else(|unreadable| {
                self.note_unreadable(&recipient.handle, key, &unreadable);
                let failure = Failure::new(own_reason::OBJECT_UNREADABLE, unreadable.problem);
                referenced::failed(&failure).map_err(Unreadable::of)
            });
            self.write(&recipient, key, version, body, since, origin);
        }
    }

    pub(super) fn write(
        &self,
        recipient: &RecipientView,
        key: &ObjectKey,
        version: &ResourceVersion,
        body: Result<Bytes, Unreadable>,
        since: Instant,
        origin: &Origin,
    ) {
        let RecipientView { handle, sealed, .. } = recipient;
        let body = match body {
            Ok(body) if *sealed => {
                let sealed = self.keys.seal(&handle.view, key, &body);
                sealed.map_err(Unreadable::of)
            }
            body => body,
        };
        let body = body.unwrap_or_else(|unreadable| {
            self.note_unreadable(handle, key, &unreadable);
            // A stub is not sealed.
            let labels = unreadable.labels.as_ref().filter(|_| !*sealed);
            unreadable::stub(&unreadable.problem, labels)
        });
        let incoming = Incoming {
            key: key.clone(),
            version: version.clone(),
            since,
            origin: published(handle, origin),
        };
        self.hub
            .publisher()
            .with(|queue| queue.upsert(handle, incoming, body));
    }
}

impl WatchSink {
    fn note_unreadable(&self, handle: &WriteHandle, key: &ObjectKey, unreadable: &Unreadable) {
        self.metrics.malformed();
        let problem = &unreadable.problem;
        tracing::error!(
            view = %handle.view,
            %key,
            problem,
            "object not published: queries that could see it fail until it changes"
        );
    }
}

/// Returns the origin of the change of a view; that of an event with a span until the change is in the log.
fn published(handle: &WriteHandle, origin: &Origin) -> ChangeOrigin {
    match origin {
        Origin::List => ChangeOrigin::List,
        Origin::Event(event) => {
            let view = &handle.view;
            ChangeOrigin::Event(
                tracing::info_span!(parent: event, "publish", otel.kind = "producer", %view),
            )
        }
    }
}

#[async_trait]
impl Sink for WatchSink {
    async fn note(&mut self, note: Note) {
        if let Note::Put { object, origin } = note {
            return self.put(object, origin).await;
        }
        let scope = &self.scope;
        let replan = self.hub.locked(|hub, queue| match note {
            Note::Begin { afresh, version } => {
                hub.begin_list(scope, afresh, &version, queue);
                false
            }
            Note::Gone { key, version, span } => {
                hub.gone(scope, &key, &version, &span, queue);
                false
            }
            Note::Skipped => {
                hub.skipped(scope, queue);
                false
            }
            Note::Listed { version } => hub.listed(scope, &version, queue),
            Note::Heard { version } => {
                hub.mark_alive(scope, version.as_ref(), false, queue);
                false
            }
            Note::Refused(failure) => hub.refused(scope, &failure, queue),
            Note::Troubled(failure) => {
                hub.troubled(scope, &failure, queue);
                false
            }
            Note::Put { .. } => false,
        });
        if replan {
            self.planned.notify_one();
        }
    }
}
