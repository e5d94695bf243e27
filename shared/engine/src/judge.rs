//! Judges existing objects by the policies, as requests are judged, for reports on them.
//!
//! A [`Judge`] follows the log for policies, entries and kinds, as a webhook does, and asks the replicas
//! for facts. It serves nothing, and registers nothing.

mod policy_update;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::Bus;
use anteroom_model::{
    EntryKind, EntryRecord, GroupVersionResource, Incarnation, KindRecord, ObjectKey, Revision,
    Source, ViewId,
};
use anteroom_policy::{
    AdmissionRequest, Arrival, Filtered, Policy, Reference, ResourceFilters, RuleOutcome, scanned,
};
use anteroom_runtime::{Check, Service};
use anteroom_seal::Keys;
use serde_json::{Value, json};
use tokio::sync::watch;

pub use self::policy_update::{Triggers, UpdatedPolicy};
use crate::{
    catalog::{self, Catalog, CatalogOutlets, Catalogs},
    decide::Engine,
    exemptions::{ExemptionRules, Exemptions},
    facts::BusFacts,
    mutate_existing::Worker,
    policies::CompiledPolicy,
    recorder::{NoRecorder, SharedRecorder},
    violations::Violations,
};

/// The longest wait for the facts of an object, so that a hanging backend delays a scan no longer.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// The time after which a query is asked a second time: never before the timeout. No request waits for a scan, and
/// second queries would take capacity from admission. Unanswered queries are asked again later.
const HEDGE: Duration = TIMEOUT;

/// Judges existing objects by the policies. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Judge {
    engine: Engine,
    catalogs: Catalogs,
    worker: Arc<Worker>,
    exemptions: Exemptions,
}

/// The policies, entries and kinds as they were at one moment. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CatalogSnapshot(Arc<Catalog>);

/// A policy that is scanned, as it was compiled. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ScannedPolicy(Arc<CompiledPolicy>);

/// The outcome of one rule that matches an object.
#[derive(Clone, Debug)]
pub struct RuleJudgement {
    /// The key of the policy, unique among all kinds.
    pub policy: ObjectKey,
    /// The rule's name.
    pub rule: String,
    /// The rule's outcome.
    pub outcome: RuleOutcome,
    /// Further results by name; `exceptions` has the names of the exceptions that skipped the rule.
    pub properties: BTreeMap<String, String>,
    /// True if at least one of the rule's facts was answered.
    pub was_answered: bool,
    /// The time from the rule's first step to its end, with the wait for facts, and without that for the long lane.
    pub took: Duration,
}

/// A collection that is scanned for a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    /// The collection's resource and kind.
    pub kind: KindRecord,
    /// The view that holds it; `None`: there is none yet, or none any more.
    pub view: Option<ViewId>,
}

/// The collections that are scanned for a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collections {
    /// The collections.
    pub found: Vec<Collection>,
    /// The number of resources that the policy matches and that are not scanned, as in
    /// [`ScannedKinds`](anteroom_policy::ScannedKinds).
    pub left_out: usize,
}

impl Judge {
    /// Returns a judge, and the future that keeps it in step with the log. It follows it until shutdown, and has to be run.
    /// With `asker_keys` it asks for Secrets.
    pub fn new(
        bus: Arc<dyn Bus>,
        asker_keys: Keys,
        service: &Service,
        check: Check,
    ) -> (Self, impl Future<Output = anyhow::Result<()>> + use<>) {
        let recorder: SharedRecorder = Arc::new(NoRecorder);
        let (catalogs_in, catalogs) = watch::channel(None::<Arc<Catalog>>);
        let follow = catalog::follow(
            Arc::clone(&bus),
            service.clone(),
            Arc::clone(&recorder),
            CatalogOutlets {
                catalogs: catalogs_in,
                contradicted: watch::Sender::new(Vec::new()),
                check,
            },
        );
        let (reader, counted_by) = (Arc::clone(&bus), Arc::clone(&recorder));
        let facts = BusFacts::new(reader, asker_keys, counted_by, HEDGE, 0.0).for_scans();
        let engine = Engine::new(catalogs.clone(), facts, Arc::clone(&recorder));
        let (violations, telling) =
            Violations::new(bus, Arc::clone(&recorder), service.shutdown.clone());
        let worker = Arc::new(Worker::new(engine.clone(), violations, recorder, false));
        let judge = Self {
            engine,
            catalogs,
            worker,
            exemptions: Exemptions::default(),
        };
        let follow = async move {
            tokio::select! {
                ended = follow => ended,
                ended = telling => ended,
            }
        };
        (judge, follow)
    }

    /// Returns a judge with other exemptions than the defaults. It evaluates no policy on objects that a filter exempts.
    #[must_use]
    pub fn exempting(self, exemptions: Exemptions) -> Self {
        Self { exemptions, ..self }
    }

