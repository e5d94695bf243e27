//! The versions of resources that policies name, where the API server may convert objects between several. Pure.

use std::collections::{BTreeMap, BTreeSet};

use anteroom_engine::kinds::{Kinds, ResourceName};
use anteroom_policy::Operation;
use sha2::{Digest as _, Sha256};

use super::Operations;

/// The served resources that policies name in some versions alone: the API server converts requests for these.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Versions(BTreeSet<ResourceName>);

impl Versions {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the part of a webhook's name that stands for them; of none, nothing.
    pub(super) fn suffix(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut hash = Sha256::new();
        for name in &self.0 {
            let ResourceName {
                group,
                version,
                resource,
            } = name;
            hash.update(format!("{group}/{version}/{resource};"));
        }
        let hash = hash.finalize();
        let digits = hash.iter().take(4).map(|byte| format!("{byte:02x}"));
        format!("-{}", digits.collect::<String>())
    }
}

/// The resources that are served in several versions, between which the API server may convert objects. Each has all its
/// versions.
pub(super) struct Convertible(BTreeMap<String, Vec<Vec<ResourceName>>>);

impl Convertible {
    pub(super) fn of(kinds: &Kinds) -> Self {
        let mut stored: BTreeMap<(String, String), Vec<ResourceName>> = BTreeMap::new();
        for name in kinds.names() {
            let group = stored_group(&name).to_owned();
            let versions = stored.entry((name.resource.clone(), group)).or_default();
            versions.push(name);
        }
        let mut by_resource: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((resource, _), versions) in stored {
            if versions.len() > 1 {
                by_resource.entry(resource).or_default().push(versions);
            }
        }
        Self(by_resource)
    }

    /// Returns whether a name in a rule may name one of them.
    pub(super) fn is_named(&self, name: &ResourceName) -> bool {
        let is_group = |one: &ResourceName| name.group == "*" || name.group == one.group;
        match name.resource.contains('*') {
            true => self.0.values().flatten().flatten().any(is_group),
            false => {
                let of_name = self.0.get(&name.resource);
                of_name.into_iter().flatten().flatten().any(is_group)
            }
        }
    }

    /// Returns those that are called for in some versions alone.
    pub(super) fn versions(&self, operations: &Operations) -> Versions {
        if !operations.keys().any(|name| self.is_named(name)) {
            return Versions::default();
        }
        Versions(self.named_in_part(operations).into_keys().collect())
    }

    /// Returns the resources whose other versions are called for by other operations, or by none.
    pub(super) fn named_in_part(&self, operations: &Operations) -> Operations {
        let with_operations = |name: &ResourceName| (name.clone(), called_for(operations, name));
        let in_part = self.0.values().flatten().filter_map(|versions| {
            let versions: Vec<_> = versions.iter().map(with_operations).collect();
            let is_whole = versions.windows(2).all(|pair| pair[0].1 == pair[1].1);
            (!is_whole).then_some(versions)
        });
        let named = in_part.flatten().filter(|(_, of)| !of.is_empty());
        named.collect()
    }
}

/// Returns the group whose resource the API server stores a resource as. It serves some in two groups
/// (`AddCohabitatingResources` in its storage factory).
fn stored_group(name: &ResourceName) -> &str {
    let plural = name.resource.split('/').next().unwrap_or_default();
    match (&*name.group, plural) {
        ("events.k8s.io", "events") => "",
        ("extensions", "deployments" | "daemonsets" | "replicasets") => "apps",
        ("extensions", "ingresses" | "networkpolicies") => "networking.k8s.io",
        ("extensions", "podsecuritypolicies") => "policy",
        (group, _) => group,
    }
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
