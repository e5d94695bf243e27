//! Writes conditions and figures into the status of entries and policies, and a Kubernetes Event where a
//! condition changes.
//!
//! The writer assumes that an object has the status that it wrote last. So it writes no status twice, and does not
//! fight with another controller over the same condition.

mod metrics;
mod plan;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::ready,
    sync::Arc,
    time::Duration,
};

use anteroom_runtime::{backoff::Backoff, wall_clock};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::{
    coordinator::{manifests::Identity, status::conditions::Ready},
    source::apiserver::{ApiServer, Fault},
};

use plan::{Plan, WritePace, WrittenStatus, is_news, is_said, plan};

pub(crate) use metrics::StatusMetrics;
pub(crate) use plan::{DesiredStatus, Figures};

/// The most Events that the recorder remembers, to count a repeated Event instead of making it anew. The recorder
/// searches all of them for each Event.
const EVENTS_REMEMBERED_MAX: usize = 500;

/// Writes on their way at one time.
const WRITES_AT_ONCE: usize = 8;

/// Writes that are taken up together: a condition that changes meanwhile waits for no more than that.
const WRITES_TOGETHER: usize = 256;

/// The interval at which statuses are looked for that are due.
const TICK: Duration = Duration::from_secs(1);

/// The longest note of an Event.
const NOTE_CHARS_MAX: usize = 1_000;

/// Waits after a write that failed, in milliseconds.
const RETRY_BASE_MS: u64 = 1_000;
const RETRY_MAX_MS: u64 = 60_000;

/// The object whose status is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StatusOwner {
    /// The object's API version, as in `kyverno.io/v1`.
    pub api_version: &'static str,
    /// The object's kind, as in `ClusterPolicy`.
    pub kind: &'static str,
    /// The object's resource, as in `clusterpolicies`.
    pub plural: &'static str,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID: an object created again under its name is a different object.
    pub uid: String,
}

impl StatusOwner {
    /// Returns the object of this identity.
    pub(crate) fn new(
        api_version: &'static str,
        kind: &'static str,
        plural: &'static str,
        identity: &Identity,
    ) -> Self {
        let Identity {
            namespace,
            name,
            uid,
            ..
        } = identity.clone();
        Self {
            api_version,
            kind,
            plural,
            namespace,
            name,
            uid,
        }
    }

    fn status_path(&self) -> String {
        let (root, name) = (format!("/apis/{}", self.api_version), &self.name);
        match self.namespace.as_str() {
            "" => format!("{root}/{}/{name}/status", self.plural),
            namespace => format!(
                "{root}/namespaces/{namespace}/{}/{name}/status",
                self.plural
            ),
        }
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.into()),
            kind: Some(self.kind.into()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            uid: Some(self.uid.clone()),
            ..ObjectReference::default()
        }
    }
}

#[derive(Debug, Default)]
struct StatusSlot {
    desired: Option<DesiredStatus>,
    written: Option<WrittenStatus>,
    retry: Option<(Instant, Backoff)>,
    /// The object stands among the news.
    queued: bool,
}

#[derive(Debug, Default)]
struct Slots {
    all: HashMap<StatusOwner, StatusSlot>,
    /// Objects whose condition is out of date, in the order in which that was found.
    news: VecDeque<StatusOwner>,
    /// Objects whose status is incomplete, or could not be written.
    open: HashSet<StatusOwner>,
}

type Due = (StatusOwner, Plan, Ready);

impl Slots {
    fn put(&mut self, owner: StatusOwner, desired: DesiredStatus) {
        let slot = self.all.entry(owner.clone()).or_default();
        let news = is_news(&desired, slot.written.as_ref());
        slot.desired = Some(desired);
        if news && slot.retry.is_none() {
            if !std::mem::replace(&mut slot.queued, true) {
                self.news.push_back(owner);
            }
        } else {
            self.open.insert(owner);
        }
    }

    /// News first, in their order.
    fn due(&mut self, now: Instant, clock: Timestamp) -> Vec<Due> {
        let pace = WritePace::of(self.all.len());
        let mut due = Vec::new();
        while due.len() < WRITES_TOGETHER
            && let Some(owner) = self.news.pop_front()
        {
            let Some(slot) = self.all.get_mut(&owner) else {
                continue; // It is gone.
            };
            slot.queued = false;
            if let Some(desired) = &slot.desired
                && let Some(plan) = plan(desired, slot.written.as_ref(), pace, now, clock)
            {
                due.push((owner.clone(), plan, desired.ready.clone()));
            }
            self.open.insert(owner);
        }
        due
    }

    /// Returns the writes that have become due by the passing of time.
    fn ripe(&mut self, now: Instant, clock: Timestamp) -> Vec<Due> {
        let pace = WritePace::of(self.all.len());
        let Self { all, open, .. } = self;
        let mut due = Vec::new();
        open.retain(|owner| {
            let slot = all.get(owner);
            let Some((slot, desired)) = slot.and_then(|slot| Some((slot, slot.desired.as_ref()?)))
            else {
                return false;
            };
            let waits = slot.retry.as_ref().is_some_and(|(at, _)| now < *at);
            if due.len() == WRITES_TOGETHER || slot.queued || waits {
                return true;
            }
            match plan(desired, slot.written.as_ref(), pace, now, clock) {
                Some(plan) => {
                    due.push((owner.clone(), plan, desired.ready.clone()));
                    true
                }
                None => !is_said(desired, slot.written.as_ref()),
            }
        });
        due
    }
}

