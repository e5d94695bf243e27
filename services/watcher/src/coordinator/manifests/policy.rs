//! The manifest of a policy, as the coordinator reads it.

use anteroom_jmespath::Expression;
use anteroom_model::{EntryKind, Failure, ResourceVersion};
use anteroom_policy::{
    KindPattern, NotRun, Phase, Policy, PolicyKind, Problem, Reference, retain_compiled_metadata,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use super::{Identity, cel_api_version, created, published, unpublished};
use crate::{
    coordinator::{
        effect::Record,
        policy_size::PolicySize,
        status::{
            cel_fields::{self, Summary},
            conditions,
            rules::RulesStatus,
        },
    },
    gateway::rights::Need,
    source::{discovery::ServedResources, prune::PruneError, reflect::RawObject},
};

/// The API version of policies of kyverno.io.
const POLICY_API_VERSION: &str = "kyverno.io/v1";

/// A query of a policy over an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EntryQuery {
    /// The kind that declares the entry.
    pub kind: EntryKind,
    /// The entry's name; `None`: a request decides it.
    pub name: Option<String>,
    /// An expression over the entry's data; `None`: the query reads all data, or the request decides what it reads.
    pub expression: Option<Expression>,
}

/// A policy of any kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyManifest {
    /// The API version in which the policy was read.
    pub api_version: &'static str,
    /// The object's identity.
    pub identity: Identity,
    /// The time at which the API server created the policy.
    pub created: String,
    /// The size of the version that is published; zero where none is.
    pub size: PolicySize,
    /// The problems for which the policy is not served.
    pub problems: Vec<Problem>,
    /// The entries that it names.
    pub entries: Vec<(EntryKind, String)>,
    /// The policy's queries over entries.
    pub queries: Vec<EntryQuery>,
    /// References that views have to be kept for, or may be.
    pub references: Vec<Reference>,
    /// The kinds whose objects are scanned for it.
    pub scanned: Vec<KindPattern>,
    /// The policy reads Secrets without a permission.
    pub secrets_forbidden: bool,
    /// The policy changes existing objects without a permission.
    pub writes_forbidden: bool,
    /// The reason why this version is held back: it is over a quota, or does not compile.
    pub held_back: Option<Failure>,
    /// The generation that is in force; `None`: none is.
    pub in_force: Option<i64>,
    /// The kinds on which the policy decides at admission; empty: the policy is for existing objects alone.
    pub kinds: Vec<KindPattern>,
    /// The hash of the published content.
    pub version: ResourceVersion,
    /// The conditions of its status.
    pub conditions: Vec<Condition>,
    /// The policy's rules that are not run.
    pub not_run: Vec<NotRun>,
    /// The changes of existing objects that the policy's rules make, by rule.
    pub changes: Vec<(String, Need)>,
    /// The desired fields of the status about the policy's rules.
    pub rules: RulesStatus,
    /// The present fields of the status about the policy's rules.
    pub rules_now: Option<RulesStatus>,
    /// The present fields of the status beside its conditions; `None`: the policy is of kyverno.io.
    pub summary: Option<Summary>,
}

/// Returns the API version that an object of a kind of policy was read in.
fn api_version(object: &RawObject, kind: PolicyKind) -> &'static str {
    match kind.is_cel() {
        true => cel_api_version(object),
        false => POLICY_API_VERSION,
    }
}

impl PolicyManifest {
    /// Reads and compiles a policy. A manifest that cannot be published counts as a problem of its author, like a
    /// compile error: it is not enforced.
    #[cfg(test)]
    pub(crate) fn read(object: &RawObject, kind: PolicyKind) -> (Self, Option<Record>) {
        Self::read_again(object, kind, None)
    }

