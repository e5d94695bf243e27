//! Stories that are left out because the machine lacks something.
//!
//! A test program shows no output of a test that passes. So each story that is left out is a line of a file too.
//! `cargo xtask ci` and `cargo xtask test` show the file at their end.

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context as _, bail};

use crate::process::target;

/// The variable that names the file of the stories that are left out.
const FILE: &str = "ANTEROOM_SKIPPED";

/// What a story lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A tool, which `cargo xtask tools` fetches.
    Tool,
    /// A right that not every machine gives, as to make a network.
    Right,
    /// Files beside this repository.
    Corpus,
}

impl Lack {
    /// Returns the variable by which it is required: without it a story fails.
    fn required_by(self) -> &'static str {
        match self {
            Self::Tool => "ANTEROOM_REQUIRE_ALL",
            Self::Right => "ANTEROOM_RIGHTS_REQUIRED",
            Self::Corpus => "ANTEROOM_CORPUS_REQUIRED",
        }
    }
}

/// Says that the present story is left out, and why.
///
/// # Errors
/// What it lacks is required here.
pub fn skip(lack: Lack, why: &str) -> anyhow::Result<()> {
    let required = lack.required_by();
    if is_on(env::var_os(required).as_deref()) {
        bail!("{why} ({required} requires it)");
    }
    let thread = thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a story"));
    print(&format!("skipped: {line}"));
    if let Some(file) = env::var_os(FILE) {
        append(Path::new(&file), &line)?;
    }
    Ok(())
}

/// Returns whether a variable with this value switches something on.
fn is_on(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

/// Appends in one write, since several programs write to the file.
fn append(file: &Path, line: &str) -> anyhow::Result<()> {
    let opened = File::options().create(true).append(true).open(file);
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    written.with_context(|| format!("cannot write {}", file.display()))
}

#[expect(clippy::print_stdout, reason = "a test says what it leaves out")]
fn print(line: &str) {
    print!("{line}");
}

/// A tool of a Debian package: of the machine, or fetched by `cargo xtask tools`.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    package: &'static str,
    /// The places of its file, from a root on.
    files: &'static [&'static str],
}

/// The library that answers in place of the wall clock.
pub const FAKETIME: Tool = Tool {
    package: "libfaketime",
    files: &[
        "usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
        "usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    ],
};

/// The program that traces another one's calls.
pub const STRACE: Tool = Tool {
    package: "strace",
    files: &["usr/bin/strace"],
};

/// A library that [`STRACE`] takes.
pub const LIBUNWIND: Tool = Tool {
    package: "libunwind8",
    files: &[
        "usr/lib/x86_64-linux-gnu/libunwind.so.8",
        "usr/lib/aarch64-linux-gnu/libunwind.so.8",
    ],
};

/// The program of Prometheus.
pub const PROMETHEUS: Tool = Tool {
    package: "prometheus",
    files: &["usr/bin/prometheus", "usr/local/bin/prometheus"],
};

impl Tool {
    /// Returns its file. `None`: there is none, and the story is left out.
    ///
    /// # Errors
    /// There is none, and tools are required here.
    pub fn find(self) -> anyhow::Result<Option<PathBuf>> {
        let fetched = target().join("debian-tools").join(self.package);
        for root in [Path::new("/"), fetched.as_path()] {
            let mut files = self.files.iter().map(|file| root.join(file));
            if let Some(file) = files.find(|file| file.exists()) {
                return Ok(Some(file.canonicalize()?));
            }
        }
        let package = self.package;
        let why = format!("takes Debian's package {package}: `cargo xtask tools` fetches it");
        skip(Lack::Tool, &why)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_and_zero_switch_nothing_on() {
        for (value, expected) in [
            (None, false),
            (Some(""), false),
            (Some("0"), false),
            (Some("1"), true),
            (Some("true"), true),
        ] {
            assert_eq!(is_on(value.map(OsStr::new)), expected, "{value:?}");
        }
    }

    #[test]
    fn stories_that_are_left_out_are_lines_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skipped");
        for line in ["one: no disk\n", "two: no clock\n"] {
            append(&file, line).unwrap();
        }
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, "one: no disk\ntwo: no clock\n");
    }
}
