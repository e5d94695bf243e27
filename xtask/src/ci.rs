//! The steps that decide whether a change may land.

use std::process::Command;

use crate::{
    alerts, licences, parts,
    shell::{cargo, root, run, target},
    skips::Skips,
    test_programs::{PROGRAM_LEVELS, TestPrograms, run_beside},
    tidy, tools,
};

/// One set of crates and features for all steps, so that each third-party crate is compiled once for checks
/// and once for programs.
const WHOLE: [&str; 2] = ["--workspace", "--all-features"];

/// The crate whose tests run all real parts and the workspace's own programs.
const E2E: &str = "anteroom-e2e";

/// The crate whose tests run a nats-server, and nothing else that has to be built.
const BUS: &str = "anteroom-bus";

/// The simulated schedules.
const SCHEDULES: &str = "10000";

/// The programs that stories and later steps run.
const PROGRAMS: [&str; 3] = ["anteroom", "anteroom-demo", "anteroom-sim"];

/// All steps, with the tools that tests take. Shows what was left out at the end.
pub(crate) fn all() -> anyhow::Result<()> {
    let skips = Skips::begin()?;
    let outcome = steps(&skips);
    skips.show();
    outcome
}

/// What a look at the text finds comes first; then all that is built, and all that runs.
fn steps(skips: &Skips) -> anyhow::Result<()> {
    tidy::check()?;
    licences::check()?;
    check_alerts(skips)?;
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    let tests = build_tests()?;
    tests.run(skips, || {
        run_beside(
            cargo(&["clippy", "--all-targets"])
                .args(WHOLE)
                .args(["--", "-D", "warnings"]),
        )?;
        run_beside(
            cargo(&["doc", "--no-deps"])
                .args(WHOLE)
                .env("RUSTDOCFLAGS", "-D warnings"),
        )?;
        run_documented()?;
        run_beside(Command::new(target().join("debug/anteroom-sim")).args([
            "run",
            "--schedules",
            SCHEDULES,
        ]))
    })?;
    // Alone: the demo fails if a decision takes longer than a caller waits, as may happen at the lowest priority.
    run(Command::new(target().join("debug/anteroom-demo")).args(["--once", "-o", "json"]))
}

/// Fetches the tools that tests take, and tests the alerts by one of them.
fn check_alerts(skips: &Skips) -> anyhow::Result<()> {
    match tools::fetch() {
        Err(error) if !skips.tools_are_required => {
            skips.add(&format!("tests that take these tools: {error:#}"))?;
            match tools::promtool() {
                Ok(_) => alerts::check(),
                Err(_) => Ok(()),
            }
        }
        fetched => fetched.and_then(|()| alerts::check()),
    }
}

/// Builds the real parts, and every program and test.
fn build_tests() -> anyhow::Result<TestPrograms> {
    parts::build(&parts::ALL, false)?;
    let tests = TestPrograms::build(cargo(&["build", "--tests"]).args(WHOLE))?;
    // With one small test, so that third-party crates have the features that they have for tests.
    let programs = ["build", "--test", "errors", "--config", PROGRAM_LEVELS];
    let named = PROGRAMS.iter().flat_map(|name| ["--bin", name]);
    run(cargo(&programs).args(WHOLE).args(named))?;
    Ok(tests)
}

/// Runs the tests in the documentation.
fn run_documented() -> anyhow::Result<()> {
    run_beside(cargo(&["test", "--doc"]).args(WHOLE))
}

/// Builds what the tests of these crates run, and nothing else; then runs the tests. No crate named: all.
pub(crate) fn test(packages: &[String], args: &[String]) -> anyhow::Result<()> {
    let skips = Skips::begin()?;
    let outcome = test_with(&skips, packages, args);
    skips.show();
    outcome
}

fn test_with(skips: &Skips, packages: &[String], args: &[String]) -> anyhow::Result<()> {
    if packages.is_empty() {
        let tests = build_tests()?;
        return match args {
            [] => tests.run(skips, run_documented),
            args => {
                let mut command = cargo(&["test", "--tests"]);
                run(command.args(WHOLE).args(args).envs(skips.env()))
            }
        };
    }
    let (stories, others): (Vec<_>, Vec<_>) = packages.iter().partition(|package| *package == E2E);
    if !stories.is_empty() {
        parts::build(&parts::ALL, false)?;
        // As a part of the whole, so that programs and tests share what they are compiled from.
        run(cargo(&["build", "--bins", "--test", "e2e"]).args(WHOLE))?;
        let mut command = cargo(&["test", "--test", "e2e"]);
        run(command.args(WHOLE).args(args).envs(skips.env()))?;
    }
    if others.is_empty() {
        return Ok(());
    }
    if others.iter().any(|package| *package == BUS) {
        parts::build(&["nats-server"], false)?;
    }
    let packages = others.iter().flat_map(|package| ["-p", package]);
    run(cargo(&["test", "--all-features"]).args(packages).args(args))
}

/// Simulated schedules; without arguments as many as in [`all`].
pub(crate) fn simulate(args: &[String]) -> anyhow::Result<()> {
    let args = match args {
        [] => &["run".to_owned()],
        given => given,
    };
    let simulation = [
        "run",
        "--config",
        PROGRAM_LEVELS,
        "-p",
        "anteroom-sim",
        "--",
    ];
    run(cargo(&simulation).args(args))
}

/// The CRDs are written by the same test that holds them against the types.
pub(crate) fn write_crds() -> anyhow::Result<()> {
    run(cargo(&[
        "test",
        "-p",
        "anteroom-watcher",
        "--test",
        "watcher",
        "crds::",
    ])
    .env("ANTEROOM_UPDATE", "1"))
}

/// A benchmark, optimised.
pub(crate) fn bench(name: &str, args: &[String]) -> anyhow::Result<()> {
    parts::build(&parts::ALL, false)?;
    // The simulation would give the services a clock that can be stopped, and linking the demo takes minutes.
    let measured = ["--workspace", "--bins"];
    let left_out = ["--exclude", "anteroom-sim", "--exclude", "anteroom-demo"];
    run(cargo(&["build", "--release"]).args(measured).args(left_out))?;
    // Not by `cargo run -p`, which has other features, and so builds most of it a second time.
    run(Command::new(target().join("release").join(name)).args(args))
}

/// The benchmark of decisions; with `write_docs`, its page too.
pub(crate) fn measure(write_docs: bool, args: &[String]) -> anyhow::Result<()> {
    let mut args = args.to_vec();
    if write_docs {
        let page = root().join("docs/benchmarks.md");
        args.extend(["--write-docs".to_owned(), page.display().to_string()]);
    }
    bench("bench", &args)
}
