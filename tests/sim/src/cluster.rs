//! The processes of a schedule: every one with ways of its own to the bus and to the API server.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use anteroom_bus::local::{Faults, LocalBus, LocalOptions};
use anteroom_cache_replica::LocalReplica;
use anteroom_mirror::{ViewHandle, ViewSet};
use anteroom_model::ViewId;
use anteroom_runtime::Service;
use anteroom_simapi::{SimApi, SimConfig};
use anteroom_webhook::Webhook;
use clap::Parser;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    plan::{Id, Kind, Sizes},
    way::Way,
};

/// The resource of policies.
pub(crate) const POLICIES: &str = "clusterpolicies.kyverno.io";

/// The resource of entries.
const ENTRIES: &str = "cachedcontextentries.kyverno.io";

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Resources that the API server serves beside our own.
const SERVED: [&str; 4] = [
    "namespaces",
    "configmaps",
    "ingresses.networking.k8s.io",
    DEFINITIONS,
];

/// The definitions of our own resources, as JSON, without their schemas: those take longer to make and to store than a
/// service to start, and the simulated API server validates nothing.
pub(crate) fn definitions() -> anyhow::Result<Vec<Value>> {
    let mut definitions = Vec::new();
    for mut definition in anteroom_watcher::crds() {
        for version in &mut definition.spec.versions {
            version.schema = None;
        }
        definitions.push(serde_json::to_value(definition)?);
    }
    Ok(definitions)
}

/// A process.
pub(crate) struct Process {
    pub(crate) id: Id,
    pub(crate) bus: Arc<LocalBus>,
    /// Cuts its way to the API server.
    pub(crate) way: Option<watch::Sender<bool>>,
    pub(crate) webhook: Option<Arc<Webhook>>,
    /// The views of a replica, once it mirrors them.
    views: Arc<OnceLock<watch::Receiver<ViewSet>>>,
    pub(crate) name: String,
    service: Service,
    running: Option<JoinHandle<anyhow::Result<()>>>,
}

/// All of them, with the bus and the API server.
pub(crate) struct Cluster {
    pub(crate) api: SimApi,
    /// A client of the bus that nothing ever happens to.
    pub(crate) bus: LocalBus,
    pub(crate) processes: BTreeMap<Id, Process>,
    /// Names that were given so far.
    names: u32,
}

#[derive(Parser)]
struct WebhookCommand {
    #[command(flatten)]
    webhook: anteroom_webhook::Args,
}

/// Returns true if webhooks hold views themselves, which the variable of their option says.
pub(crate) fn webhooks_hold_views() -> bool {
    std::env::var_os("ANTEROOM_LOCAL_VIEWS").is_some()
}

impl Cluster {
    /// An API server with an entry, and a bus without a log. No process runs.
    pub(crate) fn new(seed: u64, definitions: &[Value]) -> anyhow::Result<Self> {
        let api = SimApi::in_process(SimConfig {
            seed,
            served: Some(&SERVED),
            ..SimConfig::default()
        })?;
        api.put_all(DEFINITIONS, definitions.iter().cloned())?;
        let resource = json!({"group": "networking.k8s.io", "kind": "ingresses"});
        let entry = json!({"metadata": {"name": "ingresses"}, "spec": {"resource": resource}});
        api.put(ENTRIES, entry)?;
        let bus = LocalBus::with_options(LocalOptions {
            seed,
            ..LocalOptions::default()
        });
        Ok(Self {
            api,
            bus,
            processes: BTreeMap::new(),
            names: 0,
        })
    }

    /// Starts as many processes as `sizes` says.
    pub(crate) fn start_all(&mut self, sizes: Sizes) {
        for (kind, number) in [
            (Kind::Watcher, sizes.watchers),
            (Kind::Replica, sizes.replicas),
            (Kind::Webhook, sizes.webhooks),
        ] {
            (0..number).for_each(|number| self.start(Id(kind, number), None));
        }
    }

    /// Starts a process, under this name or a new one.
    pub(crate) fn start(&mut self, id: Id, name: Option<String>) {
        let name = name.unwrap_or_else(|| {
            self.names += 1;
            format!("{:?}-{}", id.0, self.names).to_lowercase()
        });
        let bus = Arc::new(self.bus.join());
        let mut process = Process {
            id,
            bus: Arc::clone(&bus),
            way: None,
            webhook: None,
            views: Arc::default(),
            name: name.clone(),
            service: Service::new("simulated"),
            running: None,
        };
        let service = process.service.clone();
        match id.0 {
            Kind::Watcher => {
                let (way, switch) = Way::new(self.api.service());
                process.way = Some(switch);
                let args = anteroom_watcher::Args {
                    holder: Some(name),
                    ..anteroom_watcher::Args::default()
                };
                let run = anteroom_watcher::run(args, bus, way.client(), service);
                process.running = Some(tokio::spawn(run));
            }
            Kind::Replica => {
                let args = anteroom_cache_replica::Args {
                    replica_id: Some(name),
                    ..anteroom_cache_replica::Args::default()
                };
                let views = Arc::clone(&process.views);
                let show = move |replica: Arc<LocalReplica>| {
                    // The process is new, so this is the first time.
                    let _ = views.set(replica.views());
                };
                let run = anteroom_cache_replica::run_and_show(args, bus, service, show);
                process.running = Some(tokio::spawn(run));
            }
            Kind::Webhook => {
                let given = WebhookCommand::parse_from(["webhook", "--webhook-id", &name]);
                let webhook = Webhook::in_process(&given.webhook, bus, &service);
                process.webhook = Some(Arc::new(webhook));
            }
        }
        self.processes.insert(id, process);
    }

    /// The process dies: nothing that it does reaches anybody any more.
    pub(crate) fn kill(&mut self, id: Id) -> Option<Process> {
        let process = self.processes.remove(&id)?;
        process.faults().cut();
        if let Some(way) = &process.way {
            way.send_replace(true);
        }
        process.service.shutdown.trigger("killed");
        Some(process)
    }

    /// The process is asked to stop, and does so in its own time.
    pub(crate) fn stop(&mut self, id: Id) -> Option<Process> {
        let process = self.processes.remove(&id)?;
        process.service.shutdown.trigger("stopped");
        Some(process)
    }

    /// Returns the first process that has ended by itself, with its error.
    pub(crate) fn ended(&self) -> Option<String> {
        let ended = self.processes.values().find(|process| {
            let running = process.running.as_ref();
            running.is_some_and(JoinHandle::is_finished) || process.service.shutdown.is_triggered()
        })?;
        Some(format!("{} has ended by itself", ended.name))
    }
}

impl Process {
    /// Faults of its way to the bus.
    pub(crate) fn faults(&self) -> Faults {
        self.bus.faults()
    }

    /// A view of a replica, if it holds the view.
    pub(crate) fn view(&self, id: &ViewId) -> Option<ViewHandle> {
        self.views.get()?.borrow().get(id).cloned()
    }

    /// Returns true if it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.service.readiness.report().ready
    }

    /// Returns its readiness report for people: it says what the process waits for.
    pub(crate) fn waits_for(&self) -> String {
        format!("{:?}", self.service.readiness.report())
    }
}
