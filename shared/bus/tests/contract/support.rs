//! Records to write, and a reader that holds what a replica would hold.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use anteroom_bus::{
    AppendError, Bus, BusError, Fence, Follower, Lease, LogEvent, LogScope, RestartCause,
};
use anteroom_model::{
    Delta, Digest, Epoch, Group, ObjectKey, Op, ResourceVersion, Revision, Source, SourceInfo,
    ViewId, ViewRecord, ViewState, system,
};
use anteroom_wire::{
    body,
    envelope::{Envelope, Record, TraceContext},
};
use bytes::Bytes;

/// Far longer than anything here takes, for a test that would otherwise hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what must happen.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("what must happen did not")
}

/// Returns the outcome of `attempt`, which is made again while nobody answers: servers elect a leader of a log that they
/// have just made, and tell one another its subjects one by one. Whatever was not answered was not done either.
pub(crate) async fn answered<T, E: Clone + Into<AppendError>, F: Future<Output = Result<T, E>>>(
    attempt: impl Fn() -> F,
) -> Result<T, E> {
    let is_unavailable = |error: &E| {
        let error: AppendError = error.clone().into();
        matches!(error, AppendError::Bus(BusError::Unavailable { .. }))
    };
    within(async {
        loop {
            match attempt().await {
                Err(error) if is_unavailable(&error) => tokio::task::yield_now().await,
                outcome => return outcome,
            }
        }
    })
    .await
}

pub(crate) fn view(name: &str) -> ViewId {
    ViewId::new(format!("{name}.v1.example.com"))
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

fn delta(of: &str, name: &str, version: u64, op: Op<Bytes>) -> Envelope {
    Envelope {
        record: Record::Delta {
            view: view(of),
            delta: Delta {
                key: key(name),
                epoch: Epoch::new(1, 0),
                version: ResourceVersion::new(version.to_string()),
                op,
            },
        },
        trace: Some(TraceContext {
            traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
            tracestate: String::new(),
        }),
    }
}

/// An object of a view, with a body of at least `bytes` bytes.
pub(crate) fn put_of(of: &str, name: &str, version: u64, bytes: usize) -> Envelope {
    let text = "x".repeat(bytes);
    let object = serde_json::json!({ "metadata": { "name": name }, "text": text });
    let body = body::encode(&object).unwrap();
    delta(of, name, version, Op::Put(body))
}

/// An object that no encoder would let through.
pub(crate) fn put_raw(of: &str, name: &str, bytes: usize) -> Envelope {
    delta(of, name, 1, Op::Put(Bytes::from(vec![0xc0; bytes])))
}

pub(crate) fn put(of: &str, name: &str, version: u64) -> Envelope {
    put_of(of, name, version, 16)
}

pub(crate) fn delete(of: &str, name: &str, version: u64) -> Envelope {
    delta(of, name, version, Op::Delete)
}

/// The record, of this term.
pub(crate) fn in_term(term: u32, mut envelope: Envelope) -> Envelope {
    let epoch = Epoch::new(term, 1);
    match &mut envelope.record {
        Record::Control(record) => record.epoch = epoch,
        Record::Delta { delta, .. } => delta.epoch = epoch,
    }
    envelope
}

pub(crate) fn control(of: &str, state: ViewState) -> Envelope {
    control_of(of, system::kinds_source(), state)
}

pub(crate) fn control_of(of: &str, source: Source, state: ViewState) -> Envelope {
    Envelope {
        record: Record::Control(ViewRecord {
            view: view(of),
            info: SourceInfo {
                source,
                kind: "Widget".into(),
                namespaced: true,
            },
            epoch: Epoch::new(1, 0),
            state,
            version: ResourceVersion::new("7"),
            objects: 3,
            digest: Digest::default(),
            origin: anteroom_model::Epoch::default(),
            age_max_ms: None,
        }),
        trace: None,
    }
}

/// A client that holds the lease.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) fence: Fence,
}

impl Writer {
    /// Makes the log if need be, and takes the coordinator's lease from whoever has it.
    pub(crate) async fn new(bus: Arc<dyn Bus>) -> Self {
        Self::of(bus, Group::COORDINATOR).await
    }

    /// Does the same as [`Writer::new`], with the lease of `group`.
    pub(crate) async fn of(bus: Arc<dyn Bus>, group: Group) -> Self {
        answered(|| bus.ensure_log()).await.unwrap();
        let held = answered(|| bus.lease(group)).await.unwrap();
        let term = held.as_ref().map_or(0, |(lease, _)| lease.term) + 1;
        let lease = Lease {
            term,
            holder: "test".into(),
        };
        let expected = held.map(|(_, fence)| fence);
        let fence = answered(|| bus.take_lease(group, lease.clone(), expected));
        let fence = fence.await.unwrap();
        Self { bus, fence }
    }

