//! The webhooks of objects that a configuration needs: which requests the API server sends to each, and which
//! policies it is called for. Pure.
//!
//! | policy | its webhook is called for |
//! |---|---|
//! | cluster-wide | all namespaces but the exempt ones, and objects that live in none; one webhook for each failure policy and timeout |
//! | of a namespace that a cluster-wide webhook is called for anyway | the same: it costs no call more |
//! | the same, but it changes objects, and another cluster-wide webhook is asked first | its namespace alone: what a tenant changes is changed before any policy of the cluster runs |
//! | other, of a namespace | its namespace alone; one webhook for each failure policy, with the longest timeout |
//!
//! Namespaces whose policies lead to the same rules share one webhook. Beyond [`NAMESPACE_WEBHOOKS_MAX`] the
//! remaining ones share webhooks with united rules: those that name the same versions of resources share one. So
//! whatever a tenant writes, no request of a namespace without policies is sent for it, and objects are converted for a
//! namespace as its own policies say.
//!
//! A list of resources has a limit of bytes. Policies whose resources would make the list too long are called for all resources
//! by a second webhook, for their namespaces: the index finds them. The API server converts a request to a version that a
//! webhook lists only if the webhook takes no other version of the request. So the first webhook goes on listing what these
//! policies name in some versions alone.

mod united;

use std::collections::{BTreeMap, BTreeSet};

use anteroom_engine::{
    kinds::{Kinds, ResourceName},
    policies::{CompiledPolicy, PolicySet, WebhookClass},
};
use anteroom_model::ObjectKey;
use anteroom_policy::{KindPattern, Operation, POD_SUBRESOURCES, Phase, RegisteredKinds};
use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use united::shared;

