//! A watcher between the simulated API server and an in-process bus, and a reader of its log.

#![allow(
    clippy::needless_pass_by_value,
    unreachable_pub,
    reason = "helpers of tests read best so"
)]

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::{Bus, BusExt as _, LogEvent, LogScope, local::LocalBus};
use anteroom_model::{Op, ViewId, ViewRecord, ViewState};
use anteroom_runtime::Service;
use anteroom_simapi::{SimApi, SimConfig, Stats};
use anteroom_watcher::Args;
use anteroom_wire::{
    envelope::Record,
    replica_beat::{ReplicaBeat, ReplicaView},
    webhook_beat::WebhookBeat,
};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

/// The longest wait of a test.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const ENTRIES: &str = "cachedcontextentries.kyverno.io";
pub const CLUSTER_POLICIES: &str = "clusterpolicies.kyverno.io";
pub const INGRESSES: &str = "ingresses.networking.k8s.io";
pub const INGRESS_VIEW: &str = "ingresses.v1.networking.k8s.io";

/// A reader's copy of the log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Objects of every view, by key as text.
    pub objects: HashMap<String, BTreeMap<String, Value>>,
    /// The last control record of every view.
    pub views: HashMap<String, ViewRecord>,
    /// Deltas of every view so far.
    pub deltas: HashMap<String, u64>,
    /// The last trace context of a delta of every view.
    pub traces: HashMap<String, String>,
}

impl Log {
    pub fn names(&self, view: &str) -> Vec<&str> {
        let objects = self.objects.get(view).into_iter().flatten();
        objects.map(|(key, _)| key.as_str()).collect()
    }

    pub fn object(&self, view: &str, key: &str) -> Option<&Value> {
        self.objects.get(view)?.get(key)
    }

    /// The record of a `CachedContextEntry`.
    pub fn entry(&self, name: &str) -> Option<&Value> {
        self.object("anteroom:entries", &format!("cachedcontextentries/{name}"))
    }

    pub fn state(&self, view: &str) -> Option<&ViewState> {
        self.views.get(view).map(|record| &record.state)
    }

    pub fn is_synced(&self, view: &str) -> bool {
        self.state(view) == Some(&ViewState::Synced)
    }

    /// The reason for which a view failed.
    pub fn failure(&self, view: &str) -> Option<&str> {
        match self.state(view)? {
            ViewState::Failed { failure } => Some(&failure.reason),
            _ => None,
        }
    }

    pub fn written(&self, view: &str) -> u64 {
        self.deltas.get(view).copied().unwrap_or_default()
    }

    fn take(&mut self, event: LogEvent) {
        match event {
            LogEvent::Restart { .. } => {
                *self = Self {
                    deltas: self.deltas.clone(),
                    ..Self::default()
                }
            }
            LogEvent::Record { envelope, .. } => {
                let envelope = *envelope.unwrap();
                let view = envelope.record.view().to_string();
                match envelope.record {
                    Record::Delta { delta, .. } => {
                        *self.deltas.entry(view.clone()).or_default() += 1;
                        if let Some(trace) = envelope.trace {
                            self.traces.insert(view.clone(), trace.traceparent);
                        }
                        let objects = self.objects.entry(view).or_default();
                        match delta.op {
                            Op::Put(body) => {
                                let stub = anteroom_wire::unreadable::document(&body);
                                let object = stub.unwrap_or(&body);
                                let object = anteroom_wire::body::to_json(object).unwrap();
                                objects.insert(delta.key.to_string(), object);
                            }
                            Op::Delete => {
                                objects.remove(&delta.key.to_string());
                            }
                        }
                    }
                    Record::Control(record) => {
                        let before = self.views.get(&view);
                        // A reader may be skipped over the word that the view was dropped.
                        let begun_anew = before.is_some_and(|b| b.origin < record.origin);
                        if record.state == ViewState::Dropped || begun_anew {
                            self.objects.remove(&view);
                        }
                        self.views.insert(view, record);
                    }
                }
            }
            LogEvent::Superseded { .. } | LogEvent::CaughtUp { .. } | LogEvent::Away { .. } => {}
        }
    }
}

/// The simulated API server, the bus and a reader of it; watchers are started by the test.
pub struct World {
    pub sim: Arc<SimApi>,
    pub bus: Arc<LocalBus>,
    log: watch::Receiver<Log>,
    _reader: JoinHandle<()>,
}

/// A watcher.
pub struct Watcher {
    pub service: Service,
    task: JoinHandle<anyhow::Result<()>>,
}

impl World {
    /// Everything is installed.
    pub async fn start() -> Self {
        let world = Self::bare().await;
        world.install_crds();
        world
    }

    /// Our definitions are not installed.
    pub async fn bare() -> Self {
        let config = SimConfig {
            bookmark_interval: Duration::from_millis(200),
            ..SimConfig::default()
        };
        let sim = Arc::new(SimApi::start(config).await.unwrap());
        let bus = Arc::new(LocalBus::new());
        let (sender, log) = watch::channel(Log::default());
        let reader = bus.join();
        let reader = tokio::spawn(async move {
            let mut follower = reader.follow(LogScope::All);
            while let Some(event) = follower.next().await {
                sender.send_modify(|log| log.take(event));
            }
        });
        Self {
            sim,
            bus,
            log,
            _reader: reader,
        }
    }

    pub fn install_crds(&self) {
        for crd in anteroom_watcher::crds() {
            let crd = serde_json::to_value(crd).unwrap();
            self.sim
                .put("customresourcedefinitions.apiextensions.k8s.io", crd)
                .unwrap();
        }
    }

