//! Running other programs, with their output where the developer sees it.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

/// The workspace's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap_or(Path::new("."))
}

/// The folder that cargo builds to.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Prints the present step, so that long work never looks stuck.
#[expect(clippy::print_stderr, reason = "progress of a task is for people")]
pub(crate) fn say(text: &str) {
    eprintln!("xtask: {text}");
}

/// Shows the output of a command that has ended.
pub(crate) fn show(output: &[u8]) {
    // Nobody may be there to read it.
    let _ = std::io::stderr().write_all(output);
}

/// `cargo`, in the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

/// Runs to the end; an exit code other than 0 is an error that names the command.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    say(&format!("{command:?}"));
    let status = command
        .status()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
