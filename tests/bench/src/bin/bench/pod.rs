//! The review of a new Pod, which sixteen usual policies admit: but for its image's tag.

use anteroom_load::Slot;
use serde_json::{Value, json};

/// A review of a Pod as the API server sends it, with marks in the places of name and uid, and of its image's host and tag.
pub(crate) fn review() -> Value {
    let (name, uid) = (Slot::Name.mark(), Slot::Uid.mark());
    let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
    let resource = json!({ "group": "", "version": "v1", "resource": "pods" });
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid, "kind": kind, "resource": resource,
            "requestKind": kind, "requestResource": resource,
            "name": name, "namespace": "team-7", "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "uid": "0f8c6b8e-5f0e-4b2c-9d3e-2d6c1a574f0e",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system",
                    "system:authenticated"],
            },
            "object": pod(name, uid), "oldObject": null, "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
        },
    })
}

fn pod(name: &str, uid: &str) -> Value {
    let labels = json!({
        "app.kubernetes.io/name": "shop", "app.kubernetes.io/part-of": "store",
        "app.kubernetes.io/instance": "shop-1", "pod-template-hash": "6d4cf56db6",
    });
    let (host, tag) = (Slot::Host.mark(), Slot::Path.mark());
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "team-7", "uid": uid, "labels": labels,
            "generateName": "shop-6d4cf56db6-", "creationTimestamp": "2026-01-05T08:30:00Z",
            "annotations": { "prometheus.io/scrape": "true", "prometheus.io/port": "9090" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
                "name": "shop-6d4cf56db6", "uid": "9d3e2d6c-1a57-4f0e-8b8e-5f0e4b2c0f8c" }],
            "managedFields": [{ "manager": "kube-controller-manager", "operation": "Update",
                "apiVersion": "v1", "time": "2026-01-05T08:30:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": { "f:metadata": { "f:generateName": {}, "f:labels": { ".": {},
                    "f:app.kubernetes.io/name": {}, "f:pod-template-hash": {} } },
                    "f:spec": { "f:containers": { "k:{\"name\":\"web\"}": { ".": {}, "f:image": {},
                        "f:ports": {}, "f:resources": {} } }, "f:volumes": {} } } }],
        },
        "spec": {
            "serviceAccountName": "shop", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30,
            "securityContext": { "runAsNonRoot": true, "fsGroup": 2000,
                "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [
                container("web", &format!("{host}/shop/web:{tag}")),
                container("metrics", "quay.io/prometheus/exporter:1.9.0"),
            ],
            "initContainers": [container("prepare", "ghcr.io/shop/prepare:4.2.1")],
            "volumes": [
                { "name": "scratch", "emptyDir": {} },
                { "name": "settings", "configMap": { "name": "shop", "defaultMode": 420 } },
                { "name": "token", "projected": { "sources": [{ "serviceAccountToken": {
                    "expirationSeconds": 3607, "path": "token" } }] } },
            ],
            "tolerations": [{ "key": "node.kubernetes.io/not-ready", "operator": "Exists",
                "effect": "NoExecute", "tolerationSeconds": 300 }],
        },
    })
}

fn container(name: &str, image: &str) -> Value {
    let probe = |path: &str| {
        json!({ "httpGet": { "path": path, "port": 8080, "scheme": "HTTP" },
            "periodSeconds": 10, "timeoutSeconds": 1, "failureThreshold": 3 })
    };
    let env: Vec<Value> = (0..6)
        .map(
            |n| json!({ "name": format!("SETTING_{n}"), "value": format!("value-of-setting-{n}") }),
        )
        .collect();
    json!({
        "name": name, "image": image, "imagePullPolicy": "IfNotPresent", "env": env,
        "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
        "resources": { "requests": { "cpu": "100m", "memory": "128Mi" },
            "limits": { "memory": "512Mi" } },
        "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "runAsNonRoot": true, "capabilities": { "drop": ["ALL"] } },
        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
        "volumeMounts": [{ "name": "scratch", "mountPath": "/tmp" },
            { "name": "settings", "mountPath": "/etc/shop", "readOnly": true }],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    })
}
