//! The same policy over few objects and over many.

use serde_json::Value;

use crate::{
    Settings, say, spent,
    turns::{self, Stage},
};

/// Reviews at once.
const AT_ONCE: usize = 8;

/// The share of the lower throughput that is offered to both, so that queues are alike.
const FRACTION: f64 = 0.5;

/// Latencies over few Ingresses and over many, one at a time and several at one rate.
pub(crate) async fn run(
    scales: [usize; 2],
    manifests: &'static [&'static str],
    settings: &Settings,
) -> anyhow::Result<Value> {
    let mut stages = Vec::new();
    for ingresses in scales {
        stages.push(Stage::start(ingresses, ingresses, manifests, settings).await?);
        say(&format!("{ingresses} Ingresses, in force"));
    }
    let mut least = f64::INFINITY;
    for stage in &stages {
        least = least.min(stage.throughput(AT_ONCE).await?);
    }
    let per_second = least * FRACTION;
    let mut turns = [Vec::new(), Vec::new()];
    for _ in 0..turns::rounds(settings) {
        for (turns, stage) in turns.iter_mut().zip(&stages) {
            turns.push(turns::measure(stage, AT_ONCE, per_second).await?);
        }
    }
    let mut sides = Vec::new();
    for ((turns, stage), ingresses) in turns.iter().zip(&stages).zip(scales) {
        let mut side = turns::medians(turns, AT_ONCE, per_second);
        side["ingresses"] = ingresses.into();
        side["memory"] = spent::memory(&stage.ground)?;
        sides.push(side);
    }
    for stage in stages {
        stage.ground.end().await?;
    }
    let sides = <[Value; 2]>::try_from(sides).map_err(|_| anyhow::anyhow!("not two sides"))?;
    Ok(turns::compared(&sides))
}
