//! The same policy over few objects and over many.

use std::time::Duration;

use anteroom_load::{Pace, Paced, Protocol, Questions, Target};
use anteroom_simapi::generate;
use serde_json::Value;

use crate::{
    Settings, ask, decisions,
    ground::{Ground, Layout},
    say, spent, turns,
};

/// Reviews at once.
const AT_ONCE: usize = 8;

/// How much of the lower throughput is offered to both, so that queues are alike.
const FRACTION: f64 = 0.5;

/// Latencies over few Ingresses and over many, one at a time and several at one rate.
pub(crate) async fn run(
    scales: [usize; 2],
    manifests: &'static [&'static str],
    settings: &Settings,
) -> anyhow::Result<Value> {
    let mut worlds = Vec::new();
    for ingresses in scales {
        let layout = Layout {
            ingresses,
            services: 0,
            pods: 0,
            manifests,
        };
        let ground = Ground::start(layout, settings).await?;
        let hosts = (0..ingresses)
            .map(|index| generate::ingress_host(index, 0))
            .collect();
        let questions = ask::questions(ask::Rule::HostAndPath, hosts);
        decisions::in_force(&ground, &questions).await?;
        say(&format!("{ingresses} Ingresses, in force"));
        let target = ground.target().await?;
        worlds.push((ground, target, questions));
    }
    let mut least = f64::INFINITY;
    for (_, target, questions) in &worlds {
        let closed = plan(target, questions, AT_ONCE, Pace::Closed, settings.lasts);
        let closed = decisions::run(closed).await?;
        least = least.min(closed.decisions_per_second);
    }
    let per_second = least * FRACTION;
    let mut turns = [Vec::new(), Vec::new()];
    for _ in 0..turns::rounds(settings) {
        for (turns, (ground, target, questions)) in turns.iter_mut().zip(&worlds) {
            let of = |at_once, pace| plan(target, questions, at_once, pace, settings.lasts);
            turns.push(turns::measure(ground, of, AT_ONCE, per_second).await?);
        }
    }
    let mut sides = Vec::new();
    for ((turns, (ground, ..)), ingresses) in turns.iter().zip(&worlds).zip(scales) {
        let mut side = turns::medians(turns, AT_ONCE, per_second);
        side["ingresses"] = ingresses.into();
        side["memory"] = spent::memory(ground)?;
        sides.push(side);
    }
    for (ground, ..) in worlds {
        ground.end().await?;
    }
    let sides = <[Value; 2]>::try_from(sides).map_err(|_| anyhow::anyhow!("not two sides"))?;
    Ok(turns::compared(&sides))
}

fn plan(
    target: &Target,
    questions: &Questions,
    at_once: usize,
    pace: Pace,
    lasts: Duration,
) -> Paced {
    Paced {
        target: target.clone(),
        protocol: Protocol::Http1,
        at_once,
        pace,
        lasts,
        questions: questions.clone(),
    }
}
