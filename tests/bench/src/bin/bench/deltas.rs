//! Changes of the cluster at a rate, made in the simulated API server past admission.

use std::time::Duration;

use anteroom_simapi::SimApi;
use anyhow::Context;
use serde_json::Value;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::ground::cluster;

const INGRESSES: &str = "ingresses.networking.k8s.io";

/// Changing Ingresses whose hosts no review asks for; they follow the Ingresses of the reviews.
#[derive(Debug)]
pub(crate) struct Changing {
    ingresses: Vec<Value>,
}

impl Changing {
    /// `count` of the cluster's Ingresses, the first of them `from`.
    pub(crate) fn new(from: usize, count: usize) -> Self {
        let cluster = cluster();
        let ingresses = cluster.ingresses(from + count, 1).skip(from).collect();
        Self { ingresses }
    }

    /// Change number `turn`: the next of them gets a host that nobody had.
    fn change(&self, turn: u64) -> Option<Value> {
        let at = usize::try_from(turn)
            .ok()?
            .checked_rem(self.ingresses.len())?;
        let mut changed = self.ingresses.get(at)?.clone();
        changed["spec"]["rules"][0]["host"] = format!("turn-{turn}.anteroom.test").into();
        changed["metadata"]["labels"]["turn"] = turn.to_string().into();
        Some(changed)
    }

    /// Makes `per_second` changes a second until cancelled; returns how many.
    pub(crate) async fn go_on(
        &self,
        sim: &SimApi,
        per_second: u32,
        until: &CancellationToken,
    ) -> anyhow::Result<u64> {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut made = 0;
        loop {
            tokio::select! {
                biased;
                () = until.cancelled() => return Ok(made),
                _ = ticks.tick() => {}
            }
            self.make(sim, made)?;
            made += 1;
        }
    }

    /// Makes one change now.
    pub(crate) fn make(&self, sim: &SimApi, turn: u64) -> anyhow::Result<()> {
        let changed = self.change(turn).context("nothing to change")?;
        sim.put(INGRESSES, changed)?;
        Ok(())
    }
}
