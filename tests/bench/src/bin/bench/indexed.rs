//! The cost of one delta to a replica that keeps indexes for ten expressions, over few objects and over many.

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
    turns,
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

/// The interval at which each expression is asked while deltas arrive: whoever asks brings indexes up to date.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// The factor by which a burst has more deltas a second.
const BURST: u32 = 10;

/// The number of measurements, quiet and busy in turns; the median counts.
const TURNS: u32 = 5;

/// The least time in which deltas arrive, over all turns: their cost is the difference of two sums.
const LASTS_MIN: Duration = Duration::from_secs(10);

/// When no delta came for so long, all that are on their way have come.
const DRAINED_AFTER: Duration = Duration::from_millis(300);

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
            half_have_hosts: false,
            services: 0,
            pods: 0,
            is_encrypted: false,
            manifests,
        };
        let ground = Ground::start(layout, settings).await?;
        synced(&ground, &[INGRESSES]).await?;
        let asker = Asker::new(&ground.nats, INGRESSES.view).await?;
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

/// CPU time for a delta in microseconds, less what the same questions take without deltas: at a rate, and
/// in a burst. Null where no delta came.
async fn measure(
    ground: &Ground,
    changing: &Changing,
    asker: Option<&Asker>,
    per_second: u32,
    settings: &Settings,
) -> anyhow::Result<Value> {
    let whole = match settings.quick {
        true => settings.lasts,
        false => settings.lasts.max(LASTS_MIN),
    };
    let lasts = whole / TURNS;
    let (mut at_rate, mut in_burst, mut quiet) = (Vec::new(), Vec::new(), Vec::new());
    let mut applied = 0.0;
    for _ in 0..TURNS {
        let idle = watch(ground, changing, asker, 0, lasts).await?;
        let busy = watch(ground, changing, asker, per_second, lasts).await?;
        let burst = watch(ground, changing, asker, per_second * BURST, lasts).await?;
        quiet.push(idle.cpu_us / idle.seconds);
        at_rate.extend(busy.each_us_beyond(&idle));
        in_burst.extend(burst.each_us_beyond(&idle));
        applied += busy.applied;
    }
    let rounded = |figures| turns::median(figures).map(|us| (us * 10.0).round() / 10.0);
    Ok(json!({
        "deltas_applied": applied,
        "turns_us": at_rate,
        "quiet_cpu_us_per_second": rounded(quiet),
        "cpu_us_per_delta": rounded(at_rate.clone()),
        "cpu_us_per_delta_in_a_burst": rounded(in_burst),
    }))
}

/// The replica's work over some time.
struct Watched {
    seconds: f64,
    cpu_us: f64,
    applied: f64,
}

impl Watched {
    /// Returns the cost of each delta beyond that of as long a time without deltas. `None`: there was none.
    fn each_us_beyond(&self, idle: &Self) -> Option<f64> {
        let without = idle.cpu_us / idle.seconds * self.seconds;
        (self.applied > 0.0).then(|| (self.cpu_us - without) / self.applied)
    }
}

/// Until all deltas that were made have come.
async fn watch(
    ground: &Ground,
    changing: &Changing,
    asker: Option<&Asker>,
    per_second: u32,
    lasts: Duration,
) -> anyhow::Result<Watched> {
    let (over, drained) = (CancellationToken::new(), CancellationToken::new());
    let (begun, applied_before) = (Instant::now(), applied(ground).await?);
    let cpu_before = cpu_us(ground)?;
    let asking = async {
        let mut ticks = tokio::time::interval(ASKED_EVERY);
        while !drained.is_cancelled() {
            ticks.tick().await;
            ask_all(asker).await?;
        }
        anyhow::Ok(())
    };
    let changes = async {
        let _drained = drained.clone().drop_guard();
        let stop = async {
            tokio::time::sleep(lasts).await;
            over.cancel();
            anyhow::Ok(())
        };
        let made = async {
            match per_second {
                0 => Ok(0),
                rate => changing.go_on(&ground.sim, rate, &over).await,
            }
        };
        tokio::try_join!(stop, made)?;
        let mut seen = applied_before;
        loop {
            tokio::time::sleep(DRAINED_AFTER).await;
            let now = applied(ground).await?;
            if now == seen || per_second == 0 {
                return Ok(now);
            }
            seen = now;
        }
    };
    let ((), applied_after) = tokio::try_join!(asking, changes)?;
    Ok(Watched {
        seconds: begun.elapsed().as_secs_f64(),
        cpu_us: cpu_us(ground)? - cpu_before,
        applied: applied_after - applied_before,
    })
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
    Ok(replica.process.cpu_ns()? as f64 / 1e3)
}
