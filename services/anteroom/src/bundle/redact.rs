//! Objects, cut down to fields that are listed here. Pure.

use serde_json::{Map, Value, json};

/// Returns the part of a value that a shape names: an object's fields, each item of a list, or a scalar at `1`.
fn pick(value: &Value, shape: &Value) -> Option<Value> {
    match (value, shape) {
        (Value::Object(fields), Value::Object(wanted)) => {
            let picked = wanted
                .iter()
                .filter_map(|(name, shape)| Some((name.clone(), pick(fields.get(name)?, shape)?)));
            Some(Value::Object(picked.collect()))
        }
        (Value::Array(items), Value::Array(shapes)) => {
            let shape = shapes.first()?;
            Some(items.iter().filter_map(|item| pick(item, shape)).collect())
        }
        (Value::Object(_) | Value::Array(_), _) => None,
        (scalar, Value::Number(_)) => Some(scalar.clone()),
        _ => None,
    }
}

fn metadata() -> Value {
    json!({ "name": 1, "namespace": 1, "generation": 1, "creationTimestamp": 1, "deletionTimestamp": 1 })
}

fn conditions() -> Value {
    json!([{ "type": 1, "status": 1, "reason": 1, "message": 1, "lastTransitionTime": 1, "observedGeneration": 1 }])
}

/// Amounts of resources.
fn amounts() -> Value {
    json!({ "cpu": 1, "memory": 1, "ephemeral-storage": 1, "storage": 1 })
}

fn containers() -> Value {
    json!([{ "name": 1, "image": 1, "resources": { "limits": amounts(), "requests": amounts() } }])
}

/// Returns what is taken of a workload: a Deployment, StatefulSet or Job.
pub(super) fn workload(object: &Value) -> Value {
    let shape = json!({
        "metadata": metadata(),
        "spec": { "replicas": 1, "template": { "spec": { "containers": containers() } } },
        "status": { "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1, "observedGeneration": 1,
            "conditions": conditions() },
    });
    let mut picked = pick(object, &shape).unwrap_or_default();
    let pod = &object["spec"]["template"]["spec"];
    add_options(&mut picked["spec"]["template"]["spec"], pod);
    picked
}

/// Returns what is taken of a Pod.
pub(super) fn pod(object: &Value) -> Value {
    let state = json!({
        "running": { "startedAt": 1 },
        "waiting": { "reason": 1, "message": 1 },
        "terminated": { "exitCode": 1, "signal": 1, "reason": 1, "startedAt": 1, "finishedAt": 1 },
    });
    let shape = json!({
        "metadata": metadata(),
        "spec": { "nodeName": 1, "containers": containers() },
        "status": { "phase": 1, "reason": 1, "message": 1, "qosClass": 1, "startTime": 1, "conditions": conditions(),
            "containerStatuses": [{ "name": 1, "ready": 1, "restartCount": 1, "image": 1, "imageID": 1, "state": state,
                "lastState": state }] },
    });
    let mut picked = pick(object, &shape).unwrap_or_default();
    add_options(&mut picked["spec"], &object["spec"]);
    picked
}

/// Adds the options and variables of each container: their names, and values that are numbers, sizes or durations.
fn add_options(picked: &mut Value, pod: &Value) {
    let containers = pod["containers"].as_array().into_iter().flatten();
    let picked = picked["containers"].as_array_mut().into_iter().flatten();
    for (picked, container) in picked.zip(containers) {
        let args = container["args"].as_array().into_iter().flatten();
        let args = args.filter_map(Value::as_str).map(option);
        picked["args"] = args.collect();
        let variables = container["env"].as_array().into_iter().flatten();
        let variables = variables.map(|variable| {
            let name = variable["name"].as_str().unwrap_or_default();
            match variable["value"].as_str() {
                Some(value) if is_amount(value) => format!("{name}={value}"),
                _ => format!("{name}=…"),
            }
        });
        picked["env"] = variables.collect();
    }
}

/// An option's name, and its value if that is an amount.
fn option(arg: &str) -> String {
    match arg.split_once('=') {
        _ if !arg.starts_with('-') => "…".to_owned(),
        Some((_, value)) if is_amount(value) => arg.to_owned(),
        Some((name, _)) => format!("{name}=…"),
        None => arg.to_owned(),
    }
}

/// Returns true for a number, size or duration, as in `10`, `1.5`, `64Mi` and `60s`, and for `true` and `false`.
fn is_amount(value: &str) -> bool {
    let unit = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let digits = value.len() - unit.len();
    let units = [
        "", "ms", "s", "m", "h", "d", "Ki", "Mi", "Gi", "Ti", "k", "M", "G", "T", "KiB", "MiB",
        "GiB", "%",
    ];
    ["true", "false"].contains(&value) || (1..=12).contains(&digits) && units.contains(&unit)
}

/// Returns what is taken of a Service, a PodDisruptionBudget, or a PersistentVolumeClaim.
pub(super) fn other(object: &Value) -> Value {
    let shape = json!({
        "metadata": metadata(),
        "spec": { "type": 1, "ports": [{ "name": 1, "port": 1, "targetPort": 1, "protocol": 1 }], "minAvailable": 1,
            "maxUnavailable": 1, "storageClassName": 1, "resources": { "requests": amounts() } },
        "status": { "phase": 1, "capacity": amounts(), "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 1,
            "conditions": conditions() },
    });
    pick(object, &shape).unwrap_or_default()
}

