//! Schedules by the batch, one process for each, as many at once as there are cores.
//!
//! One number is not drawn from the seed: tokio counts the runtimes that a process has entered. So a batch begins at a
//! fixed seed in a process of its own, and before a single schedule as many runtimes are entered as in its batch.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line")]

use std::{
    ops::Range,
    process::{Command, Output},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
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

/// The lines of the batches that have ended.
struct Ended {
    begun: Instant,
    lines: Vec<String>,
    failing: Vec<String>,
}

impl Ended {
    /// Takes in the output of the batch of these seeds.
    fn take(&mut self, seeds: Range<u64>, output: &Output) {
        let (text, before) = (String::from_utf8_lossy(&output.stdout), self.lines.len());
        self.lines.extend(text.lines().map(str::to_owned));
        let new = &self.lines[before..];
        let wrong = new.iter().filter(|line| line.contains("WRONG"));
        self.failing.extend(wrong.cloned());
        let next = seeds.start + new.len() as u64;
        if next < seeds.end {
            let why = String::from_utf8_lossy(&output.stderr);
            self.failing
                .push(format!("{next} WRONG the process ended: {why}"));
        }
        if before / 1_000 != self.lines.len() / 1_000 {
            eprintln!(
                "{} schedules in {:.0?}",
                self.lines.len(),
                self.begun.elapsed()
            );
        }
    }

    fn sum(&self, what: &str) -> u64 {
        let values = self.lines.iter().filter_map(|line| value(line, what));
        values.sum()
    }
}

/// Runs schedules on all cores, from the batch `first` on. Returns true if all are right. If `stops`, no batch begins
/// after one with a schedule that is wrong, and only the first such schedule is told. Batches begin in order, so that is
/// the same one each time.
pub(crate) fn run(first: u64, schedules: u64, stops: bool) -> anyhow::Result<bool> {
    let ended = Mutex::new(Ended {
        begun: Instant::now(),
        lines: Vec::new(),
        failing: Vec::new(),
    });
    let (next, end) = (AtomicU64::new(first), first * SIZE + schedules);
    let is_over = AtomicBool::new(false);
    let work = || -> anyhow::Result<()> {
        loop {
            if is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            let batch = next.fetch_add(1, Ordering::Relaxed);
            let seeds = batch * SIZE..end.min((batch + 1) * SIZE);
            if seeds.is_empty() {
                return Ok(());
            }
            let size = seeds.end - seeds.start;
            let output = command(&["batch", &batch.to_string(), &size.to_string()])?;
            let mut ended = ended.lock();
            ended.take(seeds, &output);
            if stops && !ended.failing.is_empty() {
                is_over.store(true, Ordering::Relaxed);
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
    let mut ended = ended.into_inner();
    println!(
        "{} schedules in {:.1?}: {} decisions, {} refused for want of facts, {} wrong before a silent loss was found, {} schedules wrong",
        ended.lines.len(),
        ended.begun.elapsed(),
        ended.sum("decided"),
        ended.sum("failed"),
        ended.sum("excused"),
        ended.failing.len()
    );
    ended.failing.sort_by_key(|line| seed_of(line));
    let (told, shrunk) = match stops {
        true => (1, 0),
        false => (usize::MAX, SHRUNK_MAX),
    };
    for (at, line) in ended.failing.iter().enumerate().take(told) {
        println!("{line}");
        let seed = seed_of(line);
        let faults = match at < shrunk {
            true => format!(" {}", shrink(seed)?),
            false => String::new(),
        };
        println!("  again: cargo xtask sim seed {seed}{faults} --trace");
    }
    Ok(ended.failing.is_empty())
}

/// The seed that a line is about.
fn seed_of(line: &str) -> u64 {
    let seed = line.split(' ').next().and_then(|seed| seed.parse().ok());
    seed.unwrap_or_default()
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

/// Leaves faults out, one after the other, as long as the schedule still fails. Returns the option that names those that
/// are left.
fn shrink(seed: u64) -> anyhow::Result<String> {
    let mut left: Vec<usize> = (0..Plan::of(seed).faults.len()).collect();
    let seed = seed.to_string();
    let mut at = 0;
    while at < left.len() {
        let mut fewer = left.clone();
        fewer.remove(at);
        let fails = command(&["seed", &seed, &option(&fewer)])?.status.code() == Some(1);
        match fails {
            true => left = fewer,
            false => at += 1,
        }
    }
    Ok(option(&left))
}

fn option(faults: &[usize]) -> String {
    let texts: Vec<_> = faults.iter().map(usize::to_string).collect();
    match texts.is_empty() {
        true => "--faults".to_owned(),
        false => format!("--faults={}", texts.join(",")),
    }
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

/// Runs a schedule with the given faults. Returns true if the schedule passes.
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
        "{seed} {wrong} trace={:016x} decided={} failed={} excused={}",
        outcome.trace, outcome.decided, outcome.failed, outcome.excused
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
