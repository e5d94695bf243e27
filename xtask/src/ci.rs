//! The steps that decide whether a change may land.

use std::{
    io::Read as _,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, ensure};

use crate::{
    alerts, licences, parts,
    shell::{cargo, root, run, say, target},
    tidy,
};

/// One set of crates and features for all steps, so that each third-party crate is compiled once for checks
/// and once for programs.
const WHOLE: [&str; 2] = ["--workspace", "--all-features"];

/// The crate whose tests run all real parts and the workspace's own programs.
const E2E: &str = "anteroom-e2e";

/// The crate whose tests run a nats-server, and nothing else that has to be built.
const BUS: &str = "anteroom-bus";

/// All steps, cheapest first.
pub(crate) fn all() -> anyhow::Result<()> {
    tidy::check()?;
    licences::check()?;
    alerts::check_if_installed()?;
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    run(cargo(&["clippy", "--all-targets"])
        .args(WHOLE)
        .args(["--", "-D", "warnings"])
        .env("CARGO_TERM_COLOR", "always"))?;
    run(cargo(&["doc", "--no-deps"])
        .args(WHOLE)
        .env("RUSTDOCFLAGS", "-D warnings"))?;
    build_tests()?;
    // Stories on real parts wait most of the time, and simulated schedules do not care how long they take.
    let simulated = Simulation::start()?;
    test_all(&[])?;
    say("simulated schedules of faults");
    simulated.finish()?;
    say("the demo, once");
    run(Command::new(target().join("debug/anteroom-demo")).args(["--once", "-o", "json"]))
}

/// Simulated schedules that run with what the tests leave of the processors. They end with this handle.
struct Simulation(Child);

impl Simulation {
    fn start() -> anyhow::Result<Self> {
        let program = target().join("debug/anteroom-sim");
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(program).arg("run");
        let started = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let started = started.with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self(started))
    }

    /// Waits for their end, and shows what they say.
    fn finish(mut self) -> anyhow::Result<()> {
        let mut said = String::new();
        if let Some(mut output) = self.0.stdout.take() {
            output.read_to_string(&mut said)?;
        }
        say(&said);
        ensure!(self.0.wait()?.success(), "a simulated schedule is wrong");
        Ok(())
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        // Both fail only where it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds the real parts, and every program and test.
fn build_tests() -> anyhow::Result<()> {
    parts::build(&parts::ALL, false)?;
    run(cargo(&["build", "--bins", "--tests"]).args(WHOLE))
}

fn test_all(args: &[String]) -> anyhow::Result<()> {
    run(cargo(&["test", "--tests"]).args(WHOLE).args(args))?;
    match args {
        [] => run(cargo(&["test", "--doc"]).args(WHOLE)),
        _ => Ok(()),
    }
}

/// Builds what the tests of these crates run, and nothing else; then runs the tests. No crate named: all.
pub(crate) fn test(packages: &[String], args: &[String]) -> anyhow::Result<()> {
    if packages.is_empty() {
        build_tests()?;
        return test_all(args);
    }
    let (stories, others): (Vec<_>, Vec<_>) = packages.iter().partition(|package| *package == E2E);
    if !stories.is_empty() {
        parts::build(&parts::ALL, false)?;
        // As a part of the whole, so that programs and tests share what they are compiled from.
        run(cargo(&["build", "--bins", "--test", "e2e"]).args(WHOLE))?;
        run(cargo(&["test", "--test", "e2e"]).args(WHOLE).args(args))?;
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
    run(cargo(&["run", "-p", "anteroom-sim", "--"]).args(args))
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
    // The simulation would give the services a clock that can be stopped.
    let measured = ["--workspace", "--exclude", "anteroom-sim", "--bins"];
    run(cargo(&["build", "--release"]).args(measured))?;
    run(cargo(&[
        "run",
        "--release",
        "-p",
        "anteroom-bench",
        "--bin",
        name,
        "--",
    ])
    .args(args))
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
