//! Entries and policies as the API server has them, read so that a malformed one can still get a
//! status that says what is wrong.

use anteroom_jmespath::Expression;
use anteroom_model::{EntryKind, ErrorCode, Failure, ResourceVersion};
use anteroom_policy::{
    Driver, KindPattern, NotRun, Phase, Policy, PolicyException, Problem, Reference,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    coordinator::{effect::Record, rules::RulesStatus},
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
        let Body { metadata } = serde_json::from_slice(&object.json).unwrap_or_default();
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

/// A `ClusterPolicy` or `Policy`.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyManifest {
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
}

/// The API version of policies.
pub(crate) const POLICY_API_VERSION: &str = "kyverno.io/v1";

/// The API version that exceptions are published in: all say the same.
const EXCEPTION_API_VERSION: &str = "kyverno.io/v2";

impl PolicyManifest {
    /// Reads and compiles one. A manifest that cannot even be published is a problem of its author,
    /// as one that does not compile is: nobody serves it.
    pub(crate) fn read(object: &RawObject, kind: &str) -> (Self, Option<Record>) {
        let mut read = Self {
            identity: Identity::read(object),
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
            let is_literal = !kind.kind.contains(['*', '?']);
            is_literal && !catalog.is_some_and(|catalog| catalog.serves(kind))
        })
    }

    /// Returns a manifest that is held back: it reads and does what the one before it does, which stays in force.
    pub(crate) fn held_back(self, failure: Failure, before: Option<&Self>) -> Self {
        let before = before.cloned().unwrap_or_default();
        Self {
            held_back: Some(failure),
            identity: self.identity,
            problems: self.problems,
            conditions: self.conditions,
            not_run: self.not_run,
            rules: self.rules,
            rules_now: self.rules_now,
            ..before
        }
    }

    fn compile(&mut self, object: &RawObject, kind: &str) -> Result<Record, PruneError> {
        let (manifest, status, published) = published(object, POLICY_API_VERSION, kind)?;
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
            }
            Err(problems) => self.problems = problems,
        }
        self.rules = RulesStatus::of_policy(&manifest, &self.not_run);
        self.rules_now = Some(RulesStatus::read(&status));
        let conditions = status.get("conditions").cloned().unwrap_or_default();
        self.conditions = serde_json::from_value(conditions).unwrap_or_default();
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

/// A `PolicyException`.
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
    pub(crate) fn read(object: &RawObject) -> (Self, Option<Record>) {
        let mut read = Self {
            uid: Identity::read(object).uid,
            problems: Vec::new(),
            references: Vec::new(),
        };
        let published = published(object, EXCEPTION_API_VERSION, "PolicyException");
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
    let key = object.key.clone();
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
    use anteroom_model::ObjectKey;
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
            PolicyManifest::read(&raw(&object), "ClusterPolicy")
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
        let (read, published) = PolicyManifest::read(&object, "Policy");
        assert!(published.is_none());
        assert_eq!(
            (read.identity.uid.as_str(), read.identity.generation),
            ("u", 2)
        );
        assert_eq!(read.problems[0].code, ErrorCode::POLICY_INVALID);
    }
}
