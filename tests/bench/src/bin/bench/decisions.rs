//! Decisions under load: throughput in a closed loop, then latency in an open one below it.

use std::time::Duration;

use anteroom_e2e::wait;
use anteroom_load::{Pace, Paced, PacedReport, Protocol, Questions, Target};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::{Settings, floor::Floor, ground::Ground, peer::Peer, say, spent};

/// The time of posting before anything counts: indexes are made, connections and allocators warm.
const WARM_UP: Duration = Duration::from_secs(1);

/// The time in which answers are looked at to see whether a policy is in force.
const LOOK: Duration = Duration::from_millis(50);

/// The same of another engine, whose every answer may take some hundreds of milliseconds.
const LOOK_AT_A_PEER: Duration = Duration::from_secs(3);

/// The right answers, with no wrong answer and no error beside them, after which an engine counts as ready.
const RIGHT_MIN: u64 = 6;

/// A row of a table: a protocol, and a number of parallel requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) protocol: Protocol,
    pub(crate) at_once: usize,
}

/// The engine whose decisions are measured.
#[derive(Clone, Copy)]
pub(crate) enum Deciding<'a> {
    /// Our own engine.
    Ground(&'a Ground),
    /// The floor.
    Floor(&'a Floor),
    /// Another engine's.
    Peer(&'a Peer),
}

impl Deciding<'_> {
    async fn target(self) -> anyhow::Result<Target> {
        match self {
            Self::Ground(ground) => ground.target().await,
            Self::Floor(floor) => Ok(floor.target().clone()),
            Self::Peer(peer) => Ok(peer.target().clone()),
        }
    }

    /// For how long answers are looked at to see whether a policy is in force.
    fn look(self) -> Duration {
        match self {
            Self::Ground(_) | Self::Floor(_) => LOOK,
            Self::Peer(_) => LOOK_AT_A_PEER,
        }
    }

    async fn counted(self, paced: Paced) -> anyhow::Result<(PacedReport, Value)> {
        match self {
            Self::Ground(ground) => counted(ground, paced).await,
            Self::Floor(floor) => floor.counted(paced).await,
            Self::Peer(peer) => peer.counted(paced).await,
        }
    }

    /// Returns the name of the CPU time of a whole decision.
    fn whole(self) -> &'static str {
        match self {
            Self::Ground(_) => "webhook_replica_nats",
            Self::Floor(_) | Self::Peer(_) => "together",
        }
    }
}

/// HTTP/1.1 and HTTP/2, one at a time and more.
pub(crate) fn rows(settings: &Settings, usual: &[usize]) -> Vec<Row> {
    let at_once = match settings.at_once.is_empty() {
        true => usual,
        false => &settings.at_once,
    };
    let of = |protocol| move |&at_once: &usize| Row { protocol, at_once };
    let http1 = at_once.iter().map(of(Protocol::Http1));
    http1
        .chain(at_once.iter().map(of(Protocol::Http2)))
        .collect()
}

/// Runs on a thread that may block.
pub(crate) async fn run(paced: Paced) -> anyhow::Result<PacedReport> {
    tokio::task::spawn_blocking(move || paced.run())
        .await
        .context("the load ended badly")?
}

/// Waits until all answers are right, each sort of question asked as often as the others: then the
/// policies are in force, and nothing is measured that is not the real thing.
pub(crate) async fn in_force(of: Deciding<'_>, questions: &Questions) -> anyhow::Result<()> {
    let mut questions = questions.clone();
    for case in &mut questions.cases {
        case.weight = 1;
    }
    let look = Paced {
        target: of.target().await?,
        protocol: Protocol::Http1,
        at_once: 1,
        pace: Pace::Closed,
        lasts: of.look(),
        questions,
    };
    wait::until("the policies to be in force", async || {
        let report = run(look.clone()).await?;
        let right = report.decisions - report.wrong;
        ensure!(
            right >= RIGHT_MIN && report.wrong == 0 && report.errors == 0,
            "{report:?}"
        );
        anyhow::Ok(())
    })
    .await
}

