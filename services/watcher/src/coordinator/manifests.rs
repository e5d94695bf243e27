//! Entries and policies as the API server has them, read so that a malformed one can still get a
//! status that says what is wrong.

use anteroom_jmespath::Expression;
use anteroom_model::{EntryKind, ErrorCode, Failure, ObjectKey, ResourceVersion};
use anteroom_policy::{
    Driver, KindPattern, NotRun, Phase, Policy, PolicyException, PolicyKind, Problem, Reference,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    coordinator::{
        cel_status::{self, Summary},
        conditions,
        effect::Record,
        exception_store::ExceptionKind,
        rules::RulesStatus,
    },
    gateway::rights::Need,
    source::{
        api::{
            CachedContextEntrySpec, CachedContextEntryStatus, GlobalContextEntrySpec,
            GlobalContextEntryStatus,
        },
        discovery::{Catalog, spec_invalid},
        prune::{self, PruneError},
        reflect::{RawObject, content_version},
    },
};

/// The fields of any object that its status is written by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The generation of the spec.
    pub generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    #[serde(rename = "apiVersion")]
    api_version: String,
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    uid: String,
    generation: i64,
}

impl Identity {
    /// Also of an object whose other parts cannot be read.
    fn read(object: &RawObject) -> Self {
        let Body { metadata, .. } = serde_json::from_slice(&object.json).unwrap_or_default();
        Self {
            namespace: object.key.namespace.to_string(),
            name: object.key.name.to_string(),
            uid: metadata.uid,
            generation: metadata.generation,
        }
    }
}

/// The spec of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EntrySpec {
    /// A `CachedContextEntry`.
    Cached(Box<CachedContextEntrySpec>),
    /// A `GlobalContextEntry`, of any version: they have one schema.
    Global(Box<GlobalContextEntrySpec>),
}

/// A `CachedContextEntry` or a `GlobalContextEntry`.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The kind that declares it.
    pub kind: EntryKind,
    /// The object's identity.
    pub identity: Identity,
    /// Its spec, or the reason why that cannot be read.
    pub spec: Result<EntrySpec, Failure>,
    /// Its status. Of a `GlobalContextEntry`, `last_heard_time` is what it calls
    /// `lastRefreshTime`, and it has no figures.
    pub status: CachedContextEntryStatus,
}

impl Entry {
    /// Reads one of this kind.
    pub(crate) fn read(object: &RawObject, kind: EntryKind) -> Self {
        let identity = Identity::read(object);
        let mut value: Value = match serde_json::from_slice(&object.json) {
            Ok(value) => value,
            Err(error) => {
                let spec = Err(unreadable(&error));
                return Self {
                    kind,
                    identity,
                    spec,
                    status: CachedContextEntryStatus::default(),
                };
            }
        };
        let mut take = |field| value.get_mut(field).map(Value::take);
        let spec = take("spec").unwrap_or(Value::Object(Map::new()));
        let spec = EntrySpec::read(spec, kind).map_err(|error| unreadable(&error));
        Self {
            status: read_status(take("status").unwrap_or_default(), kind),
            kind,
            identity,
            spec,
        }
    }
}

impl EntrySpec {
    fn read(spec: Value, kind: EntryKind) -> serde_json::Result<Self> {
        Ok(match kind {
            EntryKind::Global => Self::Global(serde_json::from_value(spec)?),
            EntryKind::Cached | EntryKind::Implicit => Self::Cached(serde_json::from_value(spec)?),
        })
    }
}

/// A status that cannot be read is one that is written anew.
fn read_status(status: Value, kind: EntryKind) -> CachedContextEntryStatus {
    if kind != EntryKind::Global {
        return serde_json::from_value(status).unwrap_or_default();
    }
    let status: GlobalContextEntryStatus = serde_json::from_value(status).unwrap_or_default();
    CachedContextEntryStatus {
        conditions: status.conditions,
        last_heard_time: status.last_refresh_time,
        ..CachedContextEntryStatus::default()
    }
}

fn unreadable(error: &serde_json::Error) -> Failure {
    spec_invalid(format!("the spec cannot be read: {error}"))
}

