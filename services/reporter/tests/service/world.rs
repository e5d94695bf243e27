//! A reporter, a watcher that keeps its views, an in-process bus, and a simulated API server.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::local::LocalBus;
use anteroom_engine::exemptions::{ExemptionRules, Exemptions};
use anteroom_runtime::Service;
use anteroom_simapi::{SimApi, SimConfig, Stats};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::timeout};

/// The longest wait of a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const CONFIG_MAPS: &str = "configmaps";
pub(crate) const POLICIES: &str = "clusterpolicies.kyverno.io";
pub(crate) const REPORTS: &str = "policyreports.wgpolicyk8s.io";

pub(crate) struct World {
    pub(crate) sim: Arc<SimApi>,
    pub(crate) bus: Arc<LocalBus>,
    watcher: Running,
}

pub(crate) struct Running {
    pub(crate) service: Service,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    pub(crate) async fn stop(self) {
        self.service.shutdown.trigger("the test says so");
        self.task.await.unwrap().unwrap();
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        let sim = Arc::new(SimApi::start(SimConfig::default()).await.unwrap());
        let definitions = "customresourcedefinitions.apiextensions.k8s.io";
        for definition in crate::schema::definitions() {
            sim.put(definitions, definition).unwrap();
        }
        let bus = Arc::new(LocalBus::new());
        Self {
            watcher: watch_as("w", &sim, &bus),
            sim,
            bus,
        }
    }

    /// The watcher ends, and another one begins.
    pub(crate) async fn hand_over(&mut self, to: &str) {
        self.watcher.service.shutdown.trigger("the test says so");
        (&mut self.watcher.task).await.unwrap().unwrap();
        self.watcher = watch_as(to, &self.sim, &self.bus);
    }

    pub(crate) fn report_as(&self, name: &str) -> Running {
        self.report(args(name))
    }

    pub(crate) fn report(&self, args: anteroom_reporter::Args) -> Running {
        let service = Service::new("reporter");
        let bus = Arc::new(self.bus.join());
        let run = anteroom_reporter::run(args, bus, client(&self.sim), service.clone());
        Running {
            service,
            task: tokio::spawn(run),
        }
    }

    /// Answers queries, until it is dropped.
    pub(crate) fn answer(&self) -> JoinHandle<anyhow::Result<()>> {
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

    /// Sets the team that the policy accepts.
    pub(crate) fn set(&self, team: &str) {
        let settings = json!({"metadata": {"name": "settings", "namespace": "default"},
            "data": {"team": team}});
        self.sim.put(CONFIG_MAPS, settings).unwrap();
    }

    pub(crate) fn put_pod(&self, name: &str, team: &str) {
        let pod = json!({"metadata": {"name": name, "namespace": "default",
            "labels": {"team": team}}});
        self.sim.put("pods", pod).unwrap();
    }

    pub(crate) fn put(&self, name: &str, team: &str) {
        let object = json!({"metadata": {"name": name, "namespace": "default",
            "labels": {"team": team}}});
        self.sim.put(CONFIG_MAPS, object).unwrap();
    }

    /// Every rule's result by the name of the object.
    pub(crate) fn reported(&self) -> BTreeMap<String, Vec<String>> {
        let reports = self.reports().into_iter();
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
    pub(crate) async fn until(&self, what: &str, expected: &[(&str, &[&str])]) {
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
        for report in self.reports() {
            let unfit = crate::schema::unfit(REPORTS, &report);
            assert_eq!(unfit, [""; 0], "{report:#}");
        }
    }

    /// The reports as they are kept.
    pub(crate) fn reports(&self) -> Vec<Value> {
        let reports = self.sim.objects(REPORTS).unwrap();
        let reports = reports.iter().map(|body| serde_json::from_slice(body));
        reports.map(Result::unwrap).collect()
    }

    /// The UID of an object.
    pub(crate) fn uid(&self, resource: &str, name: &str) -> String {
        let object = self.sim.get(resource, "default", name).unwrap();
        object["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Waits until it is so, as any request may show.
    pub(crate) async fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let waited = timeout(PATIENCE, self.sim.wait_until(|_| is_so(self))).await;
        assert!(waited.is_ok(), "{what}");
    }

    /// So many requests were answered, soon, and no more: what they write can be read before they are counted.
    pub(crate) async fn counts(&self, verb: &str, resource: &str, expected: u64) {
        let count = |world: &Self| world.stats().count(verb, resource);
        self.wait(verb, |world| count(world) >= expected).await;
        assert_eq!(count(self), expected, "{verb} {resource}");
    }

    pub(crate) fn stats(&self) -> Stats {
        self.sim.stats()
    }
}

fn watch_as(name: &str, sim: &SimApi, bus: &LocalBus) -> Running {
    let args = anteroom_watcher::Args {
        holder: Some(name.into()),
        background_scans: true,
        // Endpoints of tests are on loopback.
        trusted_service: vec!["127.0.0.1".parse().unwrap()],
        ..anteroom_watcher::Args::default()
    };
    let service = Service::new("watcher");
    let run = anteroom_watcher::run(args, Arc::new(bus.join()), client(sim), service.clone());
    Running {
        service,
        task: tokio::spawn(run),
    }
}

/// A reporter's options.
pub(crate) fn args(name: &str) -> anteroom_reporter::Args {
    anteroom_reporter::Args {
        reporter_id: Some(name.to_owned()),
        reporter_namespace: "default".to_owned(), // One that is there.
        report_writes_per_second: 1_000,
        ..anteroom_reporter::Args::default()
    }
}

/// Exemptions by these filters.
pub(crate) fn filters(filters: &str) -> Exemptions {
    Exemptions::new(rules(filters))
}

/// The rules of a file with these filters.
pub(crate) fn rules(filters: &str) -> ExemptionRules {
    ExemptionRules::parse(&format!("resourceFilters: '{filters}'")).unwrap()
}

fn client(sim: &SimApi) -> Client {
    let mut config = Config::new(sim.url().parse().unwrap());
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

pub(crate) fn policy(name: &str, team: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"background": true, "rules": [{
            "name": "r",
            "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "validate": {"message": "m", "pattern": {"metadata": {"labels": {"team": team}}}},
        }]},
    })
}
