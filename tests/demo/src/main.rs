//! A whole system under load in one process, measured: what README's first command runs.

mod cluster;
mod show;
mod system;

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_command::output::{Output, quiet};
use anteroom_load::{Live, Plan, Report, Stop};
use anteroom_runtime::{Service, telemetry::TelemetryArgs};
use anyhow::bail;
use clap::Parser;
use tokio_util::sync::CancellationToken;

use show::{Show, Summary};
use system::Freshness;

/// The longest that everything may take to be synced and enforced.
const START_PATIENCE: Duration = Duration::from_secs(120);

/// Trials of the freshness measurement.
const FRESHNESS_TRIALS: usize = 10;

/// Runs everything in one process under load, and shows decisions, latencies and memory.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "anteroom-demo",
    version,
    after_help = "Examples:\n  \
    anteroom-demo                      until Ctrl-C, a line a second\n  \
    anteroom-demo --once -o json       a bounded run, one JSON object\n  \
    anteroom-demo --objects 40000      a larger cluster\n  \
    anteroom-demo --nats nats://127.0.0.1:4222 --kubeconfig kubeconfig   on real parts\n\n\
    Exit codes: 0 all decisions were right, 1 some were wrong or none was made, 2 wrong usage."
)]
struct DemoArgs {
    /// Stop after a bounded run, with a summary.
    #[arg(long)]
    once: bool,

    /// The format of the summary.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,

    /// Objects in the cluster: four Services for every three Ingresses.
    #[arg(long, default_value_t = 7_000, value_parser = clap::value_parser!(u32).range(7..=1_000_000))]
    objects: u32,

    /// Reviews in flight in the second part; the first part sends one at a time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,

    /// The seconds that each of the two parts lasts, with --once.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Use this NATS (with JetStream) instead of the in-process bus.
    #[arg(long, value_name = "URL")]
    nats: Option<String>,

    /// Use the API server of this kubeconfig instead of the simulated one. The demo creates a
    /// namespace `anteroom-demo`, an entry and a policy there, and removes them at the end. It does
    /// not register its webhook, so it decides no requests of others.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<std::path::PathBuf>,

    /// Serve the console's pages on this loopback address, as in `127.0.0.1:8700`.
    #[arg(long, value_name = "ADDRESS")]
    console: Option<std::net::SocketAddr>,

    #[command(flatten)]
    telemetry: TelemetryArgs,
}

fn main() -> ExitCode {
    let args = DemoArgs::parse();
    // Its parts wait for each other at first, and say so.
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

/// Starts the system, drives it, and stops it; `None` if it was interrupted before the load began.
async fn with_system(
    args: &DemoArgs,
    cluster: &cluster::Cluster,
    stopped: &CancellationToken,
    show: &Show,
) -> anyhow::Result<Option<Summary>> {
    // A life of its own: the first Ctrl-C ends the load, and then the system.
    let system = system::System::start(args, cluster).await?;
    let outcome = match prepare(cluster, &system, stopped, show).await {
        Ok(Some(freshness)) => drive(args, cluster, &system, freshness, stopped, show)
            .await
            .map(Some),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    let ended = system.stop().await;
    let outcome = outcome?;
    ended?;
    Ok(outcome)
}

/// Waits until the policy is enforced, and measures how fresh its facts are.
async fn prepare(
    cluster: &cluster::Cluster,
    system: &system::System,
    stopped: &CancellationToken,
    show: &Show,
) -> anyhow::Result<Option<Freshness>> {
    let preparation = async {
        let started = Instant::now();
        cluster.install().await?;
        system.enforced(START_PATIENCE, cluster).await?;
        let enforced_ms = started.elapsed().as_secs_f64() * 1000.0;
        show.step(&format!(
            "enforced {enforced_ms:.0} ms after entry and policy were created"
        ));
        system.freshness(cluster, FRESHNESS_TRIALS).await
    };
    tokio::select! {
        freshness = preparation => freshness.map(Some),
        () = stopped.cancelled() => Ok(None),
    }
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
        duplicate_share: 0.1,
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_option_is_documented() {
        DemoArgs::command().debug_assert();
        let page = include_str!("../../../docs/options.md");
        let missing = anteroom_runtime::testing::undocumented(&DemoArgs::command(), page);
        assert!(missing.is_empty(), "not in docs/options.md: {missing:#?}");
    }
}