/// A query of a policy over an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EntryQuery {
    /// The kind that declares the entry.
    pub kind: EntryKind,
    /// Its name; `None`: a request says which.
    pub name: Option<String>,
    /// Over its data; `None`: all of them, or what only a request says.
    pub expression: Option<Expression>,
}

/// A policy of any kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyManifest {
    /// The API version that it was read in.
    pub api_version: &'static str,
    /// The object's identity.
    pub identity: Identity,
    /// The problems that keep it from being served.
    pub problems: Vec<Problem>,
    /// The entries that it names.
    pub entries: Vec<(EntryKind, String)>,
    /// Its queries over entries.
    pub queries: Vec<EntryQuery>,
    /// References that views have to be kept for, or may be.
    pub references: Vec<Reference>,
    /// The kinds whose objects are scanned for it.
    pub scanned: Vec<KindPattern>,
    /// It reads Secrets and nobody allowed it to.
    pub secrets_forbidden: bool,
    /// It changes existing objects and nobody allowed it to.
    pub writes_forbidden: bool,
    /// The reason why this version is held back: it is over a quota, or does not compile.
    pub held_back: Option<Failure>,
    /// The generation that is in force; `None`: none is.
    pub in_force: Option<i64>,
    /// The kinds that it decides over; empty: it is for what is there already.
    pub kinds: Vec<KindPattern>,
    /// The hash of its content, as it is published.
    pub version: ResourceVersion,
    /// The conditions of its status.
    pub conditions: Vec<Condition>,
    /// Its rules that are not run.
    pub not_run: Vec<NotRun>,
    /// Changes of what exists that its rules make, by rule.
    pub changes: Vec<(String, Need)>,
    /// The fields that its status should have of its rules.
    pub rules: RulesStatus,
    /// The fields that its status has of them.
    pub rules_now: Option<RulesStatus>,
    /// The fields that its status has beside its conditions; `None`: it is of kyverno.io.
    pub summary: Option<Summary>,
}

/// The API version of policies of kyverno.io.
const POLICY_API_VERSION: &str = "kyverno.io/v1";

/// The API versions of policies and exceptions of policies.kyverno.io, the preferred one first: all say the same.
const CEL_API_VERSIONS: [&str; 3] = [
    "policies.kyverno.io/v1",
    "policies.kyverno.io/v1beta1",
    "policies.kyverno.io/v1alpha1",
];

/// The API version that exceptions of kyverno.io are published in: all say the same.
const EXCEPTION_API_VERSION: &str = "kyverno.io/v2";

/// Returns the API version that an object of a kind of policy was read in.
fn api_version(object: &RawObject, kind: PolicyKind) -> &'static str {
    match kind.is_cel() {
        true => cel_api_version(object),
        false => POLICY_API_VERSION,
    }
}

fn cel_api_version(object: &RawObject) -> &'static str {
    let Body { api_version, .. } = serde_json::from_slice(&object.json).unwrap_or_default();
    let mut known = CEL_API_VERSIONS.into_iter();
    let found = known.find(|known| *known == api_version);
    found.unwrap_or(CEL_API_VERSIONS[0])
}

impl PolicyManifest {
    /// Reads and compiles one. A manifest that cannot even be published is a problem of its author,
    /// as one that does not compile is: nobody serves it.
    pub(crate) fn read(object: &RawObject, kind: PolicyKind) -> (Self, Option<Record>) {
        let mut read = Self {
            api_version: api_version(object, kind),
            identity: Identity::read(object),
            summary: kind.is_cel().then(Summary::default),
            ..Self::default()
        };
        match read.compile(object, kind) {
            Ok(published) => {
                read.version = published.version.clone();
                let generation = read.identity.generation;
                read.in_force = read.problems.is_empty().then_some(generation);
                (read, Some(published))
            }
            Err(error) => {
                read.problems = vec![unpublished(&error)];
                (read, None)
            }
        }
    }

