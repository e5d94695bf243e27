//! Runs the fuzz targets of `tests/fuzz` under libFuzzer, on a stable toolchain.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use anyhow::{Context as _, bail};

use crate::shell::{cargo, root, run, say, target};

/// The instrumentation that `cargo fuzz` gives a program, by options of stable compilers.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The longest input, in bytes.
const INPUT_BYTES_MAX: u32 = 4096;

/// An input that takes longer fails, in seconds.
const INPUT_TAKES_MAX_S: u32 = 10;

/// The line of libFuzzer's report with the number of executions.
const EXECUTED: &str = "stat::number_of_executed_units:";

#[derive(clap::Args)]
pub(crate) struct FuzzArgs {
    /// Only this target; may be given several times.
    #[arg(short, long)]
    target: Vec<String>,
    /// Executions of each target.
    #[arg(long, default_value_t = 1_000_000)]
    executions: u64,
    /// Targets at once; as many as there are cores, if this is absent.
    #[arg(long)]
    at_once: Option<usize>,
}

/// Runs the targets, and tells the sum of their executions. The corpora stay in `target/fuzz`, so that the next run goes on
/// from them.
pub(crate) fn fuzz(args: &FuzzArgs) -> anyhow::Result<()> {
    let names = match args.target.as_slice() {
        [] => all()?,
        given => given.to_vec(),
    };
    let program = build()?;
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    let at_once = args.at_once.unwrap_or_else(cores);
    let (next, sum) = (AtomicUsize::new(0), AtomicU64::new(0));
    let (failed, failures) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once {
            let (next, sum, names, program) = (&next, &sum, &names, &program);
            let failed = failed.clone();
            scope.spawn(move || {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match one(program, name, args.executions) {
                        Ok(executed) => {
                            sum.fetch_add(executed, Ordering::Relaxed);
                            say(&format!("{name}: {executed} executions, none failed"));
                        }
                        Err(error) => {
                            say(&format!("{name}: {error:#}"));
                            let _ = failed.send(name.clone());
                        }
                    }
                }
            });
        }
    });
    drop(failed);
    let failed: Vec<_> = failures.iter().collect();
    let (passed, sum) = (names.len() - failed.len(), sum.into_inner());
    say(&format!(
        "{sum} executions of {passed} targets, none of which failed"
    ));
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// The targets, by their folders of seeds; a test holds these against the code.
fn all() -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("tests/fuzz/seeds"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Builds the driver, which is no part of the workspace.
fn build() -> anyhow::Result<PathBuf> {
    let folder = target().join("fuzz");
    // Named, so that programs of the build are not instrumented.
    let host = host()?;
    run(
        cargo(&["build", "--release", "--target", &host, "--manifest-path"])
            .arg(root().join("tests/fuzz/driver/Cargo.toml"))
            .arg("--target-dir")
            .arg(&folder)
            .env("RUSTFLAGS", FLAGS),
    )?;
    Ok(folder.join(host).join("release/anteroom-fuzz-driver"))
}

fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output()?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

/// Runs one target, and returns the number of its executions.
fn one(program: &Path, name: &str, executions: u64) -> anyhow::Result<u64> {
    let folder = target().join("fuzz");
    let corpus = folder.join("corpus").join(name);
    let failing = folder.join("failing").join(format!("{name}-"));
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(folder.join("failing"))?;
    let log = folder.join(format!("{name}.log"));
    let status = Command::new(program)
        .env("ANTEROOM_FUZZ_TARGET", name)
        .arg(&corpus)
        .arg(root().join("tests/fuzz/seeds").join(name))
        .arg(format!("-runs={executions}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-timeout={INPUT_TAKES_MAX_S}"))
        .arg(format!("-artifact_prefix={}", failing.display()))
        .arg("-print_final_stats=1")
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log)?)
        .status()?;
    let text = fs::read_to_string(&log)?;
    if !status.success() {
        let lines = text.lines().filter(|line| {
            line.contains("panicked")
                || line.contains("ERROR")
                || line.contains("Test unit written")
        });
        let lines: Vec<_> = lines.collect();
        bail!(
            "an input failed; see {}:\n{}",
            log.display(),
            lines.join("\n")
        );
    }
    let executed = text.lines().find_map(|line| line.strip_prefix(EXECUTED));
    let executed = executed.and_then(|number| number.trim().parse().ok());
    executed.with_context(|| format!("no report in {}", log.display()))
}
