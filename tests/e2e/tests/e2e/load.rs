//! Reviews of Ingresses under load, held against the oracle.

#![allow(clippy::print_stdout, reason = "figures are for people")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_e2e::{
    check::{ENTRY, POLICY, entry_is_ready, is_denied},
    system::target,
    wait,
    world::{World, host, ingress},
};
use anteroom_load::{Live, Plan, Report, Stop, Target};
use anyhow::{Context as _, ensure};
use tokio_util::sync::CancellationToken;

/// Reviews in flight.
const CONCURRENCY: usize = 4;

/// Decisions that end a part of a story: everything is well.
pub(crate) const CALM: u64 = 300;

/// Makes Ingresses, and a policy by which each host has one owner. Returns the webhook, once it decides by it.
pub(crate) async fn decides_by_hosts(
    world: &mut World,
    ingresses: usize,
) -> anyhow::Result<Target> {
    world.fill(0, ingresses).await?;
    for manifest in [ENTRY, POLICY] {
        world.create(&serde_saphyr::from_str(manifest)?).await?;
    }
    world.system.ready().await?;
    entry_is_ready(world, "ingresses", ingresses).await?;
    is_denied(world, &host(7)).await?;
    target(&world.client).await
}

/// Reviews that are posted until it ends.
pub(crate) struct Load {
    live: Arc<Live>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<anyhow::Result<Report>>,
}

impl Load {
    pub(crate) fn begin(world: &World, target: &Target) -> Self {
        let (live, stop) = (Arc::new(Live::default()), CancellationToken::new());
        let plan = Plan {
            concurrency: CONCURRENCY,
            duplicate_share: 0.5,
            stop: Stop::Cancelled(stop.clone()),
        };
        let load = anteroom_load::run(target.clone(), plan, world.oracle.clone(), live.clone());
        Self {
            live,
            stop,
            task: tokio::spawn(load),
        }
    }

    pub(crate) fn decisions(&self) -> u64 {
        self.live.report().decisions
    }

    /// Waits for so many decisions from now on, and returns how long that took.
    pub(crate) async fn decides(&self, count: u64) -> anyhow::Result<Duration> {
        let (begun, before) = (Instant::now(), self.decisions());
        wait::until("decisions", async || {
            let made = self.decisions() - before;
            ensure!(made >= count, "{made} so far: {:?}", self.live.report());
            anyhow::Ok(())
        })
        .await?;
        Ok(begun.elapsed())
    }

    pub(crate) async fn end(self, what: &str) -> anyhow::Result<()> {
        self.decides(CALM).await?;
        self.stop.cancel();
        let report = self.task.await??;
        println!(
            "{what}: {} decisions, {} failed, the slowest took {:.0} ms",
            report.decisions, report.errors, report.max_ms
        );
        ensure!(
            report.wrong == 0 && report.errors == 0,
            "{what}: {report:#?}"
        );
        Ok(())
    }
}

/// Faults under load, one after the other.
pub(crate) struct Faults {
    target: Target,
    /// The number of hosts that are taken.
    hosts: usize,
}

impl Faults {
    pub(crate) fn new(target: Target, hosts: usize) -> Self {
        Self { target, hosts }
    }

    /// Posts reviews while `fault` comes and goes. Afterwards a new host is known, and all is in step again.
    pub(crate) async fn under_load(
        &mut self,
        world: &mut World,
        what: &str,
        fault: impl AsyncFnOnce(&mut World) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let load = Load::begin(world, &self.target);
        load.decides(CALM).await?;
        fault(world).await.with_context(|| what.to_owned())?;
        let new = host(self.hosts);
        let object = ingress(self.hosts, &new);
        self.hosts += 1;
        wait::until("an Ingress to be admitted", async || {
            world.create(&object).await
        })
        .await?;
        is_denied(world, &new).await?;
        world.nats.all_healthy().await?;
        world.system.ready().await?;
        load.end(what).await
    }
}
