//! Background scans: the policies that are evaluated on existing objects, the objects, and the results that are reported.

use std::collections::{BTreeMap, BTreeSet};

use anteroom_model::KindRecord;

use crate::{
    evaluate::Evaluation,
    ir::{
        AdmissionRequest, CollectionReference, KindPattern, Operation, Phase, Policy, Rule,
        ServedKind,
    },
    pushdown::RequestParts,
};

/// Collections that are scanned for one policy; a policy with wildcards in its kinds may name more.
pub const SCANNED_MAX: usize = 128;

/// Resources whose objects are never scanned, by group and plural: they are news or heartbeats rather
/// than state, are written by the scanner, or are secret; or the API server never stores them.
const NEVER_SCANNED: &[(&str, &str)] = &[
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("", "secrets"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("coordination.k8s.io", "leases"),
    ("events.k8s.io", "events"),
    ("metrics.k8s.io", "nodes"),
    ("metrics.k8s.io", "pods"),
    ("wgpolicyk8s.io", "clusterpolicyreports"),
    ("wgpolicyk8s.io", "policyreports"),
];

/// The reason why a policy is not evaluated on existing objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotScanned {
    /// The policy says so: `spec.background: false`.
    Off,
    /// The policy selects by users, and a scan has none.
    Users,
    /// The policy has no rule that validates.
    NothingToValidate,
}

/// The kinds that are scanned for a policy, of those that the API server serves.
#[derive(Clone, Debug, Default)]
pub struct ScannedKinds<'k> {
    /// The collections, each with the kind of its objects.
    pub found: Vec<(CollectionReference, &'k KindRecord)>,
    /// The number of resources of these kinds that are not scanned, because there are more than [`SCANNED_MAX`] or
    /// because they cannot be watched.
    pub left_out: usize,
}

impl Policy {
    /// Returns the reason why the policy is not evaluated on existing objects; `None`: it is.
    pub fn not_scanned(&self) -> Option<NotScanned> {
        if !self.settings.background {
            Some(NotScanned::Off)
        } else if self.validating().next().is_none() {
            Some(NotScanned::NothingToValidate)
        } else if RequestParts::are_of_users(self) {
            Some(NotScanned::Users)
        } else {
            None
        }
    }

    /// The rules that judge objects, in order.
    pub fn validating(&self) -> impl Iterator<Item = &Rule> {
        self.rules_of(Phase::Validation)
    }

    /// Returns the kinds whose existing objects the policy judges; none if it is not scanned.
    pub fn scanned_kinds(&self) -> Vec<KindPattern> {
        if self.not_scanned().is_some() {
            return Vec::new();
        }
        let registered = self
            .validating()
            .flat_map(|rule| rule.matches.registered_kinds(Phase::Validation));
        let mut kinds: Vec<KindPattern> = Vec::new();
        for one in registered {
            // What exists counts as created.
            if one.operations.contains(&Operation::Create) {
                kinds.extend(one.kinds);
            }
        }
        kinds.sort_by_key(ToString::to_string);
        kinds.dedup();
        kinds
    }
}

/// Returns the collections of the API server that hold objects of these kinds, in order and each resource once. Each
/// is in its group's preferred version, if a kind matches that version. `namespace` narrows them to the namespace of
/// a namespaced policy; empty: all. At most [`SCANNED_MAX`] are returned, without those that cannot be watched.
pub fn scanned<'k>(
    patterns: &[KindPattern],
    namespace: &str,
    served: impl IntoIterator<Item = &'k KindRecord>,
) -> ScannedKinds<'k> {
    let mut found: BTreeMap<(&str, &str), &KindRecord> = BTreeMap::new();
    let mut unwatchable: BTreeSet<(&str, &str)> = BTreeSet::new();
    for record in served {
        let gvr = &record.gvr;
        let covers = |pattern: &KindPattern| {
            let own = pattern.subresource.is_empty() || pattern.subresource == "*";
            own && pattern.covers(ServedKind::of(record, ""))
        };
        let place = (gvr.group.as_str(), gvr.resource.as_str());
        let is_scanned = !NEVER_SCANNED.contains(&place)
            && (namespace.is_empty() || record.namespaced)
            && patterns.iter().any(covers);
        if !is_scanned {
            continue;
        }
        if !record.watchable {
            unwatchable.insert(place);
            continue;
        }
        let known = found.entry(place).or_insert(record);
        if record.preferred && !known.preferred {
            *known = record;
        }
    }
    let collection = |record: &'k KindRecord| {
        let gvr = &record.gvr;
        let reference = CollectionReference {
            group: Some(gvr.group.clone()),
            version: Some(gvr.version.clone()),
            resource: gvr.resource.clone(),
            namespace: namespace.to_owned(),
            ..CollectionReference::default()
        };
        (reference, record)
    };
    unwatchable.retain(|place| !found.contains_key(place));
    ScannedKinds {
        left_out: found.len().saturating_sub(SCANNED_MAX) + unwatchable.len(),
        found: found
            .into_values()
            .take(SCANNED_MAX)
            .map(collection)
            .collect(),
    }
}

impl<'a> Evaluation<'a> {
    /// Begins an evaluation of an existing object: `request` would create the object, without a user. It does not
    /// matter whether the policy is evaluated at admission.
    pub fn of_existing(policy: &'a Policy, rule: &'a Rule, request: &'a AdmissionRequest) -> Self {
        let within = |namespace| request.object_namespace() == namespace;
        let applies = policy.namespace().is_none_or(within);
        Self::start_if(applies, policy, rule, request).of_new_policy()
    }
}

#[cfg(test)]
mod tests;
