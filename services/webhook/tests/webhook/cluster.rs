//! The rest of the system, by hand: the log that a watcher would write, and replicas.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anteroom_bus::{Address, Bus, Fence, Lease, local::LocalBus};
use anteroom_model::{
    Delta, Digest, EntryRecord, EntryState, Epoch, FactError, Incarnation, KindRecord, ObjectKey,
    Op, ResourceVersion, Revision, Source, SourceInfo, ViewId, ViewRecord, ViewState, system,
};
use anteroom_runtime::Service;
use anteroom_webhook::{Args, Webhook};
use anteroom_wire::{
    body,
    envelope::{Envelope, Record, TraceContext},
    query::{Query, QueryReply, decode_request, encode_outcome},
};
use clap::Parser;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::client::Client;

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

/// What was written to the log.
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

/// The webhook's options, with these given.
pub(crate) fn args(given: &[&str]) -> Args {
    let always = ["webhook", "--listen-address", "127.0.0.1:0"];
    Cli::parse_from(always.iter().chain(given)).webhook
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

    /// What [`Cluster::with`] begins with.
    pub(crate) async fn write_all(&self, policies: &[Value]) {
        let entry = EntryRecord {
            name: "ingresses".into(),
            uid: "1".into(),
            generation: 1,
            state: EntryState::Bound(anteroom_model::Binding::whole(ingresses())),
            projections: Vec::new(),
            kind: anteroom_model::EntryKind::Cached,
        };
        let kind = KindRecord {
            gvr: anteroom_model::GroupVersionResource::new("networking.k8s.io", "v1", "ingresses"),
            kind: "Ingress".into(),
            namespaced: true,
            subresources: vec!["status".into()],
            preferred: true,
        };
        self.write(
            system::entries_source(),
            &[(
                anteroom_model::EntryKind::Cached.key("ingresses"),
                Some(body::encode(&entry).unwrap()),
            )],
        )
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
    }

    /// Writes these policies.
    pub(crate) async fn policies(&self, policies: &[Value]) {
        let changes: Vec<_> = policies
            .iter()
            .map(|policy| {
                let name = policy["metadata"]["name"].as_str().unwrap();
                let body = body::encode_json(policy).unwrap();
                (ObjectKey::new("", name), Some(body))
            })
            .collect();
        self.write(system::policies_source(), &changes).await;
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

    /// Starts the webhook, and waits until it is ready.
    pub(crate) async fn webhook(&self) -> (Webhook, Client) {
        let (webhook, client) = self.webhook_at_once().await;
        self.service.readiness.wait_ready().await;
        (webhook, client)
    }

    /// Starts the webhook, ready or not.
    pub(crate) async fn webhook_at_once(&self) -> (Webhook, Client) {
        let bus = Arc::new(self.bus.join());
        let webhook = Webhook::start(&args(&[]), bus, None, &self.service).unwrap();
        let client = Client::of(&webhook).await;
        (webhook, client)
    }

    /// Starts a replica of the Ingresses that answers each query so.
    pub(crate) async fn replica(
        &self,
        answer: impl Fn(&Query) -> Result<Value, FactError> + Send + Sync + 'static,
    ) -> Replica {
        self.replica_that(move |_, query| Some(answer(query))).await
    }

    /// Starts a replica that answers each call (counted from 0) so; `None`: never.
    pub(crate) async fn replica_that(
        &self,
        answer: impl Fn(usize, &Query) -> Option<Result<Value, FactError>> + Send + Sync + 'static,
    ) -> Replica {
        let bus = self.bus.join();
        let mut serving = bus.serve(&Address::View(ingresses())).await.unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let traces = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let (counted, seen) = (Arc::clone(&calls), Arc::clone(&traces));
        let task = tokio::spawn(async move {
            let _bus = bus;
            let mut unanswered = Vec::new();
            while let Some(incoming) = serving.next().await {
                let incoming = incoming.unwrap();
                let call = counted.fetch_add(1, Ordering::SeqCst);
                seen.lock().push(incoming.call.trace.clone());
                let request = decode_request(&incoming.call.body).unwrap();
                let results: Option<Vec<_>> = request
                    .queries
                    .iter()
                    .map(|query| answer(call, query))
                    .collect();
                let Some(results) = results else {
                    unanswered.push(incoming);
                    continue;
                };
                // What is wrong with the replica is said once, of the whole request.
                let refused = results.iter().find_map(|result| {
                    let error = result.as_ref().err()?;
                    error.another_replica_may_answer().then(|| error.clone())
                });
                let encode = |result: Result<Value, FactError>| {
                    result.map(|value| body::encode_value(&value).unwrap())
                };
                let reply = QueryReply {
                    replica: "replica-0".into(),
                    incarnation: Incarnation("i".into()),
                    revision: Revision(42),
                    version: ResourceVersion::new("1042"),
                    age_ms: 7,
                    objects: 2,
                    results: results.into_iter().map(encode).collect(),
                    sealed: false,
                };
                incoming
                    .answer(encode_outcome(&refused.map_or(Ok(reply), Err)).unwrap())
                    .await
                    .unwrap();
            }
        });
        Replica {
            calls,
            traces,
            _task: AbortOnDropHandle::new(task),
        }
    }
}

/// A replica by hand. Dropped, it is gone.
pub(crate) struct Replica {
    calls: Arc<AtomicUsize>,
    traces: Arc<parking_lot::Mutex<Vec<Option<TraceContext>>>>,
    _task: AbortOnDropHandle<()>,
}

impl Replica {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn traces(&self) -> Vec<Option<TraceContext>> {
        self.traces.lock().clone()
    }
}

/// Says that these hosts are taken.
pub(crate) fn taken(hosts: &'static [&'static str]) -> impl Fn(&Query) -> Result<Value, FactError> {
    move |_| Ok(json!(hosts))
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
