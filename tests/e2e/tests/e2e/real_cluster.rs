//! The main job on real parts, as a user lives it: kube-apiserver, etcd and nats-server, and every
//! service as a process of its own, some of which are killed.
//!
//! One story, since starting and filling a cluster is what takes the time.

use std::sync::Arc;

use anteroom_e2e::{
    check::{
        ENTRY, POLICY, SERVICES_ENTRY, entry_is_ready, is_denied, replicas_equal_the_api_server,
    },
    process::workspace_binary,
    services::Running,
    system::target,
    wait,
    world::{World, host, ingress},
};
use anteroom_load::{Live, Plan, Report, Stop};
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const SERVICES: usize = 4_000;
const INGRESSES: usize = 3_000;

/// Reviews in flight while something is killed.
const CONCURRENCY: usize = 4;

/// Ingresses, Services, entries, policies of all six kinds, and what makes the API server serve more:
/// definitions and aggregated APIs.
const WATCHES: f64 = 11.0;

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_cannot_take_a_host_that_another_owns() -> anyhow::Result<()> {
    let mut world = World::start().await?;
    chapter("filling the cluster");
    world.fill(SERVICES, INGRESSES).await?;
    chapter("an entry and a policy");
    for manifest in [ENTRY, SERVICES_ENTRY, POLICY] {
        world.create(&serde_saphyr::from_str(manifest)?).await?;
    }
    world.system.ready().await?;
    entry_is_ready(&world, "ingresses", INGRESSES).await?;
    entry_is_ready(&world, "services", SERVICES).await?;
    one_watch_for_two_entries_on_one_source(&world).await?;

    chapter("a host that is taken, one that is free, one that becomes free");
    is_denied(&world, &host(7)).await?;
    let free = ingress(INGRESSES, "free.example.com");
    world
        .create(&free)
        .await
        .context("a free host is admitted")?;
    is_denied(&world, "free.example.com").await?;
    world.delete(&free).await?;
    wait::until("a host whose owner was deleted to be free", async || {
        world.create(&free).await
    })
    .await?;

    chapter("the replicas asked by hand, under the deployed permissions");
    let counted = asked_by_hand(&world, "length(items)").await?;
    ensure!(counted.parse::<usize>()? >= INGRESSES, "{counted}");

    chapter("a replica killed -9 under load: no wrong and no failed decision");
    let report = under_load(&mut world, async |world| {
        let mut running = world.system.replicas[0].take().context("replica 0 runs")?;
        let recipe = running.recipe().clone();
        running.process.kill()?;
        let mut again = recipe.start()?;
        again.ready().await?;
        world.system.replicas[0] = Some(again);
        Ok(())
    })
    .await?;
    ensure!(report.wrong == 0 && report.errors == 0, "{report:#?}");

    chapter("the watcher killed -9 and started again: nobody reads again, nothing is wrong");
    let before = resyncs(&world).await?;
    let report = under_load(&mut world, async |world| {
        let mut running = world.system.watcher.take().context("the watcher runs")?;
        let recipe = running.recipe().clone();
        running.process.kill()?;
        let mut again = recipe.start()?;
        again.ready().await?;
        world.system.watcher = Some(again);
        // Changes during the outage arrive, and so do new changes.
        let new = ingress(INGRESSES + 1, "after-the-watcher.example.com");
        world
            .create(&new)
            .await
            .context("a free host, after the watcher came back")?;
        is_denied(world, "after-the-watcher.example.com").await
    })
    .await?;
    ensure!(report.wrong == 0, "{report:#?}");
    ensure!(
        resyncs(&world).await? == before,
        "replicas have read the log again"
    );

    chapter("all NATS servers killed -9 and started again: right, or closed");
    let report = under_load(&mut world, async |world| {
        world.nats.kill()?;
        world.nats.start_again().await?;
        wait::until("decisions to go on", async || {
            let new = ingress(INGRESSES + 2, "after-nats.example.com");
            world.create(&new).await
        })
        .await?;
        is_denied(world, "after-nats.example.com").await
    })
    .await?;
    ensure!(report.wrong == 0, "{report:#?}");
    replicas_equal_the_api_server(&world).await?;

    chapter("the entry deleted: the policy says so");
    world.delete(&serde_saphyr::from_str(ENTRY)?).await?;
    let last = ingress(INGRESSES + 3, "no-entry.example.com");
    wait::until("a decision to fail closed", async || {
        match world.create(&last).await {
            Err(kube::Error::Api(status)) if status.message.contains("AR101") => Ok(()),
            Ok(()) => {
                world.delete(&last).await?;
                bail!("admitted")
            }
            Err(other) => Err(other.into()),
        }
    })
    .await?;
    policy_says(&world, "ingresses").await?;

    chapter("everything ends when it is asked to");
    // NATS and the cluster outlive the services: they are in the rest of `world`.
    let World {
        system,
        nats: _nats,
        cluster: _cluster,
        folder: _folder,
        ..
    } = world;
    for Running { process, .. } in system.into_running() {
        let log = process.log().to_owned();
        let status = process.terminate().await?;
        ensure!(status.success(), "{} ended with {status}", log.display());
    }
    Ok(())
}