/// Webhooks of namespaces in one configuration. Each is about 3 KiB with the authority of our certificate, and
/// the API server takes objects of 1.5 MiB.
pub(super) const NAMESPACE_WEBHOOKS_MAX: usize = 128;

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
    /// namespaces; `fail-all` and `fail-all.NAMESPACE` if it lists no resources.
    pub(super) fn name(&self) -> String {
        let action = action(self.class.ignore);
        let all = if self.is_for_all_resources {
            "-all"
        } else {
            ""
        };
        match self.namespaces.iter().flatten().next() {
            Some(namespace) => format!("{action}{all}.{namespace}"),
            None if self.is_for_all_resources => format!("{action}{all}"),
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
    let entries = policies.all().iter();
    entries
        .map(|entry| of_policy(entry, phase, kinds))
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
    let mut is_by_timeout = detail.is_by_timeout;
    let mut cluster = of_the_cluster(&of_cluster, is_by_timeout, kinds);
    if is_by_timeout && cluster.rules_bytes() > CLUSTER_RULES_BYTES_MAX {
        is_by_timeout = false;
        cluster = of_the_cluster(&of_cluster, is_by_timeout, kinds);
    }
    let last_class = cluster.last_class();
    let may_share = |class| phase == Phase::Validation || last_class == Some(class);
    let mut by_namespace = Webhooks::default();
    for called in of_namespaces {
        let namespace = called.namespaces.iter().flatten().next();
        let namespace = namespace.map_or("", String::as_str);
        let class = group(called.class, is_by_timeout);
        match cluster.listed.get_mut(&class) {
            _ if is_exempt(namespace) => {}
            Some(webhook)
                if may_share(class)
                    && webhook.class.timeout_seconds >= called.class.timeout_seconds
                    && covers(&webhook.operations, &called.operations) =>
            {
                webhook.policies.extend(called.policies.iter().cloned());
            }
            _ => {
                let key = (called.class.ignore, namespace);
                by_namespace.add(key, called.clone(), NAMESPACE_RULES_BYTES_MAX, kinds);
            }
        }
    }
    let mut of_cluster: Vec<_> = cluster.into_values().collect();
    of_cluster.sort_by_key(|webhook| webhook.class.ignore);
    let shared = shared(by_namespace, detail.namespaced_max, kinds);
    of_cluster.into_iter().chain(shared).collect()
}

/// The webhooks of cluster-wide policies.
fn of_the_cluster(
    of_policies: &[&ObjectWebhook],
    is_by_timeout: bool,
    kinds: &Kinds,
) -> Webhooks<WebhookClass> {
    let rules_bytes_max = match is_by_timeout {
        true => usize::MAX,
        // There is one for each failure policy.
        false => CLUSTER_RULES_BYTES_MAX / 2,
    };
    let mut cluster = Webhooks::default();
    for called in of_policies {
        let key = group(called.class, is_by_timeout);
        cluster.add(key, (*called).clone(), rules_bytes_max, kinds);
    }
    cluster
}

/// The cluster-wide policies with which a policy of this class shares a webhook.
fn group(class: WebhookClass, is_by_timeout: bool) -> WebhookClass {
    let timeout_seconds = match is_by_timeout {
        true => class.timeout_seconds,
        false => 0,
    };
    WebhookClass {
        timeout_seconds,
        ..class
    }
}

/// Webhooks that list resources, and those of the policies that have too many of them.
struct Webhooks<K> {
    listed: BTreeMap<K, ObjectWebhook>,
    /// By failure policy.
    of_all_resources: BTreeMap<bool, ObjectWebhook>,
}

impl Webhooks<WebhookClass> {
    /// Returns the class of the webhook that lists resources and comes last, if it is the last of all.
    fn last_class(&self) -> Option<WebhookClass> {
        let (class, _) = self.listed.last_key_value()?;
        self.of_all_resources.is_empty().then_some(*class)
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

impl<K: Ord> Webhooks<K> {
    /// Adds a webhook to the one of the key, whose rules have at most so many bytes.
    fn add(&mut self, key: K, webhook: ObjectWebhook, rules_bytes_max: usize, kinds: &Kinds) {
        if fits(self.listed.get(&key), &webhook, rules_bytes_max) {
            return add(&mut self.listed, key, webhook);
        }
        let in_part = ObjectWebhook {
            operations: named_in_part(&webhook.operations, kinds),
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

/// Returns the served resources of which other versions, or those of the same name in other groups, are called for by other
/// operations, or by none. The API server converts requests for these.
fn named_in_part(operations: &Operations, kinds: &Kinds) -> Operations {
    let mut by_resource: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for name in kinds.names() {
        let of = called_for(operations, &name);
        by_resource
            .entry(name.resource.clone())
            .or_default()
            .push((name, of));
    }
    let in_part = by_resource.into_values().filter(|versions| {
        let mut operations = versions.iter().map(|(_, operations)| operations);
        let first = operations.next();
        operations.any(|other| Some(other) != first)
    });
    let named = in_part.flatten().filter(|(_, of)| !of.is_empty());
    named.collect()
}

/// Returns the operations on a served resource for which a webhook with these rules is called without a conversion.
fn called_for(operations: &Operations, name: &ResourceName) -> BTreeSet<Operation> {
    let resources = match name.resource.split_once('/') {
        None => vec![
            name.resource.clone(),
            "*".to_owned(),
            format!("{}/*", name.resource),
            "*/*".to_owned(),
        ],
        Some((plural, subresource)) => vec![
            name.resource.clone(),
            format!("{plural}/*"),
            format!("*/{subresource}"),
            "*/*".to_owned(),
        ],
    };
    let mut called = BTreeSet::new();
    for group in [&*name.group, "*"] {
        for version in [&*name.version, "*"] {
            for resource in &resources {
                let name = ResourceName {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    resource: resource.clone(),
                };
                called.extend(operations.get(&name).into_iter().flatten());
            }
        }
    }
    called
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
        operations: operations(entry.registered_kinds.get(phase), kinds),
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

fn operations(registered: &[RegisteredKinds], kinds: &Kinds) -> Operations {
    let mut operations_of = Operations::new();
    for one in registered {
        for pattern in &one.kinds {
            for resource in resources(pattern, kinds) {
                operations_of
                    .entry(resource)
                    .or_default()
                    .extend(&one.operations);
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
        // In the API server `*` excludes subresources; in a policy it includes some of Pods.
        (["*", "*", "*"], "") => {
            let of_pods = POD_SUBRESOURCES.map(|name| everything(&format!("pods/{name}")));
            std::iter::once(everything("*")).chain(of_pods).collect()
        }
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
