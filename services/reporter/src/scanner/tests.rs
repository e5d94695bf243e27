use std::time::Instant as Clock;

use anteroom_bus::local::LocalBus;
use anteroom_mirror::testing::Writer;
use anteroom_model::{
    Binding, Collection, EntryKind, EntryRecord, EntryState, KindRecord, Source, SourceInfo, system,
};
use anteroom_policy::{Driver, Reference, compile_for, scanned};
use anteroom_runtime::Service;
use serde::Serialize;
use serde_json::{Value, json};

use super::*;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A Pod as there are many: about 2 KB of JSON.
fn pod(number: usize) -> (ObjectKey, Value) {
    let (namespace, name) = (format!("team-{}", number % 40), format!("web-{number:05}"));
    let container = |name: &str, tag: &str| {
        json!({
            "name": name, "image": format!("registry.example.com/shop/{name}:{tag}"),
            "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "REGION", "value": "eu-1"}],
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
            "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}, "periodSeconds": 10},
            "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true,
                "capabilities": {"drop": ["ALL"]}},
            "terminationMessagePath": "/dev/termination-log",
            "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "name": "kube-api-access", "readOnly": true}],
        })
    };
    let tag = if number.is_multiple_of(10) {
        "latest"
    } else {
        "1.2.3"
    };
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("3b1f6d0e-7a58-4f57-9c0f-{number:012}"),
            "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1",
            "labels": {"app": "web", "team": namespace, "pod-template-hash": "5d4f8c7b9"}},
        "spec": {
            "containers": [container("web", tag), container("proxy", "1.0.0")],
            "nodeName": "node-17", "restartPolicy": "Always", "serviceAccountName": "web",
            "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready",
                "operator": "Exists", "tolerationSeconds": 300}],
            "volumes": [{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": []}}],
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]},
    });
    (ObjectKey::new(namespace, name), object)
}

/// Ten policies as there are many.
fn policies() -> Vec<Value> {
    let pattern = |spec: Value| json!({"message": "m", "pattern": {"spec": spec}});
    let each = |container: Value| pattern(json!({"containers": [container]}));
    let checks = [
        each(json!({"image": "!*:latest"})),
        each(json!({"image": "*:*"})),
        each(json!({"image": "registry.example.com/*"})),
        each(
            json!({"resources": {"requests": {"cpu": "?*", "memory": "?*"}, "limits": {"memory": "?*"}}}),
        ),
        each(json!({"livenessProbe": {"periodSeconds": ">0"}})),
        each(json!({"=(securityContext)": {"=(privileged)": "false"}})),
        each(json!({"securityContext": {"allowPrivilegeEscalation": "false"}})),
        pattern(json!({"=(hostNetwork)": "false", "=(hostPID)": "false", "=(hostIPC)": "false"})),
        json!({"message": "m", "pattern": {"metadata": {"labels": {"team": "?*"}}}}),
        json!({"message": "m", "deny": {"conditions": {"any": [{
            "key": "{{ request.object.spec.volumes[?hostPath] | length(@) }}",
            "operator": "GreaterThan", "value": 0}]}}}),
    ];
    let policy = |(number, check): (usize, Value)| {
        json!({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
            "metadata": {"name": format!("policy-{number}"),
                "annotations": {"pod-policies.kyverno.io/autogen-controllers": "none"}},
            "spec": {"rules": [{"name": "r",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}, "validate": check}]}})
    };
    checks.into_iter().enumerate().map(policy).collect()
}

/// The log as a watcher writes it, and the reporter's scan of it.
struct World {
    writer: Writer,
    view: ViewId,
    desk: Desk,
    service: Service,
    scanner: Option<Scanner>,
}

