//! A whole system under load in one process, measured: what README's first command runs.

mod args;
mod cluster;
mod page;
mod show;
mod system;
mod tour;

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_command::output::quiet;
use anteroom_load::{Live, Plan, Report, Stop};
use anteroom_runtime::Service;
use anyhow::bail;
use clap::Parser as _;
use tokio_util::sync::CancellationToken;

use args::{DUPLICATE_SHARE, DemoArgs};
use show::{Show, Summary};
use system::Freshness;
use tour::{Tour, Transcript};

/// The longest that everything may take to be synced and enforced.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// Trials of the freshness measurement.
const FRESHNESS_TRIALS: usize = 10;

fn main() -> ExitCode {
    let args = DemoArgs::parse();
    // At first the parts wait for each other and would log warnings, so only errors are logged.
    let process = quiet(&args.telemetry, "error");
    anteroom_runtime::process::run("anteroom-demo", &process, |service| run(args, service))
}

async fn run(args: DemoArgs, service: Service) -> anyhow::Result<()> {
    let show = Show::new(args.output);
    let stopped = service.shutdown.token();
    let cluster = cluster::Cluster::start(&args, &show).await?;
    let outcome = with_system(&args, &cluster, &stopped, &show).await;
    // Whatever came of it, a real cluster is left as it was found.
    let cleaned = cluster.clean_up().await;
    let Some(summary) = outcome? else {
        return cleaned;
    };
    cleaned?;
    show.summary(&summary)?;
    if summary.wrong > 0 || summary.decisions == 0 || summary.errors > 0 {
        bail!(
            "{} of {} decisions were wrong, {} reviews had no decision",
            summary.wrong,
            summary.decisions,
            summary.errors
        );
    }
    Ok(())
}

/// Starts the system, shows what it does, and stops it; `None` where nothing was measured.
async fn with_system(
    args: &DemoArgs,
    cluster: &cluster::Cluster,
    stopped: &CancellationToken,
    show: &Show,
) -> anyhow::Result<Option<Summary>> {
    // A life of its own: the first Ctrl-C ends the load, and then the system.
    let system = system::System::start(args, cluster).await?;
    let outcome = match prepare(cluster, &system, stopped, show).await {
        Ok(true) => show_off(args, cluster, &system, stopped, show).await,
        Ok(false) => Ok(None),
        Err(error) => Err(error),
    };
    let ended = system.stop().await;
    let outcome = outcome?;
    ended?;
    Ok(outcome)
}

/// Waits until the policy is enforced; false if the demo was stopped before.
async fn prepare(
    cluster: &cluster::Cluster,
    system: &system::System,
    stopped: &CancellationToken,
    show: &Show,
) -> anyhow::Result<bool> {
    let preparation = async {
        let started = Instant::now();
        cluster.install().await?;
        system.enforced(START_PATIENCE, cluster).await?;
        let enforced_ms = started.elapsed().as_secs_f64() * 1000.0;
        show.step(&format!(
            "enforced {enforced_ms:.0} ms after entry and policy were created"
        ));
        anyhow::Ok(())
    };
    match stopped.run_until_cancelled(preparation).await {
        Some(prepared) => prepared.map(|()| true),
        None => Ok(false),
    }
}

/// Plays the tour, runs the page, or measures, as the options ask for it; `None` where nothing is measured.
async fn show_off(
    args: &DemoArgs,
    cluster: &cluster::Cluster,
    system: &system::System,
    stopped: &CancellationToken,
    show: &Show,
) -> anyhow::Result<Option<Summary>> {
    if args.tour {
        let transcript = Transcript::new(true);
        let tour = Tour::new(cluster, system, &transcript);
        let played = stopped.run_until_cancelled(tour.play_all()).await;
        played.unwrap_or(Ok(()))?;
        if args.once {
            return Ok(None);
        }
    }
    if args.has_page() {
        page::run(args, cluster, system, stopped, show).await?;
        return Ok(None);
    }
    let freshness = system.freshness(cluster, FRESHNESS_TRIALS);
    let Some(freshness) = stopped.run_until_cancelled(freshness).await else {
        return Ok(None);
    };
    let measured = drive(args, cluster, system, freshness?, stopped, show);
    measured.await.map(Some)
}

async fn drive(
    args: &DemoArgs,
    cluster: &cluster::Cluster,
    system: &system::System,
    freshness: Freshness,
    stopped: &CancellationToken,
    show: &Show,
) -> anyhow::Result<Summary> {
    let part = Duration::from_secs(args.seconds);
    show.step("reviews, one at a time");
    let single = load(cluster, system, show, 1, Stop::After(part)).await?;
    show.step(&format!("reviews, {} at a time", args.concurrency));
    let stop = if args.once {
        Stop::After(part)
    } else {
        Stop::Cancelled(stopped.clone())
    };
    let concurrent = load(cluster, system, show, args.concurrency.into(), stop).await?;
    let state = system.state(cluster);
    Ok(Summary::new(
        &state,
        &single,
        &concurrent,
        args.concurrency,
        freshness,
    ))
}

async fn load(
    cluster: &cluster::Cluster,
    system: &system::System,
    show: &Show,
    concurrency: usize,
    stop: Stop,
) -> anyhow::Result<Report> {
    /// The interval at which the numbers are shown.
    const SHOW_INTERVAL: Duration = Duration::from_secs(1);

    let live = Arc::new(Live::default());
    let plan = Plan {
        concurrency,
        duplicate_share: DUPLICATE_SHARE,
        stop,
    };
    let run = anteroom_load::run(system.target(), plan, cluster.oracle(), live.clone());
    tokio::pin!(run);
    let mut interval = tokio::time::interval(SHOW_INTERVAL);
    interval.tick().await;
    loop {
        tokio::select! {
            report = &mut run => return report,
            _ = interval.tick() => show.live(&live.report(), &system.state(cluster)),
        }
    }
}
