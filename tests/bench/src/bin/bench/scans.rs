//! Indexed decisions while long scans go on at the same replica, against the same without.

use std::time::Instant;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    Settings, ask,
    asked::Asker,
    say,
    sides::Side,
    size::INGRESSES,
    turns::{self, Stage},
};

/// Reviews at once.
const AT_ONCE: usize = 8;

/// The share of the throughput that is offered: scans take a core.
const FRACTION: f64 = 0.3;

/// Scans under way at once.
const SCANS: usize = 2;

/// No index can narrow it, and a parameter of its own each time: nothing that is remembered answers it.
const SCAN: &str =
    "items[?ends_with(metadata.name, $p) && !contains(keys(spec), $p)].metadata.name";

/// Latencies quiet and beside scans over `ingresses` Ingresses.
pub(crate) async fn run(
    ingresses: usize,
    manifests: &'static [&'static str],
    settings: &Settings,
) -> anyhow::Result<Value> {
    let side = Side {
        rule: ask::Rule::HostAndPath,
        ingresses,
        half_have_hosts: false,
        is_encrypted: false,
        manifests,
    };
    let stage = Stage::start(&side, ingresses, settings).await?;
    let asker = Asker::new(&stage.ground.nats, INGRESSES.view).await?;
    let per_second = stage.throughput(AT_ONCE).await? * FRACTION;
    let mut turns = [Vec::new(), Vec::new()];
    for round in 0..turns::rounds(settings) {
        for (turns, at_once) in turns.iter_mut().zip([0, SCANS]) {
            let stop = CancellationToken::new();
            let measured = async {
                let _stop = stop.clone().drop_guard();
                turns::measure(&stage, AT_ONCE, per_second).await
            };
            let scanning = (0..at_once).map(|at| go_on(&asker, format!("{round}-{at}"), &stop));
            let started = Instant::now();
            let scanning = futures::future::try_join_all(scanning);
            let (mut measured, scanned) = tokio::try_join!(measured, scanning)?;
            let seconds = started.elapsed().as_secs_f64();
            let scanned: u64 = scanned.iter().sum();
            measured["scans_per_second"] = (scanned as f64 / seconds).into();
            turns.push(measured);
        }
    }
    stage.ground.end().await?;
    let [quiet, busy] = turns;
    let side = |turns: &[Value]| {
        let mut side = turns::medians(turns, AT_ONCE, per_second);
        let scans = turns::median_of(turns, |turn| &turn["scans_per_second"]);
        side["scans_per_second"] = scans.into();
        side
    };
    let (quiet, busy) = (side(&quiet), side(&busy));
    say(&format!("{} scans a second", busy["scans_per_second"]));
    let mut result = turns::compared(&[quiet, busy]);
    result["ingresses"] = ingresses.into();
    Ok(result)
}

/// One scan after another until cancelled; says how many were answered.
async fn go_on(asker: &Asker, name: String, until: &CancellationToken) -> anyhow::Result<u64> {
    let mut scanned = 0;
    while !until.is_cancelled() {
        asker
            .ask(SCAN, json!(format!("nobody-{name}-{scanned}")))
            .await?;
        scanned += 1;
    }
    Ok(scanned)
}