    /// Returns the exemptions that are in force now.
    pub fn exemptions(&self) -> Arc<ExemptionRules> {
        self.exemptions.rules()
    }

    /// Returns the latest catalog; `None` until all of it was read once.
    pub fn snapshot(&self) -> Option<CatalogSnapshot> {
        self.catalogs.borrow().clone().map(CatalogSnapshot)
    }

    /// Waits until the catalog is another one. Nothing is lost where the future is dropped.
    pub async fn changed(&mut self) {
        if self.catalogs.changed().await.is_err() {
            std::future::pending::<()>().await; // Whoever follows the log has ended, and tells.
        }
    }

    /// Evaluates the validating rules of these policies on an object, in the rules' order. Rules that do not match
    /// the object are left out, and all rules if the object is filtered. `object` is whole, with `apiVersion` and
    /// `kind`. All facts together may take `timeout`, at most [`TIMEOUT`].
    pub async fn judge(
        &self,
        catalog: &CatalogSnapshot,
        policies: &[ScannedPolicy],
        object: Value,
        timeout: Duration,
    ) -> Vec<RuleJudgement> {
        if is_filtered(&self.exemptions().filters, &object) {
            return Vec::new();
        }
        let (group, version) = group_version(&object);
        let kind = catalog
            .0
            .kinds
            .of_kind(group, version, text(&object, "kind"));
        let Some(request) = creation(object, kind) else {
            return Vec::new();
        };
        let entries: Vec<_> = policies.iter().map(|policy| &*policy.0).collect();
        let timeout = timeout.min(TIMEOUT);
        let judging = self.engine.judge(&catalog.0, &entries, &request, timeout);
        let records = judging.await;
        let properties = |record: &crate::verdict::RuleRecord| {
            let all = record.public_properties();
            let mut all: BTreeMap<_, _> = all.map(|(a, b)| (a.clone(), b.clone())).collect();
            if !record.excepted_by.is_empty() {
                all.insert("exceptions".to_owned(), record.excepted_by.join(","));
            }
            all
        };
        let judged = |record: crate::verdict::RuleRecord| RuleJudgement {
            policy: record.name.reader.policy.clone(),
            rule: record.name.rule().to_owned(),
            was_answered: record.facts.iter().any(|fact| fact.origin.is_some()),
            took: record.took,
            properties: properties(&record),
            outcome: record.public_outcome(),
        };
        records.into_iter().map(judged).collect()
    }
}

impl Judge {
    /// Judges by no state of the view any more that is before this position of the log.
    pub fn expect(&self, view: &ViewId, incarnation: &Incarnation, revision: Revision) {
        self.engine.facts().expect(view, incarnation, revision);
    }
}

impl CatalogSnapshot {
    /// Returns whether `other` says the same.
    pub fn is(&self, other: &Self) -> bool {
        let (one, other) = (&self.0, &other.0);
        one.same_policies(other)
            && Arc::ptr_eq(&one.entries, &other.entries)
            && Arc::ptr_eq(&one.kinds, &other.kinds)
    }

    /// Returns whether the same exceptions are in force in `other`.
    pub fn excepts_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.exceptions, &other.0.exceptions)
    }

    /// The policies that are scanned, in order of key.
    pub fn scanned(&self) -> impl Iterator<Item = ScannedPolicy> {
        let entries = self.0.policies.all().iter();
        let is_scanned = |entry: &&Arc<CompiledPolicy>| {
            let policy = entry.outcome.as_ref().ok();
            policy.is_some_and(|policy| policy.not_scanned().is_none())
        };
        entries.filter(is_scanned).cloned().map(ScannedPolicy)
    }

    /// The views from which the policy's rules and exceptions may read facts. A change of such a view may change the
    /// policy's results.
    pub fn reads(&self, policy: &ScannedPolicy) -> BTreeSet<ViewId> {
        let Some(compiled) = policy.policy() else {
            return BTreeSet::new();
        };
        let exceptions = self.0.exceptions.about(compiled);
        let references = compiled
            .references()
            .chain(exceptions.flat_map(anteroom_policy::PolicyException::references));
        let mut views: BTreeSet<ViewId> = references
            .filter_map(|reference| self.view_of(&reference, policy.key()))
            .collect();
        for (kind, name, _) in compiled.entry_queries() {
            match name {
                Some(name) => views.extend(self.0.entries.get(kind, name).and_then(view_of_record)),
                None => {
                    let all = self.0.entries.of_kind(kind);
                    views.extend(all.filter_map(view_of_record));
                }
            }
        }
        views
    }

    /// The view that a reference is answered from; `None`: no view answers it.
    fn view_of(&self, reference: &Reference, policy: &ObjectKey) -> Option<ViewId> {
        if let Reference::Object(object) = reference
            && !reference.may_be_secrets()
        {
            let (group, version) = (object.group.as_str(), object.version.as_str());
            let gvr = GroupVersionResource::new(group, version, object.resource.as_str());
            return Some(Source::Objects { gvr }.view_id());
        }
        let name = reference.name_for(policy);
        view_of_record(self.0.entries.get(EntryKind::Implicit, &name)?)
    }

    /// Returns the collections that are scanned for a policy.
    pub fn collections(&self, policy: &ScannedPolicy) -> Collections {
        let Some(compiled) = policy.policy() else {
            return Collections::default();
        };
        let namespace = compiled.namespace().unwrap_or_default();
        let kinds = scanned(&compiled.scanned_kinds(), namespace, self.0.kinds.records());
        let collection = |(reference, kind): (_, &KindRecord)| {
            let name = Reference::Collection(reference).name_for(&policy.0.key);
            let record = self.0.entries.get(EntryKind::Implicit, &name);
            Collection {
                kind: kind.clone(),
                view: record.and_then(view_of_record),
            }
        };
        Collections {
            found: kinds.found.into_iter().map(collection).collect(),
            left_out: kinds.left_out,
        }
    }
}

