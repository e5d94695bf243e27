//! A Kubernetes collection, as an entry names it.
#![expect(
    unreachable_pub,
    reason = "the KubeSchema derive repeats each struct in a scope of its own"
)]

use std::collections::BTreeMap;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Kubernetes collection, or one object of it.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[x_kube(validation = Rule::new("!has(self.namespace) || !has(self.namespaces)")
    .message("only one of `namespace` and `namespaces` can be set"))]
#[x_kube(validation = Rule::new("!has(self.name) || (!has(self.namespaces) && !has(self.labelSelector) && !has(self.fieldSelector))")
    .message("`name` names one object: `namespaces` and selectors do not go with it"))]
#[serde(rename_all = "camelCase")]
pub struct ResourceSource {
    /// The API group, as in `networking.k8s.io` or `apis/networking.k8s.io`; `""`, `core` and `api`
    /// are the core group. Default: the group that serves the resource, the core group first. If several
    /// other groups serve it, the entry has an error that names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub group: Option<String>,
    /// The API version, as in `v1`. Default: the group's preferred version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub version: Option<String>,
    /// The plural, in lower case, as in `ingresses`. The kind, as in `Ingress`, is understood too.
    #[x_kube(validation = Rule::new("self != ''").message("`kind` must name a resource, as in `ingresses`"))]
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Only objects of this namespace. Default: all namespaces, or a cluster-scoped resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Only objects of these namespaces. Default: see `namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256), inner(length(min = 1, max = 63)))]
    pub namespaces: Option<Vec<String>>,
    /// Only the object of this name; it is then the entry's data itself. A namespaced resource needs its
    /// `namespace` too. Default: all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Only objects whose labels match. Default: all objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Only objects whose fields match, in the API server's syntax, as in
    /// `metadata.name=web,spec.nodeName!=a`. The API server defines the fields that can be selected.
    /// Default: all objects.
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
    /// The values that `In` and `NotIn` compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}
