//! WATCH: a cursor into the history.
//!
//! A watch holds no queue. It remembers the version up to which it has sent everything, is woken by
//! changes, and reads the history from there when the connection takes more. One that is too slow
//! finds that the history no longer reaches back, and sends that as an error.

use std::{io, sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    faults::{Cuts, WatchFaults},
    list::{CHUNK_BYTES, store_failure},
    object::{self, Stored},
    request::{Params, VersionMatch},
    resource::{ResourceName, ResourceType},
    selector::Selection,
    server::App,
    stats::OpenWatch,
    status::{Failure, raw_json_response},
    store::{Change, StoreError},
};

/// Says in a bookmark that everything which was there at the start has been sent.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Answers a WATCH.
pub(crate) fn watch(
    app: &Arc<App>,
    resource: &Arc<ResourceType>,
    version: &str,
    selection: Selection,
    params: &Params,
) -> Result<Response, Failure> {
    let start = Start::from_params(params, app.config.streaming_lists)?;
    let name = resource.name();
    let missing = |error| store_failure(error, resource, 0);
    let changed = app.store.subscribe(&name).map_err(missing)?;
    let (initial, cursor) = match start {
        Start::After(version) => (Vec::new(), version),
        Start::Everything { not_older_than, .. } => {
            let current = app.store.version();
            if not_older_than > current {
                return Err(Failure::too_large(not_older_than, current));
            }
            let page = app
                .store
                .list(&name, &selection, None, None, usize::MAX)
                .map_err(missing)?;
            (page.objects, page.version)
        }
    };
    let timeout = params.timeout_seconds.filter(|seconds| *seconds > 0);
    let now = Instant::now();
    let mut bookmarks = interval_at(
        now + app.config.bookmark_interval,
        app.config.bookmark_interval,
    );
    bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let faults = app.faults.watches();
    let cuts = faults.borrow().cuts(&name);
    let session = Session {
        app: app.clone(),
        _open: app.recorder.watch(&name),
        name,
        skeleton: bookmark_skeleton(resource, version),
        head: object::head(resource, version),
        selection,
        initial: initial.into_iter(),
        mark_initial_end: matches!(start, Start::Everything { mark_end: true, .. })
            && params.allow_bookmarks,
        cursor,
        changed,
        faults,
        cuts,
        stop: app.stop.clone(),
        bookmarks: params.allow_bookmarks.then_some(bookmarks),
        deadline: now + timeout.map_or(app.config.watch_timeout, Duration::from_secs),
        ended: false,
    };
    let events = futures::stream::unfold(session, |mut session| async move {
        Some((session.next().await?, session))
    });
    Ok(raw_json_response(200, Body::from_stream(events)))
}

/// The point at which a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// With the changes after this version.
    After(u64),
    /// With what is there now, as additions.
    Everything {
        /// A version that must have been handed out.
        not_older_than: u64,
        /// A bookmark says where the present ends and changes begin.
        mark_end: bool,
    },
}

impl Start {
    /// Kubernetes' rules, the one included by which an old-style watch from no or version 0 is made
    /// a streaming list where the server has those.
    fn from_params(params: &Params, streaming_lists: bool) -> Result<Self, Failure> {
        let forbidden = |field: &str, why: &str| {
            Err(Failure::invalid(format!(
                "ListOptions is invalid: {field}: Forbidden: {why}"
            )))
        };
        match (params.send_initial_events, params.version_match) {
            (Some(_), _) if !streaming_lists => forbidden(
                "sendInitialEvents",
                "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
            ),
            (Some(_), Some(VersionMatch::NotOlderThan)) => Ok(match params.send_initial_events {
                Some(true) => Self::Everything {
                    not_older_than: params.resource_version.unwrap_or_default(),
                    mark_end: true,
                },
                _ => Self::from_version(params, false),
            }),
            (Some(_), _) => forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (None, Some(_)) => forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            (None, None) => Ok(Self::from_version(params, streaming_lists)),
        }
    }

    fn from_version(params: &Params, mark_end: bool) -> Self {
        match params.resource_version {
            None | Some(0) => Self::Everything {
                not_older_than: 0,
                mark_end,
            },
            Some(version) => Self::After(version),
        }
    }
}

/// One open watch.
struct Session {
    app: Arc<App>,
    _open: OpenWatch,
    name: ResourceName,
    skeleton: Value,
    head: String,
    selection: Selection,
    initial: std::vec::IntoIter<Arc<Stored>>,
    mark_initial_end: bool,
    /// Everything up to this version has been told, once `initial` is empty.
    cursor: u64,
    changed: watch::Receiver<()>,
    faults: watch::Receiver<WatchFaults>,
    cuts: Cuts,
    stop: CancellationToken,
    bookmarks: Option<Interval>,
    deadline: Instant,
    ended: bool,
}

/// Why a watch woke up.
enum Wake {
    Changed,
    Bookmark,
    TimedOut,
    ResourceGone,
    Stopped,
}

