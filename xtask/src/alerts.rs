//! The alerts, tested by Prometheus' own tool: each fires on its series, and clears.

use std::{io::ErrorKind, process::Command};

use anyhow::bail;

use crate::shell::{root, run, say};

/// Prometheus' tool, of Debian's package `prometheus`.
const PROMTOOL: &str = "promtool";

/// Checks the alerts' syntax, and runs their tests.
///
/// # Errors
/// A test fails, or promtool is not installed.
pub(crate) fn check() -> anyhow::Result<()> {
    if !is_installed() {
        bail!("{PROMTOOL} is not installed: it is in Debian's package prometheus");
    }
    let rules = root().join("deploy/chart/files/rules.yaml");
    run(Command::new(PROMTOOL).args(["check", "rules"]).arg(rules))?;
    let tests = Command::new(PROMTOOL);
    run({ tests }
        .args(["test", "rules", "rules_test.yaml"])
        .current_dir(root().join("tests/alerts")))
}

/// Does the same where promtool is installed, and says so where it is not.
///
/// # Errors
/// A test fails.
pub(crate) fn check_if_installed() -> anyhow::Result<()> {
    match is_installed() {
        true => check(),
        false => {
            say("skipped: the alerts' own tests take promtool, of Debian's package prometheus");
            Ok(())
        }
    }
}

fn is_installed() -> bool {
    let asked = Command::new(PROMTOOL).arg("--version").output();
    !asked.is_err_and(|error| error.kind() == ErrorKind::NotFound)
}