    /// Returns the kinds that it names, without wildcards, and that the API server does not serve.
    pub(super) fn unserved_kinds<'s>(
        &'s self,
        catalog: Option<&'s Catalog>,
    ) -> impl Iterator<Item = &'s KindPattern> {
        self.kinds.iter().filter(move |kind| {
            let name = match &kind.resource {
                Some(resource) => &resource.plural,
                None => &kind.kind,
            };
            let is_literal = !name.contains(['*', '?']);
            is_literal && !catalog.is_some_and(|catalog| catalog.serves(kind))
        })
    }

    /// Returns a manifest that is held back: it reads and does what the one before it does, which stays in force.
    pub(crate) fn held_back(self, failure: Failure, before: Option<&Self>) -> Self {
        let before = before.cloned().unwrap_or_default();
        Self {
            held_back: Some(failure),
            api_version: self.api_version,
            identity: self.identity,
            summary: self.summary,
            problems: self.problems,
            conditions: self.conditions,
            not_run: self.not_run,
            rules: self.rules,
            rules_now: self.rules_now,
            ..before
        }
    }

    /// The condition that says whether it is in force, as the object has it now.
    pub(super) fn said(&self) -> Option<&Condition> {
        match self.summary {
            None => conditions::find(&self.conditions),
            Some(_) => conditions::find_type(&self.conditions, cel_status::WEBHOOK_CONFIGURED),
        }
    }

    fn compile(&mut self, object: &RawObject, kind: PolicyKind) -> Result<Record, PruneError> {
        let key = kind.key(&object.key.namespace, &object.key.name);
        let (manifest, status, published) =
            published(object, key, self.api_version, kind.as_str())?;
        let mut configs = None;
        match anteroom_policy::compile(&manifest) {
            Ok(policy) => {
                let entries = policy.entries().map(|(kind, name)| (kind, name.to_owned()));
                self.entries = entries.collect();
                let queries = policy.entry_queries();
                self.queries = queries
                    .map(|(kind, name, expression)| EntryQuery {
                        kind,
                        name: name.map(str::to_owned),
                        expression: expression.cloned(),
                    })
                    .collect();
                self.references = policy.references().collect();
                self.scanned = policy.scanned_kinds();
                let targets = Phase::ALL
                    .into_iter()
                    .flat_map(|phase| policy.targets(phase));
                self.kinds = targets.flat_map(|target| target.kinds).collect();
                self.not_run = policy.not_run().to_vec();
                self.changes = changes(&policy);
                configs = policy.autogen_configs();
            }
            Err(problems) => self.problems = problems,
        }
        if kind.is_cel() {
            self.rules = RulesStatus::of_cel_policy(configs);
            self.rules_now = Some(RulesStatus::read_cel(&status));
            self.conditions = cel_status::read_conditions(&status);
            self.summary = Some(Summary::read(&status));
        } else {
            self.rules = RulesStatus::of_policy(&manifest, &self.not_run);
            self.rules_now = Some(RulesStatus::read(&status));
            self.conditions = conditions::read(status.get("conditions").cloned());
        }
        Ok(published)
    }
}

