//! The kinds that the API server serves, for users that have to name their resources.

use std::collections::HashMap;

use anteroom_model::{GroupVersionResource, KindRecord};
use anteroom_policy::{KindPattern, ServedKind};

/// The kinds that the API server serves. Immutable.
#[derive(Debug, Default)]
pub struct Kinds {
    records: Vec<KindRecord>,
    by_resource: HashMap<GroupVersionResource, usize>,
    /// The records by kind alone: few groups have a kind of the same name.
    by_kind: HashMap<String, Vec<usize>>,
}

/// A resource, or a subresource of one, as a webhook configuration names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceName {
    /// Empty for the core group.
    pub group: String,
    /// The version, as in `v1`.
    pub version: String,
    /// The plural, as in `pods` or `pods/exec`.
    pub resource: String,
}

impl Kinds {
    /// Returns the kinds of all records, which may come in any order.
    pub fn new(mut records: Vec<KindRecord>) -> Self {
        records.sort_by(|a, b| a.gvr.cmp(&b.gvr));
        let by_resource = records
            .iter()
            .enumerate()
            .map(|(at, record)| (record.gvr.clone(), at))
            .collect();
        let mut by_kind: HashMap<_, Vec<_>> = HashMap::new();
        for (at, record) in records.iter().enumerate() {
            by_kind.entry(record.kind.clone()).or_default().push(at);
        }
        Self {
            records,
            by_resource,
            by_kind,
        }
    }

    /// Returns all records, in order of group, version and resource.
    pub fn records(&self) -> &[KindRecord] {
        &self.records
    }

    /// The kind behind a resource.
    pub fn of_resource(&self, gvr: &GroupVersionResource) -> Option<&KindRecord> {
        self.by_resource.get(gvr).map(|at| &self.records[*at])
    }

    /// The resource behind a kind.
    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&KindRecord> {
        let named = self.by_kind.get(kind).into_iter().flatten();
        let mut records = named.map(|at| &self.records[*at]);
        records.find(|record| record.gvr.group == group && record.gvr.version == version)
    }

    /// Every resource and subresource that `pattern` takes in, in order.
    pub fn covered_by(&self, pattern: &KindPattern) -> Vec<ResourceName> {
        let mut covered = Vec::new();
        for record in self.candidates(pattern) {
            for subresource in with_subresources(record) {
                if pattern.is_called_for(ServedKind::of(record, subresource)) {
                    covered.push(ResourceName::of(record, subresource));
                }
            }
        }
        covered
    }

    /// Every resource and subresource, in order.
    pub fn names(&self) -> impl Iterator<Item = ResourceName> {
        self.records.iter().flat_map(|record| {
            with_subresources(record).map(move |subresource| ResourceName::of(record, subresource))
        })
    }

    /// The kinds that `pattern` can cover, in order. A policy may name thousands of kinds, so one without wildcards is looked
    /// up.
    fn candidates(&self, pattern: &KindPattern) -> Box<dyn Iterator<Item = &KindRecord> + '_> {
        if pattern.kind.contains(['*', '?']) {
            return Box::new(self.records.iter());
        }
        let named = self.by_kind.get(&pattern.kind).into_iter().flatten();
        Box::new(named.map(move |at| &self.records[*at]))
    }
}

impl ResourceName {
    fn of(record: &KindRecord, subresource: &str) -> Self {
        let GroupVersionResource {
            group,
            version,
            resource,
        } = &record.gvr;
        Self {
            group: group.clone(),
            version: version.clone(),
            resource: match subresource {
                "" => resource.clone(),
                subresource => format!("{resource}/{subresource}"),
            },
        }
    }
}

/// The resource itself, as an empty text, and its subresources.
fn with_subresources(record: &KindRecord) -> impl Iterator<Item = &str> {
    let subresources = record.subresources.iter().map(String::as_str);
    std::iter::once("").chain(subresources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::kinds;

    #[test]
    fn patterns_cover_resources_and_subresources() {
        let covered = |pattern: &str| -> Vec<String> {
            let pattern = KindPattern::parse(pattern).unwrap();
            kinds()
                .covered_by(&pattern)
                .into_iter()
                .map(|name| format!("{}/{}/{}", name.group, name.version, name.resource))
                .collect()
        };
        assert_eq!(
            covered("Pod"),
            [
                "/v1/pods",
                "/v1/pods/ephemeralcontainers",
                "/v1/pods/resize"
            ]
        );
        assert_eq!(covered("Pod/exec"), ["/v1/pods/exec"]);
        assert_eq!(
            covered("Ingress"),
            [
                "networking.k8s.io/v1/ingresses",
                "networking.k8s.io/v1beta1/ingresses"
            ]
        );
        assert_eq!(
            covered("networking.k8s.io/v1/Ing*"),
            ["networking.k8s.io/v1/ingresses"]
        );
        assert_eq!(covered("*/scale"), ["apps/v1/deployments/scale"]);
        assert!(covered("Widget").is_empty());
    }

    #[test]
    fn every_resource_and_subresource_is_named_once_and_in_order() {
        let kinds = kinds();
        let names: Vec<_> = kinds.names().collect();
        let everything = KindPattern::parse("*/*").unwrap();
        assert_eq!(names, kinds.covered_by(&everything));
        assert!(names.iter().any(|name| name.resource == "pods/exec"));
    }

    #[test]
    fn a_resource_has_its_kind() {
        let gvr = GroupVersionResource::new("apps", "v1", "deployments");
        assert_eq!(kinds().of_resource(&gvr).unwrap().kind, "Deployment");
        let gvr = GroupVersionResource::new("apps", "v2", "deployments");
        assert!(kinds().of_resource(&gvr).is_none());
    }

    #[test]
    fn a_kind_has_its_resource() {
        let kinds = kinds();
        let resource = |group, version, kind| {
            let record = kinds.of_kind(group, version, kind)?;
            Some(&*record.gvr.resource)
        };
        assert_eq!(resource("apps", "v1", "Deployment"), Some("deployments"));
        assert_eq!(resource("apps", "v2", "Deployment"), None);
        assert_eq!(resource("", "v1", "Deployment"), None);
    }
}
