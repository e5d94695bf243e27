//! The rest of the system, by hand: the log that a watcher would write, and replicas.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_bus::{Bus, Fence, Lease, local::LocalBus};
use anteroom_engine::exemptions::{ExemptionRules, Exemptions};
use anteroom_model::{
    Binding, Delta, Digest, EntryKind, EntryRecord, EntryState, Epoch, FactError, KindRecord,
    ObjectKey, Op, ResourceVersion, Source, SourceInfo, ViewId, ViewRecord, ViewState, system,
};
use anteroom_runtime::Service;
use anteroom_webhook::{Args, Webhook};
use anteroom_wire::{
    body,
    envelope::{Envelope, Record},
    query::Query,
};
use clap::Parser;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{client::Client, replicas::listed};

/// The view of all Ingresses.
pub(crate) fn ingresses() -> ViewId {
    ViewId::new("ingresses.v1.networking.k8s.io")
}

/// A webhook, and all that it talks to.
pub(crate) struct Cluster {
    pub(crate) bus: Arc<LocalBus>,
    pub(crate) service: Service,
    log: Mutex<Log>,
}

/// The records that were written to the log.
struct Log {
    fence: Fence,
    version: u64,
    views: BTreeMap<ViewId, BTreeMap<ObjectKey, ResourceVersion>>,
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    webhook: Args,
}

/// The exemptions of a file with this text.
pub(crate) fn exemptions(text: &str) -> Exemptions {
    Exemptions::new(ExemptionRules::parse(text).unwrap())
}

/// The webhook's options, with these given. It does not drain.
pub(crate) fn args(given: &[&str]) -> Args {
    let always = ["webhook", "--listen-address", "127.0.0.1:0"];
    let mut args = Cli::parse_from(always.iter().chain(given)).webhook;
    args.drain_seconds = 0;
    args
}

impl Cluster {
    /// With an empty log.
    pub(crate) async fn new() -> Self {
        let bus = Arc::new(LocalBus::new());
        bus.ensure_log().await.unwrap();
        let lease = Lease {
            term: 1,
            holder: "test".into(),
        };
        let fence = bus
            .take_lease(anteroom_model::Group::COORDINATOR, lease, None)
            .await
            .unwrap();
        Self {
            bus,
            service: Service::new("webhook"),
            log: Mutex::new(Log {
                fence,
                version: 0,
                views: BTreeMap::new(),
            }),
        }
    }

    /// With these policies, the entry `ingresses`, and some kinds.
    pub(crate) async fn with(policies: &[Value]) -> Self {
        let cluster = Self::new().await;
        cluster.write_all(policies).await;
        cluster
    }

    /// Writes the records with which [`Cluster::with`] begins.
    pub(crate) async fn write_all(&self, policies: &[Value]) {
        let kind = KindRecord {
            gvr: anteroom_model::GroupVersionResource::new("networking.k8s.io", "v1", "ingresses"),
            kind: "Ingress".into(),
            namespaced: true,
            subresources: vec!["status".into()],
            preferred: true,
            watchable: true,
        };
        self.entries(&[bound(EntryKind::Cached, "ingresses", ingresses())])
            .await;
        self.write(
            system::kinds_source(),
            &[(
                ObjectKey::new("", "Ingress.v1.networking.k8s.io"),
                Some(body::encode(&kind).unwrap()),
            )],
        )
        .await;
        self.policies(policies).await;
        self.exceptions(&[]).await;
    }

    /// Writes these entries.
    pub(crate) async fn entries(&self, entries: &[EntryRecord]) {
        let changes: Vec<_> = entries
            .iter()
            .map(|entry| {
                let body = body::encode(entry).unwrap();
                (entry.kind.key(&entry.name), Some(body))
            })
            .collect();
        self.write(system::entries_source(), &changes).await;
    }

    /// Writes these policies.
    pub(crate) async fn policies(&self, policies: &[Value]) {
        let changes: Vec<_> = policies.iter().map(manifest).collect();
        self.write(system::policies_source(), &changes).await;
    }

    /// Writes these exceptions.
    pub(crate) async fn exceptions(&self, exceptions: &[Value]) {
        let changes: Vec<_> = exceptions.iter().map(manifest).collect();
        self.write(system::exceptions_source(), &changes).await;
    }

    /// Removes an exception.
    pub(crate) async fn remove_exception(&self, namespace: &str, name: &str) {
        let change = (ObjectKey::new(namespace, name), None);
        self.write(system::exceptions_source(), &[change]).await;
    }

    /// Removes the policy of this name.
    pub(crate) async fn remove_policy(&self, name: &str) {
        let change = (ObjectKey::new("", name), None);
        self.write(system::policies_source(), &[change]).await;
    }

