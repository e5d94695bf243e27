//! Instructions and allocations, counted, of small programs that always do the same: a regression of a hundredth shows in
//! them, where a busy machine's clock hides one of a tenth.
//!
//! Each program is run twice under callgrind, with fewer and with more rounds. The difference is what
//! the rounds took. Starts differ by millions of instructions (seeds of hash tables, threads), so there are enough rounds
//! to make that a hundredth at most.
//!
//! Counts are compared with those of the recorded baseline. Another compiler, and another processor's instructions, change
//! them by some hundredths too: then record the baseline of the earlier code first.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use crate::{
    profile::callgrind::Costs,
    shell::{cargo, root, run, say, target},
};

/// The file of the recorded counts, by the programs' names.
const BASELINE: &str = "xtask/instructions.json";

/// The ratio of instructions to the recorded ones above which a program counts as a regression.
const RATIO_MAX: f64 = 1.03;

/// A program to count.
struct Driver {
    name: &'static str,
    package: &'static str,
    bench: &'static str,
    args: &'static [&'static str],
    /// The flag that says how many rounds.
    flag: &'static str,
}

/// The rounds of the two runs of a program.
const ROUNDS: [u64; 2] = [100, 2_100];

const fn decision(name: &'static str, args: &'static [&'static str]) -> Driver {
    Driver {
        name,
        package: "anteroom-webhook",
        bench: "decisions",
        args,
        flag: "--reviews",
    }
}

const fn steps(name: &'static str, args: &'static [&'static str]) -> Driver {
    Driver {
        name,
        package: "anteroom-cache-replica",
        bench: "steps",
        args,
        flag: "--rounds",
    }
}

const DRIVERS: &[Driver] = &[
    decision("a review that no policy wants", &["--policy", "none"]),
    decision("a decision that asks nobody", &["--policy", "local"]),
    decision("a decision by an indexed query", &["--policy", "hosts"]),
    // The difference of these two is the cost of a look.
    decision(
        "a decision with nobody looking",
        &["--policy", "hosts", "--tap", "none"],
    ),
    decision(
        "a decision with a summary looked at",
        &["--policy", "hosts", "--tap", "summary"],
    ),
    decision(
        "host and path by an unchanged call",
        &["--policy", "paths", "--objects", "300"],
    ),
    decision(
        "host and path by an unchanged call, ten times the objects",
        &["--policy", "paths", "--objects", "3000"],
    ),
    steps("an indexed query", &["--expressions", "1"]),
    steps("ten indexed queries", &["--expressions", "10"]),
    steps(
        "a delta, and an indexed query",
        &["--expressions", "1", "--deltas"],
    ),
    steps(
        "a delta, and ten indexed queries",
        &["--expressions", "10", "--deltas"],
    ),
    steps(
        "a delta, and ten indexed queries, ten times the objects",
        &["--expressions", "10", "--deltas", "--objects", "30000"],
    ),
];

#[derive(Debug, clap::Args)]
pub(crate) struct InstructionsArgs {
    /// Only programs with this text in their names.
    only: Option<String>,
    /// Write the counts into the baseline.
    #[arg(long)]
    record: bool,
}

/// Counts every chosen driver, prints JSON, and fails where a count is above that of the baseline.
pub(crate) fn count(args: &InstructionsArgs) -> anyhow::Result<()> {
    let installed = Command::new("valgrind").arg("--version").output();
    if !installed.is_ok_and(|output| output.status.success()) {
        bail!(
            "valgrind is not installed: counting instructions takes it, as in `apt-get install valgrind`"
        );
    }
    let only = args.only.as_deref().unwrap_or_default();
    let chosen: Vec<_> = DRIVERS
        .iter()
        .filter(|driver| driver.name.contains(only))
        .collect();
    ensure!(!chosen.is_empty(), "no program is called so");
    let folder = target().join("instructions");
    fs::create_dir_all(&folder)?;
    let mut baseline = read_baseline()?;
    let mut counted = BTreeMap::new();
    let mut regressions = Vec::new();
    for driver in chosen {
        let program = build(driver)?;
        let [few, many] = ROUNDS;
        let (few_took, many_took) = (
            costs(driver, &program, few, &folder)?,
            costs(driver, &program, many, &folder)?,
        );
        let each = many_took.since(&few_took, many - few);
        let row = compared(driver.name, each.instructions, baseline.get(driver.name));
        say(&format!(
            "{}, {:.1} allocations",
            row.text, each.allocations
        ));
        if row.is_regression {
            regressions.push(row.text);
        }
        let count = json!({
            "instructions": each.instructions.round(),
            "allocations": (each.allocations * 10.0).round() / 10.0,
        });
        counted.insert(driver.name.to_owned(), count);
    }
    print_json(&serde_json::to_string_pretty(&counted)?);
    if args.record {
        baseline.extend(counted);
        let text = serde_json::to_string_pretty(&baseline)?;
        return fs::write(root().join(BASELINE), text + "\n").context(BASELINE);
    }
    ensure!(
        regressions.is_empty(),
        "more than {RATIO_MAX} times the instructions of {BASELINE}: {}",
        regressions.join("; ")
    );
    Ok(())
}

fn read_baseline() -> anyhow::Result<BTreeMap<String, Value>> {
    let text = fs::read_to_string(root().join(BASELINE)).context(BASELINE)?;
    serde_json::from_str(&text).context(BASELINE)
}

/// A line about one program.
struct Row {
    text: String,
    is_regression: bool,
}

/// Compares the instructions of a program with the recorded ones, if there are any.
fn compared(name: &str, instructions: f64, recorded: Option<&Value>) -> Row {
    let recorded = recorded.and_then(|recorded| recorded["instructions"].as_f64());
    let text = format!("{name}: {instructions:.0} instructions");
    match recorded {
        Some(recorded) => Row {
            text: format!("{text}, {:.3} times the recorded", instructions / recorded),
            is_regression: instructions > recorded * RATIO_MAX,
        },
        None => Row {
            text: format!("{text}, none recorded"),
            is_regression: false,
        },
    }
}

/// The program, optimised, and where it is.
fn build(driver: &Driver) -> anyhow::Result<PathBuf> {
    let of = ["-p", driver.package, "--bench", driver.bench];
    run(cargo(&["build", "--release"]).args(of))?;
    // Only cargo knows the name of what it built.
    let told = cargo(&["build", "--release", "--message-format=json"])
        .args(of)
        .output()?;
    let told = String::from_utf8_lossy(&told.stdout);
    let named = format!("\"name\":\"{}\"", driver.bench);
    let executable = told
        .lines()
        .filter(|line| line.contains("\"compiler-artifact\"") && line.contains(&named))
        .find_map(|line| line.split("\"executable\":\"").nth(1)?.split('"').next());
    let executable = executable.with_context(|| format!("cargo built no {}", driver.bench))?;
    Ok(PathBuf::from(executable))
}

fn costs(driver: &Driver, program: &Path, rounds: u64, folder: &Path) -> anyhow::Result<Costs> {
    let out = folder.join(format!(
        "{}.{rounds}.callgrind",
        driver.name.replace(' ', "-")
    ));
    let mut command = Command::new("valgrind");
    command
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(driver.args)
        .args([driver.flag, &rounds.to_string()]);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {said}");
    let text = std::fs::read(&out)?;
    Ok(Costs::read(&String::from_utf8_lossy(&text)))
}

#[expect(clippy::print_stdout, reason = "the task's output")]
fn print_json(json: &str) {
    println!("{json}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regression_is_more_than_the_ratio() {
        let recorded = json!({ "instructions": 1000.0 });
        let row = compared("a", 1031.0, Some(&recorded));
        assert_eq!(row.text, "a: 1031 instructions, 1.031 times the recorded");
        assert!(row.is_regression);
        assert!(!compared("a", 1030.0, Some(&recorded)).is_regression);
        assert!(!compared("a", 1e9, None).is_regression);
    }

    #[test]
    fn the_baseline_has_every_program_once() {
        let baseline = read_baseline().unwrap();
        let names: BTreeMap<_, _> = DRIVERS.iter().map(|driver| (driver.name, ())).collect();
        assert_eq!(names.len(), DRIVERS.len());
        assert!(
            baseline
                .keys()
                .all(|name| names.contains_key(name.as_str()))
        );
        assert!(names.keys().all(|name| baseline.contains_key(*name)));
    }
}
