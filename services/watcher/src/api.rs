//! `CachedContextEntry`, as users write it.
//!
//! The schema says what it can (types, patterns, "exactly one of"); [`crate::resolve`] checks the
//! rest again in code, since an API server may hold entries from before a rule was added.
#![expect(
    unreachable_pub,
    reason = "the KubeSchema derive repeats each struct in a scope of its own"
)]
#![expect(
    clippy::duplicated_attributes,
    reason = "columns have types and priorities in common"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The facts that policies may read by this entry's name.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kyverno.io",
    version = "v2alpha1",
    kind = "CachedContextEntry",
    plural = "cachedcontextentries",
    shortname = "cce",
    category = "kyverno",
    status = "CachedContextEntryStatus",
    derive = "PartialEq",
    doc = "A source of facts that is kept close at hand for policies: a Kubernetes collection, watched once for the whole cluster.",
    printcolumn(
        name = "READY",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "OBJECTS", type_ = "integer", json_path = ".status.objects"),
    printcolumn(name = "BYTES", type_ = "integer", json_path = ".status.bytes"),
    printcolumn(
        name = "STALENESS",
        type_ = "date",
        json_path = ".status.lastHeardTime",
        priority = 1
    ),
    printcolumn(
        name = "REASON",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#,
        priority = 1
    ),
    printcolumn(
        name = "MESSAGE",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[x_kube(validation = Rule::new("has(self.resource) != has(self.apiCall)")
    .message("exactly one of `resource` and `apiCall` must be set"))]
#[serde(rename_all = "camelCase")]
pub struct CachedContextEntrySpec {
    /// A Kubernetes collection, whole or narrowed. Exactly one of `resource` and `apiCall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceSource>,
    /// The response of an HTTP endpoint. Not served by this version: such an entry is not ready, with
    /// the reason `Unsupported`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_call: Option<ApiCallSource>,
}

/// A Kubernetes collection.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSource {
    /// The API group, as in `networking.k8s.io` or `apis/networking.k8s.io`; `""`, `core` and `api`
    /// are the core group. Left out: the group that serves the resource, the core group first; more
    /// than one other group is an error that names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub group: Option<String>,
    /// As in `v1`. Left out: the group's preferred version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub version: Option<String>,
    /// The plural, in lower case, as in `ingresses`. The kind, as in `Ingress`, is understood too.
    #[x_kube(validation = Rule::new("self != ''").message("`kind` must name a resource, as in `ingresses`"))]
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Only objects of this namespace. Left out: all namespaces, or a cluster-scoped resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Only objects whose labels match. Left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Only objects whose fields match, in the API server's syntax, as in
    /// `metadata.name=web,spec.nodeName!=a`. Left out: all. Which fields can be selected is the API
    /// server's to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub field_selector: Option<String>,
}

/// `metav1.LabelSelector`: all requirements of both fields must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels and the values that they must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement on a label.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new(
    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0",
).message("`In` and `NotIn` need `values`; `Exists` and `DoesNotExist` take none"))]
pub struct LabelRequirement {
    /// The label's key.
    #[schemars(length(max = 317))]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[x_kube(validation = Rule::new("self in ['In', 'NotIn', 'Exists', 'DoesNotExist']")
        .message("`operator` must be In, NotIn, Exists or DoesNotExist"))]
    #[schemars(length(max = 16))]
    pub operator: String,
    /// What `In` and `NotIn` compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// The response of an HTTP endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiCallSource {
    /// Where it is fetched.
    #[schemars(length(min = 1, max = 2048))]
    pub url: String,
    /// PEM certificates that the endpoint's own is checked against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// How often it is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub refresh_interval_seconds: Option<i64>,
}

/// What the watcher says about an entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CachedContextEntryStatus {
    /// `Ready` is `True` while the source is synced and watched, `False` with the reason while it
    /// cannot be served, `Unknown` while it is being read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The name of the view that serves this entry; entries on one source share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// Objects in the view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<i64>,
    /// Bytes of their bodies as published: the pruned objects as MessagePack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// When the source was last heard from: an event, a bookmark, a list. Written at most once a
    /// minute, so a healthy entry shows up to two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_heard_time: Option<Time>,
}

/// The schema of `metav1.Condition`, merged by `type`.
fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
            },
        },
    })
}

fn timestamp(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time", "nullable": true})
}
