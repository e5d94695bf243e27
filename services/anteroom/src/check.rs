//! `anteroom check`: facts about an installation, and what to do about those that are not as they should be.
//!
//! | module | content |
//! |---|---|
//! | `cluster` | what the API server says, asked once for all checks |
//! | `nats` | what is heard over NATS |
//! | `finding` | what a check finds |
//! | `before`, `running`, `system` | the checks: pure functions of what was asked |
//! | `report` | text and JSON |

mod before;
mod cluster;
mod finding;
mod nats;
mod report;
mod running;
mod system;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anteroom_bus::nats::NatsArgs;
use anteroom_runtime::{kubernetes::KubernetesArgs, telemetry::TelemetryArgs};
use anyhow::anyhow;
use clap::Args;
use serde_json::Value;

pub(crate) use self::nats::NatsMessages;
use self::{
    cluster::Cluster,
    finding::{Check, Finding},
    report::Report,
};
use crate::output::{Output, failed, input_error, print};

/// The interval between two looks with `--wait`.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The exit code where no check is of the category that is asked for.
const EXIT_WRONG_USAGE: u8 = 2;

/// The exit code where nothing could be asked.
const EXIT_NOTHING_ASKED: u8 = 3;

#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Check an installation.\n\n\
        Asks the API server by your own rights, changes nothing, and says what to do about each fact that is not as it should be. \
        What you may not read is not asked. Given the operator's login to NATS, it listens for 3 seconds as well.",
    after_help = "Examples:\n  \
        anteroom check --pre                       before an installation\n  \
        anteroom check                             after it, or when something is wrong\n  \
        anteroom check --wait 2m -o json           in a pipeline\n  \
        anteroom check --only policies\n  \
        anteroom check --nats-url tls://localhost:4222 --nats-nkey-file seed --nats-ca-file ca.crt\n\n\
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
    nats: NatsArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// The categories of checks, in the order in which one stands on the other.
const CATEGORIES: [&str; 12] = [
    "kubernetes",
    "pre",
    "definitions",
    "parts",
    "nats",
    "watchers",
    "views",
    "webhooks",
    "policies",
    "entries",
    "decisions",
    "reports",
];

/// Returns the checks of a run, by their categories.
fn checks(pre: bool) -> Vec<Check> {
    let (running, system) = match pre {
        true => (&[][..], &[][..]),
        false => (&running::CHECKS[..], &system::CHECKS[..]),
    };
    let before = before::CHECKS.iter().filter(|check| pre || !check.is_pre);
    let all = || before.clone().chain(running).chain(system).copied();
    let of = |category| all().filter(move |check| check.category == category);
    CATEGORIES.into_iter().flat_map(of).collect()
}

/// The reason of [`EXIT_NOTHING_ASKED`], for people.
const UNREACHED: &str = "nothing could be asked";

/// Runs `anteroom check`.
pub(crate) async fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let is_json = args.output == Output::Json;
    let mut checks = checks(args.pre);
    if let Some(only) = &args.only {
        let mut categories: Vec<_> = checks.iter().map(|check| check.category).collect();
        categories.dedup();
        checks.retain(|check| check.category == only);
        if checks.is_empty() {
            let error = anyhow!("no checks of {only}: there are {}", categories.join(", "));
            return Ok(failed(is_json, input_error(error), EXIT_WRONG_USAGE));
        }
    }
    let client = match args.kubernetes.client().await {
        Ok(client) => client,
        Err(error) => return Ok(failed(is_json, error, EXIT_NOTHING_ASKED)),
    };
    let begun = Instant::now();
    loop {
        let looked = look(&client, &args.namespace, &args.nats, args.pre).await;
        let cluster = match looked {
            Ok(cluster) => cluster,
            Err(error) if is_over(begun, args.wait) => {
                let error = error.context(UNREACHED);
                return Ok(failed(is_json, error, EXIT_NOTHING_ASKED));
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

/// Asks the API server, and listens to NATS meanwhile.
///
/// # Errors
/// The API server does not answer at all.
async fn look(
    client: &kube::Client,
    namespace: &str,
    nats: &NatsArgs,
    pre: bool,
) -> anyhow::Result<Cluster> {
    let listening = async {
        match !pre && nats::is_named(nats) {
            true => Some(nats::ask(nats).await.map_err(|error| format!("{error:#}"))),
            false => None,
        }
    };
    let asking = Cluster::ask(client, namespace, pre);
    let (asked, heard) = tokio::join!(Box::pin(asking), Box::pin(listening));
    Ok(Cluster {
        nats: heard,
        ..asked?
    })
}

/// Makes all checks of an installation, and returns what they find, and what was heard over NATS.
///
/// # Errors
/// The API server does not answer at all.
pub(crate) async fn of_installation(
    client: &kube::Client,
    namespace: &str,
    nats: &NatsArgs,
) -> anyhow::Result<(Value, Result<Value, String>)> {
    let cluster = look(client, namespace, nats, false).await?;
    let checks = Report::new(&checks(false), &cluster).json();
    let heard = match &cluster.nats {
        None => Err("no login to NATS was given".to_owned()),
        Some(Err(error)) => Err(error.clone()),
        Some(Ok(heard)) => Ok(heard.json()),
    };
    Ok((checks, heard))
}

/// A check of the heartbeats heard over NATS, with its finding.
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) fact: &'static str,
    /// `good`, `bad`, `warning`, or `unasked`.
    pub(crate) class: &'static str,
    /// For people.
    pub(crate) result: &'static str,
    /// The finding, line by line.
    pub(crate) lines: Vec<String>,
}

/// Makes the checks that need nothing but the operator's login.
pub(crate) fn of_system(heard: NatsMessages) -> Vec<Row> {
    let cluster = Cluster::unasked(heard);
    let rows = system::CHECKS.iter().map(|check| {
        let (class, result, text) = match (check.find)(&cluster) {
            Finding::Good => ("good", "ok", String::new()),
            Finding::Warning(text) => ("warning", "warning", text),
            Finding::Failed(text) => ("bad", "failed", text),
            Finding::NotAsked(text) => ("unasked", "not asked", text),
        };
        Row {
            id: check.id,
            fact: check.fact,
            class,
            result,
            lines: text.lines().map(str::to_owned).collect(),
        }
    });
    rows.collect()
}

fn is_over(begun: Instant, wait: Option<Duration>) -> bool {
    begun.elapsed() >= wait.unwrap_or_default()
}

#[cfg(test)]
mod tests;
