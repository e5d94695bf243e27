//! The webhooks of objects that a configuration needs: which requests the API server sends to each, and which
//! policies it is called for. Pure.
//!
//! | policy | its webhook is called for |
//! |---|---|
//! | cluster-wide | all namespaces but the exempt ones, and objects that live in none; one webhook for each failure policy and timeout, and for the versions of resources that it names |
//! | of a namespace that a cluster-wide webhook is called for anyway | the same: it costs no call more |
//! | the same, but it changes objects, and another cluster-wide webhook is asked first | its namespace alone: what a tenant changes is changed before any policy of the cluster runs |
//! | other, of a namespace | its namespace alone; one webhook for each failure policy, with the longest timeout |
//!
//! Namespaces whose policies lead to the same rules share one webhook. Beyond [`NAMESPACE_WEBHOOKS_MAX`] the
//! remaining ones share webhooks with united rules: those that name the same versions of resources share one. So
//! whatever a tenant writes, no request of a namespace without policies is sent for it, and objects are converted for a
//! namespace as its own policies say.
//!
//! The API server converts a request to a version that a webhook lists only if the webhook takes no other version of the
//! request. So policies that name a resource in some of its versions alone share a webhook with none that names it in
//! others: up to [`VERSION_WEBHOOKS_MAX`] sets of versions.
//!
//! A list of resources has a limit of bytes. Policies whose resources would make the list too long are called for all resources
//! by a second webhook, for their namespaces: the index finds them. The first webhook goes on listing what these policies name
//! in some versions alone.

mod resources;
mod united;
mod versions;

use std::collections::{BTreeMap, BTreeSet};

use anteroom_engine::{
    kinds::{Kinds, ResourceName},
    policies::{CompiledPolicy, PolicySet, WebhookClass},
};
use anteroom_model::ObjectKey;
use anteroom_policy::{Operation, Phase};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use resources::{everything, operations, without_covered};
use united::shared;
use versions::{Convertible, Versions};

/// Webhooks of namespaces in one configuration. Each is about 3 KiB with the authority of our certificate, and
/// the API server takes objects of 1.5 MiB.
pub(super) const NAMESPACE_WEBHOOKS_MAX: usize = 128;

/// Sets of versions of resources that have a webhook of their own, of each failure policy and timeout, or of a namespace.
/// Policies that name others share the last.
const VERSION_WEBHOOKS_MAX: usize = 4;

/// Bytes of the rules of a namespace, as JSON. Policies that do not fit are called for all resources of it.
const NAMESPACE_RULES_BYTES_MAX: usize = 8 * 1024;

/// Bytes of the rules of all cluster-wide webhooks, as JSON. With more, those of all timeouts share a webhook.
const CLUSTER_RULES_BYTES_MAX: usize = 256 * 1024;

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
    /// The policies name too many resources to be listed: the webhook is called for all of them.
    is_for_all_resources: bool,
    /// The resources that its first policy names in some versions alone.
    versions: Versions,
    /// The number among the webhooks that would have one name, from 1 on.
    ordinal: usize,
    /// The policies that it is called for.
    pub(super) policies: Vec<ObjectKey>,
}

/// The detail in which the API server is told of policies. With less, the webhooks are called for more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Detail {
    /// The most webhooks of namespaces alone.
    namespaced_max: usize,
    /// Cluster-wide policies have a webhook for each timeout.
    is_by_timeout: bool,
    /// Webhooks of namespaces name their namespaces.
    pub(super) names_namespaces: bool,
}

impl Detail {
    /// All detail that there is.
    pub(super) const FINEST: Self = Self {
        namespaced_max: NAMESPACE_WEBHOOKS_MAX,
        is_by_timeout: true,
        names_namespaces: true,
    };

