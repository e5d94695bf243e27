//! The cost of a decision, counted: instructions and allocations, which no noise of the machine hides.
//!
//! Reviews are taken through webhook and replica in one process (`benches/decisions` of the webhook,
//! without TLS and NATS), under valgrind's callgrind with two numbers of reviews. The difference is what
//! the reviews took, whatever the start took.

pub(crate) mod callgrind;
mod flame;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::{cargo, root, run, say, target};
use anyhow::{Context, bail};
use callgrind::{Costs, Each};

/// The two numbers of reviews. The fewer are enough for whatever is made at the first of them.
const REVIEWS: [u64; 2] = [200, 1_200];

/// Samples in a second of `perf`, and the reviews that it looks at: some seconds.
const SAMPLES_HZ: &str = "1999";
const SAMPLED_REVIEWS: &str = "200000";

/// Options of a profile.
#[derive(clap::Args)]
pub(crate) struct ProfileArgs {
    /// The policy that decides: none, local, hosts or paths.
    #[arg(long, value_delimiter = ',', default_value = "none,local,hosts,paths")]
    policy: Vec<String>,

    /// The number of functions to list, by their own time.
    #[arg(long, default_value_t = 25)]
    functions: usize,

    /// Sample with `perf` too: a flame graph goes to profile/POLICY.svg in the target folder, and its
    /// stacks, one a line with its number of samples, to profile/POLICY.folded.
    #[arg(long)]
    stacks: bool,
}

/// Counts, and prints a table for each policy.
pub(crate) fn profile(args: &ProfileArgs) -> anyhow::Result<()> {
    let driver = driver()?;
    let folder = target().join("profile");
    fs::create_dir_all(&folder)?;
    for policy in &args.policy {
        let each = count(&driver, &folder, policy)?;
        print(policy, &each, args.functions);
        if args.stacks {
            sample(&driver, &folder, policy)?;
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "it is what was asked for")]
fn print(policy: &str, each: &Each, functions: usize) {
    println!(
        "policy {policy}: {:.0} instructions and {:.1} allocations for a decision",
        each.instructions, each.allocations
    );
    println!("{:>12} {:>8}  function", "instructions", "calls");
    for function in each.functions.iter().take(functions) {
        let (took, calls) = (function.instructions, function.calls);
        println!("{took:12.0} {calls:8.1}  {}", function.name);
    }
}

/// Builds the driver, and says where it is.
fn driver() -> anyhow::Result<PathBuf> {
    let bench = [
        "bench",
        "-p",
        "anteroom-webhook",
        "--bench",
        "decisions",
        "--no-run",
    ];
    let built = cargo(&bench).output().context("cargo does not start")?;
    let said = String::from_utf8_lossy(&built.stderr);
    // As in `Executable benches/decisions/main.rs (target/release/deps/decisions-0123)`.
    let executable = said.lines().find_map(|line| {
        let (_, path) = line.trim().strip_prefix("Executable ")?.split_once('(')?;
        Some(root().join(path.strip_suffix(')')?))
    });
    match executable {
        Some(executable) if built.status.success() => Ok(executable),
        _ => bail!("the driver was not built:\n{said}"),
    }
}

fn reviews(command: &mut Command, policy: &str, reviews: &str) -> anyhow::Result<()> {
    let of = ["--policy", policy, "--reviews", reviews];
    run(command.args(of).stdout(std::process::Stdio::null()))
}

fn count(driver: &Path, folder: &Path, policy: &str) -> anyhow::Result<Each> {
    let costs = |number: u64| -> anyhow::Result<Costs> {
        let out = folder.join(format!("{policy}.{number}.callgrind"));
        let mut valgrind = Command::new("valgrind");
        let to = format!("--callgrind-out-file={}", out.display());
        valgrind
            .args(["-q", "--tool=callgrind"])
            .arg(to)
            .arg(driver);
        reviews(&mut valgrind, policy, &number.to_string())?;
        let text = fs::read(&out)?;
        Ok(Costs::read(&String::from_utf8_lossy(&text)))
    };
    let [few, many] = REVIEWS;
    Ok(costs(many)?.since(&costs(few)?, many - few))
}

fn sample(driver: &Path, folder: &Path, policy: &str) -> anyhow::Result<()> {
    let data = folder.join(format!("{policy}.perf"));
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-e",
        "cpu-clock",
        "-F",
        SAMPLES_HZ,
        "--call-graph",
        "dwarf",
    ]);
    perf.arg("-o").arg(&data).arg("--").arg(driver);
    reviews(&mut perf, policy, SAMPLED_REVIEWS)?;
    let script = Command::new("perf")
        .args(["script", "-F", "ip,sym", "-i"])
        .arg(&data)
        .output()
        .context("perf does not start")?;
    let folded = callgrind::folded(&String::from_utf8_lossy(&script.stdout));
    let picture = flame::svg(policy, &folded);
    fs::write(folder.join(format!("{policy}.folded")), folded)?;
    let file = folder.join(format!("{policy}.svg"));
    fs::write(&file, picture)?;
    say(&format!("a flame graph is in {}", file.display()));
    Ok(())
}
