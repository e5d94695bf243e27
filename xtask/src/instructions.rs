//! Instructions and allocations, counted, of small programs that always do the same: a regression of a hundredth shows in
//! them, where a busy machine's clock hides one of a tenth.
//!
//! Each program is run twice under callgrind, with fewer and with more rounds. The difference is what
//! the rounds took, whatever the start took.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};

use crate::{
    profile::callgrind::Costs,
    shell::{cargo, run, say, target},
};

/// A program to count.
struct Driver {
    name: &'static str,
    package: &'static str,
    bench: &'static str,
    args: &'static [&'static str],
    /// The flag that says how many rounds.
    flag: &'static str,
    rounds: [u64; 2],
}

const fn decision(name: &'static str, args: &'static [&'static str]) -> Driver {
    Driver {
        name,
        package: "anteroom-webhook",
        bench: "decisions",
        args,
        flag: "--reviews",
        rounds: [100, 600],
    }
}

const fn steps(name: &'static str, args: &'static [&'static str]) -> Driver {
    Driver {
        name,
        package: "anteroom-cache-replica",
        bench: "steps",
        args,
        flag: "--rounds",
        rounds: [50, 250],
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

/// Counts every driver whose name holds `only`, and prints JSON.
pub(crate) fn count(only: Option<&str>) -> anyhow::Result<()> {
    let installed = Command::new("valgrind").arg("--version").output();
    if !installed.is_ok_and(|output| output.status.success()) {
        bail!(
            "valgrind is not installed: counting instructions takes it, as in `apt-get install valgrind`"
        );
    }
    let chosen = DRIVERS
        .iter()
        .filter(|driver| only.is_none_or(|only| driver.name.contains(only)));
    let chosen: Vec<_> = chosen.collect();
    ensure!(!chosen.is_empty(), "no program is called so");
    let folder = target().join("instructions");
    std::fs::create_dir_all(&folder)?;
    let mut json = String::new();
    for driver in chosen {
        let program = build(driver)?;
        let [few, many] = driver.rounds;
        let (few_took, many_took) = (
            costs(driver, &program, few, &folder)?,
            costs(driver, &program, many, &folder)?,
        );
        let each = many_took.since(&few_took, many - few);
        let (instructions, allocations) = (each.instructions, each.allocations);
        say(&format!(
            "{}: {instructions:.0} instructions, {allocations:.1} allocations",
            driver.name
        ));
        let comma = if json.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(
            json,
            "{comma}\n  {:?}: {{ \"instructions\": {instructions:.0}, \"allocations\": {allocations:.1} }}",
            driver.name
        );
    }
    print_json(&format!("{{{json}\n}}"));
    Ok(())
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
