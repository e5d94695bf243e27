//! Everything around the webhook's facts: the bus, and who answers on it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anteroom_bus::{Address, Bus, local::LocalBus};
use anteroom_model::{
    Binding, EntryKind, EntryRecord, EntryState, FactError, Incarnation, ObjectKey,
    ResourceVersion, Revision, ViewId,
};
use anteroom_policy::{FactRequest, FactSubject, Reference};
use anteroom_seal::{AskedOf, Keys};
use anteroom_wire::{
    body,
    live::{self, LiveReply, LiveRequest},
    query::{self, Query, QueryReply},
};
use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{super::*, pods};
use crate::{
    catalog::Catalog,
    incoming::ReviewOwner,
    recorder::{AuditResult, Recorder},
    rule::RuleRef,
    testing,
};

/// A replica's answer to one query.
pub(super) type QueryResult = Result<Value, FactError>;

/// Everything around the webhook's facts.
pub(super) struct World {
    pub(super) bus: Arc<LocalBus>,
    pub(super) audits: Arc<Audits>,
    pub(super) facts: BusFacts,
    pub(super) catalog: Catalog,
    pub(super) asker_keys: Keys,
}

/// The results of comparisons, in order.
#[derive(Debug, Default)]
pub(super) struct Audits(pub(super) parking_lot::Mutex<Vec<AuditResult>>);

impl Recorder for Audits {
    fn audit(&self, result: AuditResult) {
        self.0.lock().push(result);
    }
}

