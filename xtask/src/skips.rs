//! Tests that are left out because the machine lacks something.
//!
//! A test program shows no output of a test that passes. So such a test is a line of a file too, which is shown at the end.

use std::{
    env,
    ffi::OsString,
    fs,
    io::Write as _,
    path::{self, PathBuf},
    process,
};

use anyhow::Context as _;

use crate::shell::{say, target};

/// The variable that names the file, for test programs.
const FILE: &str = "ANTEROOM_SKIPPED";

/// The variable by which a test fails that lacks a tool.
pub(crate) const REQUIRE_ALL: &str = "ANTEROOM_REQUIRE_ALL";

/// The tests of a run that are left out.
pub(crate) struct Skips {
    file: PathBuf,
    /// True: lacking a tool is an error.
    pub(crate) tools_are_required: bool,
}

impl Skips {
    /// None yet. Tools are required if the environment says so.
    pub(crate) fn begin() -> anyhow::Result<Self> {
        let said = env::var_os(REQUIRE_ALL);
        let file = format!("skipped-{}", process::id());
        let file = path::absolute(target().join(file))?;
        fs::create_dir_all(target())?;
        fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))?;
        Ok(Self {
            file,
            tools_are_required: said.is_some_and(|said| !said.is_empty() && said != "0"),
        })
    }

    /// Returns the environment of test programs.
    pub(crate) fn env(&self) -> [(&'static str, OsString); 2] {
        let required = match self.tools_are_required {
            true => "1",
            false => "0",
        };
        [
            (FILE, self.file.clone().into()),
            (REQUIRE_ALL, required.into()),
        ]
    }

    /// Adds what is left out, and why.
    pub(crate) fn add(&self, what: &str) -> anyhow::Result<()> {
        let mut file = fs::File::options().append(true).open(&self.file)?;
        file.write_all(format!("{what}\n").as_bytes())?;
        Ok(())
    }

    /// Shows them all.
    pub(crate) fn show(self) {
        // Without the file nothing is known, and that is no reason to fail.
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        for line in text.lines() {
            say(&format!("left out: {line}"));
        }
        let _ = fs::remove_file(&self.file);
    }
}
