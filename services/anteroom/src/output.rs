//! The output of commands: formats, results, warnings and errors.

use std::{
    fmt::Display,
    io::{ErrorKind, Write, stdout},
    process::ExitCode,
    time::Duration,
};

use anteroom_model::ErrorCode;
use anteroom_runtime::{
    process::{ProcessArgs, error_text},
    telemetry::TelemetryArgs,
};
use clap::ValueEnum;
use serde_json::{Value, json};

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
        // The command's own error says the same as the client of the API server logs.
        telemetry.log_level = format!("{level},kube_client::client::builder=off");
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
            warn(&error_text(&error));
            ExitCode::FAILURE
        }
    }
}

/// Returns the result of a command, and prints its error as JSON if that is the format of its output: a program finds one
/// document on standard output, also where there is no result. People find the error on standard error.
pub(crate) fn print_json_error<T>(is_json: bool, result: anyhow::Result<T>) -> anyhow::Result<T> {
    if let Err(error) = &result
        && is_json
    {
        print(&error_json(error).to_string())?;
    }
    result
}

/// Prints the error of a command, as [`print_json_error`] does and for people, and returns the exit code that it ends
/// with.
pub(crate) fn failed(is_json: bool, error: anyhow::Error, code: u8) -> ExitCode {
    if let Err(error) = print_json_error::<()>(is_json, Err(error)) {
        warn(&error_text(&error));
    }
    code.into()
}

/// Gives the error of a command's input a code, unless it has one.
pub(crate) fn input_error(error: anyhow::Error) -> anyhow::Error {
    if code(&error_text(&error)).is_some() {
        return error;
    }
    error.context(ErrorCode::CONFIG_INVALID.to_string())
}

fn error_json(error: &anyhow::Error) -> Value {
    let message = error_text(error);
    json!({ "error": { "code": code(&message), "message": message } })
}

/// The first error code in a text, as in `AR104`.
fn code(text: &str) -> Option<&str> {
    let is_code = |word: &&str| {
        let digits = word.strip_prefix("AR").unwrap_or_default();
        digits.len() == 3 && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    let mut words = text.split(|character: char| !character.is_ascii_alphanumeric());
    words.find(is_code)
}

/// Returns the error of a command that did not reach NATS, as `login`. User information in an address is left out.
pub(crate) fn no_connection(urls: &[String], login: &str, within: Duration) -> String {
    let hosts = urls.iter().map(|url| match url.rsplit_once('@') {
        Some((_, host)) => host,
        None => url.as_str(),
    });
    let hosts: Vec<_> = hosts.collect();
    format!(
        "no connection to NATS at {} within {} ms: name its address (--nats-url), the key of {login} \
         (--nats-nkey-file), and the authority of its certificate (--nats-ca-file)",
        hosts.join(", "),
        within.as_millis()
    )
}

/// Returns a number with its noun, as in `1 policy` or `2 policies`.
pub(crate) fn counted(number: impl TryInto<u64> + Copy + Display, noun: &str) -> String {
    format!("{number} {}", nouns(number, noun))
}

/// Returns a noun as it stands after a number, as in `policy` or `policies`.
pub(crate) fn nouns(number: impl TryInto<u64>, noun: &str) -> String {
    let number: Result<u64, _> = number.try_into();
    let is_one = matches!(number, Ok(1));
    match noun.strip_suffix('y') {
        _ if is_one => noun.to_owned(),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_is_as_its_number() {
        for (number, expected) in [(0, "0 policies"), (1, "1 policy"), (2, "2 policies")] {
            assert_eq!(counted(number, "policy"), expected);
        }
        assert_eq!(counted(1_usize, "webhook"), "1 webhook");
        assert_eq!(counted(1, "way"), "1 way");
        assert_eq!(counted(2, "way"), "2 ways");
        assert_eq!(counted(u64::MAX, "time"), format!("{} times", u64::MAX));
    }

    #[test]
    fn an_error_of_the_connection_shows_addresses_without_their_users() {
        let urls = ["nats://a:4222", "nats://user:p@ss@b:4222"].map(str::to_owned);
        let said = no_connection(&urls, "the operator", Duration::from_secs(10));
        let start = "no connection to NATS at nats://a:4222, b:4222 within 10000 ms: ";
        assert!(said.starts_with(start), "{said}");
        assert!(
            said.contains("the key of the operator (--nats-nkey-file)"),
            "{said}"
        );
    }

    #[test]
    fn an_error_in_json_has_its_code_and_its_message() {
        let error = anyhow::anyhow!("AR601: no connection").context("asking");
        assert_eq!(
            error_json(&error),
            json!({"error": {"code": "AR601", "message": "asking: AR601: no connection"}})
        );
        assert_eq!(
            error_json(&anyhow::anyhow!("ARMY of AR12")),
            json!({"error": {"code": null, "message": "ARMY of AR12"}})
        );
    }

    #[test]
    fn an_error_of_the_input_has_a_code() {
        let said = |error| error_text(&input_error(error));
        let bare = anyhow::anyhow!("cannot read a.yaml");
        assert_eq!(said(bare), "AR701: cannot read a.yaml");
        let coded = anyhow::anyhow!("AR302 spec.rules: it is required").context("policy a");
        assert_eq!(said(coded), "policy a: AR302 spec.rules: it is required");
    }

    #[test]
    fn commands_that_print_results_log_no_failed_connection() {
        let quiet = quiet(&TelemetryArgs::default(), "warn");
        assert!(quiet.telemetry.log_level.starts_with("warn,"));
        assert!(quiet.telemetry.log_level.ends_with("builder=off"));
    }
}
