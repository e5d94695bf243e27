//! The posting itself.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rand::Rng;
use tokio_util::sync::CancellationToken;

use crate::{
    Answer, Client, Expected, Live, Oracle, Report, Target, ingress, report::Outcome,
    review::review,
};

/// After a post that had no answer, so that a dead webhook is not hammered.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(5);

/// How much is posted.
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
        let duplicate = rng.random_bool(plan.duplicate_share.clamp(0.0, 1.0));
        let taken = if duplicate {
            oracle.taken_host(&mut rng)
        } else {
            None
        };
        let uid = format!("{:032x}", rng.random::<u128>());
        let name = format!("load-{}", &uid[..12]);
        (taken.unwrap_or_else(|| oracle.free_host()), uid, name)
    };
    let before = oracle.expected(&host);
    let body = review(&uid, &ingress("load", &name, &host));
    let posted = Instant::now();
    let answer = match client.post(body).await {
        Ok(body) => Answer::parse(&uid, &body),
        Err(error) => Err(format!("{error:#}")),
    };
    let latency = posted.elapsed();
    // Where the cluster changed while the review was under way, either answer is right.
    let expected = (before == oracle.expected(&host)).then_some(before);
    let failed = answer.is_err();
    live.record(judge(answer, expected, &host), latency);
    if failed {
        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
    }
}

fn judge(answer: Result<Answer, String>, expected: Option<Expected>, host: &str) -> Outcome {
    match answer {
        Err(kind) => Outcome::Error { kind },
        Ok(Answer::Failed { message }) => Outcome::Error {
            kind: message.trim().to_owned(),
        },
        Ok(answer) => {
            let wrong = expected.filter(|expected| answer.is_wrong(*expected));
            Outcome::Decided {
                wrong: wrong
                    .map(|expected| format!("{host}: expected {expected:?}, got {answer:?}")),
            }
        }
    }
}