    /// Returns the next lower detail; `None`: there is none.
    pub(super) fn coarser(self) -> Option<Self> {
        Some(match self {
            Self {
                namespaced_max: 1..,
                ..
            } => Self {
                namespaced_max: self.namespaced_max / 2,
                ..self
            },
            Self {
                is_by_timeout: true,
                ..
            } => Self {
                is_by_timeout: false,
                ..self
            },
            Self {
                names_namespaces: true,
                ..
            } => Self {
                names_namespaces: false,
                ..self
            },
            _ => return None,
        })
    }
}

impl ObjectWebhook {
    /// Names it among the webhooks of its configuration: `fail-10`, or `fail.NAMESPACE` after the first of its
    /// namespaces; `fail-all` and `fail-all.NAMESPACE` if it lists no resources. Eight digits stand for versions that
    /// its policies name, as in `fail-10-0123abcd` and `fail-0123abcd.NAMESPACE`. The API server refuses a configuration
    /// in which two webhooks have one name, so the second ends with `-2`, before its namespace.
    pub(super) fn name(&self) -> String {
        let action = action(self.class.ignore);
        let seconds = self.class.timeout_seconds;
        let namespace = self.namespaces.iter().flatten().next();
        let which = match (self.is_for_all_resources, namespace) {
            (true, _) => "-all".to_owned(),
            (false, None) => format!("-{seconds}{}", self.versions.suffix()),
            (false, Some(_)) => self.versions.suffix(),
        };
        let ordinal = match self.ordinal {
            1 => String::new(),
            ordinal => format!("-{ordinal}"),
        };
        match namespace {
            Some(namespace) => format!("{action}{which}{ordinal}.{namespace}"),
            None => format!("{action}{which}{ordinal}"),
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

    /// The length of its rules as JSON.
    fn rules_bytes(&self) -> usize {
        // Plain data, and always JSON.
        serde_json::to_vec(&self.rules()).map_or(usize::MAX, |rules| rules.len())
    }

    /// Returns the webhook for the same operations on all resources.
    fn for_all_resources(self) -> Self {
        let operations = self.operations.into_values().flatten().collect();
        Self {
            operations: Operations::from([(everything("*/*"), operations)]),
            is_for_all_resources: true,
            versions: Versions::default(),
            ..self
        }
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

/// Returns the webhook that each policy would have alone in a phase.
pub(super) fn of_policies(phase: Phase, policies: &PolicySet, kinds: &Kinds) -> Vec<ObjectWebhook> {
    let convertible = Convertible::of(kinds);
    let entries = policies.all().iter();
    entries
        .map(|entry| of_policy(entry, phase, kinds, &convertible))
        .collect()
}

/// Returns the webhooks that policies need, from the webhook of each: those for the whole cluster first, and of either
/// kind those that fail first. The API server asks those that change objects in the reverse order.
pub(super) fn webhooks(
    phase: Phase,
    of_policies: &[ObjectWebhook],
    kinds: &Kinds,
    is_exempt: impl Fn(&str) -> bool,
    detail: Detail,
) -> Vec<ObjectWebhook> {
    let (of_cluster, of_namespaces): (Vec<&ObjectWebhook>, Vec<_>) = of_policies
        .iter()
        .partition(|webhook| webhook.namespaces.is_none());
    let convertible = Convertible::of(kinds);
    let mut is_by_timeout = detail.is_by_timeout;
    let mut cluster = of_the_cluster(&of_cluster, is_by_timeout, &convertible);
    if is_by_timeout && cluster.rules_bytes() > CLUSTER_RULES_BYTES_MAX {
        is_by_timeout = false;
        cluster = of_the_cluster(&of_cluster, is_by_timeout, &convertible);
    }
    let last = cluster.last_key();
    let may_share = |key: &ClusterKey| phase == Phase::Validation || last.as_ref() == Some(key);
    let mut alone = Vec::new();
    for called in of_namespaces {
        let namespace = called.namespaces.iter().flatten().next();
        let namespace = namespace.map_or("", String::as_str);
        let key = cluster_key(called, is_by_timeout);
        match cluster.listed.get_mut(&key) {
            _ if is_exempt(namespace) => {}
            Some(webhook)
                if may_share(&key)
                    && webhook.class.timeout_seconds >= called.class.timeout_seconds
                    && covers(&webhook.operations, &called.operations) =>
            {
                webhook.policies.extend(called.policies.iter().cloned());
            }
            _ => alone.push((namespace, called)),
        }
    }
    let mut of_cluster: Vec<_> = cluster.into_values().collect();
    of_cluster.sort_by_key(|webhook| webhook.class.ignore);
    let mut by_namespace = of_the_namespaces(&alone, true, &convertible);
    if by_namespace.len() > detail.namespaced_max {
        // Each namespace gives up what concerns its own policies alone, before it shares a webhook with others.
        by_namespace = of_the_namespaces(&alone, false, &convertible);
    }
    let shared = shared(by_namespace, detail.namespaced_max, &convertible);
    let mut all: Vec<_> = of_cluster.into_iter().chain(shared).collect();
    number(&mut all);
    all
}

/// Numbers the webhooks that would have one name.
pub(super) fn number(webhooks: &mut [ObjectWebhook]) {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for webhook in webhooks {
        let ordinal = taken.entry(webhook.name()).or_default();
        *ordinal += 1;
        webhook.ordinal = *ordinal;
    }
}

/// The policies of a namespace that share a webhook, by their failure policy.
type NamespaceKey<'n> = (bool, &'n str, Versions);

/// The webhooks of namespaces alone, apart by the versions that they name or not.
fn of_the_namespaces<'n>(
    policies: &[(&'n str, &ObjectWebhook)],
    is_by_version: bool,
    convertible: &Convertible,
) -> Webhooks<NamespaceKey<'n>> {
    let mut by_namespace = Webhooks::default();
    for (namespace, called) in policies {
        let versions = match is_by_version {
            true => called.versions.clone(),
            false => Versions::default(),
        };
        let key = (called.class.ignore, *namespace, versions);
        let key = by_namespace.key_or_last(key, |one| (one.0, one.1), |one| &one.2);
        let webhook = ObjectWebhook {
            versions: key.2.clone(),
            ..(*called).clone()
        };
        by_namespace.add(key, webhook, NAMESPACE_RULES_BYTES_MAX, convertible);
    }
    by_namespace
}

/// The webhooks of cluster-wide policies.
fn of_the_cluster(
    of_policies: &[&ObjectWebhook],
    is_by_timeout: bool,
    convertible: &Convertible,
) -> Webhooks<ClusterKey> {
    let mut cluster = Webhooks::default();
    for called in of_policies {
        let key = cluster_key(called, is_by_timeout);
        let key = cluster.key_or_last(key, |one| one.0, |one| &one.1);
        let rules_bytes_max = match is_by_timeout {
            true => usize::MAX,
            false => {
                // Those of one failure policy share the half.
                let others = cluster.listed.iter();
                let others = others.filter(|(other, _)| **other != key && other.0 == key.0);
                let bytes: usize = others.map(|(_, webhook)| webhook.rules_bytes()).sum();
                (CLUSTER_RULES_BYTES_MAX / 2).saturating_sub(bytes)
            }
        };
        let webhook = ObjectWebhook {
            versions: key.1.clone(),
            ..(*called).clone()
        };
        cluster.add(key, webhook, rules_bytes_max, convertible);
    }
    cluster
}

/// The cluster-wide policies that share a webhook.
type ClusterKey = (WebhookClass, Versions);

/// Returns the cluster-wide policies with which the policies of a webhook may share one.
fn cluster_key(called: &ObjectWebhook, is_by_timeout: bool) -> ClusterKey {
    let timeout_seconds = match is_by_timeout {
        true => called.class.timeout_seconds,
        false => 0,
    };
    let class = WebhookClass {
        timeout_seconds,
        ..called.class
    };
    (class, called.versions.clone())
}

/// Webhooks that list resources, and those of the policies that have too many of them.
struct Webhooks<K> {
    listed: BTreeMap<K, ObjectWebhook>,
    /// The webhooks of policies with too many resources, by failure policy.
    of_all_resources: BTreeMap<bool, ObjectWebhook>,
}

impl Webhooks<ClusterKey> {
    /// Returns the key of the webhook that lists resources and comes last, if it is the last of all.
    fn last_key(&self) -> Option<ClusterKey> {
        let (key, _) = self.listed.last_key_value()?;
        self.of_all_resources.is_empty().then(|| key.clone())
    }
}

impl<K: Ord> Default for Webhooks<K> {
    fn default() -> Self {
        Self {
            listed: BTreeMap::new(),
            of_all_resources: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Webhooks<K> {
    /// Returns the key; or, of one that names versions, the last other key that does and belongs to the same policies,
    /// where there are [`VERSION_WEBHOOKS_MAX`] of them.
    fn key_or_last<G: PartialEq>(
        &self,
        key: K,
        policies: impl Fn(&K) -> G,
        versions: impl Fn(&K) -> &Versions,
    ) -> K {
        if versions(&key).is_empty() || self.listed.contains_key(&key) {
            return key;
        }
        let of = policies(&key);
        let others = self.listed.keys().filter(|other| policies(other) == of);
        let mut alike = others.filter(|other| !versions(other).is_empty());
        match alike.clone().count() < VERSION_WEBHOOKS_MAX {
            true => key,
            false => alike.next_back().cloned().unwrap_or(key),
        }
    }

    /// Adds a webhook to the one of the key, whose rules have at most so many bytes.
    fn add(
        &mut self,
        key: K,
        webhook: ObjectWebhook,
        rules_bytes_max: usize,
        convertible: &Convertible,
    ) {
        if fits(self.listed.get(&key), &webhook, rules_bytes_max) {
            return add(&mut self.listed, key, webhook);
        }
        let in_part = ObjectWebhook {
            operations: convertible.named_in_part(&webhook.operations),
            ..webhook.clone()
        };
        add(&mut self.listed, key, in_part);
        let ignore = webhook.class.ignore;
        add(
            &mut self.of_all_resources,
            ignore,
            webhook.for_all_resources(),
        );
    }

    fn rules_bytes(&self) -> usize {
        self.listed.values().map(ObjectWebhook::rules_bytes).sum()
    }

    fn len(&self) -> usize {
        self.listed.len() + self.of_all_resources.len()
    }

    fn into_values(self) -> impl Iterator<Item = ObjectWebhook> {
        let listed = self.listed.into_values();
        listed.chain(self.of_all_resources.into_values())
    }
}

/// Returns whether the rules of both webhooks together have at most so many bytes.
fn fits(before: Option<&ObjectWebhook>, webhook: &ObjectWebhook, rules_bytes_max: usize) -> bool {
    if rules_bytes_max == usize::MAX {
        return true;
    }
    let mut together = ObjectWebhook {
        policies: Vec::new(),
        ..webhook.clone()
    };
    if let Some(before) = before {
        let has = |(name, of): (&ResourceName, &BTreeSet<Operation>)| {
            let there = before.operations.get(name);
            there.is_some_and(|there| there.is_superset(of))
        };
        // As with most policies of a namespace.
        if webhook.operations.iter().all(has) {
            return true;
        }
        unite(&mut together.operations, before.operations.clone());
    }
    together.rules_bytes() <= rules_bytes_max
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
fn of_policy(
    entry: &CompiledPolicy,
    phase: Phase,
    kinds: &Kinds,
    convertible: &Convertible,
) -> ObjectWebhook {
    let namespace = entry.namespace().map(str::to_owned);
    let operations = operations(entry.registered_kinds.get(phase), kinds);
    ObjectWebhook {
        class: entry.class,
        namespaces: namespace.map(|namespace| [namespace].into()),
        versions: convertible.versions(&operations),
        operations,
        ordinal: 1,
        is_for_all_resources: false,
        policies: vec![entry.key.clone()],
    }
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
