//! `anteroom check`: facts about an installation, and what to do about those that are not as they should be.
//!
//! | module | content |
//! |---|---|
//! | `cluster` | what the API server says, asked once for all checks |
//! | `finding` | what a check finds |
//! | `before`, `running` | the checks: pure functions of what was asked |
//! | `report` | text and JSON |

mod before;
mod cluster;
mod finding;
mod report;
mod running;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anteroom_runtime::{kubernetes::KubernetesArgs, telemetry::TelemetryArgs};
use anyhow::bail;
use clap::Args;

use self::{cluster::Cluster, finding::Check, report::Report};
use crate::output::{Output, print, warn};

/// The interval between two looks with `--wait`.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The exit code where nothing could be asked.
const EXIT_NOTHING_ASKED: u8 = 3;

#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Check an installation.\n\n\
        Asks the API server by your own rights, changes nothing, and says what to do about each fact that is not as it should be. \
        What you may not read is not asked.",
    after_help = "Examples:\n  \
        anteroom check --pre                       before an installation\n  \
        anteroom check                             after it, or when something is wrong\n  \
        anteroom check --wait 2m -o json           in a pipeline\n  \
        anteroom check --only policies\n\n\
        Exit codes: 0 nothing failed, 1 a check failed, 2 wrong usage, 3 nothing could be asked."
)]
pub(crate) struct CheckArgs {
    /// Check a cluster before an installation.
    #[arg(long)]
    pre: bool,

    /// Make only the checks of this category, as in `policies`.
    #[arg(long, value_name = "CATEGORY")]
    only: Option<String>,

    /// Wait for so long, as in `2m`, until nothing fails.
    #[arg(long, value_name = "TIME", value_parser = anteroom_runtime::units::duration)]
    wait: Option<Duration>,

    /// The namespace of the installation.
    #[arg(long, default_value = "anteroom")]
    namespace: String,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,

    #[command(flatten)]
    kubernetes: KubernetesArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// The categories of checks, in the order in which one stands on the other.
const CATEGORIES: [&str; 7] = [
    "kubernetes",
    "pre",
    "definitions",
    "parts",
    "webhooks",
    "policies",
    "entries",
];

/// Returns the checks of a run, by their categories.
fn checks(pre: bool) -> Vec<Check> {
    let running = if pre { &[][..] } else { &running::CHECKS };
    let before = before::CHECKS.iter().filter(|check| pre || !check.is_pre);
    let all = || before.clone().chain(running).copied();
    let of = |category| all().filter(move |check| check.category == category);
    CATEGORIES.into_iter().flat_map(of).collect()
}

/// Runs `anteroom check`.
pub(crate) async fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let mut checks = checks(args.pre);
    if let Some(only) = &args.only {
        checks.retain(|check| check.category == only);
        if checks.is_empty() {
            bail!("no checks of {only}: there are {}", CATEGORIES.join(", "));
        }
    }
    let client = args.kubernetes.client().await?;
    let begun = Instant::now();
    loop {
        let cluster = match Cluster::ask(&client, &args.namespace).await {
            Ok(cluster) => cluster,
            Err(error) if is_over(begun, args.wait) => {
                warn(&format!("nothing could be asked: {error:#}"));
                return Ok(ExitCode::from(EXIT_NOTHING_ASKED));
            }
            Err(_) => {
                tokio::time::sleep(LOOK_INTERVAL).await;
                continue;
            }
        };
        let report = Report::new(&checks, &cluster);
        if report.is_success() || is_over(begun, args.wait) {
            print(&report.show(args.output)?)?;
            return Ok(match report.is_success() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            });
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn is_over(begun: Instant, wait: Option<Duration>) -> bool {
    begun.elapsed() >= wait.unwrap_or_default()
}

#[cfg(test)]
mod tests;
