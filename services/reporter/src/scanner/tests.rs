use std::time::Instant as Clock;

use anteroom_bus::{Address, local::LocalBus};
use anteroom_mirror::testing::ViewWriter;
use anteroom_model::{
    Binding, Collection, EntryKind, EntryRecord, EntryState, KindRecord, Source, SourceInfo, system,
};
use anteroom_policy::{Driver, Reference, compile_for, scanned};
use anteroom_runtime::Service;
use anteroom_seal::Keys;
use anteroom_wire::query;
use serde::Serialize;
use serde_json::{Value, json};

use super::*;

/// The longest wait of a test.
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
    bus: Arc<dyn Bus>,
    writer: ViewWriter,
    view: ViewId,
    /// The kind record of Pods.
    kind: KindRecord,
    shared: SharedFindings,
    service: Service,
    scanner: Option<Scanner>,
}

impl World {
    async fn new(pods: usize, policies: &[Value]) -> Self {
        let bus: Arc<dyn Bus> = Arc::new(LocalBus::new());
        let mut writer = ViewWriter::with_system_views(Arc::clone(&bus)).await;
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
        writer.beat().await;
        let service = Service::new("reporter");
        let check = service.readiness.check("policies", "them");
        let (judge, follow) = Judge::new(Arc::clone(&bus), Keys::none(), &service, check);
        tokio::spawn(follow);
        let shared = SharedFindings::new();
        let metrics = ReporterMetrics::register(&service.metrics);
        let mirrored = MirrorMetrics::register(&service.scope("scans").metrics);
        let hour = Duration::from_secs(3_600);
        let stop = service.shutdown.token();
        let scanner = Scanner::new(
            Arc::clone(&bus),
            judge,
            shared.clone(),
            metrics,
            hour,
            mirrored,
            &stop,
        );
        let mut world = Self {
            bus,
            writer,
            view,
            kind,
            shared,
            service,
            scanner: Some(scanner),
        };
        for manifest in policies {
            world.put_policy(manifest).await;
        }
        world.writer.beat().await;
        world
    }

    /// Writes a policy, and which view is scanned for it.
    async fn put_policy(&mut self, manifest: &Value) {
        let policy = compile_for(manifest, Driver::ALL).unwrap();
        let key = ObjectKey::new("", policy.name());
        for (collection, _) in scanned(&policy.scanned_kinds(), "", [&self.kind]).found {
            let record = EntryRecord {
                kind: EntryKind::Implicit,
                name: Reference::Collection(collection).name_for(&key),
                uid: String::new(),
                generation: 1,
                state: EntryState::Bound(Binding::whole(self.view.clone())),
                projections: Vec::new(),
            };
            let key = record.kind.key(&record.name);
            put(&mut self.writer, &system::entries(), &key, &record).await;
        }
        put(&mut self.writer, &system::policies(), &key, manifest).await;
    }

    fn start(&mut self) {
        let scanner = self.scanner.take().unwrap();
        tokio::spawn(scanner.run());
    }

    /// Waits until the findings are so.
    async fn until(&self, is_so: impl Fn(&mut crate::findings::Findings) -> bool) {
        let mut changes = self.shared.changes();
        while !self.shared.with(&is_so) {
            // A watcher sends beats all the time.
            self.writer.beat().await;
            let _ = tokio::time::timeout(Duration::from_millis(100), changes.changed()).await;
        }
    }

    async fn settled(&self) {
        let mut unsettled = self.shared.unsettled();
        let all = Arc::new(crate::shared::Unsettled::default());
        let is_settled = |known: &Option<_>| known.as_ref() == Some(&all);
        unsettled.wait_for(is_settled).await.unwrap();
    }
}

async fn put(writer: &mut ViewWriter, view: &ViewId, key: &ObjectKey, record: &impl Serialize) {
    let record = serde_json::to_value(record).unwrap();
    writer.put(view, &key.namespace, &key.name, record).await;
}

