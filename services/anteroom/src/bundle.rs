//! `anteroom support-bundle`: one archive of what somebody needs who helps with an installation, and no secret.
//!
//! ```text
//! API server ── ask ──▶ objects ── pick: by a list of fields ──┐
//!            ── ask ──▶ logs, metrics, readiness ──────────────┼── clean: text ──▶ archive
//! NATS ────────────────▶ views, parts, counts of decisions ────┘
//! ```
//!
//! Nothing is taken that is not named: objects are cut down to the fields of a list, and no Secret is read for the archive.

mod archive;
mod ask;
mod clean;
mod redact;

use std::{
    io::{IsTerminal as _, stdin},
    path::PathBuf,
};

use anteroom_bus::nats::NatsArgs;
use anteroom_runtime::{kubernetes::KubernetesArgs, telemetry::TelemetryArgs, wall_clock};
use anyhow::{Context as _, bail};
use clap::Args;

use self::archive::Archive;
use crate::output::{print, warn};

#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Write one archive of what somebody needs who helps with an installation.\n\n\
        It asks by your own rights, and changes nothing. It says what it takes, and asks first. What you may not read is left out, and \
        the archive says so. Text is taken without URL paths and queries, credentials and keys. Given the operator's login to NATS, \
        it listens for 3 seconds as well.",
    after_help = "Examples:\n  \
        anteroom support-bundle\n  \
        anteroom support-bundle --yes --file bundle.tar.gz\n  \
        anteroom support-bundle --nats-url tls://localhost:4222 --nats-nkey-file seed --nats-ca-file ca.crt\n\n\
        Exit codes: 0 written, 1 failed, 2 wrong usage."
)]
pub(crate) struct BundleArgs {
    /// The archive [default: anteroom-TIME.tar.gz in this folder]. An existing file is not written over.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Do not ask.
    #[arg(long)]
    yes: bool,

    /// The last lines of each container's log that are taken.
    #[arg(long, value_name = "LINES", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(..=100_000))]
    log_lines: u32,

    /// The namespace of the installation.
    #[arg(long, default_value = "anteroom")]
    namespace: String,

    #[command(flatten)]
    kubernetes: KubernetesArgs,

    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// The contents of a bundle, for people.
const TAKEN: &str = "\
the results of `anteroom check`, and the versions of Kubernetes and this command
of Deployments, StatefulSets, Pods, Services, budgets and claims in the namespace: names, images, resources, options' names, statuses
of Events about these: reasons and messages
of both webhook configurations: rules, selectors and policies on failure
of policies and entries: names and statuses
of each container: its log, and of each service: metrics and readiness
with a login to NATS: views, parts, and counts of decisions";

/// The data that a bundle never has, for people.
const NEVER: &str = "\
Secrets and ConfigMaps, values of environment variables, other objects' bodies, decisions one by one, paths and queries of URLs";

/// Runs `anteroom support-bundle`.
pub(crate) async fn run(args: BundleArgs) -> anyhow::Result<()> {
    let file = args.file.clone().unwrap_or_else(|| {
        let time = wall_clock::now().strftime("%Y%m%dT%H%M%SZ");
        PathBuf::from(format!("anteroom-{time}.tar.gz"))
    });
    if file.exists() {
        bail!(
            "{} is there already: name another file (--file)",
            file.display()
        );
    }
    if !args.yes {
        consent()?;
    }
    let client = args.kubernetes.client().await?;
    let mut archive = Archive::new();
    ask::everything(&client, &args, &mut archive).await?;
    let missing = archive.missing();
    let bytes = archive
        .write(&file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    for (name, reason) in &missing {
        warn(&format!("{name} is left out: {reason}"));
    }
    print(&format!("{}: {} kB", file.display(), bytes.div_ceil(1_000)))
}

/// Says what is taken, and waits for a yes.
fn consent() -> anyhow::Result<()> {
    let list = |text: &str| {
        text.lines()
            .map(|line| format!("  - {line}\n"))
            .collect::<String>()
    };
    print(&format!(
        "This takes:\n{}Never:\n{}",
        list(TAKEN),
        list(NEVER)
    ))?;
    if !stdin().is_terminal() {
        bail!("nobody is there to agree: look at this list, and add --yes");
    }
    print("Write the archive? [y/N]")?;
    let mut said = String::new();
    stdin()
        .read_line(&mut said)
        .context("the answer cannot be read")?;
    match said.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("nothing was written"),
    }
}
