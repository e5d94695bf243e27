//! API calls, as entries write them, and projections.
#![expect(
    unreachable_pub,
    reason = "the KubeSchema derive repeats each struct in a scope of its own"
)]

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An API call that is made at intervals: of an endpoint outside of the cluster (`url`, or `service`
/// where it takes headers), or of the Kubernetes API (`urlPath`).
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("[has(self.url), has(self.urlPath), has(self.service)].filter(set, set).size() == 1")
    .message("exactly one of `url`, `urlPath` and `service` must be set"))]
#[x_kube(validation = Rule::new("!has(self.caBundle) || has(self.url)")
    .message("`caBundle` goes with `url`; a `service` has one of its own"))]
#[x_kube(validation = Rule::new("!has(self.data) || (has(self.method) && self.method == 'POST')")
    .message("An External API call with data should have method as POST"))]
#[x_kube(validation = Rule::new("!has(self.refreshInterval) || !has(self.refreshIntervalSeconds)")
    .message("only one of `refreshInterval` and `refreshIntervalSeconds` can be set"))]
#[serde(rename_all = "camelCase")]
pub struct ApiCallSource {
    /// The URL of the endpoint: `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url: Option<String>,
    /// CA certificates in PEM: only they can verify the endpoint's certificate. Default: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 262_144))]
    pub ca_bundle: Option<String>,
    /// The interval between calls, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub refresh_interval_seconds: Option<i64>,
    /// A path of the Kubernetes API, as in `/api/v1/namespaces`, with the watcher's permissions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2048))]
    pub url_path: Option<String>,
    /// An endpoint that takes headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceSource>,
    /// `GET`, the default, or `POST`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// The body of a `POST`: a JSON object with these keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub data: Option<Vec<Datum>>,
    /// The interval between calls, as in `1h30m`. Default: `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "interval")]
    pub refresh_interval: Option<String>,
    /// The number of retries of a failed call before readers get an error. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub retry_limit: Option<i64>,
}

/// The HTTP method: `GET`, the default, or `POST`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// The call sends no body.
    #[default]
    Get,
    /// The call sends `data` as its body.
    Post,
}

/// One key of the body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Datum {
    /// The key.
    pub key: String,
    /// Its value.
    #[schemars(schema_with = "anything")]
    pub value: Value,
}

/// An endpoint outside of the Kubernetes API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceSource {
    /// The URL of the endpoint, as in `https://service.namespace:8443/path`.
    pub url: String,
    /// CA certificates in PEM: only they can verify the endpoint's certificate. Default: the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// A reference to a certificate bundle. Not supported: an entry with it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub ca_bundle_from: Option<Value>,
    /// Headers of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Vec<Header>>,
}

/// One header of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Its name.
    pub key: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// A reference to its value. Not supported: an entry with it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub value_from: Option<Value>,
}

/// A part of an entry's data under a name of its own.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectionSpec {
    /// The projection's name, which must differ from the entry's own.
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self != ''").message("A projection entry requires a name"))]
    pub name: String,
    /// JMESPath over the entry's data.
    #[schemars(length(max = 65_536))]
    #[x_kube(validation = Rule::new("self != ''").message("A projection entry requires a JMESPath"))]
    pub jmes_path: String,
}

fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

fn interval(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "format": "duration", "nullable": true, "maxLength": 64,
        "x-kubernetes-validations": [{
            "rule": "self > duration('0s')",
            "message": "A Resource entry requires a refresh interval greater than 0 seconds",
        }],
    })
}