fn chapter(title: &str) {
    tell(&format!("# {title}"));
}

/// Seen with `--nocapture`, and when the story ends badly.
#[expect(
    clippy::print_stdout,
    reason = "the story, for whoever reads a test's output"
)]
fn tell(text: &str) {
    println!("{text}");
}

/// Posts reviews, straight to the webhook, while `act` does its worst.
async fn under_load(
    world: &mut World,
    act: impl AsyncFnOnce(&mut World) -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    let (stop, live) = (CancellationToken::new(), Arc::new(Live::default()));
    let plan = Plan {
        concurrency: CONCURRENCY,
        duplicate_share: 0.5,
        stop: Stop::Cancelled(stop.clone()),
    };
    let target = target(&world.client).await?;
    let load = tokio::spawn(anteroom_load::run(
        target,
        plan,
        world.oracle.clone(),
        live.clone(),
    ));
    wait::until("the load to flow", async || match live.report().decisions {
        0 => Err(format!("no decision yet: {:?}", live.report().error_kinds)),
        _ => Ok(()),
    })
    .await?;
    let acted = act(world).await;
    let before = live.report().decisions;
    wait::until("the load to flow again", async || {
        if live.report().decisions > before {
            Ok(())
        } else {
            Err("no decision since".to_owned())
        }
    })
    .await?;
    stop.cancel();
    let report = load.await??;
    acted.with_context(|| format!("{report:#?}"))?;
    tell(&format!(
        "  {} decisions, {} wrong, {} without one, p99 {:.1} ms",
        report.decisions, report.wrong, report.errors, report.p99_ms
    ));
    Ok(report)
}

/// A second entry on a source opens no second watch.
async fn one_watch_for_two_entries_on_one_source(world: &World) -> anyhow::Result<()> {
    let mut second: Value = serde_saphyr::from_str(ENTRY)?;
    second["metadata"]["name"] = "ingresses-again".into();
    // Spelt otherwise, and the same source.
    second["spec"]["resource"] =
        json!({ "group": "apis/networking.k8s.io", "version": "v1", "kind": "ingresses" });
    let watcher = world.system.watcher.as_ref().context("the watcher runs")?;
    world.create(&second).await?;
    entry_is_ready(world, "ingresses-again", INGRESSES).await?;
    // Between two watches of one source there is none for a moment.
    wait::until("one watch on the Ingresses", async || {
        let ingresses = "view=\"ingresses.v1.networking.k8s.io\"";
        let lists = watcher
            .metric("anteroom_watch_lists_total", &[ingresses])
            .await?;
        let watches = watcher.metric("anteroom_watches", &[]).await?;
        ensure!(
            lists == 1.0 && watches == WATCHES,
            "{lists} lists, {watches} watches"
        );
        Ok(())
    })
    .await?;
    world.delete(&second).await
}

/// Returns what `anteroom query` prints.
async fn asked_by_hand(world: &World, expression: &str) -> anyhow::Result<String> {
    let output = tokio::process::Command::new(workspace_binary("anteroom")?)
        .args(["query", "ingresses", expression])
        .envs(world.nats.logins().env("webhook"))
        .output()
        .await?;
    let (printed, errors) = (
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    );
    ensure!(output.status.success(), "{}: {errors}", output.status);
    Ok(printed.trim().to_owned())
}

/// Counts how often replicas have read the log from its start.
async fn resyncs(world: &World) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for replica in world.system.replicas.iter().flatten() {
        sum += replica.metric("anteroom_log_resyncs_total", &[]).await?;
    }
    Ok(sum)
}

/// The policy's status names the entry that is missing.
async fn policy_says(world: &World, entry: &str) -> anyhow::Result<()> {
    let policy: Value = serde_saphyr::from_str(POLICY)?;
    wait::until(
        "the policy's status to name the missing entry",
        async || {
            let name = policy["metadata"]["name"]
                .as_str()
                .context("the policy's name")?;
            let found = world.api(&policy).get(name).await?;
            let conditions = found.data["status"]["conditions"]
                .as_array()
                .context("no conditions")?;
            let ready = conditions
                .iter()
                .find(|c| c["type"] == "Ready")
                .context("no Ready")?;
            let message = ready["message"].as_str().unwrap_or_default();
            ensure!(
                ready["status"] == "False" && message.contains(entry),
                "{ready}"
            );
            Ok(())
        },
    )
    .await
}
