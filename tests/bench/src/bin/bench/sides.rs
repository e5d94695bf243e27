//! Two policies, or one over few objects and over many, measured in turns.

use serde_json::{Value, json};

use crate::{
    Settings, ask, say, spent,
    turns::{self, Stage},
};

/// Reviews at once in the closed loop that tells the throughput.
const AT_ONCE_MOST: usize = 16;

/// Reviews at once in the open loop.
const AT_ONCE: usize = 8;

/// The share of the lower throughput that is offered to both, so that queues are alike.
const FRACTION: f64 = 0.5;

/// A policy in force over objects.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) rule: ask::Rule,
    pub(crate) ingresses: usize,
    /// Every second Ingress has no host.
    pub(crate) half_have_hosts: bool,
    /// NATS is reached over TLS.
    pub(crate) is_encrypted: bool,
    pub(crate) manifests: &'static [&'static str],
}

/// Latencies of both, one at a time and several at one rate, and the throughput of each.
pub(crate) async fn run(sides: [Side; 2], settings: &Settings) -> anyhow::Result<Value> {
    let mut stages = Vec::new();
    for side in &sides {
        stages.push(Stage::start(side, side.ingresses, settings).await?);
        say(&format!("{} Ingresses, in force", side.ingresses));
    }
    let mut least = f64::INFINITY;
    for stage in &stages {
        least = least.min(stage.throughput(AT_ONCE).await?);
    }
    let per_second = least * FRACTION;
    let mut turns = [Vec::new(), Vec::new()];
    for _ in 0..turns::rounds(settings) {
        for (turns, stage) in turns.iter_mut().zip(&stages) {
            let mut turn = turns::measure(stage, AT_ONCE, per_second).await?;
            turn["decisions_per_second"] = stage.throughput(AT_ONCE_MOST).await?.into();
            turns.push(turn);
        }
    }
    let mut measured = Vec::new();
    for ((turns, stage), side) in turns.iter().zip(&stages).zip(&sides) {
        let mut figures = turns::medians(turns, AT_ONCE, per_second);
        figures["ingresses"] = side.ingresses.into();
        let rate = turns::median_of(turns, |turn| &turn["decisions_per_second"]);
        figures["decisions_per_second"] = rate.into();
        figures["memory"] = spent::memory(&stage.ground)?;
        measured.push(figures);
    }
    for stage in stages {
        stage.ground.end().await?;
    }
    let sides = <[Value; 2]>::try_from(measured).map_err(|_| anyhow::anyhow!("not two sides"))?;
    let mut result = turns::compared(&sides);
    let rate = |side: &Value| side["decisions_per_second"].as_f64();
    let slower = rate(&sides[0]).zip(rate(&sides[1])).map(|(a, b)| a / b);
    result["throughput_ratio"] = json!(slower);
    Ok(result)
}
