//! The custom resource `CachedContextEntry`.
#![expect(
    unreachable_pub,
    reason = "the KubeSchema derive repeats each struct in a scope of its own"
)]
#![expect(
    clippy::duplicated_attributes,
    reason = "columns have types and priorities in common"
)]

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{ApiCallSource, CachedContextEntryStatus, ProjectionSpec, ResourceSource};

/// The oldest data, in seconds, that `onFailure: ServeStale` serves if the entry sets no limit.
pub const STALENESS_DEFAULT_SECONDS: i64 = 3_600;

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
    doc = "Cached facts for policies: a Kubernetes collection or object, watched once for the whole cluster, or the response of an API call.",
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
#[x_kube(validation = Rule::new("has(self.apiCall) || (!has(self.onFailure) && !has(self.maxStalenessSeconds))")
    .message("`onFailure` and `maxStalenessSeconds` are about an `apiCall`"))]
#[x_kube(validation = Rule::new("!has(self.maxStalenessSeconds) || (has(self.onFailure) && self.onFailure == 'ServeStale')")
    .message("`maxStalenessSeconds` needs `onFailure: ServeStale`"))]
#[x_kube(validation = Rule::new("has(self.resource) || !has(self.onForbidden)")
    .message("`onForbidden` is about a `resource`"))]
#[x_kube(validation = Rule::new("!has(self.retain) || self.retain == 'All' || (has(self.resource) && !has(self.resource.name))")
    .message("`retain: Referenced` is about a `resource` without a `name`"))]
#[serde(rename_all = "camelCase")]
pub struct CachedContextEntrySpec {
    /// A Kubernetes collection, whole or narrowed, or one object. Exactly one of `resource` and
    /// `apiCall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceSource>,
    /// The response of an API call, made at intervals, once for the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_call: Option<ApiCallSource>,
    /// The answer to readers while an API call fails and its retries are used up: the error (`Error`,
    /// the default), or the last good data with its age (`ServeStale`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    /// The oldest data that `onFailure: ServeStale` serves, in seconds; readers get the error instead of
    /// older data. Default: 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub max_staleness_seconds: Option<i64>,
    /// The watcher's action after the API server forbids the resource: it tries again for ever (`Retry`,
    /// the default), or stops until the entry changes or a watcher restarts (`Stop`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_forbidden: Option<OnForbidden>,
    /// The fields of each object that are kept. `All`, the default: all but `managedFields` and the
    /// annotation of `kubectl apply`. `Referenced`: only those that the expressions of policies and
    /// projections read of this entry; a query for any other field is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<Retain>,
    /// The entry's data is never evicted to save memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// The largest size of the entry's data in a replica's memory: a number of bytes or a quantity, as in
    /// `64Mi`. If the entry grows larger, only this entry is evicted. Default: the replica's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity")]
    pub max_bytes: Option<IntOrString>,
    /// Parts of the data under names of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub projections: Vec<ProjectionSpec>,
}

/// The answer to readers while an API call fails: the error (`Error`, the default), or the last good
/// data with its age (`ServeStale`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnFailure {
    /// The error.
    #[default]
    Error,
    /// The last good data, with its age.
    ServeStale,
}

/// The fields of each object that are kept: all but `managedFields` and the annotation of
/// `kubectl apply` (`All`, the default), or only those that policies and projections read
/// (`Referenced`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Retain {
    /// All fields but `managedFields` and the annotation of `kubectl apply`.
    #[default]
    All,
    /// The fields that policies and projections read of the entry, and those that identify an object.
    Referenced,
}

/// The watcher's action after the API server forbids a resource: it tries again for ever (`Retry`, the
/// default), or stops until the entry changes or a watcher restarts (`Stop`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnForbidden {
    /// The watcher tries again, for ever.
    #[default]
    Retry,
    /// The watcher stops until the entry changes or a watcher restarts.
    Stop,
}

fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": r"^[0-9]+(\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$",
    })
}
