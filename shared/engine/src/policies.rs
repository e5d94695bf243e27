//! The policies in force, with an index by the kinds that they match.

mod build;
mod index;
mod scope;

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use anteroom_model::{EntryKind, GroupVersionResource, ObjectKey, Source, ViewId};
use anteroom_policy::{
    FailurePolicy, KindPattern, NamedObject, Operation, Phase, Policy, Problem, Reference,
    RegisteredKinds, RequestParts, ServedKind, compile,
};
use bytes::Bytes;
use serde_json::Value;

use crate::{
    phase::ByPhase,
    rule::{PolicyScope, RuleName},
};
use index::Index;

pub use scope::{Assignment, CallScope, CalledWebhook};

/// The seconds that the API server waits for a webhook where a policy does not say.
pub const TIMEOUT_SECONDS_DEFAULT: u32 = 10;

/// Kinds and resources that are taken of a policy that does not compile.
const READABLE_MAX: usize = 256;

/// The class of a policy's webhook: all policies of one class share a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WebhookClass {
    /// An error admits.
    pub ignore: bool,
    /// The seconds that the API server waits.
    pub timeout_seconds: u32,
}

impl WebhookClass {
    /// The class of a policy that cannot be compiled: it must not keep anybody from working.
    const UNREADY: Self = Self {
        ignore: true,
        timeout_seconds: TIMEOUT_SECONDS_DEFAULT,
    };

    /// Returns the class of a policy.
    pub fn of(policy: &Policy) -> Self {
        Self {
            ignore: policy.failure_policy() == FailurePolicy::Ignore,
            timeout_seconds: policy.timeout_seconds().unwrap_or(TIMEOUT_SECONDS_DEFAULT),
        }
    }
}

/// Something that a policy reads, and that has to be there before anybody relies on the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// An entry, by kind and name.
    Entry(EntryKind, String),
    /// A collection, or a Secret, that it declares to be kept: the name of the implicit entry.
    Declared(Reference, String),
    /// Objects that it declares to be kept by name: their view.
    Objects(Reference, ViewId),
}

impl Need {
    fn of(policy: &Policy, key: &ObjectKey) -> Vec<Self> {
        let entries = policy
            .entries()
            .map(|(kind, name)| Self::Entry(kind, name.to_owned()));
        let declared = policy.references().filter(Reference::is_declared);
        let declared = declared.map(|reference| match &reference {
            Reference::Object(object) if !reference.may_be_secrets() => {
                let NamedObject {
                    group,
                    version,
                    resource,
                    ..
                } = object.clone();
                let gvr = GroupVersionResource::new(group, version, resource);
                Self::Objects(reference, Source::Objects { gvr }.view_id())
            }
            _ => {
                let name = reference.name_for(key);
                Self::Declared(reference, name)
            }
        });
        entries.chain(declared).collect()
    }
}

/// A policy's manifest, and the policy or the problems that it compiles to. Immutable.
#[derive(Debug)]
pub struct CompiledPolicy {
    /// The key among the policies of all kinds.
    pub key: ObjectKey,
    /// Through which webhook it is called.
    pub class: WebhookClass,
    /// The requests for which the API server calls this policy; for a policy that is not ready, as far as its manifest
    /// can be read.
    pub registered_kinds: ByPhase<Vec<RegisteredKinds>>,
    /// The entries and objects that it reads.
    pub needs: Vec<Need>,
    /// The policy, or everything that keeps it from being ready.
    pub outcome: Result<Policy, Vec<Problem>>,
    /// The names of the policy's rules.
    pub names: Vec<Arc<RuleName>>,
    /// The parts of a request that the policy reads.
    parts: ByPhase<RequestParts>,
    /// The manifest that it was compiled from.
    body: Bytes,
}