impl World {
    async fn new(pods: usize, policies: &[Value]) -> Self {
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new());
        let mut writer = Writer::with_system_views(Arc::clone(&bus)).await;
        let gvr = GroupVersionResource::new("", "v1", "pods");
        let view = writer.open(SourceInfo {
            source: Source::Collection(Collection::all(gvr.clone())),
            kind: "Pod".to_owned(),
            namespaced: true,
        });
        writer.put_all(&view, (0..pods).map(pod).collect()).await;
        writer.synced(&view).await;
        let kind = KindRecord {
            gvr,
            kind: "Pod".to_owned(),
            namespaced: true,
            subresources: Vec::new(),
            preferred: true,
            watchable: true,
        };
        put(
            &mut writer,
            &system::kinds(),
            &ObjectKey::new("", "Pod.v1"),
            &kind,
        )
        .await;
        for manifest in policies {
            let policy = compile_for(manifest, Driver::ALL).unwrap();
            let key = ObjectKey::new("", policy.name());
            for (collection, _) in scanned(&policy.scanned_kinds(), "", [&kind]).found {
                let record = EntryRecord {
                    kind: EntryKind::Implicit,
                    name: Reference::Collection(collection).name_for(&key),
                    uid: String::new(),
                    generation: 1,
                    state: EntryState::Bound(Binding::whole(view.clone())),
                    projections: Vec::new(),
                };
                let key = record.kind.key(&record.name);
                put(&mut writer, &system::entries(), &key, &record).await;
            }
            put(&mut writer, &system::policies(), &key, manifest).await;
        }
        writer.beat().await;
        let service = Service::new("reporter");
        let check = service.readiness.check("policies", "them");
        let (judge, follow) = Judge::new(Arc::clone(&bus), &service, check);
        tokio::spawn(follow);
        let desk = Desk::new();
        let metrics = ReporterMetrics::registered(&service.metrics);
        let mirrored = MirrorMetrics::registered(&service.scope("scans").metrics);
        let hour = Duration::from_secs(3_600);
        let stop = service.shutdown.token();
        let scanner = Scanner::new(bus, judge, desk.clone(), metrics, hour, mirrored, &stop);
        Self {
            writer,
            view,
            desk,
            service,
            scanner: Some(scanner),
        }
    }

    fn start(&mut self) {
        let scanner = self.scanner.take().unwrap();
        tokio::spawn(scanner.run());
    }

    /// Waits until the book is so.
    async fn until(&self, is_so: impl Fn(&mut crate::book::Book) -> bool) {
        let mut changes = self.desk.changes();
        while !self.desk.look(&is_so) {
            // A watcher says all the time that it lives.
            self.writer.beat().await;
            let _ = tokio::time::timeout(Duration::from_millis(100), changes.changed()).await;
        }
    }

    async fn settled(&self) {
        let mut unsettled = self.desk.unsettled();
        let is_settled =
            |kinds: &crate::desk::Unsettled| kinds.as_ref().is_some_and(|k| k.is_empty());
        unsettled.wait_for(is_settled).await.unwrap();
    }
}

async fn put(writer: &mut Writer, view: &ViewId, key: &ObjectKey, record: &impl Serialize) {
    let record = serde_json::to_value(record).unwrap();
    writer.put(view, &key.namespace, &key.name, record).await;
}

#[tokio::test]
async fn objects_are_judged_once_and_again_when_they_change() {
    let mut world = World::new(200, &policies()).await;
    world.start();
    let all = world.until(|book| book.len() == 200);
    tokio::time::timeout(PATIENCE, all).await.unwrap();
    tokio::time::timeout(PATIENCE, world.settled())
        .await
        .unwrap();
    let judged = |text: &str, count: usize| {
        let line = format!("anteroom_reporter_objects_judged_total {count}\n");
        assert!(text.contains(&line), "{text}");
    };
    judged(&world.service.metrics.encode(), 200);
    let (key, mut changed) = pod(7);
    let uid = changed["metadata"]["uid"].as_str().unwrap().to_owned();
    changed["spec"]["containers"][0]["image"] = "other:latest".into();
    let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
    world
        .writer
        .put(&world.view, &namespace, &name, changed)
        .await;
    let fails = |book: &mut crate::book::Book| {
        let findings = book.page(&uid).unwrap().findings.values().flatten();
        let bad = findings.filter(|finding| finding.result.outcome.is_bad());
        bad.count() == 2
    };
    tokio::time::timeout(PATIENCE, world.until(fails))
        .await
        .unwrap();
    judged(&world.service.metrics.encode(), 201);
}

/// What this process takes: memory in bytes, CPU in ticks of 10 ms.
fn taken() -> (u64, u64) {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = number(statm.split(' ').nth(1).unwrap());
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split(' ').collect();
    (pages * 4_096, number(fields[12]) + number(fields[13]))
}

/// Tells what a scan of 40,000 Pods by ten policies takes, run by itself.
#[tokio::test]
#[ignore = "a measurement"]
async fn forty_thousand_pods() {
    const PODS: usize = 40_000;
    let mut world = World::new(PODS, &policies()).await;
    let (begun, before) = (Clock::now(), taken());
    world.start();
    world.until(|book| book.len() == PODS).await;
    world.settled().await;
    let (took, after) = (begun.elapsed(), taken());
    println!(
        "{PODS} Pods: {} s, {} ms of CPU, {} MB more",
        took.as_secs_f64(),
        (after.1 - before.1) * 10,
        (after.0.saturating_sub(before.0)) / 1_000_000,
    );
}
