//! The command line.

use std::process::ExitCode;

use anteroom_runtime::{Service, process::ProcessArgs, telemetry::TelemetryArgs};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::{
    bundle, check, console, explain, installation, jp, keys, migrate, offline, operator,
    output::{finish, print, quiet},
    query, serve,
};

#[derive(Parser)]
#[command(
    name = "anteroom",
    version,
    about = "Cached facts for Kubernetes admission policies: kept once, compact and fresh",
    after_help = "Examples:\n  \
        anteroom serve --kubeconfig ~/.kube/config watcher, replica and webhook in one process\n  \
        anteroom explain policy.yaml               show its rules' queries, and how they are answered\n  \
        anteroom test policies/                    run their suites of expected results\n  \
        anteroom apply policy.yaml -r pod.yaml     apply a policy to resources\n  \
        anteroom equal old.yaml new.yaml           find what two policies decide otherwise\n  \
        anteroom migrate kyverno --live            say which policies of Kyverno run\n  \
        anteroom query ingresses 'length(items)'   ask the replicas of a running system\n  \
        anteroom tap --denied --past --why         show what was denied, and why\n  \
        anteroom jp query -i pod.yaml 'metadata.name'\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong usage, 64 not finished within the grace time, 130 ended by a second signal. \
        `check`, `equal` and others say more in their own help."
)]
struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Says that the demo is a program of its own, and where it is.
    #[command(hide = true, disable_help_flag = true)]
    Demo {
        /// The demo's own options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        options: Vec<String>,
    },
    /// Run watcher, replica and webhook in one process, for a small cluster.
    Serve(Box<serve::ServeArgs>),
    /// Watch sources at the Kubernetes API server, and publish their changes.
    #[command(after_help = service_help("watcher --kubeconfig ~/.kube/config --nats-url nats://127.0.0.1:4222"))]
    Watcher(Box<anteroom_watcher::Command>),
    /// Build every view from the log on NATS, and answer queries next to the data.
    #[command(after_help = service_help("replica --nats-url nats://127.0.0.1:4222 --memory-limit 512Mi"))]
    Replica(Box<anteroom_cache_replica::Command>),
    /// Answer AdmissionReviews by the policies, and query the replicas for facts.
    #[command(after_help = service_help("webhook --kubeconfig ~/.kube/config --webhook-url https://192.0.2.7:9443"))]
    Webhook(Box<anteroom_webhook::Command>),
    /// Scan existing objects with the policies, and write PolicyReports and Events.
    #[command(after_help = service_help("reporter --kubeconfig ~/.kube/config --background-scan-interval 30m"))]
    Reporter(Box<anteroom_reporter::Command>),
    /// Show the queries of each rule of a policy, and how they are answered.
    Explain(Box<explain::ExplainArgs>),
    /// Run suites of expected results, in Kyverno's format, without a cluster.
    Test(offline::test::TestArgs),
    /// Apply policies to resources, without a cluster.
    Apply(Box<offline::apply::ApplyArgs>),
    /// Search for requests that two sets of policies decide otherwise, without a cluster.
    Equal(Box<offline::equal::EqualArgs>),
    /// Ask the replicas of a running system.
    Query(Box<query::QueryArgs>),
    /// Work with the query language offline.
    Jp(jp::JpArgs),
    /// Work out what a move from another engine needs.
    Migrate(migrate::MigrateArgs),
    /// Make the keys that the parts of an installation know each other by.
    Keys(keys::KeysArgs),
    /// Check an installation, or a cluster before it.
    Check(Box<check::CheckArgs>),
    /// Show what is decided now, and how views and parts are.
    Top(Box<operator::top::TopArgs>),
    /// Print decisions as they are made.
    Tap(Box<operator::tap::TapArgs>),
    /// Show a running system in a browser.
    Console(Box<console::ConsoleArgs>),
    /// Write one archive for somebody who helps with an installation, without secrets.
    SupportBundle(Box<bundle::BundleArgs>),
    /// Make the Secrets of an installation that are missing.
    Init(installation::init::InitArgs),
    /// Take the webhook out of the API server's way, before the rest is removed.
    Uninstall(installation::uninstall::UninstallArgs),
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  source <(anteroom completion bash)")]
    Completion {
        /// The shell.
        shell: Shell,
    },
}

/// The end of the help of a command that runs one service.
fn service_help(example: &str) -> String {
    format!(
        "Examples:\n  \
         anteroom {example}\n\n\
         Exit codes: 0 stopped when asked to, 1 failed, 2 wrong usage, 64 not finished within the grace time, \
         130 ended by a second signal."
    )
}

/// Returns the command line without hidden commands, which completions would offer.
fn shown() -> clap::Command {
    let all = Cli::command();
    let shown = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    clap::Command::new("anteroom")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(shown.cloned())
}

