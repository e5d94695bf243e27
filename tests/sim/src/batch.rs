//! Schedules by the batch, one process for each, as many at once as there are cores.
//!
//! One number is not drawn from the seed: tokio counts the runtimes that a process has entered. So a batch begins at a
//! fixed seed in a process of its own, and before a single schedule as many runtimes are entered as in its batch.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line")]

use std::{
    process::{Command, Output},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

use anyhow::Context as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::{
    cluster,
    plan::Plan,
    schedule::{self, Outcome},
};

/// Schedules in a batch.
pub(crate) const SIZE: u64 = 50;

/// Failing seeds that are shrunk; the others are only named.
const SHRUNK_MAX: usize = 3;

/// Prints an error for people.
pub(crate) fn print_error(error: &anyhow::Error) {
    eprintln!("{error:#}");
}

/// Runs schedules on all cores. Returns true if all are right.
pub(crate) fn run(first: u64, schedules: u64) -> anyhow::Result<bool> {
    let (begun, next) = (Instant::now(), AtomicU64::new(0));
    let (lines, failing) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let batches = schedules.div_ceil(SIZE);
    let work = || -> anyhow::Result<()> {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= batches {
                return Ok(());
            }
            let size = SIZE.min(schedules - at * SIZE);
            let batch = first + at;
            let output = command(&["batch", &batch.to_string(), &size.to_string()])?;
            let text = String::from_utf8_lossy(&output.stdout);
            let before = lines.lock().len();
            lines.lock().extend(text.lines().map(str::to_owned));
            let failed = text.lines().filter(|line| line.contains("WRONG"));
            failing.lock().extend(failed.map(str::to_owned));
            if text.lines().count() as u64 != size {
                let seed = batch * SIZE + text.lines().count() as u64;
                let why = String::from_utf8_lossy(&output.stderr);
                failing
                    .lock()
                    .push(format!("{seed} WRONG the process ended: {why}"));
            }
            if before / 1_000 != lines.lock().len() / 1_000 {
                eprintln!(
                    "{} schedules in {:.0?}",
                    lines.lock().len(),
                    begun.elapsed()
                );
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut done = workers.into_iter().map(|worker| {
            let joined = worker.join();
            joined.map_err(|_| anyhow::anyhow!("a worker panicked"))?
        });
        done.try_for_each(|done| done)
    })?;
    let (lines, mut failing) = (lines.into_inner(), failing.into_inner());
    let sum = |what: &str| -> u64 {
        let values = lines.iter().filter_map(|line| value(line, what));
        values.sum()
    };
    println!(
        "{} schedules in {:.1?}: {} decisions, {} refused for want of facts, {} schedules wrong",
        lines.len(),
        begun.elapsed(),
        sum("decided"),
        sum("failed"),
        failing.len()
    );
    failing.sort();
    for (at, line) in failing.iter().enumerate() {
        println!("{line}");
        let seed = line.split(' ').next().unwrap_or_default();
        let faults = if at < SHRUNK_MAX { shrink(seed)? } else { None };
        let only = faults.map(|faults| format!(" --faults {faults}"));
        println!(
            "  again: cargo xtask sim seed {seed}{} --trace",
            only.unwrap_or_default()
        );
    }
    Ok(failing.is_empty())
}

/// The number behind `what=` in a line.
fn value(line: &str, what: &str) -> Option<u64> {
    let mut words = line.split(' ').filter_map(|word| word.split_once('='));
    words.find(|(name, _)| *name == what)?.1.parse().ok()
}

fn command(args: &[&str]) -> anyhow::Result<Output> {
    let program = std::env::current_exe().context("this program's file")?;
    Command::new(program).args(args).output().context("a batch")
}

/// Leaves faults out, one after the other, as long as the schedule still fails. Returns those that are left.
fn shrink(seed: &str) -> anyhow::Result<Option<String>> {
    let mut left: Vec<usize> = (0..Plan::of(seed.parse()?).faults.len()).collect();
    let text = |faults: &[usize]| {
        let texts: Vec<_> = faults.iter().map(usize::to_string).collect();
        texts.join(",")
    };
    let mut at = 0;
    while at < left.len() {
        let mut fewer = left.clone();
        fewer.remove(at);
        let faults = format!("--faults={}", text(&fewer));
        let fails = command(&["seed", seed, &faults])?.status.code() == Some(1);
        match fails {
            true => left = fewer,
            false => at += 1,
        }
    }
    Ok(Some(text(&left)))
}

/// Runs the schedules of one batch, a line for each. Returns true if all are right.
pub(crate) fn batch(batch: u64, schedules: u64) -> anyhow::Result<bool> {
    let definitions = cluster::definitions()?;
    let mut right = true;
    for seed in batch * SIZE..batch * SIZE + schedules {
        let outcome = schedule(seed, &Plan::of(seed), &definitions, false)?;
        println!("{}", line(seed, &outcome));
        right &= outcome.violations.is_empty();
    }
    Ok(right)
}

/// Runs one schedule, with these faults of it. Returns true if it is right.
pub(crate) fn one(
    seed: u64,
    faults: Option<&[usize]>,
    prints: bool,
    log: Option<String>,
) -> anyhow::Result<bool> {
    let definitions = cluster::definitions()?;
    for before in batch_begin(seed)..seed {
        in_thread(before, || runtime()?.block_on(async { Ok(()) }))?;
    }
    let mut plan = Plan::of(seed);
    if let Some(faults) = faults {
        let all = plan.faults.iter().enumerate();
        let left = all.filter(|(at, _)| faults.contains(at));
        plan.faults = left.map(|(_, fault)| *fault).collect();
    }
    if let Some(directives) = log {
        tracing_subscriber::fmt()
            .with_env_filter(directives)
            .without_time()
            .init();
    }
    if prints {
        println!("{:?} for {:?}", plan.sizes, plan.length);
        for (at, fault) in plan.faults.iter().enumerate() {
            println!("fault {at}: {fault:?}");
        }
    }
    let outcome = schedule(seed, &plan, &definitions, prints)?;
    println!("{}", line(seed, &outcome));
    Ok(outcome.violations.is_empty())
}

fn batch_begin(seed: u64) -> u64 {
    seed / SIZE * SIZE
}

fn line(seed: u64, outcome: &Outcome) -> String {
    let wrong = match outcome.violations.first() {
        None => "right".to_owned(),
        Some(first) => format!("WRONG {}", first.replace('\n', " ")),
    };
    format!(
        "{seed} {wrong} trace={:016x} decided={} failed={}",
        outcome.trace, outcome.decided, outcome.failed
    )
}

fn schedule(
    seed: u64,
    plan: &Plan,
    definitions: &[Value],
    prints: bool,
) -> anyhow::Result<Outcome> {
    in_thread(seed, || {
        let runtime = runtime()?;
        let outcome = runtime.block_on(schedule::run(seed, plan, definitions, prints));
        runtime.shutdown_background();
        outcome
    })
}

/// Runs in a thread whose name gives it its random numbers.
fn in_thread<T: Send>(
    seed: u64,
    run: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(format!("sim-{seed}"));
        let thread = thread.spawn_scoped(scope, run).context("a thread")?;
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("the schedule panicked"))?
    })
}

fn runtime() -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true);
    builder.build().context("a runtime")
}
