//! Compares the processor time of functions, operators and patterns with the steps that they charge.
//!
//! An expression has a budget of steps, and a step stands for about 50 ns. A function that charges too few for what its
//! arguments make it do holds a thread for as long as a tenant wishes. So each is called with values that are long, deep
//! or made to be compared often, of growing sizes, and its time per charged step is measured.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of the command line"
)]

mod subjects;
mod values;

use std::{fmt, process::ExitCode, time::Instant};

use clap::Parser;
use serde_json::json;
use subjects::{Ran, Subject};

/// Compares the processor time of functions, operators and patterns with the steps that they charge.
///
/// Exit codes: 0 if all charge enough, 1 if some do not.
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  cargo xtask charges\n  cargo xtask charges -- --bytes-max 65536 --only cel:"
)]
struct Args {
    /// Bytes of each value, at most. Sizes grow sixteenfold up to it.
    #[arg(long, default_value_t = 64 * 1024)]
    bytes_max: usize,

    /// Nanoseconds that a charged step may take.
    #[arg(long, default_value_t = 1_000)]
    step_ns_max: u64,

    /// Calls that are faster are not judged, in microseconds.
    #[arg(long, default_value_t = 20)]
    call_us_min: u64,

    /// Only subjects whose names contain this text, as in `jmespath:split`.
    #[arg(long, default_value = "")]
    only: String,

    /// The calls to list, those with the slowest steps first.
    #[arg(long, default_value_t = 20)]
    list: usize,

    /// Cargo passes it.
    #[arg(long, hide = true)]
    bench: bool,
}

const BYTES_MIN: usize = 4 * 1024;

/// One measured call.
struct Measured {
    subject: String,
    arguments: String,
    bytes: usize,
    ns: u64,
    steps: u64,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, step_ns) = (self.ns as f64 / 1e6, self.step_ns());
        let Self {
            subject,
            arguments,
            bytes,
            steps,
            ..
        } = self;
        write!(
            f,
            "{subject} of {arguments} ({bytes} bytes): {ms} ms for {steps} steps, {step_ns} ns each"
        )
    }
}

impl Measured {
    fn step_ns(&self) -> u64 {
        self.ns / self.steps.max(1)
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let subjects: Vec<Subject> = subjects::all()
        .into_iter()
        .filter(|subject| subject.name.contains(&args.only))
        .collect();
    let mut slow = Vec::new();
    for (at, subject) in subjects.iter().enumerate() {
        eprintln!("{}/{} {}", at + 1, subjects.len(), subject.name);
        measure(subject, &args, &mut slow);
    }
    slow.sort_by_key(|call| std::cmp::Reverse(call.step_ns()));
    let over = slow
        .iter()
        .filter(|call| call.step_ns() > args.step_ns_max)
        .count();
    let listed = slow.iter().take(args.list.max(over)).map(|call| {
        json!({
            "subject": call.subject,
            "arguments": call.arguments,
            "bytes": call.bytes,
            "ms": call.ns as f64 / 1e6,
            "steps": call.steps,
            "step_ns": call.step_ns(),
        })
    });
    let result = json!({
        "subjects": subjects.len(),
        "over": over,
        "slowest_steps": listed.collect::<Vec<_>>(),
    });
    println!("{result:#}");
    match over {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Calls the subject with all values of growing sizes. Arguments whose steps are too slow are not made longer, since the
/// work may grow with their square. Neither are those whose types the subject does not take.
fn measure(subject: &Subject, args: &Args, slow: &mut Vec<Measured>) {
    let mut chosen = subject.arguments(&values::of(0));
    let mut bytes = BYTES_MIN.min(args.bytes_max);
    loop {
        let values = values::of(bytes);
        chosen.retain(|chosen| match call(subject, &values, chosen, args) {
            Judged::Refused => false,
            Judged::Fast => true,
            Judged::Slow { ns, steps } => {
                let named = chosen.iter().map(|at| values[*at].name);
                let measured = Measured {
                    subject: subject.name.clone(),
                    arguments: named.collect::<Vec<_>>().join(", "),
                    bytes,
                    ns,
                    steps,
                };
                let is_within = measured.step_ns() <= args.step_ns_max;
                if !is_within {
                    eprintln!("{measured}");
                }
                slow.push(measured);
                is_within
            }
        });
        if bytes >= args.bytes_max {
            return;
        }
        bytes = (bytes * 16).min(args.bytes_max);
    }
}

enum Judged {
    /// The subject does not take arguments of these types.
    Refused,
    /// The call was too fast to be judged.
    Fast,
    Slow {
        ns: u64,
        steps: u64,
    },
}

/// Calls the subject. Where a step seems slow, the fastest of several calls counts.
fn call(subject: &Subject, values: &[values::Named], chosen: &[usize], args: &Args) -> Judged {
    const AGAIN: usize = 4;
    let arguments: Vec<_> = chosen.iter().map(|at| &values[*at].value).collect();
    let call = subject.prepare(&arguments);
    let once = || {
        let begun = Instant::now();
        let ran = call.run();
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        (ns, ran)
    };
    let is_fast = |ns: u64| ns / 1_000 < args.call_us_min;
    let (mut ns, Ran { steps, is_refused }) = once();
    match is_fast(ns) {
        true if is_refused => return Judged::Refused,
        true => return Judged::Fast,
        false => {}
    }
    for _ in 0..AGAIN {
        if is_fast(ns) || ns / steps.max(1) <= args.step_ns_max {
            break;
        }
        ns = ns.min(once().0);
    }
    match is_fast(ns) {
        true => Judged::Fast,
        false => Judged::Slow { ns, steps },
    }
}
