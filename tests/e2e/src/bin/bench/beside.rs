//! Decisions while the cluster changes, against the same while it does not.

use anteroom_load::{Pace, Paced, Protocol};
use anteroom_simapi::generate;
use anyhow::Context;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    Settings, ask, decisions,
    deltas::Changing,
    ground::{Ground, Layout},
    say,
};

/// Reviews at once.
const AT_ONCE: usize = 8;

/// How much of the throughput is offered: the deltas have to be worked through on the same cores.
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
    let layout = Layout {
        ingresses: ingresses + CHANGING,
        services: 0,
        pods: 0,
        manifests,
    };
    let ground = Ground::start(layout, settings).await?;
    let changing = Changing::new(ingresses, CHANGING);
    let hosts = (0..ingresses)
        .map(|index| generate::ingress_host(index, 0))
        .collect();
    let questions = ask::questions(ask::Rule::HostAndPath, hosts);
    decisions::in_force(&ground, &questions).await?;
    let target = ground.target().await?;
    let of = |at_once, pace| Paced {
        target: target.clone(),
        protocol: Protocol::Http1,
        at_once,
        pace,
        lasts: settings.lasts,
        questions: questions.clone(),
    };
    let closed = decisions::run(of(AT_ONCE, Pace::Closed)).await?;
    let per_second = closed.decisions_per_second * FRACTION;
    let mut sides = Vec::new();
    for rate in [0, deltas_per_second] {
        let stop = CancellationToken::new();
        let before = applied(&ground).await?;
        let measured = async {
            let _stop = stop.clone().drop_guard();
            let one = decisions::counted(&ground, of(1, Pace::Closed)).await?;
            let open = of(AT_ONCE, Pace::Open { per_second });
            anyhow::Ok((one, decisions::counted(&ground, open).await?))
        };
        let changes = async {
            match rate {
                0 => Ok(0),
                rate => changing.go_on(&ground.sim, rate, &stop).await,
            }
        };
        let started = std::time::Instant::now();
        let (((one, one_cpu), (open, open_cpu)), made) = tokio::try_join!(measured, changes)?;
        let seconds = started.elapsed().as_secs_f64();
        say(&format!(
            "{rate} deltas/s: one at a time p50 {} p99 {} ms; {AT_ONCE} at {per_second:.0}/s p50 {} p99 {} ms",
            one.latency_ms.p50, one.latency_ms.p99, open.latency_ms.p50, open.latency_ms.p99
        ));
        sides.push(json!({
            "deltas_per_second": made as f64 / seconds,
            "deltas_applied_per_second": (applied(&ground).await? - before) / seconds,
            "one_at_a_time": { "load": one, "cpu_ms_per_decision_and_deltas": one_cpu },
            "open": { "at_once": AT_ONCE, "per_second": per_second, "load": open,
                "cpu_ms_per_decision_and_deltas": open_cpu },
        }));
    }
    ground.end().await?;
    let ratio = |way: &str| {
        let p99 = |side: &Value| side[way]["load"]["latency_ms"]["p99"].as_f64();
        Some(p99(&sides[1])? / p99(&sides[0])?)
    };
    Ok(json!({
        "p99_ratio": { "one_at_a_time": ratio("one_at_a_time"), "open": ratio("open") },
        "sides": sides,
    }))
}

/// Deltas that the first replica applied so far.
pub(crate) async fn applied(ground: &Ground) -> anyhow::Result<f64> {
    let replica = ground.system.replicas.first().and_then(Option::as_ref);
    let replica = replica.context("no replica")?;
    replica
        .metric("anteroom_view_deltas_total", &["ingresses"])
        .await
}
