//! Decisions while the cluster changes, against the same while it does not.

use std::time::Instant;

use anyhow::Context;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    Settings, ask,
    deltas::Changing,
    ground::Ground,
    sides::Side,
    turns::{self, Stage},
};

/// Reviews at once.
const AT_ONCE: usize = 8;

/// The share of the throughput that is offered: the deltas have to be worked through on the same cores.
const FRACTION: f64 = 0.3;

/// Ingresses that change, in turn.
const CHANGING: usize = 500;

/// Latencies quiet and beside `per_second` deltas a second.
pub(crate) async fn run(
    ingresses: usize,
    deltas_per_second: u32,
    manifests: &'static [&'static str],
    settings: &Settings,
) -> anyhow::Result<Value> {
    let side = Side {
        rule: ask::Rule::HostAndPath,
        ingresses: ingresses + CHANGING,
        half_have_hosts: false,
        is_encrypted: false,
        manifests,
    };
    let stage = Stage::start(&side, ingresses, settings).await?;
    let changing = Changing::new(ingresses, CHANGING);
    let per_second = stage.throughput(AT_ONCE).await? * FRACTION;
    let ground = &stage.ground;
    let mut turns = [Vec::new(), Vec::new()];
    for _ in 0..turns::rounds(settings) {
        for (turns, rate) in turns.iter_mut().zip([0, deltas_per_second]) {
            let stop = CancellationToken::new();
            let before = applied(ground).await?;
            let measured = async {
                let _stop = stop.clone().drop_guard();
                turns::measure(&stage, AT_ONCE, per_second).await
            };
            let changes = async {
                match rate {
                    0 => Ok(0),
                    rate => changing.go_on(&ground.sim, rate, &stop).await,
                }
            };
            let started = Instant::now();
            let (mut measured, made) = tokio::try_join!(measured, changes)?;
            let seconds = started.elapsed().as_secs_f64();
            measured["deltas_per_second"] = (made as f64 / seconds).into();
            let applied = applied(ground).await? - before;
            measured["deltas_applied_per_second"] = (applied / seconds).into();
            turns.push(measured);
        }
    }
    stage.ground.end().await?;
    let [quiet, busy] = turns;
    let side = |turns: &[Value]| {
        let mut side = turns::medians(turns, AT_ONCE, per_second);
        for name in ["deltas_per_second", "deltas_applied_per_second"] {
            side[name] = turns::median_of(turns, |turn| &turn[name]).into();
        }
        side
    };
    Ok(turns::compared(&[side(&quiet), side(&busy)]))
}

/// Returns the number of deltas that the first replica has applied.
pub(crate) async fn applied(ground: &Ground) -> anyhow::Result<f64> {
    let replica = ground.system.replicas.first().and_then(Option::as_ref);
    let replica = replica.context("no replica")?;
    replica
        .metric("anteroom_view_deltas_total", &["ingresses"])
        .await
}