impl Session {
    /// The next piece of the body; `None` at its proper end, an error at an improper one.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        while !self.ended {
            let (cuts, stalled) = {
                let faults = self.faults.borrow_and_update();
                (faults.cuts(&self.name), faults.is_stalled(&self.name))
            };
            if cuts.broken != self.cuts.broken {
                self.ended = true;
                return Some(Err(io::Error::new(
                    io::ErrorKind::ConnectionReset,
                    "the watch was cut",
                )));
            }
            if cuts.clean != self.cuts.clean {
                return None;
            }
            if !stalled && let Some(events) = self.events() {
                return Some(Ok(events));
            }
            match self.wake(stalled).await {
                Wake::Changed => {}
                Wake::Bookmark => return Some(Ok(self.progress())),
                Wake::TimedOut | Wake::ResourceGone | Wake::Stopped => return None,
            }
        }
        None
    }

    async fn wake(&mut self, stalled: bool) -> Wake {
        // A stalled watch hears of its faults, and of nothing else.
        let bookmark = async {
            match &mut self.bookmarks {
                Some(bookmarks) if !stalled => bookmarks.tick().await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => Wake::Stopped,
            _ = self.faults.changed() => Wake::Changed,
            changed = self.changed.changed(), if !stalled => match changed {
                Ok(()) => Wake::Changed,
                Err(_) => Wake::ResourceGone,
            },
            () = sleep_until(self.deadline), if !stalled => Wake::TimedOut,
            _ = bookmark => Wake::Bookmark,
        }
    }

    /// Returns the events that are due now.
    fn events(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        while out.len() < CHUNK_BYTES
            && let Some(object) = self.initial.next()
        {
            self.write("ADDED", &object, &mut out);
        }
        if !out.is_empty() {
            return Some(out.freeze());
        }
        if std::mem::take(&mut self.mark_initial_end) {
            return Some(self.bookmark(true));
        }
        match self.app.store.changes_after(&self.name, self.cursor) {
            Ok((changes, version)) => {
                for change in &changes {
                    self.tell(change, &mut out);
                }
                self.cursor = version;
            }
            Err(error) => {
                self.ended = true;
                out.extend_from_slice(&self.failed(error));
            }
        }
        (!out.is_empty()).then(|| out.freeze())
    }

    /// Writes a change as this selection sees it: a changed object may enter or leave the selection.
    fn tell(&self, change: &Change, out: &mut BytesMut) {
        let selected = |object: &Option<Arc<Stored>>| {
            object
                .clone()
                .filter(|object| self.selection.matches(object))
        };
        match (selected(&change.before), selected(&change.after)) {
            (None, Some(after)) => self.write("ADDED", &after, out),
            (Some(_), Some(after)) => self.write("MODIFIED", &after, out),
            (Some(before), None) => self.write("DELETED", &before.at_version(change.version), out),
            (None, None) => {}
        }
    }

    fn write(&self, event: &str, object: &Stored, out: &mut BytesMut) {
        let open = format!("{{\"type\":\"{event}\",\"object\":");
        out.reserve(open.len() + object.written_bytes_max(&self.head) + 2);
        out.extend_from_slice(open.as_bytes());
        object.write(&self.head, out);
        out.extend_from_slice(b"}\n");
    }

    /// A bookmark of now, behind whatever is still to be told.
    fn progress(&mut self) -> Bytes {
        let mut out = BytesMut::from(self.events().unwrap_or_default());
        if !self.ended {
            out.extend_from_slice(&self.bookmark(false));
        }
        out.freeze()
    }

    fn bookmark(&self, ends_initial: bool) -> Bytes {
        let mut object = self.skeleton.clone();
        object["metadata"]["resourceVersion"] = self.cursor.to_string().into();
        if ends_initial {
            object["metadata"]["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        event_line("BOOKMARK", &object)
    }

    fn failed(&self, error: StoreError) -> Bytes {
        let failure = match error {
            StoreError::Expired(oldest) => Failure::expired(self.cursor, oldest),
            _ => Failure::new(
                500,
                "InternalError",
                format!("{} is no longer served", self.name),
            ),
        };
        event_line("ERROR", &failure.to_json())
    }
}

fn event_line(event: &str, object: &Value) -> Bytes {
    format!("{}\n", json!({"type": event, "object": object})).into()
}

/// An object of the type with nothing in it, as bookmarks carry.
fn bookmark_skeleton(resource: &ResourceType, version: &str) -> Value {
    json!({
        "kind": resource.kind, "apiVersion": resource.api_version(version),
        "metadata": {"creationTimestamp": null},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_begins_where_kubernetes_begins_it() {
        let everything = |not_older_than, mark_end| {
            Some(Start::Everything {
                not_older_than,
                mark_end,
            })
        };
        for (query, streaming, expected) in [
            ("", true, everything(0, true)),
            ("", false, everything(0, false)),
            ("resourceVersion=0", true, everything(0, true)),
            ("resourceVersion=7", true, Some(Start::After(7))),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=7",
                true,
                everything(7, true),
            ),
            (
                "sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
                true,
                everything(0, false),
            ),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                false,
                None,
            ),
            ("sendInitialEvents=true", true, None),
            (
                "resourceVersionMatch=NotOlderThan&resourceVersion=7",
                true,
                None,
            ),
        ] {
            let uri = format!("/api/v1/pods?{query}").parse().unwrap();
            let start = Start::from_params(&Params::parse(&uri).unwrap(), streaming);
            assert_eq!(start.ok(), expected, "{query} {streaming}");
        }
    }
}
