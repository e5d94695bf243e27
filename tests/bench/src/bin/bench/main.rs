//! Measures decisions over real NATS, every service a process of its own, with the simulated API server
//! and the load generator in this one. Prints one JSON object.

mod ask;
mod asked;
mod attacked;
mod beside;
mod compiled;
mod decisions;
mod deltas;
mod fill;
mod floor;
mod goals;
mod ground;
mod indexed;
mod machine;
mod page;
mod peer;
mod pod;
mod real;
mod scans;
mod scenarios;
mod sides;
mod size;
mod spent;
mod turns;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use serde_json::{Value, json};

use peer::{Peer, PeerArgs};
use scenarios::Scenario;

/// Measures Anteroom over real NATS, every service a process of its own.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  cargo xtask bench -- --list\n  cargo xtask bench -- --only unique --quick\n  cargo xtask bench -- -o bench.json\n  cargo xtask bench -- --only no-context,unique --seconds 5 --peer https://127.0.0.1:9443/validate \\\n    --peer-name other --peer-ca ca.pem --peer-process webhook=4711 --peer-kubeconfig admin.kubeconfig \\\n    --peer-policies policies/"
)]
struct Args {
    /// Scenarios to run: those whose name holds one of these texts, separated by commas; all if absent.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,

    /// Name the scenarios and what they serve, and end.
    #[arg(long)]
    list: bool,

    /// Shorter runs and fewer objects, where there are many: for a look, not for figures.
    #[arg(long)]
    quick: bool,

    /// The length of each run, in seconds [default: 10; with --quick 2]
    #[arg(long)]
    seconds: Option<f64>,

    /// Reviews at once, run by run; each scenario's own if absent.
    #[arg(long, value_delimiter = ',')]
    at_once: Vec<usize>,

    /// The share of the reached throughput that is offered where latency is measured, from 0 to 1.
    #[arg(long, default_value_t = 0.7)]
    fraction: f64,

    /// The number of replicas.
    #[arg(long, default_value_t = 1)]
    replicas: usize,

    /// Views that the webhook holds itself, as for its own `--local-views` [default: none].
    #[arg(long)]
    local_views: Option<String>,

    /// The folder of the services' programs [default: where this one is]
    #[arg(long)]
    bins: Option<PathBuf>,

    /// Keeps the services' logs in this folder.
    #[arg(long)]
    logs: Option<PathBuf>,

    #[command(flatten)]
    peer: PeerArgs,

    /// Writes a page for people to this file.
    #[arg(long)]
    write_docs: Option<PathBuf>,

    /// Runs nothing: takes the results of earlier runs, by -o, of which a later one counts before an
    /// earlier.
    #[arg(long, value_delimiter = ',')]
    from: Vec<PathBuf>,

    /// The output of `cargo xtask instructions`, to be shown on the page.
    #[arg(long)]
    instructions: Option<PathBuf>,

    /// A note for readers of the page about this run, as that the machine was busy.
    #[arg(long)]
    note: Option<String>,

    /// Writes the JSON to this file instead of standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// The settings of every scenario.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    quick: bool,
    lasts: Duration,
    at_once: Vec<usize>,
    fraction: f64,
    replicas: usize,
    local_views: Option<String>,
    logs: Option<PathBuf>,
    /// Another engine, measured in turns with ours.
    peer: Option<Arc<Peer>>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let chosen: Vec<&Scenario> = scenarios::ALL
        .iter()
        .filter(|scenario| {
            args.only.is_empty() || args.only.iter().any(|o| scenario.name.contains(&**o))
        })
        .collect();
    if args.list {
        let listed = chosen
            .iter()
            .map(|scenario| format!("{:<28}{}\n", scenario.name, scenario.about));
        return write_out(None, &listed.collect::<String>());
    }
    ensure!(
        !chosen.is_empty(),
        "no scenario is called so; --list names all"
    );
    ensure!(args.fraction > 0.0, "--fraction must be more than 0");
    let mut report = match args.from.is_empty() {
        true => measure(&args, chosen).await?,
        false => earlier(&args.from)?,
    };
    if let Some(file) = &args.instructions {
        report["instructions"] = read(file)?;
    }
    if let Some(note) = &args.note {
        report["note"] = note.as_str().into();
    }
    let mut text = serde_json::to_string_pretty(&report)?;
    text.push('\n');
    write_out(args.output.as_deref(), &text)?;
    if let Some(file) = &args.write_docs {
        write_out(Some(file), &page::write(&report))?;
    }
    let bad = faults(&report);
    if !bad.is_empty() {
        bail!("not all went well:\n  {}", bad.join("\n  "));
    }
    Ok(())
}

