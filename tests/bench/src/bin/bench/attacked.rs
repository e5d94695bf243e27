//! Decisions while somebody posts reviews that cost much, against the same while nobody does.

use anteroom_e2e::process::Peak;
use anteroom_load::{Client, Target, hostile_ingress, review};
use anyhow::ensure;
use futures::future::try_join_all;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    Settings, ask,
    sides::Side,
    turns::{self, Stage},
};

/// Small reviews at once.
const AT_ONCE: usize = 8;

/// The share of the throughput that is offered: half of the cores are the attacker's.
const FRACTION: f64 = 0.2;

/// Large reviews at once.
const LARGE: usize = 4;

/// Hosts of each, all with wildcards.
const HOSTS: usize = 20_000;

/// Latencies of small reviews, quiet and beside the large ones.
pub(crate) async fn run(
    ingresses: usize,
    manifests: &'static [&'static str],
    settings: &Settings,
) -> anyhow::Result<Value> {
    let side = Side {
        rule: ask::Rule::Host,
        ingresses,
        half_have_hosts: false,
        is_encrypted: false,
        manifests,
    };
    let stage = Stage::start(&side, ingresses, settings).await?;
    let per_second = stage.throughput(AT_ONCE).await? * FRACTION;
    let target = stage.ground.target().await?;
    let mut turns = [Vec::new(), Vec::new()];
    for _ in 0..turns::rounds(settings) {
        for (turns, attackers) in turns.iter_mut().zip([0, LARGE]) {
            let stop = CancellationToken::new();
            let peak = Peak::watch(&stage.ground.system.webhook.process);
            let measured = async {
                let _stop = stop.clone().drop_guard();
                turns::measure(&stage, AT_ONCE, per_second).await
            };
            let attacks = try_join_all((0..attackers).map(|_| attack(&target, &stop)));
            let (mut measured, large) = tokio::try_join!(measured, attacks)?;
            let sum = |of: fn(&Large) -> u64| large.iter().map(of).sum::<u64>();
            measured["large_decided"] = sum(|large| large.decided).into();
            measured["large_refused"] = sum(|large| large.refused).into();
            measured["webhook_peak_bytes"] = peak.bytes().into();
            turns.push(measured);
        }
    }
    stage.ground.end().await?;
    let side = |turns: &[Value]| {
        let mut side = turns::medians(turns, AT_ONCE, per_second);
        for name in ["large_decided", "large_refused", "webhook_peak_bytes"] {
            side[name] = turns::median_of(turns, |turn| &turn[name]).into();
        }
        side
    };
    let [quiet, attacked] = turns;
    Ok(turns::compared(&[side(&quiet), side(&attacked)]))
}

/// The numbers of large reviews decided and refused.
#[derive(Default)]
struct Large {
    decided: u64,
    refused: u64,
}

/// Posts large reviews in sequence, until stopped.
async fn attack(target: &Target, stop: &CancellationToken) -> anyhow::Result<Large> {
    let body = review("00000000-large", &hostile_ingress(HOSTS));
    let mut large = Large::default();
    while !stop.is_cancelled() {
        // A connection of its own, as the API server opens where others are busy.
        let mut client = Client::new(target.clone())?;
        match stop.run_until_cancelled(client.post(body.clone())).await {
            None => break,
            // Other large reviews of the namespace take its part of the memory.
            Some(Ok(answer)) if answer.windows(5).any(|text| text == b"AR208") => {
                large.refused += 1;
            }
            Some(Ok(_)) => large.decided += 1,
            Some(Err(error)) => {
                let message = format!("{error:#}");
                // There was no room for it in time, or no time. Anything else is no attack.
                let is_refused = ["AR205", "no answer"]
                    .iter()
                    .any(|text| message.contains(text));
                ensure!(is_refused, "a large review failed: {message}");
                large.refused += 1;
            }
        }
    }
    Ok(large)
}