impl ScannedPolicy {
    /// Returns the policy's key, unique among all kinds.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// The policy; `None`: the policy is not ready, and is never scanned.
    pub fn policy(&self) -> Option<&Policy> {
        self.0.outcome.as_ref().ok()
    }

    /// Returns whether judging by it may have to wait for a fact.
    pub fn may_wait(&self) -> bool {
        self.policy().is_some_and(Policy::may_wait)
    }

    /// Returns whether both are the identical compiled policy.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

fn view_of_record(record: &EntryRecord) -> Option<ViewId> {
    let binding = record.binding().ok()?;
    Some(binding.view.clone())
}

/// Returns whether no policy is asked about the object.
fn is_filtered(filters: &ResourceFilters, object: &Value) -> bool {
    let (group, version) = group_version(object);
    let metadata = &object["metadata"];
    filters.filter(&Filtered {
        group,
        version,
        kind: text(object, "kind"),
        subresource: "",
        namespace: text(metadata, "namespace"),
        name: text(metadata, "name"),
    })
}

/// Empty: there is none.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn group_version(object: &Value) -> (&str, &str) {
    let api_version = text(object, "apiVersion");
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Returns the request that would create the object of this kind, without a user. Without the kind, no policy that
/// names resources matches the object.
fn creation(object: Value, kind: Option<&KindRecord>) -> Option<AdmissionRequest> {
    let (group, version) = group_version(&object);
    let mut request = json!({
        "kind": {"group": group, "version": version, "kind": object["kind"]},
        "name": object["metadata"]["name"],
        "namespace": object["metadata"]["namespace"].as_str().unwrap_or_default(),
        "operation": "CREATE",
    });
    request["object"] = object;
    if let Some(KindRecord { gvr, .. }) = kind {
        request["resource"] =
            json!({"group": gvr.group, "version": gvr.version, "resource": gvr.resource});
    }
    let arrival = Arrival {
        now_ns: anteroom_runtime::wall_clock::now().as_nanosecond(),
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
        let anteroom_policy::RuleStep::Done(report) = evaluation.step() else {
            return false;
        };
        report.outcome == RuleOutcome::Pass
    }

    #[test]
    fn an_object_is_filtered_by_its_kind_and_place() {
        let filters = ResourceFilters::parse("[apps/v1/Deployment,n,a*][*,o,*]").unwrap();
        for (object, expected) in [
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "a", "namespace": "n"}}),
                true,
            ),
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "b", "namespace": "n"}}),
                false,
            ),
            (
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "o"}}),
                true,
            ),
            (
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "o"}}),
                false,
            ),
            (json!("text"), false),
        ] {
            assert_eq!(is_filtered(&filters, &object), expected, "{object}");
        }
    }

    #[test]
    fn a_scanned_object_becomes_a_create_request_without_a_user() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "namespace": "n"}});
        let kinds = crate::testing::kinds();
        let kind = kinds.of_kind("apps", "v1", "Deployment");
        let request = creation(object.clone(), kind).unwrap();
        assert_eq!(request.served_kind().resource, "deployments");
        assert_eq!((request.group(), request.kind()), ("apps", "Deployment"));
        assert_eq!(request.namespace(), "n");
        assert_eq!(request.value()["object"], object);
        assert_eq!(request.value().get("userInfo"), None);
        assert!(creation(json!({"apiVersion": "v1"}), None).is_none());
        assert!(tells_the_time(&request));
        assert!(creation(json!("text"), None).is_none());
    }
}