/// Somebody who answers. Dropped, it is gone.
pub(super) struct Server {
    pub(super) calls: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Server {
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl World {
    pub(super) fn new(audit_ratio: f64) -> Self {
        let bus = Arc::new(LocalBus::new());
        let audits = Arc::<Audits>::default();
        let hedge = Duration::from_millis(100);
        let asker_keys = Keys::ephemeral().unwrap();
        let reader: Arc<dyn Bus> = Arc::new(bus.join());
        let entry = |kind, name: &str, view: &str| EntryRecord {
            kind,
            name: name.to_owned(),
            uid: String::new(),
            generation: 1,
            state: EntryState::Bound(Binding {
                secret: view == "secrets.v1",
                ..Binding::whole(ViewId::new(view))
            }),
            projections: Vec::new(),
        };
        let implicit =
            |reference: Reference, view| entry(EntryKind::Implicit, &reference.name(), view);
        let records = [
            entry(EntryKind::Cached, "services", "services.v1"),
            entry(EntryKind::Cached, "secrets", "secrets.v1"),
            implicit(Reference::Collection(pods(false)), "pods.v1"),
            implicit(Reference::LabelledConfigMaps, "labelled"),
        ];
        Self {
            facts: BusFacts::new(
                reader,
                asker_keys.clone(),
                Arc::<Audits>::clone(&audits),
                hedge,
                audit_ratio,
            ),
            asker_keys,
            catalog: Catalog {
                entries: Arc::new(testing::entries(&records)),
                ..Catalog::default()
            },
            bus,
            audits,
        }
    }

    /// Answers each query at `at` so; `None`: never.
    pub(super) async fn replica(
        &self,
        at: Address,
        say: impl Fn(usize, &Query) -> Option<QueryResult> + Send + 'static,
    ) -> Server {
        self.serve(at, move |call, body| {
            let request = query::decode_request(body).unwrap();
            let said: Option<Vec<QueryResult>> =
                request.queries.iter().map(|q| say(call, q)).collect();
            let outcome = outcome(said?);
            Some(query::encode_outcome(&outcome).unwrap())
        })
        .await
    }

    /// Answers each live read so.
    pub(super) async fn watcher(
        &self,
        say: impl Fn(usize, LiveRequest) -> QueryResult + Send + 'static,
    ) -> Server {
        let keys = self.asker_keys.clone();
        self.serve(Address::Live, move |call, body| {
            let (plain, answering) = keys.open_question(AskedOf::Live, body).map_or_else(
                |_| (Bytes::copy_from_slice(body), None),
                |(plain, answering)| (plain, Some(answering)),
            );
            let said = say(call, live::decode_request(&plain).unwrap());
            let outcome = said.map(|value| LiveReply {
                watcher: "w".into(),
                age_ms: 3,
                shared: false,
                result: body::encode_value(&value).unwrap(),
                secret: false,
            });
            let outcome = live::encode_outcome(&outcome).unwrap();
            Some(match answering {
                Some(answering) => answering.seal(&outcome).unwrap(),
                None => outcome,
            })
        })
        .await
    }

    pub(super) async fn serve(
        &self,
        at: Address,
        answer: impl Fn(usize, &[u8]) -> Option<Bytes> + Send + 'static,
    ) -> Server {
        let bus = self.bus.join();
        let mut serving = bus.serve(&at).await.unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let task = tokio::spawn(async move {
            let _bus = bus;
            let mut unanswered = Vec::new();
            while let Some(incoming) = serving.next().await {
                let incoming = incoming.unwrap();
                let call = counted.fetch_add(1, Ordering::SeqCst);
                match answer(call, &incoming.call.body) {
                    Some(body) => incoming.answer(body).await.unwrap(),
                    None => unanswered.push(incoming),
                }
            }
        });
        Server {
            calls,
            _task: AbortOnDropHandle::new(task),
        }
    }

    pub(super) async fn answers(&self, targets: Vec<FactSubject>) -> Vec<FactAnswer> {
        let holder = FactHolder::review(ReviewOwner::default());
        self.answers_for(&holder, targets).await
    }

    pub(super) async fn answers_for(
        &self,
        holder: &FactHolder,
        targets: Vec<FactSubject>,
    ) -> Vec<FactAnswer> {
        let needs = targets
            .into_iter()
            .enumerate()
            .map(|(id, subject)| FactRequest {
                id: id as u32,
                variable: "v".into(),
                subject,
                expression: "@".into(),
                parameters: Arc::default(),
                missing_key_is_error: true,
                age_max_ms: None,
                is_pushed_down: false,
                cel: None,
            });
        let deadline = Instant::now() + Duration::from_secs(10);
        let reader = RuleRef {
            policy: ObjectKey::new("", "p"),
            rule: "r".into(),
        };
        let needs = RuleRequests {
            asker: 0,
            reader: &reader,
            review_namespace: "n",
            requests: needs.collect(),
        };
        self.ask_for(holder, vec![needs], deadline).await
    }

    pub(super) async fn ask(
        &self,
        needs: Vec<RuleRequests<'_>>,
        deadline: Instant,
    ) -> Vec<FactAnswer> {
        let holder = FactHolder::review(ReviewOwner::default());
        self.ask_for(&holder, needs, deadline).await
    }

    async fn ask_for(
        &self,
        holder: &FactHolder,
        needs: Vec<RuleRequests<'_>>,
        deadline: Instant,
    ) -> Vec<FactAnswer> {
        let arriving = self.facts.ask(&self.catalog, needs, holder, deadline);
        let facts = futures::future::join_all(arriving).await;
        let mut facts: Vec<FactAnswer> = facts.into_iter().flatten().collect();
        facts.sort_by_key(|fact| fact.id);
        facts
    }

    pub(super) async fn answer(&self, subject: FactSubject) -> FactAnswer {
        self.answers(vec![subject]).await.remove(0)
    }
}

/// An error of the replica itself is given once, for the whole request.
pub(super) fn outcome(said: Vec<QueryResult>) -> Result<QueryReply, FactError> {
    let of_replica = |said: &QueryResult| {
        let error = said.as_ref().err()?;
        error
            .class()
            .retry
            .another_replica_may_answer()
            .then(|| error.clone())
    };
    if let Some(error) = said.iter().find_map(of_replica) {
        return Err(error);
    }
    let encode = |value| body::encode_value(&value).unwrap();
    Ok(QueryReply {
        replica: "replica-0".into(),
        incarnation: Incarnation("i".into()),
        revision: Revision(42),
        version: ResourceVersion::new("1042"),
        age_ms: 7,
        objects: 2,
        examined: 0,
        results: said.into_iter().map(|said| said.map(encode)).collect(),
    })
}