#[tokio::test]
async fn objects_are_judged_once_and_again_when_they_change() {
    let mut world = World::new(200, &policies()).await;
    world.start();
    let all = world.until(|findings| findings.len() == 200);
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
    let fails = |findings: &mut crate::findings::Findings| {
        let findings = findings.of_object(&uid).unwrap().findings.iter();
        let bad = findings.filter(|finding| finding.result.outcome.is_bad());
        bad.count() == 2
    };
    tokio::time::timeout(PATIENCE, world.until(fails))
        .await
        .unwrap();
    judged(&world.service.metrics.encode(), 201);
}

/// A policy whose rule reads a ConfigMap.
fn by_settings() -> Value {
    json!({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": "by-settings",
            "annotations": {"pod-policies.kyverno.io/autogen-controllers": "none"}},
        "spec": {"rules": [{"name": "r",
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "context": [{"name": "s", "configMap": {"name": "settings", "namespace": "default"}}],
            "validate": {"message": "m", "deny": {"conditions": {"all": [{
                "key": "{{ s.data.team }}", "operator": "Equals", "value": "none"}]}}}}]}})
}

#[tokio::test]
async fn the_first_scan_of_a_policy_asks_for_facts_as_new_as_the_log() {
    for is_there_before in [true, false] {
        let mut world = World::new(1, &policies()[..1]).await;
        let config_maps = GroupVersionResource::new("", "v1", "configmaps");
        let facts = world.writer.open(SourceInfo {
            source: Source::Objects { gvr: config_maps },
            kind: "ConfigMap".to_owned(),
            namespaced: true,
        });
        let settings = json!({"metadata": {"name": "settings", "namespace": "default"}});
        let writer = &mut world.writer;
        let is_at = writer.put(&facts, "default", "settings", settings).await;
        writer.synced(&facts).await;
        // Who is asked says nothing, and tells what was asked for.
        let (asked_in, mut asked) = tokio::sync::mpsc::unbounded_channel();
        let address = Address::View(facts.clone());
        let mut serving = world.bus.serve(&address).await.unwrap();
        tokio::spawn(async move {
            while let Some(Ok(incoming)) = serving.next().await {
                let request = query::decode_request(&incoming.call.body).unwrap();
                asked_in.send(request.revision_min).unwrap();
            }
        });
        if is_there_before {
            world.put_policy(&by_settings()).await;
        }
        world.start();
        tokio::time::timeout(PATIENCE, world.until(|findings| findings.len() == 1))
            .await
            .unwrap();
        if !is_there_before {
            world.put_policy(&by_settings()).await;
        }
        let first = async {
            loop {
                world.writer.beat().await;
                let next = tokio::time::timeout(Duration::from_millis(100), asked.recv()).await;
                if let Ok(Some(expected)) = next {
                    return expected;
                }
            }
        };
        let expected = tokio::time::timeout(PATIENCE, first).await.unwrap();
        assert_eq!(expected, Some(is_at), "{is_there_before}");
    }
}

#[tokio::test]
async fn an_object_that_cannot_be_read_is_named_until_it_can() {
    let mut world = World::new(3, &policies()).await;
    let (key, whole) = pod(1);
    let (namespace, name) = (key.namespace.to_string(), key.name.to_string());
    let mut broken = whole.clone();
    broken["metadata"]["uid"] = Value::Null;
    world
        .writer
        .put(&world.view, &namespace, &name, broken)
        .await;
    world.start();
    let kind = (String::new(), "Pod".to_owned());
    let unread = crate::shared::Unsettled {
        unread: [(kind, key)].into(),
        ..Default::default()
    };
    let mut unsettled = world.shared.unsettled();
    for expected in [unread, crate::shared::Unsettled::default()] {
        let expected = Some(Arc::new(expected));
        let told = unsettled.wait_for(|known| *known == expected);
        tokio::time::timeout(PATIENCE, told).await.unwrap().unwrap();
        world
            .writer
            .put(&world.view, &namespace, &name, whole.clone())
            .await;
    }
    assert_eq!(world.shared.with(|findings| findings.len()), 3);
}