    pub fn client(&self) -> Client {
        let mut config = Config::new(self.sim.url().parse().unwrap());
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    /// A watcher with a client of the bus of its own.
    pub fn watch_as(&self, holder: &str) -> Watcher {
        self.watch_on(holder, Arc::new(self.bus.join()))
    }

    pub fn watch_on(&self, holder: &str, bus: Arc<dyn Bus>) -> Watcher {
        self.watch_with(holder, bus, Args::default())
    }

    pub fn watch_with(&self, holder: &str, bus: Arc<dyn Bus>, args: Args) -> Watcher {
        let service = Service::new("watcher");
        let args = Args {
            holder: Some(holder.into()),
            ..args
        };
        let task = anteroom_watcher::run(args, bus, self.client(), service.clone());
        Watcher {
            service,
            task: tokio::spawn(task),
        }
    }

    /// A webhook that enforces whatever the log says, and a replica that serves these views: until the
    /// guard is dropped.
    pub fn enforcing(&self, views: &[&str]) -> tokio_util::sync::DropGuard {
        let view = |view: &&str| ReplicaView {
            view: ViewId::new(*view),
            state: "synced".into(),
            bytes: 0,
        };
        let replica = ReplicaBeat {
            replica: "r".into(),
            views: views.iter().map(view).collect(),
            ..ReplicaBeat::default()
        };
        let (bus, stop) = (self.bus.join(), CancellationToken::new());
        let guard = stop.clone().drop_guard();
        tokio::spawn(stop.run_until_cancelled_owned(async move {
            let mut interval = tokio::time::interval(Duration::from_millis(100));
            loop {
                interval.tick().await;
                let Ok(head) = bus.head().await else { continue };
                let webhook = WebhookBeat {
                    webhook: "w".into(),
                    incarnation: head.incarnation,
                    compiled: head.last,
                    enforced: head.last,
                    ..WebhookBeat::default()
                };
                let _ = bus.send(&webhook).await;
                let _ = bus.send(&replica).await;
            }
        }));
        guard
    }

    pub fn entry(&self, name: &str, spec: Value) {
        let entry = json!({"metadata": {"name": name}, "spec": spec});
        self.sim.put(ENTRIES, entry).unwrap();
    }

    pub fn ingress_entry(&self, name: &str) {
        let resource = json!({"group": "networking.k8s.io", "kind": "ingresses"});
        self.entry(name, json!({"resource": resource}));
    }

    pub fn ingress(&self, name: &str, host: &str) {
        let ingress = json!({
            "metadata": {
                "name": name, "namespace": "default",
                "managedFields": [{"manager": "x"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"},
            },
            "spec": {"rules": [{"host": host}]},
        });
        self.sim.put(INGRESSES, ingress).unwrap();
    }

    /// Waits until the log is as wanted, and returns it.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Log) -> bool) -> Log {
        let mut log = self.log.clone();
        let found = timeout(PATIENCE, log.wait_for(|log| wanted(log))).await;
        match found {
            Ok(found) => found.unwrap().clone(),
            Err(_) => {
                let log = self.log.borrow();
                let views = log.views.iter();
                let views: Vec<_> = views
                    .map(|(view, record)| (view, &record.state, log.names(view)))
                    .collect();
                let asked = self.sim.stats();
                panic!("waited in vain for {what}: {views:#?}, asked: {asked:#?}");
            }
        }
    }

    pub fn log(&self) -> Log {
        self.log.borrow().clone()
    }

    /// Waits until the API server's figures are as wanted.
    pub async fn until_asked(&self, what: &str, wanted: impl FnMut(&Stats) -> bool) {
        let waited = timeout(PATIENCE, self.sim.wait_until(wanted)).await;
        assert!(
            waited.is_ok(),
            "waited in vain for {what}: {:#?}",
            self.sim.stats()
        );
    }

    /// The entry's `Ready` condition, once it has this status and reason.
    pub async fn until_ready(
        &self,
        resource: &str,
        name: &str,
        status: &str,
        reason: &str,
    ) -> Value {
        let is = |condition: &Value| condition["status"] == status && condition["reason"] == reason;
        let mut found = Value::Null;
        let what = format!("{name} to be {status} for {reason}");
        // Every write of a status is a request that the figures count.
        let waited = timeout(
            PATIENCE,
            self.sim.wait_until(|_| {
                found = self.ready(resource, name);
                is(&found)
            }),
        );
        assert!(waited.await.is_ok(), "waited in vain for {what}: {found:#}");
        found
    }

    pub fn ready(&self, resource: &str, name: &str) -> Value {
        let object = self.sim.get(resource, "", name).unwrap_or_default();
        let conditions = object["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        conditions
            .into_iter()
            .find(|c| c["type"] == "Ready")
            .unwrap_or_default()
    }
}

impl Watcher {
    pub async fn until_ready(&self) {
        let ready = timeout(PATIENCE, self.service.readiness.wait_ready()).await;
        assert!(
            ready.is_ok(),
            "not ready: {:#?}",
            self.service.readiness.report()
        );
    }

    /// Returns the condition that a readiness check waits for.
    pub fn waits_for(&self, check: &str) -> Option<String> {
        let report = self.service.readiness.report();
        report
            .checks
            .into_iter()
            .find(|c| c.name == check)
            .and_then(|c| c.waiting_for)
    }

    /// Stops it as a signal would.
    pub async fn stop(self) {
        self.service.shutdown.trigger("the test is done with it");
        timeout(PATIENCE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    /// Stops it as kill -9 would.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