/// The error message of `anteroom demo`.
const DEMO: &str = "the demo is a program of its own, since it holds a simulated API server and a load generator: \
    run `cargo demo` in Anteroom's source";

/// Runs the command line of this process, and returns its exit code.
pub fn run() -> ExitCode {
    match Cli::parse().command {
        Subcommands::Demo { options: _ } => finish(Err(anyhow::anyhow!(DEMO))),
        Subcommands::Serve(args) => {
            let process = args.process.draining(args.drain_seconds());
            anteroom_runtime::process::run("anteroom", &process, |service| {
                serve::run(*args, service)
            })
        }
        Subcommands::Watcher(service) => service.run(),
        Subcommands::Replica(service) => service.run(),
        Subcommands::Webhook(service) => service.run(),
        Subcommands::Reporter(service) => service.run(),
        Subcommands::Explain(args) => {
            run_quietly(&args.telemetry.clone(), "warn", |_| explain::run(*args))
        }
        Subcommands::Query(args) => {
            // A client has no probes to serve, and its standard output is the answer.
            run_quietly(&args.telemetry.clone(), "warn", |_| query::run(*args))
        }
        Subcommands::Test(args) => finish(offline::test::run(&args)),
        Subcommands::Apply(args) => offline::apply::run(&args),
        Subcommands::Equal(args) => offline::equal::run(&args),
        Subcommands::Jp(args) => finish(jp::run(args)),
        Subcommands::Keys(args) => finish(keys::run(args)),
        Subcommands::Migrate(args) => {
            let process = quiet(args.telemetry(), "warn");
            run_coded(&process, async { Ok(migrate::run(args).await) })
        }
        Subcommands::Check(args) => {
            let process = quiet(&args.telemetry, "warn");
            run_coded(&process, check::run(*args))
        }
        Subcommands::Top(args) => run_quietly(&args.telemetry.clone(), "error", |service| {
            operator::top::run(*args, service)
        }),
        Subcommands::Tap(args) => run_quietly(&args.telemetry.clone(), "error", |service| {
            operator::tap::run(*args, service)
        }),
        Subcommands::Console(args) => run_quietly(&args.telemetry.clone(), "error", |service| {
            console::run(*args, service)
        }),
        Subcommands::SupportBundle(args) => {
            run_quietly(&args.telemetry.clone(), "error", |_| bundle::run(*args))
        }
        Subcommands::Init(args) => run_quietly(&args.telemetry.clone(), "warn", |_| {
            installation::init::run(args)
        }),
        Subcommands::Uninstall(args) => run_quietly(&args.telemetry.clone(), "warn", |_| {
            installation::uninstall::run(args)
        }),
        Subcommands::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut shown(), "anteroom", &mut script);
            finish(print(String::from_utf8_lossy(&script).trim_end()))
        }
    }
}

/// Runs a command whose own output is what the user wants, with logs from this level on: see [`quiet`].
fn run_quietly<F>(
    telemetry: &TelemetryArgs,
    level: &str,
    run: impl FnOnce(Service) -> F,
) -> ExitCode
where
    F: Future<Output = anyhow::Result<()>>,
{
    anteroom_runtime::process::run("anteroom", &quiet(telemetry, level), run)
}

/// Runs a command that ends with an exit code of its own.
fn run_coded(
    process: &ProcessArgs,
    command: impl Future<Output = anyhow::Result<ExitCode>>,
) -> ExitCode {
    let mut found = ExitCode::SUCCESS;
    let code = &mut found;
    let run = |_| async move {
        *code = command.await?;
        Ok(())
    };
    match anteroom_runtime::process::run("anteroom", process, run) {
        ExitCode::SUCCESS => found,
        failed => failed,
    }
}

#[cfg(test)]
mod tests {
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
    fn services_have_examples_in_their_help_and_completions_offer_what_help_shows() {
        for name in ["watcher", "replica", "webhook", "reporter"] {
            let mut all = Cli::command();
            let service = all.find_subcommand_mut(name).unwrap();
            let help = service.render_long_help().to_string();
            assert!(help.contains(&format!("anteroom {name} --")), "{help}");
        }
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut shown(), "anteroom", &mut script);
        let script = String::from_utf8(script).unwrap();
        assert!(script.contains("support-bundle") && !script.contains("demo"));
    }

    #[test]
    fn the_demo_command_says_how_the_demo_is_run() {
        let asked = Cli::try_parse_from(["anteroom", "demo", "--once", "-o", "json"]).unwrap();
        assert!(matches!(asked.command, Subcommands::Demo { .. }));
        assert!(DEMO.contains("`cargo demo`"));
    }
}