    pub(crate) async fn append(&self, batch: Vec<Envelope>) -> Revision {
        let appended = answered(|| self.bus.append(self.fence, batch.clone()));
        appended.await.unwrap()
    }
}

/// A reader that keeps what a replica would keep, and that checks what every reader may rely on:
/// positions only grow between two beginnings, and caught up comes once after each.
pub(crate) struct Reader {
    follower: Follower,
    /// The version of every live object.
    pub(crate) objects: BTreeMap<(ViewId, ObjectKey), String>,
    seen: Vec<(ViewId, ObjectKey)>,
    pub(crate) controls: Vec<ViewRecord>,
    pub(crate) restarts: Vec<RestartCause>,
    /// Objects deleted, tombstone by tombstone.
    pub(crate) tombstones: usize,
    pub(crate) unreadable: usize,
    /// The view of the last unreadable record, where its subject says it.
    pub(crate) unreadable_of: Option<ViewId>,
    /// Times out of reach.
    pub(crate) away: usize,
    pub(crate) last: Revision,
    pub(crate) caught_up: Option<Revision>,
    /// Times that records were superseded on their way.
    pub(crate) superseded: usize,
    marking: bool,
}

impl Reader {
    pub(crate) fn new(bus: &dyn Bus, scope: LogScope) -> Self {
        Self {
            follower: bus.follow(scope),
            objects: BTreeMap::new(),
            seen: Vec::new(),
            controls: Vec::new(),
            restarts: Vec::new(),
            tombstones: 0,
            unreadable: 0,
            unreadable_of: None,
            away: 0,
            last: Revision(0),
            caught_up: None,
            superseded: 0,
            marking: false,
        }
    }

    /// Applies the next event; `false` at the end.
    pub(crate) async fn step(&mut self) -> bool {
        match within(self.follower.next()).await {
            None => return false,
            Some(LogEvent::Restart { cause, .. }) => {
                self.restarts.push(cause);
                self.last = Revision(0);
                self.seen.clear();
                self.marking = true;
                self.caught_up = None;
            }
            Some(LogEvent::Record { revision, envelope }) => {
                assert!(revision > self.last, "{revision} came after {}", self.last);
                self.last = revision;
                match envelope {
                    Ok(envelope) => self.apply(envelope.record),
                    Err(unreadable) => {
                        self.unreadable += 1;
                        self.unreadable_of = unreadable.view;
                    }
                }
            }
            Some(LogEvent::Superseded { before }) => {
                assert!(before > self.last);
                self.caught_up = None;
                self.superseded += 1;
            }
            Some(LogEvent::CaughtUp { revision }) => {
                assert!(self.caught_up.is_none(), "caught up twice");
                assert!(revision >= self.last);
                self.caught_up = Some(revision);
                if std::mem::take(&mut self.marking) {
                    let seen = std::mem::take(&mut self.seen);
                    self.objects.retain(|object, _| seen.contains(object));
                }
            }
            Some(LogEvent::Away { .. }) => {
                self.away += 1;
                self.caught_up = None;
            }
        }
        true
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Control(record) => self.controls.push(record),
            Record::Delta { view, delta } => {
                let object = (view, delta.key);
                if self.marking {
                    self.seen.push(object.clone());
                }
                match delta.op {
                    Op::Put(_) => {
                        let version = delta.version.as_str().to_owned();
                        self.objects.insert(object, version);
                    }
                    Op::Delete => {
                        self.tombstones += 1;
                        self.objects.remove(&object);
                    }
                }
            }
        }
    }

    /// Reads until `done`.
    pub(crate) async fn until(&mut self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            assert!(self.step().await, "the events ended too early");
        }
    }

    /// Reads until it is caught up, at `revision` or behind it.
    pub(crate) async fn caught_up_at(&mut self, revision: Revision) {
        self.until(|reader| {
            reader
                .caught_up
                .is_some_and(|at| at.max(reader.last) >= revision)
        })
        .await;
    }

    pub(crate) fn version(&self, of: &str, name: &str) -> Option<&str> {
        self.objects.get(&(view(of), key(name))).map(String::as_str)
    }

    pub(crate) fn restart(&self) {
        self.follower.restart();
    }
}