/// One row, measured both ways: in the open loop at this rate, or at the settings' share of the throughput.
pub(crate) async fn measure(
    of: Deciding<'_>,
    row: Row,
    per_second: Option<f64>,
    questions: &Questions,
    settings: &Settings,
) -> anyhow::Result<Value> {
    let target = of.target().await?;
    let paced = |pace, lasts| Paced {
        target: target.clone(),
        protocol: row.protocol,
        at_once: row.at_once,
        pace,
        lasts,
        questions: questions.clone(),
    };
    run(paced(Pace::Closed, WARM_UP.min(settings.lasts))).await?;
    let (closed, closed_cpu) = of.counted(paced(Pace::Closed, settings.lasts)).await?;
    let per_second = per_second.unwrap_or(closed.decisions_per_second * settings.fraction);
    ensure!(per_second > 0.0, "no decision at all: {closed:?}");
    let open = paced(Pace::Open { per_second }, settings.lasts);
    let (open, open_cpu) = of.counted(open).await?;
    let protocol = match row.protocol {
        Protocol::Http1 => "HTTP/1.1",
        Protocol::Http2 => "HTTP/2",
    };
    let latency = |report: &PacedReport| {
        let ms = &report.latency_ms;
        format!(
            "p50 {} p99 {} p99.9 {} max {} ms",
            ms.p50, ms.p99, ms.p999, ms.max
        )
    };
    say(&format!(
        "{protocol}, {} at once: {:.0}/s, {}; at {per_second:.0}/s: {}; CPU {} ms, generator {:.3} ms",
        row.at_once,
        closed.decisions_per_second,
        latency(&closed),
        latency(&open),
        closed_cpu[of.whole()],
        closed.generator_cpu_ms,
    ));
    Ok(json!({
        "protocol": protocol,
        "at_once": row.at_once,
        "closed": { "load": closed, "cpu_ms_per_decision": closed_cpu },
        "open": { "per_second": per_second, "load": open, "cpu_ms_per_decision": open_cpu },
    }))
}

/// Makes a run; returns its report, with each process's CPU time and allocations per decision.
pub(crate) async fn counted(ground: &Ground, paced: Paced) -> anyhow::Result<(PacedReport, Value)> {
    let uncounted = paced.uncounted();
    let allocated = spent::allocated(ground).await?;
    let before = spent::cpu(ground)?;
    let report = run(paced).await?;
    let all = report.decisions + uncounted;
    let mut each = spent::cpu_each(&before, &spent::cpu(ground)?, all);
    let now = spent::allocated(ground).await?;
    each["allocated"] = spent::allocated_each(&allocated, &now, all);
    Ok((report, each))
}

/// Makes a run; returns its report, with the CPU time per decision of processes that are all a decision's own.
pub(crate) async fn counted_of_all(
    processes: &[(&str, u32)],
    paced: Paced,
) -> anyhow::Result<(PacedReport, Value)> {
    let uncounted = paced.uncounted();
    let before = spent::cpu_of(processes.iter().copied())?;
    let report = run(paced).await?;
    let now = spent::cpu_of(processes.iter().copied())?;
    let each = spent::cpu_each_of_all(&before, &now, report.decisions + uncounted);
    Ok((report, each))
}

/// Says of every run in a scenario's result what makes it worthless.
pub(crate) fn collect_faults(at: &str, value: &Value, bad: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let count = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap_or_default();
            let (wrong, errors, unsent) = (count("wrong"), count("errors"), count("unsent"));
            if wrong + errors + unsent > 0 {
                let examples = [&fields["wrong_examples"], &fields["error_kinds"]];
                bad.push(format!(
                    "{at}: {wrong} wrong, {errors} errors, {unsent} never sent: {examples:?}"
                ));
            }
            for (name, value) in fields {
                collect_faults(&format!("{at}/{name}"), value, bad);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_faults(&format!("{at}/{index}"), item, bad);
            }
        }
        _ => {}
    }
}