async fn measure(args: &Args, chosen: Vec<&Scenario>) -> anyhow::Result<Value> {
    if let Some(folder) = &args.bins {
        anteroom_e2e::process::use_binaries_in(folder)?;
    }
    anteroom_runtime::process::install_crypto_provider();
    let seconds = args.seconds.unwrap_or(if args.quick { 2.0 } else { 10.0 });
    let settings = Settings {
        quick: args.quick,
        lasts: Duration::try_from_secs_f64(seconds).context("--seconds")?,
        at_once: args.at_once.clone(),
        fraction: args.fraction,
        replicas: args.replicas,
        local_views: args.local_views.clone(),
        logs: args.logs.clone(),
        peer: Peer::of(&args.peer).await?.map(Arc::new),
    };
    let mut results = Vec::new();
    for scenario in chosen {
        let (name, about) = (scenario.name, scenario.about);
        say(&format!("{name}: {about}"));
        let result = scenarios::run(scenario, &settings).await;
        results.push(match result {
            Ok(result) => {
                json!({ "name": name, "about": about, "quick": args.quick, "result": result })
            }
            Err(error) => {
                say(&format!("{name}: {error:#}"));
                json!({ "name": name, "about": about, "failed": format!("{error:#}") })
            }
        });
    }
    Ok(json!({
        "machine": machine::describe()?,
        "seconds": seconds,
        "fraction": args.fraction,
        "replicas": args.replicas,
        "local_views": args.local_views,
        "quick": args.quick,
        "scenarios": results,
    }))
}

/// The reports of these files as one.
fn earlier(files: &[PathBuf]) -> anyhow::Result<Value> {
    let mut whole = Value::Null;
    for file in files {
        let mut report = read(file)?;
        let mut scenarios = whole["scenarios"].as_array().cloned().unwrap_or_default();
        for of in report["scenarios"].as_array().into_iter().flatten() {
            scenarios.retain(|known| known["name"] != of["name"]);
            scenarios.push(of.clone());
        }
        report["scenarios"] = scenarios.into();
        whole = report;
    }
    Ok(whole)
}

fn read(file: &std::path::Path) -> anyhow::Result<Value> {
    let unreadable = || format!("cannot read {}", file.display());
    let text = std::fs::read(file).with_context(unreadable)?;
    serde_json::from_slice(&text).with_context(unreadable)
}

/// Returns the faults that make the figures worthless: scenarios that failed, decisions that are wrong, errors.
fn faults(report: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    for scenario in report["scenarios"].as_array().into_iter().flatten() {
        let name = scenario["name"].as_str().unwrap_or_default();
        if let Some(failed) = scenario["failed"].as_str() {
            bad.push(format!("{name}: {failed}"));
        }
        decisions::collect_faults(name, &scenario["result"], &mut bad);
    }
    bad
}

/// Progress, for people.
#[expect(clippy::print_stderr, reason = "progress of a long run")]
pub(crate) fn say(text: &str) {
    eprintln!("bench: {text}");
}

#[expect(clippy::print_stdout, reason = "the benchmark's output")]
fn write_out(file: Option<&std::path::Path>, text: &str) -> anyhow::Result<()> {
    match file {
        Some(file) => {
            std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
        }
        None => {
            print!("{text}");
            Ok(())
        }
    }
}