    /// Writes changes (`None`: a deletion) and then, as a watcher does, where the view stands.
    async fn write(&self, source: Source, changes: &[(ObjectKey, Option<bytes::Bytes>)]) {
        let mut log = self.log.lock().await;
        let view = source.view_id();
        let epoch = Epoch::new(1, 0);
        let mut batch = Vec::new();
        for (key, body) in changes {
            log.version += 1;
            let version = ResourceVersion::new(log.version.to_string());
            let objects = log.views.entry(view.clone()).or_default();
            let op = match body {
                Some(body) => {
                    objects.insert(key.clone(), version.clone());
                    Op::Put(body.clone())
                }
                None => {
                    objects.remove(key);
                    Op::Delete
                }
            };
            let delta = Delta {
                key: key.clone(),
                epoch,
                version,
                op,
            };
            batch.push(Record::Delta {
                view: view.clone(),
                delta,
            });
        }
        let mut digest = Digest::default();
        let objects = log.views.entry(view.clone()).or_default();
        objects
            .iter()
            .for_each(|(key, version)| digest.add(key, version));
        batch.push(Record::Control(ViewRecord {
            objects: objects.len() as u64,
            view,
            info: SourceInfo {
                source,
                kind: String::new(),
                namespaced: false,
            },
            epoch,
            state: ViewState::Synced,
            version: ResourceVersion::new(log.version.to_string()),
            digest,
            origin: anteroom_model::Epoch::default(),
            age_max_ms: None,
        }));
        let envelope = |record| Envelope {
            record,
            trace: None,
        };
        let batch = batch.into_iter().map(envelope).collect();
        self.bus.append(log.fence, batch).await.unwrap();
    }

    /// Starts the webhook, and waits until it is ready. Until then it hears of a replica that holds the
    /// Ingresses: who answers, and what, is the test's business.
    pub(crate) async fn webhook(&self) -> (Webhook, Client) {
        let (webhook, client) = self.webhook_at_once(&[]).await;
        let _beats = self.beats(&[ingresses().as_str()]);
        self.service.readiness.wait_ready().await;
        (webhook, client)
    }

    /// Starts the webhook, ready or not.
    pub(crate) async fn webhook_at_once(&self, given: &[&str]) -> (Webhook, Client) {
        self.start_webhook(&args(given)).await
    }

    /// Starts the webhook as [`Cluster::webhook`] does. It drains for so long.
    pub(crate) async fn webhook_draining(&self, seconds: u64) -> (Webhook, Client) {
        let mut args = args(&[]);
        args.drain_seconds = seconds;
        let started = self.start_webhook(&args).await;
        let _beats = self.beats(&[ingresses().as_str()]);
        self.service.readiness.wait_ready().await;
        started
    }

    /// Starts the webhook, ready or not, with these exemptions.
    pub(crate) async fn webhook_exempting(&self, exemptions: Exemptions) -> (Webhook, Client) {
        let mut args = args(&[]);
        args.exemptions = exemptions;
        self.start_webhook(&args).await
    }

    async fn start_webhook(&self, args: &Args) -> (Webhook, Client) {
        let bus = Arc::new(self.bus.join());
        let webhook = Webhook::start(args, bus, None, &self.service).unwrap();
        let client = Client::of(&webhook).await;
        (webhook, client)
    }
}

/// An entry on a view.
pub(crate) fn bound(kind: EntryKind, name: &str, view: ViewId) -> EntryRecord {
    EntryRecord {
        kind,
        name: name.into(),
        uid: "1".into(),
        generation: 1,
        state: EntryState::Bound(Binding::whole(view)),
        projections: Vec::new(),
    }
}

/// Says that these hosts are taken.
pub(crate) fn taken(hosts: &'static [&'static str]) -> impl Fn(&Query) -> Result<Value, FactError> {
    move |query| Ok(listed(query, hosts))
}

/// No two Ingresses have one host. `change` changes the manifest.
pub(crate) fn unique_host(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut policy = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": { "name": name, "uid": name },
        "spec": {
            "validationFailureAction": "Enforce",
            "failurePolicy": "Fail",
            "background": false,
            "rules": [{
                "name": "unique-host",
                "match": { "any": [{ "resources": {
                    "kinds": ["Ingress"], "operations": ["CREATE", "UPDATE", "DELETE"],
                } }] },
                "preconditions": { "all": [{
                    "key": "{{ request.operation }}",
                    "operator": "AnyIn",
                    "value": ["CREATE", "UPDATE"],
                }] },
                "context": [{
                    "name": "hosts",
                    "cachedContextEntry": {
                        "name": "ingresses", "jmespath": "items[].spec.rules[].host",
                    },
                }],
                "validate": {
                    "message": "The host {{ request.object.spec.rules[0].host }} is taken.",
                    "deny": { "conditions": { "any": [{
                        "key": "{{ request.object.spec.rules[].host }}",
                        "operator": "AnyIn",
                        "value": "{{ hosts }}",
                    }] } },
                },
            }],
        },
    });
    change(&mut policy);
    policy
}

fn manifest(manifest: &Value) -> (ObjectKey, Option<bytes::Bytes>) {
    let metadata = &manifest["metadata"];
    let name = metadata["name"].as_str().unwrap();
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    let body = body::encode_json(manifest).unwrap();
    (ObjectKey::new(namespace, name), Some(body))
}