impl CompiledPolicy {
    fn compile(key: ObjectKey, body: Bytes) -> Self {
        let manifest = match anteroom_wire::body::to_json(&body) {
            Ok(manifest) => manifest,
            Err(error) => {
                let problem = Problem {
                    code: anteroom_model::ErrorCode::POLICY_INVALID,
                    path: String::new(),
                    message: format!("the manifest cannot be read: {error}"),
                };
                return Self {
                    key,
                    class: WebhookClass::UNREADY,
                    registered_kinds: ByPhase::default(),
                    needs: Vec::new(),
                    outcome: Err(vec![problem]),
                    names: Vec::new(),
                    parts: ByPhase::default(),
                    body,
                };
            }
        };
        let outcome = compile(&manifest);
        if let Err(problems) = &outcome {
            for problem in problems {
                tracing::warn!(
                    policy = %key,
                    %problem,
                    "policy not compiled: this version is not in force; correct it"
                );
            }
        }
        let (class, registered_kinds, needs) = match &outcome {
            Ok(policy) => (
                WebhookClass::of(policy),
                ByPhase::of(|phase| policy.registered_kinds(phase).collect()),
                Need::of(policy, &key),
            ),
            Err(_) => (WebhookClass::UNREADY, unready_kinds(&manifest), Vec::new()),
        };
        let names = outcome.iter().flat_map(|policy| {
            let name = |rule| Arc::new(RuleName::of(policy, rule));
            policy.rules().iter().map(name)
        });
        Self {
            key,
            class,
            registered_kinds,
            needs,
            names: names.collect(),
            parts: match &outcome {
                Ok(policy) => ByPhase::of(|phase| RequestParts::of(policy, phase)),
                Err(_) => ByPhase::default(),
            },
            outcome,
            body,
        }
    }

    /// Returns whether `self` does not compile and `before` is an earlier, valid version of the same policy.
    fn leaves(&self, before: &Self) -> bool {
        let leaves = self.outcome.is_err()
            && before.outcome.is_ok()
            && uid(&self.body).is_some_and(|own| uid(&before.body) == Some(own));
        if leaves {
            tracing::warn!(policy = %self.key, "last valid version of the policy stays in force");
        }
        leaves
    }

    /// Returns whether its manifest is the same.
    pub fn same_manifest(&self, other: &Self) -> bool {
        self.body == other.body
    }

    fn concerns(&self, phase: Phase, subject: &RequestSubject<'_>) -> bool {
        if self.namespace().is_some() && subject.is_deletion_of_policy() {
            return false;
        }
        self.registered_kinds.get(phase).iter().any(|registered| {
            registered.operations.contains(&subject.operation)
                && registered
                    .kinds
                    .iter()
                    .any(|kind| kind.covers(subject.served))
        })
    }

    /// The only namespace of a namespaced policy; `None` for a cluster-wide policy.
    pub fn namespace(&self) -> Option<&str> {
        match &self.outcome {
            Ok(policy) => policy.namespace(),
            Err(_) => (!self.key.namespace.is_empty()).then_some(&*self.key.namespace),
        }
    }

    /// The scope of the policy.
    pub(crate) fn scope(&self) -> PolicyScope {
        PolicyScope::of(self.namespace())
    }
}

/// The part of a request that the index needs.
#[derive(Clone, Copy, Debug)]
pub struct RequestSubject<'a> {
    /// The kind of the resource, also where a subresource is accessed.
    pub served: ServedKind<'a>,
    /// The operation.
    pub operation: Operation,
    /// The namespace of the object, empty for a cluster-scoped one; `None`: it is unknown before the object is read.
    pub namespace: Option<&'a str>,
}

impl RequestSubject<'_> {
    /// Returns whether the request deletes a policy or an exception. No policy of a namespace matches that, so that
    /// none can prevent an administrator from removing it.
    fn is_deletion_of_policy(&self) -> bool {
        self.operation == Operation::Delete
            && matches!(self.served.group, "kyverno.io" | "policies.kyverno.io")
    }
}

/// All policies, and the index of those that a request may concern. Immutable.
#[derive(Debug, Default)]
pub struct PolicySet {
    /// The policies in order of key.
    entries: Vec<Arc<CompiledPolicy>>,
    indexes: ByPhase<Index>,
    /// New versions of policies that do not compile. The version before them stays in force.
    passed_over: HashMap<ObjectKey, Bytes>,
}

/// The policies that a request concerns.
pub struct Concerned<'a> {
    /// The policies in order of key. Of those that change objects, the policies of namespaces come first.
    pub policies: Vec<&'a CompiledPolicy>,
    /// All parts of the request that they read. There may be further parts, but none that only policies of other
    /// namespaces read.
    pub parts: Cow<'a, RequestParts>,
}

