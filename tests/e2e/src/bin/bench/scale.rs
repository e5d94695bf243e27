//! The same policy over few objects and over many.

use std::time::Duration;

use anteroom_load::{Pace, Paced, Protocol, Questions, Target};
use anteroom_simapi::generate;
use serde_json::{Value, json};

use crate::{
    Settings, ask, decisions,
    ground::{Ground, Layout},
    say, spent,
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
    let mut sides = Vec::new();
    for ((ground, target, questions), ingresses) in worlds.iter().zip(scales) {
        let of = |at_once, pace| plan(target, questions, at_once, pace, settings.lasts);
        let (one, one_cpu) = decisions::counted(ground, of(1, Pace::Closed)).await?;
        let open = of(AT_ONCE, Pace::Open { per_second });
        let (several, several_cpu) = decisions::counted(ground, open).await?;
        say(&format!(
            "{ingresses} Ingresses: one at a time p50 {} p99 {} ms; {AT_ONCE} at {per_second:.0}/s p50 {} p99 {} ms",
            one.latency_ms.p50, one.latency_ms.p99, several.latency_ms.p50, several.latency_ms.p99
        ));
        sides.push(json!({
            "ingresses": ingresses,
            "one_at_a_time": { "load": one, "cpu_ms_per_decision": one_cpu },
            "open": { "at_once": AT_ONCE, "per_second": per_second, "load": several,
                "cpu_ms_per_decision": several_cpu },
            "memory": spent::memory(ground)?,
        }));
    }
    for (ground, ..) in worlds {
        ground.end().await?;
    }
    let ratio = |way: &str| {
        let p99 = |side: &Value| side[way]["load"]["latency_ms"]["p99"].as_f64();
        Some(p99(&sides[1])? / p99(&sides[0])?)
    };
    Ok(json!({
        "p99_ratio": { "one_at_a_time": ratio("one_at_a_time"), "open": ratio("open") },
        "sides": sides,
    }))
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
