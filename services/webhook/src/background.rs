//! Existing objects through the policies, by the same roads as admission: for whoever reports on them.
//!
//! A [`Judge`] follows the log for policies, entries and kinds, as a webhook does, and asks the replicas
//! for facts. It serves nothing, and registers nothing.

use std::{sync::Arc, time::Duration};

use anteroom_bus::Bus;
use anteroom_model::{EntryKind, KindRecord, ObjectKey, ViewId};
use anteroom_policy::{AdmissionRequest, Arrival, Policy, Reference, RuleOutcome, scanned};
use anteroom_runtime::{Check, Service};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    catalog::{self, Catalog, Catalogs},
    decide::Decider,
    facts::Facts,
    metrics::WebhookMetrics,
    policies::Entry,
};

/// How long the facts of one object may take: what waits for one that hangs waits no longer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// After how long a query is asked a second time: never. Nobody waits for a scan, and what it asks twice
/// takes room from admission. What was not answered is asked again later.
const HEDGE: Duration = TIMEOUT;

/// Takes existing objects through the policies. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Judge {
    decider: Decider,
    catalogs: Catalogs,
}

/// The policies, entries and kinds as they were at one moment. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Known(Arc<Catalog>);

/// A policy that is scanned, as it was compiled. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Scanned(Arc<Entry>);

/// What became of one rule that speaks of an object.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The policy: `namespace` is empty for a `ClusterPolicy`.
    pub policy: ObjectKey,
    /// The rule's name.
    pub rule: String,
    /// What became of it.
    pub outcome: RuleOutcome,
}

/// A collection that is scanned for a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    /// Its resource and kind.
    pub kind: KindRecord,
    /// The view that holds it; `None`: there is none yet, or none any more.
    pub view: Option<ViewId>,
}

impl Judge {
    /// Begins to follow the log. The future follows it until shutdown, and has to be run.
    pub fn new(
        bus: Arc<dyn Bus>,
        service: &Service,
        check: Check,
    ) -> (Self, impl Future<Output = anyhow::Result<()>> + use<>) {
        let metrics = WebhookMetrics::registered(&service.metrics);
        let (catalogs_in, catalogs) = watch::channel(None::<Arc<Catalog>>);
        let follow = catalog::follow(
            Arc::clone(&bus),
            service.clone(),
            metrics.clone(),
            catalogs_in,
            check,
        );
        let facts = Facts::new(bus, metrics.clone(), HEDGE, 0.0);
        let decider = Decider::new(catalogs.clone(), facts, metrics);
        (Self { decider, catalogs }, follow)
    }

    /// What is known now; `None` until all was read once.
    pub fn known(&self) -> Option<Known> {
        self.catalogs.borrow().clone().map(Known)
    }

    /// Waits until something else is known. Nothing is lost where the future is dropped.
    pub async fn changed(&mut self) {
        if self.catalogs.changed().await.is_err() {
            std::future::pending::<()>().await; // Whoever follows the log has ended, and tells.
        }
    }

    /// Takes an object through the validating rules of these policies, in their order; those that do not
    /// speak of it are left out. `object` is whole, with `apiVersion` and `kind`.
    pub async fn judge(&self, known: &Known, policies: &[Scanned], object: Value) -> Vec<Judged> {
        let Some(request) = creation(object) else {
            return Vec::new();
        };
        let entries: Vec<_> = policies.iter().map(|policy| &*policy.0).collect();
        let judging = self.decider.judge(&known.0, &entries, &request, TIMEOUT);
        let records = judging.await;
        let judged = |record: crate::verdict::RuleRecord| Judged {
            policy: record.name.reader.policy.clone(),
            rule: record.name.rule().to_owned(),
            outcome: record.outcome,
        };
        records.into_iter().map(judged).collect()
    }
}