/// Keeps every status as it should be. Cheap to clone.
#[derive(Clone)]
pub(crate) struct StatusWriter {
    slots: Arc<Mutex<Slots>>,
    work: Arc<Notify>,
    api: ApiServer,
    metrics: StatusMetrics,
    /// Statuses of Kyverno's kinds are Kyverno's.
    is_shadow: bool,
}

/// The kind that Kyverno does not have.
const OWN_KIND: &str = "CachedContextEntry";

impl StatusWriter {
    /// Writes nothing yet. A shadow writes statuses of [`OWN_KIND`] alone.
    pub(crate) fn new(api: ApiServer, metrics: StatusMetrics, is_shadow: bool) -> Self {
        Self {
            is_shadow,
            slots: Arc::default(),
            work: Arc::default(),
            api,
            metrics,
        }
    }

    /// Notes the status that the object should have.
    pub(crate) fn put(&self, owner: StatusOwner, desired: DesiredStatus) {
        if self.is_shadow && owner.kind != OWN_KIND {
            return;
        }
        self.slots.lock().put(owner, desired);
        self.work.notify_one();
    }

    /// The object is gone.
    pub(crate) fn forget(&self, owner: &StatusOwner) {
        let mut slots = self.slots.lock();
        slots.open.remove(owner);
        slots.all.remove(owner);
    }

    /// Writes statuses when they are due, for ever.
    pub(crate) async fn run(&self, instance: &str) {
        let reporter = Reporter {
            controller: "anteroom-watcher".into(),
            instance: Some(instance.into()),
        };
        let fresh = || Recorder::new(self.api.client().clone(), reporter.clone());
        let (mut recorder, mut events) = (fresh(), 0);
        let mut looked: Option<Instant> = None;
        loop {
            if events >= EVENTS_REMEMBERED_MAX {
                (recorder, events) = (fresh(), 0);
            }
            let (now, clock) = (Instant::now(), wall_clock::now());
            let mut due = self.slots.lock().due(now, clock);
            // What is not due yet becomes so by the passing of time.
            if due.is_empty() && looked.is_none_or(|at| now.duration_since(at) >= TICK) {
                looked = Some(now);
                due = self.slots.lock().ripe(now, clock);
            }
            if due.is_empty() {
                let _ = tokio::time::timeout(TICK, self.work.notified()).await;
                continue;
            }
            let writes = stream::iter(due).map(|(owner, plan, ready)| {
                let recorder = &recorder;
                async move { self.write(&owner, plan, &ready, recorder).await }
            });
            let written = writes.buffer_unordered(WRITES_AT_ONCE);
            events += written.filter(|written| ready(*written)).count().await;
        }
    }

    /// Says whether an Event was asked for.
    async fn write(
        &self,
        owner: &StatusOwner,
        plan: Plan,
        ready: &Ready,
        recorder: &Recorder,
    ) -> bool {
        let result = self
            .api
            .merge_patch(&owner.status_path(), &plan.patch)
            .await;
        // An object that is gone has nobody to be told.
        let gone = matches!(result, Err(Fault::Refused { code: 404, .. }));
        let succeeded = result.is_ok() || gone;
        self.metrics.written(succeeded);
        let now = Instant::now();
        if let Some(slot) = self.slots.lock().all.get_mut(owner) {
            if succeeded {
                slot.retry = None;
                let Plan {
                    conditions,
                    summary,
                    figures,
                    rules,
                    ..
                } = plan;
                slot.written = Some(WrittenStatus {
                    conditions,
                    summary,
                    figures,
                    rules,
                    at: now,
                });
            } else {
                let fresh = || (now, Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS));
                let (at, backoff) = slot.retry.get_or_insert_with(fresh);
                *at = now + backoff.next(rand::random());
            }
        }
        match result {
            Ok(_) if plan.transition => {
                self.event(owner, ready, recorder).await;
                return true;
            }
            Err(fault) if !gone => {
                let (kind, namespace, name) = (owner.kind, &*owner.namespace, &*owner.name);
                tracing::warn!(
                    kind,
                    namespace,
                    name,
                    %fault,
                    "status of the object not written: tried again; check the watcher's rights if this repeats"
                );
            }
            _ => {}
        }
        false
    }

    async fn event(&self, owner: &StatusOwner, ready: &Ready, recorder: &Recorder) {
        let type_ = if ready.status == "False" {
            EventType::Warning
        } else {
            EventType::Normal
        };
        let event = Event {
            type_,
            reason: ready.reason.clone(),
            note: Some(ready.message.chars().take(NOTE_CHARS_MAX).collect()),
            action: "Reconcile".into(),
            secondary: None,
        };
        let result = recorder.publish(&event, &owner.reference()).await;
        self.metrics.written(result.is_ok());
        if let Err(error) = result {
            let (kind, namespace, name) = (owner.kind, &*owner.namespace, &*owner.name);
            tracing::warn!(
                kind,
                namespace,
                name,
                %error,
                "Event of the object not written: the status says the same"
            );
        }
    }
}

#[cfg(test)]
mod tests;
