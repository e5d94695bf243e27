//! `GlobalContextEntry` by Kyverno's definition: accepts the same manifests, and refuses the rest in the words of
//! Kyverno's admission.
#![expect(
    unreachable_pub,
    reason = "the KubeSchema derive repeats each struct in a scope of its own"
)]
#![expect(clippy::duplicated_attributes, reason = "columns have types in common")]

use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::{
    ApiCallSource, Datum, GlobalContextEntryStatus, Method, ProjectionSpec, ServiceSource,
};

/// The facts that policies may read by this entry's name. Exactly one of `kubernetesResource` and
/// `apiCall`.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "kyverno.io",
    version = "v2beta1",
    kind = "GlobalContextEntry",
    plural = "globalcontextentries",
    shortname = "gctxentry",
    category = "kyverno",
    status = "GlobalContextEntryStatus",
    derive = "PartialEq",
    doc = "Cached facts for policies: a Kubernetes collection, or the response of an API call.",
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "REFRESH INTERVAL",
        type_ = "string",
        json_path = ".spec.apiCall.refreshInterval"
    ),
    printcolumn(
        name = "LAST REFRESH",
        type_ = "date",
        json_path = ".status.lastRefreshTime"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct GlobalContextEntrySpec {
    /// A Kubernetes collection: read as an array of its objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_resource: Option<KubernetesResource>,
    /// The response of an API call, made at intervals, once for the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_call: Option<GlobalApiCall>,
    /// Parts of the data under names of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub projections: Vec<ProjectionSpec>,
}

/// A Kubernetes collection.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("self.version == 'v1' || (has(self.group) && self.group != '')")
    .message("A Resource entry requires a group"))]
#[x_kube(validation = Rule::new("self.version != ''").message("A Resource entry requires a version"))]
#[x_kube(validation = Rule::new("self.resource != ''").message("A Resource entry requires a resource"))]
#[serde(rename_all = "camelCase")]
pub struct KubernetesResource {
    /// The API group. Default: the core group, whose version is `v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub group: Option<String>,
    /// The API version, as in `v1`.
    #[schemars(length(max = 63))]
    pub version: String,
    /// The plural, in lower case, as in `deployments`.
    #[schemars(length(max = 63))]
    pub resource: String,
    /// Only objects of this namespace. Default: all namespaces, or a cluster-scoped resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// An API call that is made at intervals.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("has(self.service) != (has(self.urlPath) && self.urlPath != '')")
    .message("An External API call should either have Service or URLPath"))]
#[x_kube(validation = Rule::new("!has(self.data) || (has(self.method) && self.method == 'POST')")
    .message("An External API call with data should have method as POST"))]
#[serde(rename_all = "camelCase")]
pub struct GlobalApiCall {
    /// A path of the Kubernetes API, as in `/api/v1/namespaces`, with the watcher's permissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub url_path: Option<String>,
    /// An endpoint outside of the Kubernetes API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSource>,
    /// `GET` or `POST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "method")]
    pub method: Option<Method>,
    /// The body of a `POST`: a JSON object with these keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Vec<Datum>>,
    /// The interval between calls, as in `1h30m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "interval")]
    pub refresh_interval: Option<String>,
    /// The number of retries of a failed call before readers get an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "retries")]
    pub retry_limit: Option<i64>,
}

impl From<GlobalApiCall> for ApiCallSource {
    fn from(call: GlobalApiCall) -> Self {
        let GlobalApiCall {
            url_path,
            service,
            method,
            data,
            refresh_interval,
            retry_limit,
        } = call;
        Self {
            url_path: url_path.filter(|path| !path.is_empty()),
            service,
            method,
            data,
            refresh_interval,
            retry_limit,
            ..Self::default()
        }
    }
}

fn method(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["GET", "POST"], "default": "GET"})
}

fn interval(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "format": "duration", "default": "10m",
        "x-kubernetes-validations": [{
            "rule": "self != duration('0s')",
            "message": "A Resource entry requires a refresh interval greater than 0 seconds",
        }],
    })
}

fn retries(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "minimum": 1, "default": 3})
}
