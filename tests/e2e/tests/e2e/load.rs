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
use anteroom_load::{Answer, Client, Live, Plan, Report, Stop, Target, review};
use anyhow::{Context as _, ensure};
use tokio_util::sync::CancellationToken;

/// Reviews in flight, each on a connection of its own.
pub(crate) const CONCURRENCY: usize = 4;

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

    /// Ends the load, which has lost no decision.
    pub(crate) async fn end(self, what: &str) -> anyhow::Result<()> {
        let report = self.finish(what).await?;
        ensure!(report.errors == 0, "{what}: {report:#?}");
        Ok(())
    }

    /// Ends the load once decisions flow without an error, and returns its report. No decision was wrong.
    pub(crate) async fn finish(self, what: &str) -> anyhow::Result<Report> {
        calm(&self.live, CALM).await?;
        self.stop.cancel();
        let report = self.task.await??;
        println!(
            "{what}: {} decisions, {} failed, the slowest took {:.0} ms",
            report.decisions, report.errors, report.max_ms
        );
        ensure!(report.wrong == 0, "{what}: {report:#?}");
        Ok(report)
    }
}

/// Waits until so many decisions were made in a row without an error.
pub(crate) async fn calm(live: &Live, decisions: u64) -> anyhow::Result<()> {
    let mut since: Report = live.report();
    wait::until("decisions to flow without an error", async || {
        let now = live.report();
        if now.errors > since.errors {
            since = now;
            return Err(format!("{:?}", since.error_kinds));
        }
        match now.decisions - since.decisions {
            enough if enough >= decisions => Ok(()),
            few => Err(format!("{few} since the last error")),
        }
    })
    .await
}

/// Asks the webhook itself, whatever the API server does meanwhile.
pub(crate) struct Witness {
    client: Client,
}

impl Witness {
    pub(crate) fn new(target: &Target) -> anyhow::Result<Self> {
        let client = Client::new(target.clone())?;
        Ok(Self { client })
    }

    /// Asks what becomes of an Ingress with this host, over the connection of this witness.
    pub(crate) async fn asks(&mut self, host: &str) -> anyhow::Result<Answer> {
        let uid = "witness";
        let object = anteroom_load::ingress("default", "witness", host);
        let body = self.client.post(review(uid, &object)).await?;
        Answer::parse(uid, &body).map_err(anyhow::Error::msg)
    }

    /// Waits until a decision says that `host` is taken, or that it is not.
    pub(crate) async fn sees(&mut self, host: &str, taken: bool) -> anyhow::Result<()> {
        let what = format!("decisions to know that taken={taken} of {host}");
        wait::until(&what, async || {
            let answer = self.asks(host).await.map_err(|e| format!("{e:#}"))?;
            match (answer, taken) {
                (Answer::Denied { .. }, true) | (Answer::Allowed, false) => Ok(()),
                (other, _) => Err(format!("{other:?}")),
            }
        })
        .await
        .context("the witness")
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

    /// Posts reviews while `fault` comes and goes. Afterwards a new host is known, and all is in step again. No decision is
    /// lost.
    pub(crate) async fn under_load(
        &mut self,
        world: &mut World,
        what: &str,
        fault: impl AsyncFnOnce(&mut World) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let report = self.reported(world, what, fault).await?;
        ensure!(report.errors == 0, "{what}: {report:#?}");
        Ok(())
    }

    /// Posts reviews as [`Faults::under_load`] does, and returns their report: decisions may be lost.
    pub(crate) async fn reported(
        &mut self,
        world: &mut World,
        what: &str,
        fault: impl AsyncFnOnce(&mut World) -> anyhow::Result<()>,
    ) -> anyhow::Result<Report> {
        let load = Load::begin(world, &self.target);
        load.decides(CALM).await?;
        let fault = Box::pin(fault(world));
        fault.await.with_context(|| what.to_owned())?;
        let new = self.hosts;
        self.hosts += 1;
        one_more(world, new).await?;
        world.nats.all_healthy().await?;
        world.system.ready().await?;
        load.finish(what).await
    }
}

/// Makes the Ingress with this number as soon as it is admitted, and waits until decisions know its host.
pub(crate) async fn one_more(world: &World, number: usize) -> anyhow::Result<()> {
    let object = ingress(number, &host(number));
    wait::until("an Ingress to be admitted", async || {
        world.create(&object).await
    })
    .await?;
    is_denied(world, &host(number)).await
}
