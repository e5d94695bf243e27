//! Deterministic simulation: watchers, replicas and webhooks as they are, on a simulated API server and bus, in one
//! thread and in virtual time. A seed says what users do, what fails and when, and in which order tasks run.
//!
//! A schedule is the same each time: its thread draws every random number from the seed (`random.c`), and the clock
//! moves only while all tasks wait.

mod ask;
mod batch;
mod cluster;
mod judge;
mod manifests;
mod plan;
mod schedule;
mod way;
mod writers;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Runs schedules of faults, each from a seed.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  anteroom-sim run --schedules 1000\n  anteroom-sim seed 17 --trace\n  anteroom-sim seed 17 --faults=0,2\n  ANTEROOM_LOCAL_VIEWS='*' anteroom-sim run       webhooks hold views themselves\n\nExit codes: 0 all is right, 1 something is not, 2 usage"
)]
struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Runs many schedules, on all cores, and shrinks the first that fail.
    Run(Run),
    /// Runs one schedule again.
    Seed(Seed),
    /// Runs the schedules of one batch; `run` does that for each.
    #[command(hide = true)]
    Batch { batch: u64, schedules: u64 },
}

#[derive(Args)]
struct Run {
    /// The number of schedules.
    #[arg(long, default_value_t = 10_000)]
    schedules: u64,

    /// The first seed; rounded down to a batch.
    #[arg(long, default_value_t = 0)]
    from: u64,

    /// End with the first schedule that fails, and do not shrink it.
    #[arg(long)]
    first: bool,
}

#[derive(Args)]
struct Seed {
    /// The seed.
    seed: u64,

    /// The faults that are left, by their numbers; without a value none, and all if this is absent.
    #[arg(long, value_delimiter = ',', num_args = 0..=1, require_equals = true)]
    faults: Option<Vec<usize>>,

    /// Print every event.
    #[arg(long)]
    trace: bool,

    /// Print the services' logs, by these directives, as in `anteroom_mirror=debug`.
    #[arg(long)]
    log: Option<String>,
}

fn main() -> ExitCode {
    let result = match Command::parse().action {
        Action::Run(Run {
            schedules,
            from,
            first,
        }) => batch::run(from / batch::SIZE, schedules, first),
        Action::Seed(seed) => batch::one(seed.seed, seed.faults.as_deref(), seed.trace, seed.log),
        Action::Batch { batch, schedules } => batch::batch(batch, schedules),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            batch::print_error(&error);
            ExitCode::from(2)
        }
    }
}
