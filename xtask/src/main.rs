//! Developer tasks. `cargo xtask --help` lists them.

mod alerts;
mod architecture;
mod browser;
mod chart;
mod ci;
mod crates;
mod dashboards;
mod fuzz;
mod instructions;
mod licences;
mod mixed;
mod parts;
mod planted;
mod profile;
mod schemas;
mod shell;
mod skips;
mod test_programs;
mod tidy;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Developer tasks of Anteroom",
    after_help = "Examples:\n  cargo xtask parts     build the real nats-server, etcd, kube-apiserver and Helm that tests run\n  cargo xtask test      build what the tests run, then run them all\n  cargo xtask ci        everything that decides whether a change may land"
)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build the real nats-server, etcd, kube-apiserver and Helm into target/real-parts (once, about 5 minutes).
    Parts {
        /// Build again, even if they are up to date.
        #[arg(long)]
        force: bool,
    },
    /// Fetch the tools of Debian's packages that tests run (promtool, Prometheus, libfaketime) into target/debian-tools,
    /// unless they are installed. Nothing is installed.
    Tools,
    /// Build what tests run (real parts, programs), then run the tests.
    Test {
        /// Only this crate's tests, with what they run and no more. May be given several times.
        #[arg(short, long, value_name = "CRATE")]
        package: Vec<String>,
        /// Passed on to `cargo test`, as in `cargo xtask test -p anteroom-e2e -- traces`.
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Run simulated schedules of faults: 10,000 in ten minutes on two cores, or one again.
    Sim {
        /// Passed on to the simulation, as in `cargo xtask sim seed 17 --trace`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Put faults into a copy of the code, one by one, and fail if simulated schedules do not find them all.
    Planted(planted::PlantedArgs),
    /// Look at the console's pages in a real browser: accessibility, keyboard, times (needs Node and Chromium).
    Browser {
        /// Put pictures of the pages into this folder.
        #[arg(long, value_name = "FOLDER")]
        screenshots: Option<std::path::PathBuf>,
    },
    /// Run the fuzz targets, a million times each, from what earlier runs have found (needs a C++ compiler).
    Fuzz(fuzz::FuzzArgs),
    /// Run the programs of another revision beside those of this one, each service in turn, up and back.
    Mixed {
        /// The other revision, as in a release's tag.
        #[arg(long)]
        against: String,
    },
    /// Write deploy/chart/files/crds from the Rust types.
    Crds,
    /// Write the table of Kubernetes' own types, by which partial objects are merged, from the pinned version.
    Schemas,
    /// Write deploy/install from the Helm chart.
    Chart,
    /// Formatting, lints, docs, licences, tidiness, tests, simulated schedules, and a run of the demo.
    Ci,
    /// Measure decisions (in turns with a minimal webhook, the floor), memory, starts and deltas over real NATS, and
    /// print JSON.
    Bench {
        /// Write the results to docs/benchmarks.md, beside the goals.
        #[arg(long)]
        write_docs: bool,
        /// Passed on to the benchmark, as in `cargo xtask bench -- --only unique --quick`.
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Measure how soon changes of a real cluster change decisions, and print JSON.
    Freshness {
        /// Passed on to the benchmark, as in `cargo xtask freshness -- --objects 3000`.
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Run the services for long under changes, and print what they hold at the begin and at the end. It fails if that grows.
    Soak {
        /// Passed on, as in `cargo xtask soak -- --events 10000000`.
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Compare the processor time of functions, operators and patterns with the steps that they charge, and print JSON.
    Charges {
        /// Passed on, as in `cargo xtask charges -- --only cel:`.
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Count the instructions and allocations of a decision, a query and a delta under callgrind, and
    /// print JSON. Fails where they are 3 % above the recorded baseline.
    Instructions(instructions::InstructionsArgs),
    /// Count the instructions and allocations of a decision, by function (needs valgrind; with --stacks,
    /// perf).
    Profile(profile::ProfileArgs),
    /// Write Grafana's dashboards from their table.
    Dashboards,
    /// Test the alerts: each fires on its series, and clears (needs promtool: `cargo xtask tools`).
    Alerts,
    /// Write the list of crates in ARCHITECTURE.md from their manifests.
    Architecture,
    /// Check licences, banned crates and sources of all that is depended on.
    Licences,
    /// Checks of the repository itself that no other tool makes.
    Tidy,
}

fn main() -> ExitCode {
    let Err(error) = run(Cli::parse().task) else {
        return ExitCode::SUCCESS;
    };
    shell::say(&format!("{error:#}"));
    ExitCode::FAILURE
}

fn run(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Parts { force } => parts::build(&parts::ALL, force),
        Task::Tools => tools::fetch(),
        Task::Test { package, args } => ci::test(&package, &args),
        Task::Sim { args } => ci::simulate(&args),
        Task::Planted(args) => planted::find_all(&args),
        Task::Browser { screenshots } => browser::run_checks(screenshots.as_deref()),
        Task::Fuzz(args) => fuzz::fuzz(&args),
        Task::Mixed { against } => mixed::mixed(&against),
        Task::Crds => ci::write_crds(),
        Task::Schemas => schemas::write(),
        Task::Chart => chart::write(),
        Task::Ci => ci::all(),
        Task::Bench { write_docs, args } => ci::measure(write_docs, &args),
        Task::Freshness { args } => ci::bench("freshness", &args),
        Task::Soak { args } => ci::bench("soak", &args),
        Task::Charges { args } => {
            let bench = ["bench", "-p", "anteroom-cel", "--bench", "charges", "--"];
            shell::run(shell::cargo(&bench).args(&args))
        }
        Task::Instructions(args) => instructions::count(&args),
        Task::Profile(args) => profile::profile(&args),
        Task::Dashboards => dashboards::write(),
        Task::Alerts => alerts::check(),
        Task::Architecture => architecture::write(),
        Task::Licences => licences::check(),
        Task::Tidy => tidy::check(),
    }
}
