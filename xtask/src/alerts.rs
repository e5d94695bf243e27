//! The alerts, tested by Prometheus' own tool: each fires on its series, and clears.

use std::process::Command;

use crate::{
    shell::{root, run},
    tools,
};

/// Checks the alerts' syntax, and runs their tests.
///
/// # Errors
/// A test fails, or promtool is not there.
pub(crate) fn check() -> anyhow::Result<()> {
    let promtool = tools::promtool()?;
    let rules = root().join("deploy/chart/files/rules.yaml");
    run(Command::new(&promtool).args(["check", "rules"]).arg(rules))?;
    run(Command::new(&promtool)
        .args(["test", "rules", "rules_test.yaml"])
        .current_dir(root().join("tests/alerts")))
}
