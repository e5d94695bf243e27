//! The reporter between an in-process bus, a watcher that keeps its views, and a simulated API server.

#![allow(clippy::unwrap_used, reason = "tests may")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::local::LocalBus;
use anteroom_runtime::Service;
use anteroom_simapi::{Fault, SimApi, SimConfig, Stats};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::timeout};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

const CONFIG_MAPS: &str = "configmaps";
const POLICIES: &str = "clusterpolicies.kyverno.io";
const REPORTS: &str = "policyreports.wgpolicyk8s.io";

struct World {
    sim: Arc<SimApi>,
    bus: Arc<LocalBus>,
    _watcher: JoinHandle<anyhow::Result<()>>,
}

struct Running {
    service: Service,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    async fn stop(self) {
        self.service.shutdown.trigger("the test says so");
        self.task.await.unwrap().unwrap();
    }
}

impl World {
    async fn start() -> Self {
        let sim = Arc::new(SimApi::start(SimConfig::default()).await.unwrap());
        let definitions = "customresourcedefinitions.apiextensions.k8s.io";
        for crd in anteroom_watcher::crds() {
            sim.put(definitions, serde_json::to_value(crd).unwrap())
                .unwrap();
        }
        for (kind, plural, scope) in [
            ("PolicyReport", "policyreports", "Namespaced"),
            ("ClusterPolicyReport", "clusterpolicyreports", "Cluster"),
        ] {
            let crd = json!({
                "metadata": {"name": format!("{plural}.wgpolicyk8s.io")},
                "spec": {"group": "wgpolicyk8s.io", "scope": scope,
                    "names": {"kind": kind, "plural": plural},
                    "versions": [{"name": "v1alpha2", "served": true, "storage": true}]},
            });
            sim.put(definitions, crd).unwrap();
        }
        let bus = Arc::new(LocalBus::new());
        let args = anteroom_watcher::Args {
            holder: Some("w".into()),
            background_scans: true,
            ..anteroom_watcher::Args::default()
        };
        let service = Service::new("watcher");
        let watcher = anteroom_watcher::run(args, Arc::new(bus.join()), client(&sim), service);
        Self {
            _watcher: tokio::spawn(watcher),
            sim,
            bus,
        }
    }

    fn report_as(&self, name: &str) -> Running {
        let service = Service::new("reporter");
        let args = anteroom_reporter::Args {
            reporter_id: Some(name.to_owned()),
            reporter_namespace: "default".to_owned(), // One that is there.
            report_writes_per_second: 1_000,
            ..anteroom_reporter::Args::default()
        };
        let bus = Arc::new(self.bus.join());
        let run = anteroom_reporter::run(args, bus, client(&self.sim), service.clone());
        Running {
            service,
            task: tokio::spawn(run),
        }
    }

    /// Answers queries, until it is dropped.
    fn answer(&self) -> JoinHandle<anyhow::Result<()>> {
        let args = anteroom_cache_replica::Args {
            replica_id: Some("r".to_owned()),
            ..anteroom_cache_replica::Args::default()
        };
        let service = Service::new("cache-replica");
        tokio::spawn(anteroom_cache_replica::run(
            args,
            Arc::new(self.bus.join()),
            service,
        ))
    }

    /// Which team is the right one.
    fn set(&self, team: &str) {
        let settings = json!({"metadata": {"name": "settings", "namespace": "default"},
            "data": {"team": team}});
        self.sim.put(CONFIG_MAPS, settings).unwrap();
    }

    fn put_pod(&self, name: &str, team: &str) {
        let pod = json!({"metadata": {"name": name, "namespace": "default",
            "labels": {"team": team}}});
        self.sim.put("pods", pod).unwrap();
    }

    fn put(&self, name: &str, team: &str) {
        let object = json!({"metadata": {"name": name, "namespace": "default",
            "labels": {"team": team}}});
        self.sim.put(CONFIG_MAPS, object).unwrap();
    }

    /// Every rule's result by the name of the object.
    fn reported(&self) -> BTreeMap<String, Vec<String>> {
        let reports = self.sim.objects(REPORTS).unwrap();
        let reports = reports
            .iter()
            .map(|body| serde_json::from_slice::<Value>(body).unwrap());
        let result = |result: &Value| {
            let text = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
            format!("{}/{}: {}", text("policy"), text("rule"), text("result"))
        };
        reports
            .map(|report| {
                let results = report["results"].as_array().cloned().unwrap_or_default();
                let name = report["scope"]["name"].as_str().unwrap().to_owned();
                (name, results.iter().map(result).collect())
            })
            .collect()
    }

    /// The reports say this, soon, and nothing else.
    async fn until(&self, what: &str, expected: &[(&str, &[&str])]) {
        let expected: BTreeMap<String, Vec<String>> = expected
            .iter()
            .map(|(name, results)| {
                let results = results.iter().map(|result| (*result).to_owned());
                ((*name).to_owned(), results.collect())
            })
            .collect();
        // Each write is a request that the figures count.
        let found = self.sim.wait_until(|_| self.reported() == expected);
        let found = timeout(PATIENCE, found).await;
        assert!(found.is_ok(), "{what}: {:#?}", self.reported());
    }

    fn stats(&self) -> Stats {
        self.sim.stats()
    }
}

