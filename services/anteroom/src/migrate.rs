//! `anteroom migrate`: what a move from another engine needs, worked out from what is installed.
//!
//! ```text
//! files, cluster ── installation ─┬─ verdicts (policies) ──┬─▶ REPORT.md
//!                                 ├─ rights ───────────────┼─▶ roles.yaml
//!                                 └─ settings (likes) ─────┴─▶ values.yaml
//! ```
//!
//! | module | content |
//! |---|---|
//! | `installation` | the objects of a Kyverno installation, sorted by what they are |
//! | `live` | the same objects, read from a cluster |
//! | `verdicts` | whether each policy runs, and how its reads are answered |
//! | `differences` | what of docs/differences.md a policy is sure to be about |
//! | `kinds`, `rights` | what the watcher has to be allowed |
//! | `chart_keys`, `convert`, `settings` | Kyverno's settings, and the chart's keys for them |
//! | `report`, `yaml` | the three files |

mod chart_keys;
mod convert;
mod differences;
mod installation;
mod kinds;
mod live;
mod report;
mod rights;
mod settings;
mod verdicts;
mod yaml;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anteroom_runtime::{kubernetes::KubernetesArgs, telemetry::TelemetryArgs};
use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::{installation::Installation, rights::Rights, settings::Settings, verdicts::Verdicts};
use crate::{
    input,
    output::{Output, failed, input_error, print, warn},
};

/// The exit code where something does not run, or only in part.
const EXIT_NOT_ALL: u8 = 1;

/// The exit code where the input cannot be used, or the folder cannot be written.
const EXIT_BAD_INPUT: u8 = 2;

/// The names of the three files.
const FILES: [&str; 3] = ["values.yaml", "roles.yaml", "REPORT.md"];

#[derive(Args, Clone, Debug)]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    command: MigrateCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum MigrateCommand {
    /// Say which of Kyverno's policies run, and write the chart's values and roles for them.
    #[command(
        long_about = "Say which of Kyverno's policies run, and write the chart's values and roles for them.\n\n\
            Reads policies, exceptions, entries, Kyverno's ConfigMap and its Deployments. Changes nothing in a cluster, and \
            passes over Secrets. CustomResourceDefinitions among the input tell the plurals of custom kinds.",
        after_help = "Examples:\n  \
            anteroom migrate kyverno --live --directory move\n  \
            kubectl get clusterpolicies,policies -A -o yaml | anteroom migrate kyverno -\n  \
            anteroom migrate kyverno policies/ kyverno.yaml --directory move\n  \
            anteroom migrate kyverno policies/ -o json\n\n\
            Files of --directory: values.yaml for the chart, roles.yaml with what the watcher has to be allowed, and REPORT.md.\n\n\
            Exit codes: 0 everything runs, 1 something does not run or only in part, 2 wrong usage, or the input cannot be read."
    )]
    Kyverno(Box<KyvernoArgs>),
}

/// The options of `anteroom migrate kyverno`.
#[derive(Args, Clone, Debug)]
struct KyvernoArgs {
    /// Files of manifests, and folders with such files; `-` for standard input.
    #[arg(required_unless_present = "live", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Read a cluster, by your own rights.
    #[arg(long)]
    live: bool,

    /// The namespace of Kyverno in that cluster.
    #[arg(long, default_value = "kyverno")]
    namespace: String,

    /// Write three files into this folder, instead of the report to standard output.
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,

    /// Write over files that are there.
    #[arg(long, requires = "directory")]
    force: bool,

    /// The format of the output; `json` has all that the files have.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,

    #[command(flatten)]
    kubernetes: KubernetesArgs,

    #[command(flatten)]
    telemetry: TelemetryArgs,
}

impl MigrateArgs {
    /// Returns the options of logs.
    pub(crate) fn telemetry(&self) -> &TelemetryArgs {
        let MigrateCommand::Kyverno(args) = &self.command;
        &args.telemetry
    }
}

/// Runs `anteroom migrate`.
pub(crate) async fn run(args: MigrateArgs) -> ExitCode {
    let MigrateCommand::Kyverno(args) = args.command;
    let is_json = args.output == Output::Json;
    match kyverno(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_NOT_ALL),
        Err(error) => failed(is_json, error, EXIT_BAD_INPUT),
    }
}

/// Returns whether everything runs.
async fn kyverno(args: &KyvernoArgs) -> anyhow::Result<bool> {
    if let Some(folder) = &args.directory {
        // Before any work, since a cluster takes a while to read.
        check_folder(folder, args.force).map_err(input_error)?;
    }
    let found = input::manifests(&args.files).map_err(input_error)?;
    found.passed_over.iter().for_each(|file| warn(file));
    let mut documents = found.documents;
    if args.live {
        let client = args.kubernetes.client().await?;
        documents.extend(live::read(&client, &args.namespace).await?);
    }
    let plan = Move::of(&Installation::of(documents).map_err(input_error)?);
    if let Some(folder) = &args.directory {
        plan.write(folder, args.force)?;
    }
    match (args.output, &args.directory) {
        (Output::Json, _) => print(&serde_json::to_string_pretty(&plan.json())?)?,
        (Output::Text, None) => print(report::page(&plan).trim_end())?,
        (Output::Text, Some(folder)) => {
            let numbers = report::numbers(&plan, false);
            print(&format!("{numbers}written to {}", folder.display()))?;
        }
    }
    Ok(plan.verdicts.all_run())
}

/// All that is known of a move.
struct Move {
    verdicts: Verdicts,
    rights: Rights,
    settings: Settings,
}

impl Move {
    fn of(installation: &Installation) -> Self {
        let (verdicts, policies) = Verdicts::of(installation);
        let settings = Settings::of(installation, &policies);
        let rights = Rights::of(installation, &policies, settings.scans());
        Self {
            verdicts,
            rights,
            settings,
        }
    }

    fn json(&self) -> Value {
        json!({
            "policies": self.verdicts.policies,
            "exceptions": self.verdicts.exceptions,
            "notRun": self.verdicts.not_run,
            "summary": self.verdicts.counts(),
            "values": self.settings.values(),
            "settings": self.settings.taken,
            "withoutLike": self.settings.without_like,
            "roles": self.rights.roles(),
            "grantByHand": self.rights.by_hand,
        })
    }

    fn write(&self, folder: &Path, force: bool) -> anyhow::Result<()> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let texts = [self.settings.yaml(), self.rights.yaml(), report::page(self)];
        for (name, text) in FILES.iter().zip(texts) {
            let path = folder.join(name);
            let mut options = fs::OpenOptions::new();
            match force {
                true => options.create(true).truncate(true),
                // A file that somebody makes meanwhile is not lost.
                false => options.create_new(true),
            };
            let file = options.write(true).open(&path);
            file.and_then(|mut file| file.write_all(text.as_bytes()))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Fails if a file of the same name is in the folder, which would be lost.
fn check_folder(folder: &Path, force: bool) -> anyhow::Result<()> {
    let there = FILES.iter().map(|name| folder.join(name));
    match there.into_iter().find(|path| path.exists()) {
        Some(path) if !force => bail!("{} is there already: see --force", path.display()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
