//! Dashboards and alerts, in a real Prometheus that scrapes the services.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anteroom_e2e::{
    check::{ENTRY, POLICY, entry_is_ready},
    process::{Process, free_address},
    services::{Running, get},
    skip::PROMETHEUS,
    wait,
    world::{World, host, ingress},
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

const INGRESSES: usize = 50;

/// Panels without data in a healthy system, with the reason.
const EMPTY: [(&str, &str); 4] = [
    ("Live reads by outcome", "no policy of the story reads live"),
    ("Reviews without a decision", "every review is decided"),
    (
        "Reviews that no policy is asked about",
        "no request of the story is exempt",
    ),
    ("Faults of watches", "no watch fails"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_panel_has_data_and_alerts_fire_and_clear() -> anyhow::Result<()> {
    let Some(program) = PROMETHEUS.find()? else {
        return Ok(());
    };
    let mut world = World::start().await?;
    let outcome = Box::pin(story(&mut world, &program)).await;
    world.with_logs(outcome)
}

async fn story(world: &mut World, program: &Path) -> anyhow::Result<()> {
    world.fill(0, INGRESSES).await?;
    world.create(&serde_saphyr::from_str(ENTRY)?).await?;
    world.create(&serde_saphyr::from_str(POLICY)?).await?;
    world.system.ready().await?;
    entry_is_ready(world, "ingresses", INGRESSES).await?;
    let prometheus = Prometheus::start(world, program)?;
    every_panel_has_data(world, &prometheus).await?;

    // All is well: no alert speaks, and none is broken.
    ensure!(
        prometheus.alerts().await?.is_empty(),
        "{:?}",
        prometheus.alerts().await?
    );
    let watcher = world.system.watcher.take().context("no watcher")?;
    let recipe = watcher.recipe().clone();
    drop(watcher);
    world.system.other_watchers.clear();
    wait::until("an alert", async || {
        let firing = prometheus.alerts().await?;
        ensure!(
            firing.iter().any(|name| name == "AnteroomNoLeader"),
            "{firing:?}"
        );
        Ok(())
    })
    .await?;
    world.system.watcher = Some(recipe.start()?);
    wait::until("no alert", async || {
        let firing = prometheus.alerts().await?;
        ensure!(firing.is_empty(), "{firing:?}");
        Ok(())
    })
    .await
}

async fn every_panel_has_data(world: &World, prometheus: &Prometheus) -> anyhow::Result<()> {
    let mut number = INGRESSES;
    wait::until("data in every panel", async || {
        // Rates take requests that go on.
        for _ in 0..5 {
            number += 1;
            let taken = ingress(number, &host(7));
            ensure!(
                world.create(&taken).await.is_err(),
                "a taken host was admitted"
            );
            world.create(&ingress(number, &host(number))).await?;
        }
        let mut empty = Vec::new();
        for dashboard in ["decisions", "facts"] {
            for panel in panels(dashboard)? {
                let title = panel["title"].as_str().unwrap_or_default().to_owned();
                let has_data = prometheus.has_data(&panel).await?;
                let may_be_empty = EMPTY.iter().any(|(panel, _)| *panel == title);
                if !has_data && !may_be_empty {
                    empty.push(title);
                }
            }
        }
        ensure!(empty.is_empty(), "without data: {empty:?}");
        Ok(())
    })
    .await
}

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/files")
}

fn panels(dashboard: &str) -> anyhow::Result<Vec<Value>> {
    let file = files().join("dashboards").join(format!("{dashboard}.json"));
    let dashboard: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    dashboard["panels"].as_array().cloned().context("no panels")
}

/// A Prometheus that scrapes all services of a world, each second.
struct Prometheus {
    address: SocketAddr,
    _process: Process,
}

impl Prometheus {
    fn start(world: &World, program: &Path) -> anyhow::Result<Self> {
        let system = &world.system;
        let replicas = system.replicas.iter().flatten();
        let watchers = system
            .watcher
            .iter()
            .chain(system.other_watchers.iter().flatten());
        let all: Vec<&Running> = watchers.chain(replicas).chain([&system.webhook]).collect();
        let targets = all.iter().enumerate().map(|(pod, service)| {
            json!({ "targets": [service.admin().to_string()], "labels": { "pod": format!("pod-{pod}") } })
        });
        let config = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [files().join("rules.yaml").canonicalize()?],
            "scrape_configs": [{ "job_name": "anteroom", "static_configs": targets.collect::<Vec<_>>() }],
        });
        // JSON is YAML.
        let file = world.folder.path().join("prometheus.yaml");
        std::fs::write(&file, config.to_string())?;
        let address = free_address()?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                world.folder.path().join("prometheus").display()
            ))
            .arg(format!("--web.listen-address={address}"));
        let process = Process::start("prometheus", &mut command, world.folder.path())?;
        Ok(Self {
            address,
            _process: process,
        })
    }

    async fn ask(&self, path: &str) -> anyhow::Result<Value> {
        let answer: Value = serde_json::from_str(&get(self.address, path).await?)?;
        ensure!(answer["status"] == "success", "{path}: {answer}");
        Ok(answer["data"].clone())
    }

    /// Returns true if one of the panel's queries has a result.
    async fn has_data(&self, panel: &Value) -> anyhow::Result<bool> {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().context("no expression")?;
            let query = percent_encoded(&expr.replace("$__rate_interval", "10s"));
            let data = self.ask(&format!("/api/v1/query?query={query}")).await?;
            if data["result"]
                .as_array()
                .is_some_and(|found| !found.is_empty())
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The names of the alerts that fire. An alert that cannot be evaluated is an error.
    async fn alerts(&self) -> anyhow::Result<Vec<String>> {
        let data = self.ask("/api/v1/rules").await?;
        let rules = data["groups"][0]["rules"].as_array().context("no rules")?;
        let mut firing = Vec::new();
        for rule in rules {
            ensure!(rule["health"] != "err", "{rule}");
            if rule["state"] == "firing" {
                firing.push(rule["name"].as_str().unwrap_or_default().to_owned());
            }
        }
        Ok(firing)
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