/// Kinds whose Events are taken.
const EVENTS_OF: [&str; 8] = [
    "DaemonSet",
    "Deployment",
    "Job",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "ReplicaSet",
    "StatefulSet",
];

/// Returns what is taken of an Event; `None`: it is about something else.
pub(super) fn event(object: &Value) -> Option<Value> {
    let kind = object["involvedObject"]["kind"].as_str()?;
    let shape = json!({
        "type": 1, "reason": 1, "message": 1, "count": 1, "firstTimestamp": 1, "lastTimestamp": 1, "eventTime": 1,
        "involvedObject": { "kind": 1, "name": 1 }, "source": { "component": 1 }, "reportingComponent": 1,
    });
    EVENTS_OF.contains(&kind).then(|| pick(object, &shape))?
}

/// Returns what is taken of a webhook configuration: not the paths, which hold a token.
pub(super) fn configuration(object: &Value) -> Value {
    let selector = json!({ "matchExpressions": [{ "key": 1, "operator": 1, "values": [1] }] });
    let shape = json!({
        "metadata": metadata(),
        "webhooks": [{
            "name": 1, "failurePolicy": 1, "timeoutSeconds": 1, "sideEffects": 1, "matchPolicy": 1, "reinvocationPolicy": 1,
            "rules": [{ "apiGroups": [1], "apiVersions": [1], "operations": [1], "resources": [1], "scope": 1 }],
            "namespaceSelector": selector, "objectSelector": selector, "matchConditions": [{ "name": 1 }],
            "clientConfig": { "service": { "namespace": 1, "name": 1, "port": 1 } },
        }],
    });
    pick(object, &shape).unwrap_or_default()
}

/// Returns what is taken of a policy or entry: its name and status.
pub(super) fn status(object: &Value) -> Value {
    let rules = json!([{ "rule": 1, "message": 1, "code": 1 }]);
    let shape = json!({
        "apiVersion": 1, "kind": 1, "metadata": metadata(),
        "status": { "conditions": conditions(), "notRun": rules, "notPermitted": rules, "objects": 1, "bytes": 1, "ready": 1,
            "lastRefreshTime": 1,
            "conditionStatus": { "ready": 1, "message": 1, "conditions": conditions() } },
    });
    pick(object, &shape).unwrap_or_default()
}

/// Returns a list of objects as one document.
pub(super) fn all(objects: &[Value], pick: impl Fn(&Value) -> Value) -> Value {
    let mut document = Map::new();
    document.insert("items".to_owned(), objects.iter().map(pick).collect());
    Value::Object(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_takes_only_the_fields_that_its_shapes_name() {
        let pod_spec = json!({
            "containers": [{
                "name": "c", "image": "i", "command": ["CANARY"],
                "args": ["--stale-after=60s", "--nats-url=nats://CANARY", "--flag", "CANARY"],
                "env": [{ "name": "A", "value": "CANARY" }, { "name": "B", "value": "64Mi" },
                    { "name": "C", "valueFrom": { "secretKeyRef": { "name": "CANARY" } } }],
                "resources": { "limits": { "memory": "64Mi" } },
            }],
            "volumes": [{ "name": "CANARY" }],
        });
        let metadata =
            json!({ "name": "n", "annotations": { "a": "CANARY" }, "labels": { "l": "CANARY" } });
        let deployment = json!({ "metadata": metadata, "spec": { "replicas": 2, "template": { "spec": pod_spec } } });
        let taken = workload(&deployment);
        assert_eq!(
            taken["spec"]["template"]["spec"]["containers"],
            json!([{ "name": "c", "image": "i", "resources": { "limits": { "memory": "64Mi" } },
                "args": ["--stale-after=60s", "--nats-url=…", "--flag", "…"], "env": ["A=…", "B=64Mi", "C=…"] }])
        );
        let policy = json!({ "kind": "ClusterPolicy", "metadata": metadata, "spec": { "rules": ["CANARY"] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }], "autogen": { "rules": ["CANARY"] } } });
        let configuration_given = json!({ "metadata": metadata, "webhooks": [{ "name": "w", "clientConfig": {
            "caBundle": "CANARY", "url": "CANARY", "service": { "name": "s", "path": "/CANARY" } },
            "matchConditions": [{ "name": "m", "expression": "CANARY" }] }] });
        let all = [
            taken,
            pod(&json!({ "metadata": metadata, "spec": pod_spec })),
            other(
                &json!({ "metadata": metadata, "spec": { "selector": { "a": "CANARY" } }, "data": { "a": "CANARY" } }),
            ),
            status(&policy),
            configuration(&configuration_given),
        ];
        for taken in all {
            assert_eq!(taken["metadata"]["name"], "n");
            assert!(!taken.to_string().contains("CANARY"), "{taken}");
        }
    }

    #[test]
    fn events_of_other_objects_are_left_out() {
        let of =
            |kind: &str| json!({ "message": "m", "involvedObject": { "kind": kind, "name": "n" } });
        assert_eq!(event(&of("Pod")).unwrap()["message"], "m");
        assert_eq!(event(&of("ClusterPolicy")), None);
        assert_eq!(event(&json!({})), None);
    }

    #[test]
    fn amounts_are_told_from_other_values() {
        for amount in ["0", "1.5", "60s", "64Mi", "true", "80%"] {
            assert!(is_amount(amount), "{amount}");
        }
        for other in ["", "s", "abc", "12ab34", "1234567890123", "10.0.0.1:80"] {
            assert!(!is_amount(other), "{other}");
        }
    }
}
