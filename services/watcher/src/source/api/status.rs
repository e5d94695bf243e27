//! The statuses of entries.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The status of an entry, written by the watcher.
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
    /// The number of objects in the view; absent if the entry is one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<i64>,
    /// Bytes of their bodies as published: the pruned objects as MessagePack. Absent if `objects` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// The time of the last event, bookmark or list from the source. Written at most once a minute, so a
    /// healthy entry shows up to two; less often if there are over a thousand entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_heard_time: Option<Time>,
}

/// The status of a `GlobalContextEntry`, written by the watcher.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GlobalContextEntryStatus {
    /// `Ready` is `True` while the source is synced and watched, `False` with the reason while it
    /// cannot be served, `Unknown` while it is being read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The time of the API call's last answer. Written at most once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "timestamp")]
    pub last_refresh_time: Option<Time>,
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
