//! The command line.

use std::{
    io::{ErrorKind, Write, stdout},
    process::ExitCode,
};

use anteroom_runtime::{process::ProcessArgs, telemetry::TelemetryArgs};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde_json::Value;

use crate::{demo, explain, jp, offline, query, serve};

#[derive(Parser)]
#[command(
    name = "anteroom",
    version,
    about = "Facts for Kubernetes admission policies: kept once, close at hand, compact and fresh",
    after_help = "Examples:\n  \
        anteroom demo                              a whole system under load, in this process\n  \
        anteroom demo --once -o json               the same, bounded, for machines\n  \
        anteroom serve --kubeconfig ~/.kube/config watcher, replica and webhook in one process\n  \
        anteroom explain policy.yaml               what its rules ask, and how it is answered\n  \
        anteroom test policies/                    run their suites of expected results\n  \
        anteroom apply policy.yaml -r pod.yaml     what a policy says of resources\n  \
        anteroom query ingresses 'length(items)'   ask the replicas of a running system\n  \
        anteroom jp query -i pod.yaml 'metadata.name'\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong usage, 64 not finished within the grace time, 130 ended by a second signal."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything in one process under load, and show decisions, latencies and memory.
    Demo(Box<demo::DemoArgs>),
    /// Run watcher, replica and webhook in one process, for a small cluster.
    Serve(Box<serve::ServeArgs>),
    /// Say what each rule of a policy asks of the cluster, and how the answer is found.
    Explain(Box<explain::ExplainArgs>),
    /// Run suites of expected results, in Kyverno's format, without a cluster.
    Test(offline::test::TestArgs),
    /// Say what policies make of resources, without a cluster.
    Apply(Box<offline::apply::ApplyArgs>),
    /// Ask the replicas of a running system.
    Query(Box<query::QueryArgs>),
    /// Work with the query language offline.
    Jp(jp::JpArgs),
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  source <(anteroom completion bash)")]
    Completion {
        /// The shell.
        shell: Shell,
    },
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON document.
    Json,
}

/// Runs the command line of this process, and returns its exit code.
pub fn run() -> ExitCode {
    match Cli::parse().command {
        Command::Demo(args) => {
            // Its parts wait for each other at first, and say so.
            let process = quiet(&args.telemetry, "error");
            anteroom_runtime::process::run("anteroom", &process, |service| {
                demo::run(*args, service)
            })
        }
        Command::Serve(args) => {
            let process = args.process.clone();
            anteroom_runtime::process::run("anteroom", &process, |service| {
                serve::run(*args, service)
            })
        }
        Command::Explain(args) => {
            let process = quiet(&args.telemetry, "warn");
            anteroom_runtime::process::run("anteroom", &process, |_| explain::run(*args))
        }
        Command::Query(args) => {
            // A client has no probes to serve, and its standard output is the answer.
            let process = quiet(&args.telemetry, "warn");
            anteroom_runtime::process::run("anteroom", &process, |_| query::run(*args))
        }
        Command::Test(args) => finish(offline::test::run(&args)),
        Command::Apply(args) => match offline::apply::run(&args) {
            Ok(code) => code,
            Err(error) => finish(Err(error)),
        },
        Command::Jp(args) => finish(jp::run(args)),
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "anteroom", &mut script);
            finish(print(String::from_utf8_lossy(&script).trim_end()))
        }
    }
}

/// For commands whose own output is what the user wants: logs from this level on, unless asked for.
fn quiet(telemetry: &TelemetryArgs, level: &str) -> ProcessArgs {
    let mut telemetry = telemetry.clone();
    if telemetry.log_level == TelemetryArgs::default().log_level {
        level.clone_into(&mut telemetry.log_level);
    }
    ProcessArgs {
        telemetry,
        ..ProcessArgs::default()
    }
}

#[allow(clippy::print_stderr, reason = "the command's own last word")]
fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("anteroom: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Says what is wrong and no reason to stop.
#[allow(clippy::print_stderr, reason = "beside the result, for people")]
pub(crate) fn warn(text: &str) {
    eprintln!("anteroom: {text}");
}

/// Prints a result and a newline. A reader that has seen enough (`| head`) is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// `NAME=VALUE`, where the value is JSON, or else a string.
pub(crate) fn parse_parameter(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let is_name = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !is_name {
        return Err(format!("{name:?} is not a name: letters, digits and _"));
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_is_documented() {
        let page = include_str!("../../../docs/options.md");
        let missing = anteroom_runtime::testing::undocumented(&Cli::command(), page);
        assert!(missing.is_empty(), "not in docs/options.md: {missing:#?}");
    }

    #[test]
    fn parameters_are_json_or_strings() {
        assert_eq!(parse_parameter("a=1"), Ok(("a".into(), json!(1))));
        assert_eq!(parse_parameter("a=b=c"), Ok(("a".into(), json!("b=c"))));
        assert_eq!(parse_parameter("a="), Ok(("a".into(), json!(""))));
        assert_eq!(parse_parameter("a=\"1\""), Ok(("a".into(), json!("1"))));
        for bad in ["a", "=1", "a-b=1", "1a=1"] {
            assert!(parse_parameter(bad).is_err(), "{bad}");
        }
    }
}
