//! The programs of all tests, and what runs beside them.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, anyhow, ensure};
use serde_json::Value;

use crate::{
    shell::{run, say, show},
    skips::Skips,
};

/// The file of levels at which the programs are optimised that stories and later steps run.
pub(crate) const PROGRAM_LEVELS: &str = "xtask/programs.toml";

/// The test that runs all real parts.
const STORIES: &str = "e2e";

/// The niceness of a process beside the tests: it gets what they leave of the processors.
const NICENESS: &str = "19";

/// The real parts are written in Go. Few of them live long enough for their collector to be worth its time: an API server's
/// start takes a sixth less CPU so.
const GO_HEAP_GROWTH: (&str, &str) = ("GOGC", "400");

/// A program that cargo built for a test.
struct Program {
    name: String,
    file: PathBuf,
    /// The crate's folder, in which `cargo test` runs it.
    folder: PathBuf,
}

/// All programs that cargo built for tests.
pub(crate) struct TestPrograms(Vec<Program>);

impl TestPrograms {
    /// Runs this build, and returns the tests' programs among what it makes.
    pub(crate) fn build(command: &mut Command) -> anyhow::Result<Self> {
        command.args(["--message-format", "json-render-diagnostics"]);
        say(&format!("{command:?}"));
        let output = command.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "{command:?}: {}", output.status);
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let messages = lines.filter_map(|line| serde_json::from_slice(line).ok());
        let programs: Vec<_> = messages
            .filter_map(|message| Program::of(&message))
            .collect();
        ensure!(!programs.is_empty(), "{command:?} named no program");
        Ok(Self(programs))
    }

    /// Runs all tests, the stories last, and `beside` at the same time. Waits for both, so that each error is seen.
    pub(crate) fn run(
        &self,
        skips: &Skips,
        beside: impl FnOnce() -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<()> {
        thread::scope(|scope| {
            let beside = scope.spawn(beside);
            let tests = self.run_all(skips);
            let beside = beside.join();
            let beside =
                beside.unwrap_or_else(|_| Err(anyhow!("a step beside the tests panicked")));
            match (tests, beside) {
                (Err(tests), Err(beside)) => Err(anyhow!("{tests:#}; and {beside:#}")),
                (tests, beside) => tests.and(beside),
            }
        })
    }

    /// Runs all tests, and names each program that failed.
    fn run_all(&self, skips: &Skips) -> anyhow::Result<()> {
        let (name, percent) = GO_HEAP_GROWTH;
        let (stories, others): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|program| program.is_stories());
        let outcomes = others.into_iter().chain(stories).map(|program| {
            let mut command = program.command();
            run(command.env(name, percent).envs(skips.env()))
        });
        let failed: Vec<_> = outcomes
            .filter_map(Result::err)
            .map(|error| format!("{error:#}"))
            .collect();
        ensure!(failed.is_empty(), "{}", failed.join("; and "));
        Ok(())
    }
}

impl Program {
    /// Returns the program that a message of cargo tells of, if it is one of a test.
    fn of(message: &Value) -> Option<Self> {
        if message["profile"]["test"] != true {
            return None;
        }
        Some(Self {
            name: message["target"]["name"].as_str()?.to_owned(),
            file: message["executable"].as_str()?.into(),
            folder: Path::new(message["manifest_path"].as_str()?)
                .parent()?
                .to_owned(),
        })
    }

    fn is_stories(&self) -> bool {
        self.name == STORIES
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        // Both as `cargo test` does.
        command.current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Runs to the end with what others leave of the processors, then shows its output in one piece.
pub(crate) fn run_beside(command: &Command) -> anyhow::Result<()> {
    let mut nice = Command::new("nice");
    nice.args(["-n", NICENESS])
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    let output = nice.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    say(&format!("{command:?}"));
    for text in [&output.stderr, &output.stdout] {
        show(text);
    }
    ensure!(
        output.status.success(),
        "{command:?} ended with {}",
        output.status
    );
    Ok(())
}