impl Known {
    /// Whether nothing else was known at the moment of `other`.
    pub fn is(&self, other: &Self) -> bool {
        let (one, other) = (&self.0, &other.0);
        one.decides_as(other)
            && Arc::ptr_eq(&one.entries, &other.entries)
            && Arc::ptr_eq(&one.kinds, &other.kinds)
    }

    /// Whether the same exceptions were in force at the moment of `other`.
    pub fn excepts_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.exceptions, &other.0.exceptions)
    }

    /// The policies that are scanned, in order of key.
    pub fn scanned(&self) -> impl Iterator<Item = Scanned> {
        let entries = self.0.policies.entries().iter();
        let is_scanned = |entry: &&Arc<Entry>| {
            let policy = entry.outcome.as_ref().ok();
            policy.is_some_and(|policy| policy.not_scanned().is_none())
        };
        entries.filter(is_scanned).cloned().map(Scanned)
    }

    /// What is scanned for a policy.
    pub fn collections(&self, policy: &Scanned) -> Vec<Collection> {
        let Some(compiled) = policy.policy() else {
            return Vec::new();
        };
        let namespace = compiled.namespace().unwrap_or_default();
        let found = scanned(&compiled.scanned_kinds(), namespace, self.0.kinds.records());
        let collection = |(reference, kind): (_, &KindRecord)| {
            let name = Reference::Collection(reference).name_for(&policy.0.key);
            let record = self.0.entries.get(EntryKind::Implicit, &name);
            Collection {
                kind: kind.clone(),
                view: record
                    .and_then(|record| record.binding().ok())
                    .map(|binding| binding.view.clone()),
            }
        };
        found.into_iter().map(collection).collect()
    }
}

impl Scanned {
    /// Namespace (empty for a `ClusterPolicy`) and name.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// The policy; `None` for one that is not ready, which is never scanned.
    pub fn policy(&self) -> Option<&Policy> {
        self.0.outcome.as_ref().ok()
    }

    /// Whether it is the very same, compiled once.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The request that would create the object, by nobody.
fn creation(object: Value) -> Option<AdmissionRequest> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let mut request = json!({
        "kind": {"group": group, "version": version, "kind": object["kind"]},
        "name": object["metadata"]["name"],
        "namespace": object["metadata"]["namespace"].as_str().unwrap_or_default(),
        "operation": "CREATE",
    });
    request["object"] = object;
    let arrival = Arrival {
        now_ns: jiff::Timestamp::now().as_nanosecond(),
        seed: rand::random(),
    };
    let request = AdmissionRequest::new(request).ok()?;
    Some(request.arrived(arrival))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rule about the time can be evaluated.
    fn tells_the_time(request: &AdmissionRequest) -> bool {
        let policy = anteroom_policy::compile(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
            "spec": {"rules": [{
                "name": "r", "match": {"any": [{"resources": {"kinds": ["Deployment"]}}]},
                "validate": {"deny": {"conditions": {"all": [{
                    "key": "{{ time_after(time_now_utc(), '2020-01-01T00:00:00Z') }}",
                    "operator": "Equals", "value": false,
                }]}}},
            }]},
        }));
        let policy = policy.unwrap();
        let mut evaluation =
            anteroom_policy::Evaluation::start(&policy, &policy.rules()[0], request);
        let anteroom_policy::Step::Done(report) = evaluation.step() else {
            return false;
        };
        report.outcome == RuleOutcome::Pass
    }

    #[test]
    fn an_object_is_created_by_nobody() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "namespace": "n"}});
        let request = creation(object.clone()).unwrap();
        assert_eq!((request.group(), request.kind()), ("apps", "Deployment"));
        assert_eq!(request.namespace(), "n");
        assert_eq!(request.value()["object"], object);
        assert_eq!(request.value().get("userInfo"), None);
        assert!(creation(json!({"apiVersion": "v1"})).is_none());
        assert!(tells_the_time(&request));
        assert!(creation(json!("text")).is_none());
    }
}