impl PolicySet {
    /// Returns the policies with rules of this scope that may match `subject`.
    pub fn concerned(&self, scope: &CallScope, subject: &RequestSubject<'_>) -> Concerned<'_> {
        let phase = scope.phase;
        let candidates = self.indexes.get(phase).candidates(subject.served);
        let positions = candidates.positions(subject.namespace);
        let entries = positions.iter().map(|at| &*self.entries[*at]);
        let concerned =
            |entry: &&CompiledPolicy| scope.contains(entry) && entry.concerns(phase, subject);
        let mut policies: Vec<_> = entries.filter(concerned).collect();
        if phase == Phase::Mutation {
            // No tenant changes what an administrator's policy has set.
            policies.sort_by_key(|entry| entry.namespace().is_none());
        }
        Concerned {
            policies,
            parts: candidates.parts(subject.namespace),
        }
    }

    /// Returns all rules, by the policy's name in records and the rule's name.
    pub fn rules(&self) -> HashSet<(&str, &str)> {
        let names = self.entries.iter().flat_map(|entry| &entry.names);
        names.map(|name| (&*name.policy, name.rule())).collect()
    }

    /// Returns all policies, in order of key.
    pub fn all(&self) -> &[Arc<CompiledPolicy>] {
        &self.entries
    }

    /// The numbers of policies in force and of policies that are not ready.
    pub fn counts(&self) -> (usize, usize) {
        let ready = self
            .entries
            .iter()
            .filter(|entry| entry.outcome.is_ok())
            .count();
        (ready, self.entries.len() - ready)
    }
}

/// The UID in a manifest.
fn uid(body: &[u8]) -> Option<String> {
    let manifest = anteroom_wire::body::to_json(body).ok()?;
    let uid = manifest["metadata"]["uid"].as_str()?;
    (!uid.is_empty()).then(|| uid.to_owned())
}

/// The registration of a policy that is not ready. Only validation has one, so that a request meets the policy's
/// error once, whatever its rules do.
fn unready_kinds(manifest: &Value) -> ByPhase<Vec<RegisteredKinds>> {
    ByPhase::of(|phase| match phase {
        Phase::Mutation => Vec::new(),
        Phase::Validation => readable_registration(manifest),
    })
}

/// Returns the kinds that a manifest names, as far as they can be read, so that requests for them report that the
/// policy is not in force. Unreadable parts are passed over: the policy's own error names them.
fn readable_registration(manifest: &Value) -> Vec<RegisteredKinds> {
    let kinds: Vec<_> = readable_kinds(manifest)
        .chain(readable_resources(manifest))
        .take(READABLE_MAX)
        .collect();
    if kinds.is_empty() {
        return Vec::new();
    }
    vec![RegisteredKinds {
        kinds,
        operations: vec![Operation::Create, Operation::Update],
    }]
}

/// The kinds that rules of a policy of kyverno.io name.
fn readable_kinds(manifest: &Value) -> impl Iterator<Item = KindPattern> {
    let rules = manifest.pointer("/spec/rules").and_then(Value::as_array);
    rules
        .into_iter()
        .flatten()
        .filter_map(|rule| rule.get("match"))
        .flat_map(|matching| {
            let listed = ["any", "all"]
                .into_iter()
                .filter_map(|list| matching.get(list));
            let filters = listed.filter_map(Value::as_array).flatten();
            filters.chain([matching])
        })
        .filter_map(|filter| filter.pointer("/resources/kinds")?.as_array())
        .flatten()
        .filter_map(|kind| KindPattern::parse(kind.as_str()?))
}

/// The resources that a policy of policies.kyverno.io names.
fn readable_resources(manifest: &Value) -> impl Iterator<Item = KindPattern> {
    let rules = manifest.pointer("/spec/matchConstraints/resourceRules");
    let rules = rules.and_then(Value::as_array).into_iter().flatten();
    rules.flat_map(|rule| {
        let texts = |field: &str| {
            let listed = rule[field].as_array().into_iter().flatten();
            listed.filter_map(Value::as_str)
        };
        texts("apiGroups").flat_map(move |group| {
            texts("apiVersions").flat_map(move |version| {
                let resources = texts("resources");
                resources.map(move |name| KindPattern::of_resource(group, version, name, true))
            })
        })
    })
}

#[cfg(test)]
mod tests;
