//! Two ways to be compared, measured in turns: what the machine does meanwhile meets both alike, and of
//! each the median run counts, so that one that was disturbed decides nothing.

use std::time::Duration;

use anteroom_load::{Pace, Paced, Protocol, Questions, Target};
use anteroom_simapi::generate;
use serde_json::{Value, json};

use crate::{
    Settings, ask,
    decisions::{self, Deciding},
    ground::{Ground, Layout},
    say,
    sides::Side,
};

/// The number of turns of each way. An odd number: the median is a run.
const ROUNDS: usize = 5;
const ROUNDS_QUICK: usize = 3;

/// Returns the number of turns of each way.
pub(crate) fn rounds(settings: &Settings) -> usize {
    match settings.quick {
        true => ROUNDS_QUICK,
        false => ROUNDS,
    }
}

/// The stage on which the turns of one way are measured: a policy in force.
pub(crate) struct Stage {
    pub(crate) ground: Ground,
    target: Target,
    questions: Questions,
    lasts: Duration,
}

impl Stage {
    /// Of a policy over objects. The hosts of the first `asked` Ingresses are asked for.
    pub(crate) async fn start(
        side: &Side,
        asked: usize,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let layout = Layout {
            ingresses: side.ingresses,
            half_have_hosts: side.half_have_hosts,
            services: 0,
            pods: 0,
            is_encrypted: side.is_encrypted,
            manifests: side.manifests,
        };
        let ground = Ground::start(layout, settings).await?;
        let hosts = (0..asked)
            .step_by(if side.half_have_hosts { 2 } else { 1 })
            .map(|index| generate::ingress_host(index, 0))
            .collect();
        let questions = ask::questions(side.rule, hosts);
        decisions::in_force(Deciding::Ground(&ground), &questions).await?;
        Ok(Self {
            target: ground.target().await?,
            ground,
            questions,
            lasts: settings.lasts,
        })
    }

    /// Decisions a second in a closed loop.
    pub(crate) async fn throughput(&self, at_once: usize) -> anyhow::Result<f64> {
        let closed = decisions::run(self.paced(at_once, Pace::Closed)).await?;
        Ok(closed.decisions_per_second)
    }

    fn paced(&self, at_once: usize, pace: Pace) -> Paced {
        Paced {
            target: self.target.clone(),
            protocol: Protocol::Http1,
            at_once,
            pace,
            lasts: self.lasts,
            questions: self.questions.clone(),
        }
    }
}

/// One turn: one review at a time, then several in an open loop.
pub(crate) async fn measure(
    stage: &Stage,
    at_once: usize,
    per_second: f64,
) -> anyhow::Result<Value> {
    let ground = &stage.ground;
    let (one, one_cpu) = decisions::counted(ground, stage.paced(1, Pace::Closed)).await?;
    let open = stage.paced(at_once, Pace::Open { per_second });
    let (several, several_cpu) = decisions::counted(ground, open).await?;
    say(&format!(
        "one at a time p50 {} p99 {} ms; {at_once} at {per_second:.0}/s p50 {} p99 {} ms",
        one.latency_ms.p50, one.latency_ms.p99, several.latency_ms.p50, several.latency_ms.p99
    ));
    Ok(json!({
        "one_at_a_time": { "load": one, "cpu_ms_per_decision": one_cpu },
        "open": { "load": several, "cpu_ms_per_decision": several_cpu },
    }))
}

/// All turns of a way, and the median of each percentile over them.
pub(crate) fn medians(turns: &[Value], at_once: usize, per_second: f64) -> Value {
    let latencies = |way: &str| {
        let of = |name: &str| median_of(turns, |turn| &turn[way]["load"]["latency_ms"][name]);
        json!({ "p50": of("p50"), "p99": of("p99"), "p999": of("p999") })
    };
    json!({
        "one_at_a_time": { "load": { "latency_ms": latencies("one_at_a_time") } },
        "open": { "at_once": at_once, "per_second": per_second,
            "load": { "latency_ms": latencies("open") } },
        "turns": turns,
    })
}

/// Both ways, and how many times the first one's p50 and p99 the second one's are.
pub(crate) fn compared([first, second]: &[Value; 2]) -> Value {
    let ratio = |way: &str, percentile: &str| {
        let of = |side: &Value| side[way]["load"]["latency_ms"][percentile].as_f64();
        Some(of(second)? / of(first)?)
    };
    let ratios = |percentile: &str| {
        let of = |way: &str| ratio(way, percentile);
        json!({ "one_at_a_time": of("one_at_a_time"), "open": of("open") })
    };
    json!({ "p50_ratio": ratios("p50"), "p99_ratio": ratios("p99"), "sides": [first, second] })
}

/// The median of a figure over all turns; `None` where a turn lacks it.
pub(crate) fn median_of(turns: &[Value], of: impl Fn(&Value) -> &Value) -> Option<f64> {
    let figures = turns.iter().map(|turn| of(turn).as_f64());
    median(figures.collect::<Option<_>>()?)
}

/// Returns the median; of an even number the lower of the two in the middle; `None` of nothing.
pub(crate) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_disturbed_decides_nothing() {
        let turn = |p99: f64| {
            let load = json!({ "load": { "latency_ms": { "p50": 1.0, "p99": p99, "p999": 9.0 } } });
            json!({ "one_at_a_time": load, "open": load })
        };
        let side = |p99: [f64; 3]| medians(&p99.map(turn), 8, 100.0);
        let of = compared(&[side([2.0, 2.0, 40.0]), side([3.0, 1.0, 900.0])]);
        assert_eq!(of["p99_ratio"]["open"], 1.5);
        assert_eq!(of["sides"][1]["turns"].as_array().unwrap().len(), 3);
        assert_eq!(median(Vec::new()), None);
        let lacking = medians(&[json!({})], 8, 100.0);
        assert!(lacking["open"]["load"]["latency_ms"]["p99"].is_null());
    }
}
