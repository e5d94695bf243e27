//! Replicas and watchers by hand: they say what a test wants them to say.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anteroom_bus::{Address, Bus, BusExt as _, Incoming};
use anteroom_model::{FactError, Incarnation, ResourceVersion, Revision, ViewId};
use anteroom_wire::{
    body,
    envelope::TraceContext,
    live::{self, LiveReply, LiveRequest},
    query::{Query, QueryReply, decode_request, encode_outcome},
    replica_beat::{ReplicaBeat, ReplicaView},
};
use bytes::Bytes;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use crate::cluster::{Cluster, ingresses};

/// Returns the result of a query about these hosts: whether the key's host is among them, or all of
/// them.
pub(crate) fn listed(query: &Query, hosts: &[&str]) -> Value {
    let Some(key) = query.parameters.get("key") else {
        return hosts.into();
    };
    let is_listed = |key: &Value| hosts.iter().any(|host| key == host);
    key.as_array()
        .is_some_and(|keys| keys.iter().any(is_listed))
        .into()
}

/// Somebody who answers. Dropped, it is gone.
pub(crate) struct Server {
    calls: Arc<AtomicUsize>,
    traces: Arc<parking_lot::Mutex<Vec<Option<TraceContext>>>>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Server {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) fn traces(&self) -> Vec<Option<TraceContext>> {
        self.traces.lock().clone()
    }
}

impl Cluster {
    /// Starts a replica of the Ingresses that answers each query so.
    pub(crate) async fn replica(
        &self,
        answer: impl Fn(&Query) -> Result<Value, FactError> + Send + Sync + 'static,
    ) -> Server {
        self.replica_that(move |_, query| Some(answer(query))).await
    }

    /// Starts a replica of the Ingresses that answers each call (counted from 0) so; `None`: never.
    pub(crate) async fn replica_that(
        &self,
        answer: impl Fn(usize, &Query) -> Option<Result<Value, FactError>> + Send + Sync + 'static,
    ) -> Server {
        self.replica_at(Address::View(ingresses()), answer).await
    }

    /// Starts a replica at this address.
    pub(crate) async fn replica_at(
        &self,
        at: Address,
        answer: impl Fn(usize, &Query) -> Option<Result<Value, FactError>> + Send + Sync + 'static,
    ) -> Server {
        self.server(&[at], move |call, incoming| {
            let request = decode_request(&incoming.call.body).unwrap();
            let results: Option<Vec<_>> = request
                .queries
                .iter()
                .map(|query| answer(call, query))
                .collect();
            let results = results?;
            // What is wrong with the replica is said once, of the whole request.
            let refused = results.iter().find_map(|result| {
                let error = result.as_ref().err()?;
                error
                    .class()
                    .retry
                    .another_replica_may_answer()
                    .then(|| error.clone())
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
                examined: 0,
                results: results.into_iter().map(encode).collect(),
            };
            Some(encode_outcome(&refused.map_or(Ok(reply), Err)).unwrap())
        })
        .await
    }

    /// Starts a watcher that answers each live read and write so.
    pub(crate) async fn watcher(
        &self,
        answer: impl Fn(LiveRequest) -> Result<Value, FactError> + Send + Sync + 'static,
    ) -> Server {
        self.server(&[Address::Live, Address::Write], move |_, incoming| {
            let request = live::decode_request(&incoming.call.body).unwrap();
            let outcome = answer(request).map(|value| LiveReply {
                watcher: "watcher-0".into(),
                age_ms: 3,
                shared: false,
                result: body::encode_value(&value).unwrap(),
                secret: false,
            });
            Some(live::encode_outcome(&outcome).unwrap())
        })
        .await
    }

    async fn server(
        &self,
        at: &[Address],
        answer: impl Fn(usize, &Incoming) -> Option<Bytes> + Send + Sync + 'static,
    ) -> Server {
        let answer = Arc::new(answer);
        let calls = Arc::new(AtomicUsize::new(0));
        let traces = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for at in at {
            let bus = self.bus.join();
            let mut serving = bus.serve(at).await.unwrap();
            let (counted, seen) = (Arc::clone(&calls), Arc::clone(&traces));
            let answer = Arc::clone(&answer);
            let task = tokio::spawn(async move {
                let _bus = bus;
                let mut unanswered = Vec::new();
                while let Some(incoming) = serving.next().await {
                    let incoming = incoming.unwrap();
                    let call = counted.fetch_add(1, Ordering::SeqCst);
                    seen.lock().push(incoming.call.trace.clone());
                    match answer(call, &incoming) {
                        Some(body) => incoming.answer(body).await.unwrap(),
                        None => unanswered.push(incoming),
                    }
                }
            });
            tasks.push(AbortOnDropHandle::new(task));
        }
        Server {
            calls,
            traces,
            _tasks: tasks,
        }
    }

    /// Announces that a replica serves these views, until the handle is dropped.
    pub(crate) fn beats(&self, views: &[&str]) -> AbortOnDropHandle<()> {
        let view = |view: &&str| ReplicaView {
            view: ViewId::new(*view),
            state: "synced".to_owned(),
            bytes: 0,
        };
        let beat = ReplicaBeat {
            replica: "replica-0".into(),
            views: views.iter().map(view).collect(),
            ..ReplicaBeat::default()
        };
        let bus = self.bus.join();
        AbortOnDropHandle::new(tokio::spawn(async move {
            // A beat that nobody hears is lost: the webhook may not listen yet.
            loop {
                bus.send(&beat).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }))
    }
}