/// Returns the changes of what exists that a policy's rules make, each once for a rule.
fn changes(policy: &Policy) -> Vec<(String, Need)> {
    let mut changes = Vec::new();
    for rule in policy.rules_on_existing() {
        for mut objects in rule.targets_of_existing() {
            if let Some(own) = policy.namespace() {
                own.clone_into(&mut objects.namespace);
            }
            let change = (rule.name().to_owned(), Need::from(objects));
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
    }
    changes
}

/// A `PolicyException` of either group.
#[derive(Clone, Debug)]
pub(crate) struct ExceptionManifest {
    /// The object's UID.
    pub uid: String,
    /// The problems that keep it from excepting anything.
    pub problems: Vec<Problem>,
    /// References that views have to be kept for.
    pub references: Vec<Reference>,
}

impl ExceptionManifest {
    /// Reads and compiles one. What does not compile is published too: readers say the same of it.
    pub(crate) fn read(object: &RawObject, kind: ExceptionKind) -> (Self, Option<Record>) {
        let mut read = Self {
            uid: Identity::read(object).uid,
            problems: Vec::new(),
            references: Vec::new(),
        };
        let api_version = match kind {
            ExceptionKind::Classic => EXCEPTION_API_VERSION,
            ExceptionKind::Cel => cel_api_version(object),
        };
        let key = kind.key(&object.key);
        let published = published(object, key, api_version, "PolicyException");
        match published {
            Ok((manifest, _, published)) => {
                match PolicyException::compile(&manifest, Driver::IN_CLUSTER) {
                    Ok(exception) => read.references = exception.references().collect(),
                    Err(problems) => read.problems = problems,
                }
                (read, Some(published))
            }
            Err(error) => {
                read.problems = vec![unpublished(&error)];
                (read, None)
            }
        }
    }
}

/// A manifest as readers get it, without its status and resource version, and its status: a change of the status alone
/// publishes nothing.
fn published(
    object: &RawObject,
    key: ObjectKey,
    api_version: &str,
    kind: &str,
) -> Result<(Value, Value, Record), PruneError> {
    let mut manifest = prune::prune(&object.json, api_version, kind)?;
    let status = manifest.remove("status").unwrap_or_default();
    if let Some(Value::Object(metadata)) = manifest.get_mut("metadata") {
        metadata.remove("resourceVersion");
    }
    let manifest = Value::Object(manifest);
    let body = anteroom_wire::body::encode_json(&manifest)?;
    let version = content_version(&body);
    Ok((manifest, status, Record { key, version, body }))
}

fn unpublished(error: &PruneError) -> Problem {
    Problem {
        code: ErrorCode::POLICY_INVALID,
        path: String::new(),
        message: format!("the manifest cannot be published: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn raw(object: &Value) -> RawObject {
        RawObject {
            key: ObjectKey::new("", "a"),
            version: ResourceVersion::new("1"),
            json: object.to_string().into_bytes().into(),
        }
    }

    #[test]
    fn an_entry_that_cannot_be_read_still_has_an_author() {
        let metadata = json!({"name": "a", "uid": "u", "generation": 3});
        for spec in [json!({"resource": 5}), json!({"resource": {}}), json!("x")] {
            let entry = Entry::read(
                &raw(&json!({"metadata": metadata, "spec": spec})),
                EntryKind::Cached,
            );
            assert_eq!(
                (entry.identity.uid.as_str(), entry.identity.generation),
                ("u", 3)
            );
            assert_eq!(entry.spec.unwrap_err().reason, "InvalidSpec");
        }
        let odd = json!({"metadata": metadata, "status": {"objects": "x"}});
        let entry = Entry::read(&raw(&odd), EntryKind::Cached);
        assert_eq!(entry.spec, Ok(EntrySpec::Cached(Box::default())));
        assert_eq!(entry.status, CachedContextEntryStatus::default());
    }

    #[test]
    fn a_change_of_status_alone_is_no_new_version_of_a_policy() {
        let policy = |version: &str, status: Value, background: bool| {
            let object = json!({
                "metadata": {"name": "a", "resourceVersion": version},
                "spec": {"background": background, "rules": []}, "status": status,
            });
            PolicyManifest::read(&raw(&object), PolicyKind::Cluster)
                .1
                .unwrap()
        };
        let first = policy("1", json!({}), false);
        let second = policy("2", json!({"conditions": []}), false);
        assert_eq!(
            (&first.version, &first.body),
            (&second.version, &second.body)
        );
        assert_ne!(first.version, policy("3", json!({}), true).version);
    }

    #[test]
    fn a_policy_that_cannot_be_published_is_its_authors_problem() {
        let deep = format!("{}1{}", "[".repeat(600), "]".repeat(600));
        let text =
            format!(r#"{{"metadata":{{"name":"a","uid":"u","generation":2}},"spec":{deep}}}"#);
        let object = RawObject {
            json: text.into_bytes().into(),
            ..raw(&json!({}))
        };
        let (read, published) = PolicyManifest::read(&object, PolicyKind::Namespaced);
        assert!(published.is_none());
        assert_eq!(
            (read.identity.uid.as_str(), read.identity.generation),
            ("u", 2)
        );
        assert_eq!(read.problems[0].code, ErrorCode::POLICY_INVALID);
    }
}
