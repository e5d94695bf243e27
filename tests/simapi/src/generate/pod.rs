//! A Pod as it stands in a real cluster: admitted, scheduled, and reported on by its kubelet.

use rand::{Rng, rngs::StdRng};
use serde_json::{Value, json};

use super::{CREATED, Cluster, labels};

/// Pods of one ReplicaSet.
const REPLICAS: usize = 3;

/// The conditions that a kubelet reports of a Pod that runs.
const CONDITIONS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// Nodes that Pods are spread over.
const NODES: u32 = 200;

impl Cluster {
    pub(super) fn pod(&self, index: usize) -> Value {
        let mut random = self.random(3, index);
        let app = index / REPLICAS;
        let image = format!("registry.example.com/shop/app-{app}:1.{}", index % 40);
        let ip = format!(
            "10.{}.{}.{}",
            128 + index / 65_536,
            index / 256 % 256,
            index % 256
        );
        let token = format!("kube-api-access-{}", hex(&mut random, 5));
        let node = random.random_range(0..NODES);
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": self.pod_metadata(index, &mut random),
            "spec": spec(app, &image, &token, node),
            "status": status(&image, &ip, node, &mut random)});
        pod["metadata"]["managedFields"] = managed();
        pod
    }

    fn pod_metadata(&self, index: usize, random: &mut StdRng) -> Value {
        let app = index / REPLICAS;
        let hash = format!("{:010x}", app as u64 * 2_654_435_761 % (1 << 40));
        let mut labels = labels(app, "backend", random);
        labels["pod-template-hash"] = hash.clone().into();
        json!({
            "name": format!("pod-{index}"), "namespace": self.namespace(app),
            "generateName": format!("app-{app}-{hash}-"), "labels": labels,
            "annotations": {"checksum/config": hex(random, 64),
                "prometheus.io/port": "9090", "prometheus.io/scrape": "true"},
            "creationTimestamp": CREATED,
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
                "name": format!("app-{app}-{hash}"), "uid": format!("{:08x}-0000-4000-8000-{app:012x}", app),
                "controller": true, "blockOwnerDeletion": true}],
        })
    }
}

fn spec(app: usize, image: &str, token: &str, node: u32) -> Value {
    let probe = |path: &str| {
        json!({"httpGet": {"path": path, "port": "http", "scheme": "HTTP"}, "failureThreshold": 3,
            "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1})
    };
    let from_field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    let tolerates = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!({
        "containers": [{
            "name": "main", "image": image, "imagePullPolicy": "IfNotPresent",
            "args": ["serve", "--listen=0.0.0.0:8080", "--config=/etc/app/config.yaml"],
            "env": [{"name": "LOG_LEVEL", "value": "info"},
                {"name": "DATABASE_HOST", "value": format!("postgres.app-{app}.svc.cluster.local")},
                {"name": "DATABASE_PASSWORD", "valueFrom": {"secretKeyRef": {"key": "password", "name": format!("app-{app}-database")}}},
                from_field("POD_NAME", "metadata.name"), from_field("POD_IP", "status.podIP")],
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"},
                {"containerPort": 9090, "name": "metrics", "protocol": "TCP"}],
            "livenessProbe": probe("/livez"), "readinessProbe": probe("/readyz"),
            "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"mountPath": "/etc/app", "name": "config", "readOnly": true},
                {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": token, "readOnly": true}],
        }],
        "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "nodeName": node_name(node),
        "preemptionPolicy": "PreemptLowerPriority", "priority": 0, "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {"fsGroup": 2000, "runAsNonRoot": true, "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"}},
        "serviceAccount": format!("app-{app}"), "serviceAccountName": format!("app-{app}"),
        "terminationGracePeriodSeconds": 30,
        "tolerations": [tolerates("node.kubernetes.io/not-ready"), tolerates("node.kubernetes.io/unreachable")],
        "volumes": [{"name": "config", "configMap": {"name": format!("app-{app}"), "defaultMode": 420}},
            {"name": token, "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace",
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}}],
    })
}

fn status(image: &str, ip: &str, node: u32, random: &mut StdRng) -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": CREATED});
    let conditions = CONDITIONS.map(condition);
    let host = format!("10.0.{}.{}", node / 250, node % 250 + 1);
    json!({"phase": "Running", "hostIP": host, "hostIPs": [{"ip": host}], "podIP": ip,
        "podIPs": [{"ip": ip}], "qosClass": "Burstable", "startTime": CREATED,
        "conditions": conditions,
        "containerStatuses": [{"name": "main", "image": image,
            "imageID": format!("registry.example.com/shop@sha256:{}", hex(random, 64)),
            "containerID": format!("containerd://{}", hex(random, 64)),
            "ready": true, "started": true, "restartCount": 0, "lastState": {},
            "state": {"running": {"startedAt": CREATED}}}]})
}

/// The field sets of whoever made it and of its kubelet. They are shorter than real ones, whose
/// containers and conditions are owned field by field, key by key.
fn managed() -> Value {
    let entry = |manager: &str, fields: Value| {
        json!({"manager": manager, "operation": "Update", "time": CREATED, "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let made = json!({"f:metadata": {"f:annotations": {}, "f:labels": {}, "f:ownerReferences": {}},
        "f:spec": {"f:containers": {}, "f:serviceAccountName": {}, "f:volumes": {}}});
    let mut reported = entry(
        "kubelet",
        json!({"f:status": {"f:conditions": {}, "f:containerStatuses": {}, "f:hostIP": {},
            "f:phase": {}, "f:podIP": {}, "f:podIPs": {}, "f:startTime": {}}}),
    );
    reported["subresource"] = "status".into();
    json!([entry("kube-controller-manager", made), reported])
}

fn node_name(node: u32) -> String {
    format!("node-{node}.cluster.example.com")
}

/// So many random digits.
fn hex(random: &mut StdRng, digits: usize) -> String {
    let digit = |_| char::from_digit(random.random_range(0..16), 16).unwrap_or('0');
    (0..digits).map(digit).collect()
}
