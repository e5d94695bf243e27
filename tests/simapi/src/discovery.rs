//! Discovery: what is served, in the old shape (group by group) and in the aggregated one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use axum::{
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    resource::ResourceType,
    status::{json_response, no_such_path, raw_json_response},
};

const VERBS: [&str; 7] = [
    "create", "delete", "get", "list", "patch", "update", "watch",
];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Groups in the aggregated form, each as it was written last: discovery is asked for far more often than it changes.
#[derive(Debug, Default)]
pub(crate) struct WrittenGroups(Mutex<BTreeMap<String, WrittenGroup>>);

#[derive(Debug)]
struct WrittenGroup {
    resources: Vec<Arc<ResourceType>>,
    is_down: bool,
    json: Arc<str>,
}

impl WrittenGroups {
    fn json(&self, group: &str, resources: &[Arc<ResourceType>], is_down: bool) -> Arc<str> {
        let mut groups = self.0.lock();
        if let Some(written) = groups.get(group)
            && written.is_down == is_down
            && written.resources.len() == resources.len()
            && written
                .resources
                .iter()
                .zip(resources)
                .all(|(one, other)| Arc::ptr_eq(one, other))
        {
            return Arc::clone(&written.json);
        }
        let json: Arc<str> = aggregated_group(group, resources, is_down)
            .to_string()
            .into();
        let written = WrittenGroup {
            resources: resources.to_vec(),
            is_down,
            json: Arc::clone(&json),
        };
        groups.insert(group.to_owned(), written);
        json
    }
}

/// Everything that is served, sorted for answering.
pub(crate) struct Discovery<'w> {
    /// Resources by group, the core group (named "") included.
    groups: BTreeMap<String, Vec<Arc<ResourceType>>>,
    /// Groups whose server is away.
    down: BTreeSet<String>,
    aggregated: bool,
    written: &'w WrittenGroups,
}

impl<'w> Discovery<'w> {
    pub(crate) fn new(
        resources: Vec<Arc<ResourceType>>,
        written: &'w WrittenGroups,
        headers: &HeaderMap,
        is_down: impl Fn(&str) -> bool,
    ) -> Self {
        let mut groups: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for resource in resources {
            groups
                .entry(resource.group.clone())
                .or_default()
                .push(resource);
        }
        let accepted = headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|accept| accept.to_str().ok());
        let aggregated = accepted
            .flat_map(|accept| accept.split(','))
            .any(|accept| accept.contains("as=APIGroupDiscoveryList") && accept.contains("v=v2;"));
        let down = groups.keys().filter(|group| is_down(group)).cloned();
        Self {
            down: down.collect(),
            groups,
            aggregated,
            written,
        }
    }

    /// Answers `/api`.
    pub(crate) fn core(&self) -> Response {
        if self.aggregated {
            return self.aggregate(|group| group.is_empty());
        }
        json_response(
            200,
            &json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": []}),
        )
    }

    /// Answers `/apis`.
    pub(crate) fn groups(&self) -> Response {
        if self.aggregated {
            return self.aggregate(|group| !group.is_empty());
        }
        let groups: Vec<Value> = self
            .groups
            .iter()
            .filter(|(group, _)| !group.is_empty())
            .map(|(group, resources)| group_json(group, resources))
            .collect();
        json_response(
            200,
            &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
        )
    }

    /// `/apis/GROUP`.
    pub(crate) fn group(&self, group: &str) -> Response {
        match self.groups.get(group) {
            Some(resources) if !group.is_empty() => {
                let mut answer = group_json(group, resources);
                answer["kind"] = "APIGroup".into();
                answer["apiVersion"] = "v1".into();
                json_response(200, &answer)
            }
            _ => no_such_path(false),
        }
    }

    /// `/api/v1`, `/apis/GROUP/VERSION`.
    pub(crate) fn group_version(&self, group: &str, version: &str) -> Response {
        let serves =
            |resource: &&Arc<ResourceType>| resource.versions.iter().any(|of| of == version);
        let resources: Vec<_> = self
            .groups
            .get(group)
            .into_iter()
            .flatten()
            .filter(serves)
            .collect();
        let Some(first) = resources.first() else {
            return no_such_path(self.is_built_in(group));
        };
        let group_version = first.api_version(version);
        let entries: Vec<Value> = resources
            .iter()
            .flat_map(|resource| entries(resource))
            .collect();
        json_response(
            200,
            &json!({"kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": group_version, "resources": entries}),
        )
    }

    fn is_built_in(&self, group: &str) -> bool {
        self.groups
            .get(group)
            .is_some_and(|of| of.iter().any(|resource| !resource.custom))
    }

    fn aggregate(&self, wanted: impl Fn(&str) -> bool) -> Response {
        let groups = self.groups.iter().filter(|(group, _)| wanted(group));
        let items: Vec<_> = groups
            .map(|(group, resources)| {
                let is_down = self.down.contains(group);
                self.written.json(group, resources, is_down)
            })
            .collect();
        let items = items.join(",");
        let list = format!(
            r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{{}},"items":[{items}]}}"#
        );
        let mut response = raw_json_response(200, list);
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
        response
    }
}

/// All versions of a group, the preferred one first.
fn versions(resources: &[Arc<ResourceType>]) -> Vec<&str> {
    let mut versions: Vec<&str> = Vec::new();
    for version in resources.iter().flat_map(|resource| &resource.versions) {
        if !versions.contains(&version.as_str()) {
            versions.push(version);
        }
    }
    versions.sort_by_key(|version| std::cmp::Reverse(crate::resource::version_priority(version)));
    versions
}

fn group_json(group: &str, resources: &[Arc<ResourceType>]) -> Value {
    let versions: Vec<Value> = versions(resources)
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
}

/// The entries of a resource and of its status in an `APIResourceList`.
fn entries(resource: &ResourceType) -> Vec<Value> {
    let mut main = json!({"name": resource.plural, "singularName": resource.singular,
        "namespaced": resource.namespaced, "kind": resource.kind, "verbs": VERBS});
    if !resource.short_names.is_empty() {
        main["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        main["categories"] = json!(resource.categories);
    }
    let status = resource.status.then(|| {
        json!({"name": format!("{}/status", resource.plural),
        "singularName": "", "namespaced": resource.namespaced, "kind": resource.kind,
        "verbs": STATUS_VERBS})
    });
    std::iter::once(main).chain(status).collect()
}

/// Describes a group whose server is away: the versions are known and their resources are not.
fn aggregated_group(group: &str, resources: &[Arc<ResourceType>], is_down: bool) -> Value {
    let versions: Vec<Value> = versions(resources)
        .into_iter()
        .map(|version| {
            let served = resources
                .iter()
                .filter(|resource| resource.versions.iter().any(|of| of == version));
            let served: Vec<Value> = served
                .map(|resource| aggregated(resource, version))
                .collect();
            if is_down {
                json!({"version": version, "freshness": "Stale"})
            } else {
                json!({"version": version, "resources": served, "freshness": "Current"})
            }
        })
        .collect();
    let metadata = if group.is_empty() {
        json!({"creationTimestamp": null})
    } else {
        json!({"name": group, "creationTimestamp": null})
    };
    json!({"metadata": metadata, "versions": versions})
}

fn aggregated(resource: &ResourceType, version: &str) -> Value {
    let kind = json!({"group": resource.group, "version": version, "kind": resource.kind});
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind, "singularResource": resource.singular,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" }, "verbs": VERBS,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if resource.status {
        entry["subresources"] =
            json!([{"subresource": "status", "responseKind": kind, "verbs": STATUS_VERBS}]);
    }
    entry
}