/// Speaks of the Pods of these teams alone.
fn of_teams(name: &str, teams: &[usize]) -> Value {
    let teams: Vec<_> = teams.iter().map(|team| format!("team-{team}")).collect();
    json!({"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
        "metadata": {"name": name,
            "annotations": {"pod-policies.kyverno.io/autogen-controllers": "none"}},
        "spec": {"rules": [{"name": "r",
            "match": {"any": [{"resources": {"kinds": ["Pod"], "namespaces": teams}}]},
            "validate": {"message": "m", "pattern": {"metadata": {"name": "?*"}}}}]}})
}

impl World {
    /// Findings that hold the first four of eight Pods, and leaves out the others.
    async fn full(policies: &[Value]) -> Self {
        let mut world = Self::new(8, policies).await;
        let limits = crate::findings::Limits {
            objects_max: 4,
            ..Default::default()
        };
        world
            .shared
            .with(|findings| *findings = Findings::with_limits(limits));
        world.start();
        world.until_held(0..4, 4).await;
        world
    }

    /// Waits until these Pods are held, and so many left out.
    async fn until_held(&self, pods: std::ops::Range<usize>, left_out: usize) {
        let uid = |number| {
            pod(number).1["metadata"]["uid"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        let uids: Vec<String> = pods.map(uid).collect();
        let is_so = |findings: &mut Findings| {
            let has_all = uids.iter().all(|uid| findings.of_object(uid).is_some());
            has_all && (findings.len(), findings.left_out()) == (uids.len(), left_out)
        };
        tokio::time::timeout(PATIENCE, self.until(is_so))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn left_out_objects_are_taken_in_when_another_policy_frees_room() {
    let both = [
        of_teams("first", &[0, 1, 2, 3]),
        of_teams("last", &[4, 5, 6, 7]),
    ];
    let mut world = World::full(&both).await;
    let full = crate::shared::Unsettled {
        is_full: true,
        ..Default::default()
    };
    let told = |known: &Option<Arc<_>>| known.as_deref() == Some(&full);
    let mut unsettled = world.shared.unsettled();
    tokio::time::timeout(PATIENCE, unsettled.wait_for(told))
        .await
        .unwrap()
        .unwrap();
    world.writer.delete(&system::policies(), "", "first").await;
    world.until_held(4..8, 0).await;
    tokio::time::timeout(PATIENCE, world.settled())
        .await
        .unwrap();
}

#[tokio::test]
async fn left_out_objects_are_taken_in_when_an_object_goes() {
    let mut world = World::full(&[of_teams("all", &[0, 1, 2, 3, 4, 5, 6, 7])]).await;
    let (key, _) = pod(0);
    let (namespace, name) = (&key.namespace, &key.name);
    world.writer.delete(&world.view, namespace, name).await;
    world.until_held(1..5, 3).await;
}

/// Returns this process's memory in bytes and its CPU time in ticks of 10 ms.
fn taken() -> (u64, u64) {
    let number = |text: &str| text.parse::<u64>().unwrap();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let objects = number(statm.split(' ').nth(1).unwrap());
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split(' ').collect();
    (objects * 4_096, number(fields[12]) + number(fields[13]))
}

/// Tells what a scan of so many Pods by ten policies takes.
async fn measure(pods: usize) {
    let mut world = World::new(pods, &policies()).await;
    let (begun, before) = (Clock::now(), taken());
    world.start();
    world.until(|findings| findings.len() == pods).await;
    world.settled().await;
    let (took, after) = (begun.elapsed(), taken());
    println!(
        "{pods} Pods: {} s, {} ms of CPU, {} MB more, {} bytes of it a Pod",
        took.as_secs_f64(),
        (after.1 - before.1) * 10,
        (after.0.saturating_sub(before.0)) / 1_000_000,
        world.shared.with(|findings| findings.bytes()) / pods,
    );
}

/// Run by itself.
#[tokio::test]
#[ignore = "a measurement"]
async fn measures_a_scan_of_forty_thousand_pods() {
    measure(40_000).await;
}

/// For who counts instructions.
#[tokio::test]
#[ignore = "a measurement"]
async fn measures_a_scan_of_five_hundred_pods() {
    measure(500).await;
}
