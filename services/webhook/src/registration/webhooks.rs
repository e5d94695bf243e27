//! The webhooks of objects that a configuration needs: which requests the API server sends to each, and which
//! policies it is called for. Pure.
//!
//! | policy | its webhook is called for |
//! |---|---|
//! | cluster-wide | all namespaces but the exempt ones, and objects that live in none; one webhook for each failure policy and timeout |
//! | of a namespace that a cluster-wide webhook is called for anyway | the same: it costs no call more |
//! | other, of a namespace | its namespace alone; one webhook for each failure policy, with the longest timeout |
//!
//! Namespaces whose policies lead to the same rules share one webhook. Beyond [`NAMESPACE_WEBHOOKS_MAX`] the
//! remaining namespaces share a webhook with united rules. So no policy of a tenant makes the API server send
//! requests of a namespace that has no policies.

use std::collections::{BTreeMap, BTreeSet};

use anteroom_engine::{
    kinds::{Kinds, ResourceName},
    policies::{CompiledPolicy, PolicySet, WebhookClass},
};
use anteroom_model::ObjectKey;
use anteroom_policy::{KindPattern, Operation, Phase, RegistrationTarget};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;

/// Webhooks of namespaces in one configuration. Each is about 3 KiB with the authority of our certificate, and
/// the API server takes objects of 1.5 MiB.
pub(super) const NAMESPACE_WEBHOOKS_MAX: usize = 128;

/// A rule on all resources covers this subresource too.
const EPHEMERAL_CONTAINERS: &str = "pods/ephemeralcontainers";

/// The resources that a webhook is called for, with the operations of each.
pub(super) type Operations = BTreeMap<ResourceName, BTreeSet<Operation>>;

/// A webhook for objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectWebhook {
    /// The failure policy, and the seconds that the API server waits.
    pub(super) class: WebhookClass,
    /// The namespaces for which the webhook is called; `None`: all but exempt namespaces, and cluster-scoped objects.
    pub(super) namespaces: Option<BTreeSet<String>>,
    pub(super) operations: Operations,
    /// The policies that it is called for.
    pub(super) policies: Vec<ObjectKey>,
}

impl ObjectWebhook {
    /// Names it among the webhooks of its configuration: `fail-10`, or `fail.NAMESPACE` after the first of its
    /// namespaces.
    pub(super) fn name(&self) -> String {
        let action = action(self.class.ignore);
        match self.namespaces.iter().flatten().next() {
            Some(namespace) => format!("{action}.{namespace}"),
            None => format!("{action}-{}", self.class.timeout_seconds),
        }
    }

    /// Returns a rule for each group, version and set of operations, in a fixed order: equal policies give equal
    /// configurations.
    pub(super) fn rules(&self) -> Vec<RuleWithOperations> {
        let mut rules: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for (name, operations) in &self.operations {
            rules
                .entry((&name.group, &name.version, operations))
                .or_default()
                .push(name.resource.clone());
        }
        // What lives in no namespace has no webhook of a namespace either.
        let scope = self.namespaces.as_ref().map_or("*", |_| "Namespaced");
        let rule = |(of, resources): ((&String, &String, &BTreeSet<_>), Vec<String>)| {
            let (group, version, operations) = of;
            let operations = operations.iter().map(Operation::to_string);
            let resources = without_covered(&resources);
            RuleWithOperations {
                api_groups: Some(vec![group.clone()]),
                api_versions: Some(vec![version.clone()]),
                operations: Some(operations.collect()),
                resources: Some(resources),
                scope: Some(scope.to_owned()),
            }
        };
        rules.into_iter().map(rule).collect()
    }

    /// Adds the objects for which `other` is called, a webhook with the same failure policy.
    fn unite(&mut self, other: Self) {
        let seconds = &mut self.class.timeout_seconds;
        *seconds = (*seconds).max(other.class.timeout_seconds);
        if let (Some(own), Some(others)) = (&mut self.namespaces, other.namespaces) {
            own.extend(others);
        }
        unite(&mut self.operations, other.operations);
        self.policies.extend(other.policies);
    }
}

