//! What one delta costs a replica that keeps indexes for ten expressions, over few objects and over many.

use std::time::{Duration, Instant};

use anteroom_e2e::wait;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    Settings,
    asked::Asker,
    beside::applied,
    deltas::Changing,
    ground::{Ground, Layout},
    say,
    size::{INGRESSES, synced},
};

/// Each is over all Ingresses, and looks for few of them by something else.
const EXPRESSIONS: [&str; 10] = [
    "items[?metadata.name == $p].metadata.namespace",
    "items[?metadata.uid == $p].metadata.name",
    "items[?spec.rules[0].host == $p].metadata.name",
    "items[?contains(spec.rules[].host, $p)].metadata.name",
    "items[?contains(spec.tls[].hosts[], $p)].metadata.name",
    "items[?spec.tls[0].secretName == $p].metadata.name",
    "items[?metadata.labels.\"app.kubernetes.io/instance\" == $p].metadata.name",
    "items[?metadata.annotations.\"example.com/revision\" == $p].metadata.name",
    "items[?metadata.annotations.\"example.com/runbook\" == $p].metadata.name",
    "items[?spec.rules[0].http.paths[0].backend.service.name == $p].metadata.name",
];

/// Ingresses that change, in turn.
const CHANGING: usize = 500;

/// How often each expression is asked while deltas arrive: whoever asks brings indexes up to date.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// Deltas made at once, as fast as they can be made.
const BURST: u64 = 5_000;

/// CPU time of the replica for a delta, with and without indexes.
pub(crate) async fn run(
    sizes: [usize; 2],
    deltas_per_second: u32,
    manifests: &'static [&'static str],
    settings: &Settings,
) -> anyhow::Result<Value> {
    let mut sides = Vec::new();
    for ingresses in sizes {
        let layout = Layout {
            ingresses,
            services: 0,
            pods: 0,
            manifests,
        };
        let ground = Ground::start(layout, settings).await?;
        synced(&ground, &[INGRESSES]).await?;
        let asker = Asker::new(&ground, INGRESSES.view).await?;
        let changing = Changing::new(ingresses - CHANGING, CHANGING);
        let without = measure(&ground, &changing, None, deltas_per_second, settings).await?;
        let indexes = made(&ground, &asker).await?;
        let with = measure(
            &ground,
            &changing,
            Some(&asker),
            deltas_per_second,
            settings,
        )
        .await?;
        say(&format!(
            "{ingresses} Ingresses: {indexes} indexes; without {without}, with {with}"
        ));
        sides.push(json!({ "ingresses": ingresses, "indexes": indexes,
            "without_indexes": without, "with_indexes": with }));
        ground.end().await?;
    }
    Ok(json!({ "sides": sides }))
}

/// Asks all until the replica has an index for each, or no more come; says how many it has.
async fn made(ground: &Ground, asker: &Asker) -> anyhow::Result<f64> {
    let replica = ground.system.replicas[0].as_ref().context("no replica")?;
    let asked = wait::until("indexes for all expressions", async || {
        for expression in EXPRESSIONS {
            asker.ask(expression, json!("nobody")).await?;
        }
        let indexes = replica.metric("anteroom_view_indexes", &[]).await?;
        ensure!(indexes >= EXPRESSIONS.len() as f64, "{indexes} indexes");
        anyhow::Ok(indexes)
    });
    // Some expressions may share an index, and then this many never come.
    match tokio::time::timeout(Duration::from_secs(10), asked).await {
        Ok(indexes) => indexes,
        Err(_elapsed) => replica.metric("anteroom_view_indexes", &[]).await,
    }
}

/// CPU time for a delta in microseconds: at a rate, less what the same questions take without deltas;
/// and in a burst.
async fn measure(
    ground: &Ground,
    changing: &Changing,
    asker: Option<&Asker>,
    per_second: u32,
    settings: &Settings,
) -> anyhow::Result<Value> {
    let idle = watch(ground, changing, asker, 0, settings.lasts).await?;
    let busy = watch(ground, changing, asker, per_second, settings.lasts).await?;
    let idle_us_per_second = idle.cpu_us / idle.seconds;
    let at_rate = (busy.cpu_us - idle_us_per_second * busy.seconds) / busy.applied.max(1.0);
    let burst = burst(ground, changing, asker).await?;
    Ok(json!({
        "deltas_per_second": busy.applied / busy.seconds,
        "cpu_us_per_delta": at_rate.round(),
        "cpu_us_per_delta_in_a_burst": burst.round(),
    }))
}

struct Watched {
    seconds: f64,
    cpu_us: f64,
    applied: f64,
}

async fn watch(
    ground: &Ground,
    changing: &Changing,
    asker: Option<&Asker>,
    per_second: u32,
    lasts: Duration,
) -> anyhow::Result<Watched> {
    let stop = CancellationToken::new();
    let begun = (Instant::now(), cpu_us(ground)?, applied(ground).await?);
    let asking = async {
        let _stop = stop.clone().drop_guard();
        let mut ticks = tokio::time::interval(ASKED_EVERY);
        while begun.0.elapsed() < lasts {
            ticks.tick().await;
            ask_all(asker).await?;
        }
        anyhow::Ok(())
    };
    let changes = async {
        match per_second {
            0 => Ok(0),
            rate => changing.go_on(&ground.sim, rate, &stop).await,
        }
    };
    tokio::try_join!(asking, changes)?;
    Ok(Watched {
        seconds: begun.0.elapsed().as_secs_f64(),
        cpu_us: cpu_us(ground)? - begun.1,
        applied: applied(ground).await? - begun.2,
    })
}

async fn burst(ground: &Ground, changing: &Changing, asker: Option<&Asker>) -> anyhow::Result<f64> {
    let (cpu, before) = (cpu_us(ground)?, applied(ground).await?);
    for turn in 0..BURST {
        changing.make(&ground.sim, turn)?;
        if turn % 64 == 0 {
            // The simulator's own tasks serve the watch.
            tokio::task::yield_now().await;
        }
    }
    // Deltas of one object are put together on the way: it is over when no more come.
    let mut seen = before;
    loop {
        tokio::time::sleep(Duration::from_millis(300)).await;
        ask_all(asker).await?;
        let now = applied(ground).await?;
        if now == seen && now > before {
            break;
        }
        seen = now;
    }
    Ok((cpu_us(ground)? - cpu) / (seen - before).max(1.0))
}

async fn ask_all(asker: Option<&Asker>) -> anyhow::Result<()> {
    if let Some(asker) = asker {
        for expression in EXPRESSIONS {
            asker.ask(expression, json!("nobody")).await?;
        }
    }
    Ok(())
}

fn cpu_us(ground: &Ground) -> anyhow::Result<f64> {
    let replica = ground.system.replicas[0].as_ref().context("no replica")?;
    Ok(replica.process.cpu_ms()? * 1e3)
}
