//! The posting itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use rand::Rng;
use tokio_util::sync::CancellationToken;

use crate::{
    Answer, Client, Expected, Live, Oracle, Report, Target, ingress, report::Outcome,
    review::review,
};

/// After a post that had no answer, so that a dead webhook is not hammered.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(5);

/// The amount of reviews that are posted.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Posts in flight, each on a connection of its own.
    pub concurrency: usize,
    /// The share of reviews whose host is taken, from 0 to 1.
    pub duplicate_share: f64,
    /// When the run ends.
    pub stop: Stop,
}

/// When a run ends.
#[derive(Clone, Debug)]
pub enum Stop {
    /// After this many posts.
    Posts(u64),
    /// After this long.
    After(Duration),
    /// When cancelled.
    Cancelled(CancellationToken),
}

/// Posts reviews as planned; `live` may be read meanwhile.
pub async fn run(
    target: Target,
    plan: Plan,
    oracle: Arc<Oracle>,
    live: Arc<Live>,
) -> anyhow::Result<Report> {
    let posted = Arc::new(AtomicU64::new(0));
    let started = Instant::now();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..plan.concurrency {
        let mut client = Client::new(target.clone())?;
        let (plan, oracle, live, posted) =
            (plan.clone(), oracle.clone(), live.clone(), posted.clone());
        workers.spawn(async move {
            while !ended(&plan.stop, started, &posted) {
                one(&mut client, &plan, &oracle, &live).await;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker?;
    }
    Ok(live.report())
}

fn ended(stop: &Stop, started: Instant, posted: &AtomicU64) -> bool {
    match stop {
        Stop::Posts(posts) => posted.fetch_add(1, Ordering::Relaxed) >= *posts,
        Stop::After(duration) => started.elapsed() >= *duration,
        Stop::Cancelled(token) => token.is_cancelled(),
    }
}

async fn one(client: &mut Client, plan: &Plan, oracle: &Oracle, live: &Live) {
    let (host, uid, name) = {
        let mut rng = rand::rng();
        let uid = format!("{:032x}", rng.random::<u128>());
        let name = format!("load-{}", &uid[..12]);
        (pick_host(plan, oracle, &mut rng), uid, name)
    };
    let before = oracle.standing(&host);
    let body = review(&uid, &ingress("load", &name, &host));
    let posted = Instant::now();
    let body = client.post(body).await.map_err(|e| format!("{e:#}"));
    let latency = posted.elapsed();
    // Where the cluster changed while the review was under way, either answer is right.
    let unchanged = before == oracle.standing(&host);
    let expected = before.expected.filter(|_| unchanged);
    let outcome = judge(&uid, body, expected, &host, live.elapsed());
    let failed = matches!(outcome, Outcome::Error { .. });
    live.record(outcome, latency);
    if failed {
        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
    }
}

/// Free hosts are new ones, and where there are some, half of them such that were taken once.
fn pick_host(plan: &Plan, oracle: &Oracle, rng: &mut impl Rng) -> String {
    let picked = if rng.random_bool(plan.duplicate_share.clamp(0.0, 1.0)) {
        oracle.taken_host(rng)
    } else if rng.random_bool(0.5) {
        oracle.freed_host(rng)
    } else {
        None
    };
    picked.unwrap_or_else(|| oracle.free_host())
}

fn judge(
    uid: &str,
    body: Result<Bytes, String>,
    expected: Option<Expected>,
    host: &str,
    at: Duration,
) -> Outcome {
    let body = match body {
        Ok(body) => body,
        Err(kind) => return Outcome::Error { kind },
    };
    let answer = match Answer::parse(uid, &body) {
        Err(kind) => return Outcome::Error { kind },
        Ok(Answer::Failed { message }) => {
            // The first line names the object, which differs each time.
            let kind = message.trim().lines().last().unwrap_or_default().trim();
            let kind = kind.to_owned();
            return Outcome::Error { kind };
        }
        Ok(answer) => answer,
    };
    let wrong = expected.filter(|expected| answer.is_wrong(*expected));
    Outcome::Decided {
        wrong: wrong.map(|expected| {
            // The whole answer is printed, since its annotations name the facts behind the decision.
            let body = String::from_utf8_lossy(&body);
            let at_s = at.as_secs_f64();
            format!("{host}, at {at_s:.3} s: expected {expected:?}, got {answer:?}: {body}")
        }),
    }
}