/// The word for a failure policy, in names and paths.
pub(crate) fn action(ignore: bool) -> &'static str {
    if ignore { "ignore" } else { "fail" }
}

/// Returns the webhooks that these policies need in a phase: those for the whole cluster first, and of either kind
/// those that fail first. At most `namespaced_max` are of namespaces alone.
pub(super) fn webhooks(
    phase: Phase,
    policies: &PolicySet,
    kinds: &Kinds,
    is_exempt: impl Fn(&str) -> bool,
    namespaced_max: usize,
) -> Vec<ObjectWebhook> {
    let (of_cluster, of_namespaces): (Vec<&CompiledPolicy>, Vec<_>) = policies
        .all()
        .iter()
        .map(|entry| &**entry)
        .partition(|entry| entry.namespace().is_none());
    let mut cluster: BTreeMap<WebhookClass, ObjectWebhook> = BTreeMap::new();
    for entry in of_cluster {
        let called = of_policy(entry, phase, kinds);
        add(&mut cluster, entry.class, called);
    }
    let mut by_namespace: BTreeMap<(bool, &str), ObjectWebhook> = BTreeMap::new();
    for entry in of_namespaces {
        let called = of_policy(entry, phase, kinds);
        let namespace = entry.namespace().unwrap_or_default();
        match cluster.get_mut(&entry.class) {
            _ if is_exempt(namespace) => {}
            Some(webhook) if covers(&webhook.operations, &called.operations) => {
                webhook.policies.extend(called.policies);
            }
            _ => add(&mut by_namespace, (entry.class.ignore, namespace), called),
        }
    }
    let shared = shared(by_namespace.into_values(), namespaced_max);
    cluster.into_values().chain(shared).collect()
}

/// Merges a policy's webhook into the webhook of the key.
fn add<K: Ord>(webhooks: &mut BTreeMap<K, ObjectWebhook>, key: K, of: ObjectWebhook) {
    if of.operations.is_empty() {
        return;
    }
    match webhooks.entry(key) {
        std::collections::btree_map::Entry::Occupied(mut there) => there.get_mut().unite(of),
        std::collections::btree_map::Entry::Vacant(free) => {
            free.insert(of);
        }
    }
}

/// The webhook that a policy would have alone.
fn of_policy(entry: &CompiledPolicy, phase: Phase, kinds: &Kinds) -> ObjectWebhook {
    let namespace = entry.namespace().map(str::to_owned);
    ObjectWebhook {
        class: entry.class,
        namespaces: namespace.map(|namespace| [namespace].into()),
        operations: operations(entry.targets.get(phase), kinds),
        policies: vec![entry.key.clone()],
    }
}

/// Merges webhooks that are called for the same objects, and all webhooks beyond `max`.
fn shared(
    webhooks: impl Iterator<Item = ObjectWebhook>,
    max: usize,
) -> impl Iterator<Item = ObjectWebhook> {
    let mut alike: BTreeMap<(WebhookClass, Operations), ObjectWebhook> = BTreeMap::new();
    for webhook in webhooks {
        let key = (webhook.class, webhook.operations.clone());
        add(&mut alike, key, webhook);
    }
    let mut kept: Vec<_> = alike.into_values().collect();
    if kept.len() > max {
        // Webhooks with few resources stay separate.
        kept.sort_by_key(|webhook| webhook.operations.len());
        let mut beyond = BTreeMap::new();
        for webhook in kept.split_off(max.saturating_sub(2)) {
            add(&mut beyond, webhook.class.ignore, webhook);
        }
        kept.extend(beyond.into_values());
    }
    kept.sort_by_cached_key(|webhook| (webhook.class.ignore, webhook.name()));
    kept.into_iter()
}

/// Returns true if a webhook that is called for `all` is called for `some`.
fn covers(all: &Operations, some: &Operations) -> bool {
    let called = |name: &ResourceName, operations: &BTreeSet<Operation>| {
        all.get(name).is_some_and(|all| all.is_superset(operations))
    };
    some.iter().all(|(name, operations)| {
        let is_subresource = name.resource.contains('/');
        let (whole, named) = (everything("*/*"), everything(&name.resource));
        called(name, operations)
            || called(&whole, operations)
            || called(&named, operations)
            || (!is_subresource && called(&everything("*"), operations))
    })
}