    /// Reads a policy, of which `known` is a version that was read before. If all that is published of it is the same, as
    /// after a change of its labels or its status, it is not compiled again.
    pub(crate) fn read_again(
        object: &RawObject,
        kind: PolicyKind,
        known: Option<Self>,
    ) -> (Self, Option<Record>) {
        let mut read = Self::of_author(object, kind);
        match read.compile(object, kind, known) {
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

    /// Reads a policy without compiling it: its size, and what its status is written by. The object has all that is published
    /// of the policy, and its status. `None` if it cannot be published.
    pub(crate) fn read_size(object: &RawObject, kind: PolicyKind) -> Option<(Self, RawObject)> {
        let mut read = Self::of_author(object, kind);
        let (mut manifest, status, published) = read.published(object, kind).ok()?;
        read.size = PolicySize::of(&manifest, published.body.len());
        // The status of rules stays as it is.
        read.rules_now = Some(RulesStatus::default());
        read.read_conditions(&status);
        manifest["status"] = status;
        let object = RawObject {
            json: manifest.to_string().into(),
            ..object.clone()
        };
        Some((read, object))
    }

    /// Returns what is known of any object: who wrote it, and when.
    fn of_author(object: &RawObject, kind: PolicyKind) -> Self {
        Self {
            api_version: api_version(object, kind),
            identity: Identity::read(object),
            created: created(object),
            summary: kind.is_cel().then(Summary::default),
            ..Self::default()
        }
    }

    fn published(
        &self,
        object: &RawObject,
        kind: PolicyKind,
    ) -> Result<(Value, Value, Record), PruneError> {
        let key = kind.key(&object.key.namespace, &object.key.name);
        published(
            object,
            key,
            self.api_version,
            kind.as_str(),
            retain_compiled_metadata,
        )
    }

    /// Takes the conditions from a status, and what stands beside them.
    fn read_conditions(&mut self, status: &Value) {
        match &mut self.summary {
            Some(summary) => {
                *summary = Summary::read(status);
                self.conditions = cel_fields::read_conditions(status);
            }
            None => self.conditions = conditions::read(status.get("conditions").cloned()),
        }
    }

    /// Returns the kinds that it names, without wildcards, and that the API server does not serve.
    pub(crate) fn unserved_kinds<'s>(
        &'s self,
        served: Option<&'s ServedResources>,
    ) -> impl Iterator<Item = &'s KindPattern> {
        self.kinds.iter().filter(move |kind| {
            let name = match &kind.resource {
                Some(resource) => &resource.plural,
                None => &kind.kind,
            };
            let is_literal = !name.contains(['*', '?']);
            is_literal && !served.is_some_and(|served| served.serves(kind))
        })
    }

    /// Returns the manifest as held back: the version before stays in force, with its reads and its rules.
    pub(crate) fn held_back(self, failure: Failure, before: Option<&Self>) -> Self {
        let before = before.cloned().unwrap_or_default();
        Self {
            held_back: Some(failure),
            api_version: self.api_version,
            identity: self.identity,
            created: self.created,
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
    pub(crate) fn enforcement_condition(&self) -> Option<&Condition> {
        match self.summary {
            None => conditions::find(&self.conditions),
            Some(_) => conditions::find_type(&self.conditions, cel_fields::WEBHOOK_CONFIGURED),
        }
    }

    fn compile(
        &mut self,
        object: &RawObject,
        kind: PolicyKind,
        known: Option<Self>,
    ) -> Result<Record, PruneError> {
        let (manifest, status, published) = self.published(object, kind)?;
        let known = known.filter(|known| {
            known.version == published.version
                && known.api_version == self.api_version
                && known.identity.uid == self.identity.uid
                && known.identity.generation == self.identity.generation
        });
        match known {
            Some(known) => self.take_compiled(known),
            None => self.compile_anew(&manifest, kind, published.body.len()),
        }
        self.rules_now = Some(match kind.is_cel() {
            true => RulesStatus::read_cel(&status),
            false => RulesStatus::read(&status),
        });
        self.read_conditions(&status);
        Ok(published)
    }

    /// Takes all that compiling gives from another object of the same version.
    fn take_compiled(&mut self, known: Self) {
        let own = std::mem::take(self);
        *self = Self {
            api_version: own.api_version,
            identity: own.identity,
            created: own.created,
            summary: own.summary,
            ..known
        };
    }

    fn compile_anew(&mut self, manifest: &Value, kind: PolicyKind, published_bytes: usize) {
        self.size = PolicySize::of(manifest, published_bytes);
        let mut configs = None;
        match anteroom_policy::compile(manifest) {
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
                let registered = Phase::ALL
                    .into_iter()
                    .flat_map(|phase| policy.registered_kinds(phase));
                self.kinds = registered.flat_map(|one| one.kinds).collect();
                self.not_run = policy.not_run().to_vec();
                self.changes = changes(&policy);
                configs = policy.autogen_configs();
            }
            Err(problems) => self.problems = problems,
        }
        self.rules = match kind.is_cel() {
            true => RulesStatus::of_cel_policy(configs),
            false => RulesStatus::of_policy(manifest, &self.not_run),
        };
    }
}

/// Returns the changes of existing objects by the policy's rules, each once for a rule.
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