fn client(sim: &SimApi) -> Client {
    let mut config = Config::new(sim.url().parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn policy(name: &str, team: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"background": true, "rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "validate": {"message": "m", "pattern": {"metadata": {"labels": {"team": team}}}},
        }]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_in_step_with_objects_and_policies() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    world.put("one", "a");
    world.put("two", "b");
    world.sim.put(POLICIES, policy("p", "a")).unwrap();
    let first = world.report_as("first");
    let both: &[(&str, &[&str])] = &[("one", &["p/r: pass"]), ("two", &["p/r: fail"])];
    world.until("what exists", both).await;

    // A second policy goes beside the first, and changes by itself.
    world.sim.put(POLICIES, policy("q", "b")).unwrap();
    let with_q: &[(&str, &[&str])] = &[
        ("one", &["p/r: pass", "q/r: fail"]),
        ("two", &["p/r: fail", "q/r: pass"]),
    ];
    world.until("another policy", with_q).await;
    world.sim.put(POLICIES, policy("q", "?")).unwrap();
    let with_any: &[(&str, &[&str])] = &[
        ("one", &["p/r: pass", "q/r: pass"]),
        ("two", &["p/r: fail", "q/r: pass"]),
    ];
    world.until("the policy is another", with_any).await;
    world.sim.delete(POLICIES, "", "q").unwrap();
    world.until("the policy is gone", both).await;

    // What cannot be read, and so not written, is written later.
    let forbid = Fault::Forbid {
        resource: REPORTS.into(),
    };
    world.sim.fault(forbid).unwrap();
    world.put("three", "a");
    world.sim.delete(CONFIG_MAPS, "default", "one").unwrap();
    let refused = world
        .sim
        .wait_until(|stats| stats.count_status("get", REPORTS, 403) > 0);
    timeout(PATIENCE, refused).await.unwrap();
    let allow = Fault::Allow {
        resource: REPORTS.into(),
    };
    world.sim.fault(allow).unwrap();
    let then: &[(&str, &[&str])] = &[("three", &["p/r: pass"]), ("two", &["p/r: fail"])];
    world.until("what was refused", then).await;

    // Another takes over, and writes nothing but what differs.
    let second = world.report_as("second");
    let patched = world.stats().count("patch", REPORTS);
    first.stop().await;
    world.put("two", "a");
    let then: &[(&str, &[&str])] = &[("three", &["p/r: pass"]), ("two", &["p/r: pass"])];
    world.until("the second one's", then).await;
    assert_eq!(world.stats().count("patch", REPORTS), patched + 1);

    // What exists was read by the watcher, once.
    assert_eq!(world.stats().count("list", CONFIG_MAPS), 1);
    assert_eq!(world.stats().watches_on(CONFIG_MAPS), 1);
    second.stop().await;
}

/// A policy on Pods whose context says which team is the right one.
fn by_settings() -> Value {
    json!({
        "metadata": {"name": "by-settings"},
        "spec": {"background": true, "rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "context": [{"name": "settings", "configMap": {"name": "settings", "namespace": "default"}}],
            "validate": {"message": "m", "deny": {"conditions": {"all": [{
                "key": "{{ request.object.metadata.labels.team }}", "operator": "NotEquals",
                "value": "{{ settings.data.team }}",
            }]}}},
        }]},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_policy_reads_changes_what_it_says() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    let _replica = world.answer();
    world.set("team-a");
    for (name, team) in [("one", "team-a"), ("two", "team-b")] {
        world.put_pod(name, team);
    }
    world.sim.put(POLICIES, by_settings()).unwrap();
    let reporter = world.report_as("first");
    let before: &[(&str, &[&str])] = &[
        ("one", &["by-settings/r: pass"]),
        ("two", &["by-settings/r: fail"]),
    ];
    world.until("the fact", before).await;
    world.set("team-b");
    let after: &[(&str, &[&str])] = &[
        ("one", &["by-settings/r: fail"]),
        ("two", &["by-settings/r: pass"]),
    ];
    world.until("the fact is another", after).await;
    reporter.stop().await;
}

/// So many objects would take minutes, each waiting for facts that never come.
const PODS: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn facts_that_never_come_hold_up_no_other_policy() {
    anteroom_runtime::process::install_crypto_provider();
    let world = World::start().await;
    // It is connected to, and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    for number in 0..PODS {
        world.put_pod(&format!("pod-{number}"), "a");
    }
    let hangs = json!({
        "metadata": {"name": "a-hangs"},
        "spec": {"background": true, "rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
            "context": [{"name": "answer", "apiCall": {"service": {"url": url}, "method": "GET"}}],
            "validate": {"message": "m", "deny": {"conditions": {"all": [{
                "key": "{{ answer }}", "operator": "Equals", "value": "no"}]}}},
        }]},
    });
    world.sim.put(POLICIES, hangs).unwrap();
    let mut quick = policy("quick", "a");
    quick["spec"]["rules"][0]["match"]["any"][0]["resources"]["kinds"] = json!(["Pod"]);
    world.sim.put(POLICIES, quick).unwrap();
    let reporter = world.report_as("first");
    let all_have = |wanted: &str| {
        let reported = world.reported();
        let mut having = reported
            .values()
            .filter(|results| results.iter().any(|r| r == wanted));
        having.by_ref().count() == PODS
    };
    let quick = world.sim.wait_until(|_| all_have("quick/r: pass"));
    timeout(PATIENCE / 2, quick).await.unwrap();
    // Nor is what hangs waited for again and again.
    let hung = world.sim.wait_until(|_| all_have("a-hangs/r: error"));
    timeout(PATIENCE, hung).await.unwrap();
    reporter.stop().await;
}