fn unite(operations: &mut Operations, others: Operations) {
    for (name, of) in others {
        operations.entry(name).or_default().extend(of);
    }
}

fn operations(targets: &[RegistrationTarget], kinds: &Kinds) -> Operations {
    let mut operations_of = Operations::new();
    for target in targets {
        for pattern in &target.kinds {
            for resource in resources(pattern, kinds) {
                operations_of
                    .entry(resource)
                    .or_default()
                    .extend(&target.operations);
            }
        }
    }
    operations_of
}

/// Leaves out what a wildcard covers: the API server refuses a rule that names both.
fn without_covered(resources: &[String]) -> Vec<String> {
    let has = |name: &str| resources.iter().any(|resource| resource == name);
    let is_covered = |resource: &str| match resource.split_once('/') {
        _ if resource == "*/*" => false,
        _ if has("*/*") => true,
        None => resource != "*" && has("*"),
        Some((plural, subresource)) => {
            (subresource != "*" && has(&format!("{plural}/*")))
                || (plural != "*" && has(&format!("*/{subresource}")))
        }
    };
    let kept = resources.iter().filter(|resource| !is_covered(resource));
    kept.cloned().collect()
}

/// The resources of a pattern, as a webhook configuration names them. A plural stays as the policy writes it,
/// and a pattern for everything stays one for everything, kinds to come included. Others become the kinds that
/// are served now.
fn resources(pattern: &KindPattern, kinds: &Kinds) -> Vec<ResourceName> {
    if let Some(resource) = &pattern.resource {
        return as_written(pattern, &resource.plural).into_iter().collect();
    }
    let parts = [&*pattern.group, &pattern.version, &pattern.kind];
    match (parts, &*pattern.subresource) {
        // For the API server the pattern excludes subresources; for a policy it includes this one.
        (["*", "*", "*"], "") => ["*", EPHEMERAL_CONTAINERS].map(everything).to_vec(),
        (["*", "*", "*"], "*") => vec![everything("*/*")],
        _ => match kinds.covered_by(pattern) {
            covered if covered.is_empty() => to_come(pattern, kinds).into_iter().collect(),
            covered => covered,
        },
    }
}

/// The resource that a policy names by its plural. `None` for one that the API server would refuse, and all of the
/// configuration with it.
fn as_written(pattern: &KindPattern, plural: &str) -> Option<ResourceName> {
    let resource = match &*pattern.subresource {
        "" => plural.to_owned(),
        subresource => format!("{plural}/{subresource}"),
    };
    let is_whole = !pattern.version.is_empty() && !plural.is_empty();
    is_whole.then(|| ResourceName {
        group: pattern.group.clone(),
        version: pattern.version.clone(),
        resource,
    })
}

/// All of the group of a kind that is not served in any version: its definition may come at any moment, and its plural
/// is not known before the kinds were read again. The webhook finds the policies by kind. `None` where the policy
/// names no group, or none that a definition may have: such a group has a dot.
fn to_come(pattern: &KindPattern, kinds: &Kinds) -> Option<ResourceName> {
    let may_be_defined = pattern.group.contains('.') && !pattern.group.contains(['*', '?']);
    let of_any_version = KindPattern {
        version: "*".to_owned(),
        ..pattern.clone()
    };
    let is_unserved = || kinds.covered_by(&of_any_version).is_empty();
    let are_read = !kinds.records().is_empty();
    (may_be_defined && are_read && is_unserved()).then(|| ResourceName {
        group: pattern.group.clone(),
        version: "*".to_owned(),
        resource: "*/*".to_owned(),
    })
}

fn everything(resource: &str) -> ResourceName {
    ResourceName {
        group: "*".to_owned(),
        version: "*".to_owned(),
        resource: resource.to_owned(),
    }
}
