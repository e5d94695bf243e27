//! The output of commands: formats, results, warnings and errors.

use std::{
    io::{ErrorKind, Write, stdout},
    process::ExitCode,
};

use anteroom_runtime::{process::ProcessArgs, telemetry::TelemetryArgs};
use clap::ValueEnum;

/// The format of printed results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON document.
    Json,
}

/// Process options for commands whose own output is what the user wants: logs from this level on, unless
/// the user asks for others.
pub fn quiet(telemetry: &TelemetryArgs, level: &str) -> ProcessArgs {
    let mut telemetry = telemetry.clone();
    if telemetry.log_level == TelemetryArgs::default().log_level {
        level.clone_into(&mut telemetry.log_level);
    }
    ProcessArgs {
        telemetry,
        ..ProcessArgs::default()
    }
}

/// Prints a result and a newline. A reader that has seen enough (`| head`) is not an error.
///
/// # Errors
/// Standard output cannot be written to.
pub fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Prints what is wrong and no reason to stop.
#[expect(clippy::print_stderr, reason = "beside the result, for people")]
pub(crate) fn warn(text: &str) {
    eprintln!("anteroom: {text}");
}

/// Prints the error of a command, if it has one, and returns the exit code of its process.
pub(crate) fn finish(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            warn(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
