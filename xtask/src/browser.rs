//! The console's pages in a real browser, on a running demo.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail};

use crate::shell::{cargo, root, run, say, target};

/// Where Debian's package has it.
const CHROMIUM: &str = "/usr/bin/chromium";

/// Ends the demo, whatever happens.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `tests/browser/check.mjs`.
pub(crate) fn run_checks(screenshots: Option<&Path>) -> anyhow::Result<()> {
    let chromium = std::env::var_os("ANTEROOM_CHROMIUM");
    let chromium = chromium.map_or_else(|| PathBuf::from(CHROMIUM), PathBuf::from);
    if !chromium.exists() {
        bail!(
            "{} is not there: install the package chromium, or name it in ANTEROOM_CHROMIUM",
            chromium.display()
        );
    }
    run(&mut cargo(&["build", "--package", "anteroom-demo"]))?;
    let folder = packages()?;
    let address = free_address()?;
    let demo = target().join("debug").join("anteroom-demo");
    let mut command = Command::new(demo);
    command.args(["--concurrency", "1", "--console", &address]);
    let demo = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _demo = Demo(demo.context("the demo cannot be started")?);
    say(&format!("the console is at http://{address}"));
    let mut check = Command::new("node");
    check.current_dir(&folder).arg("check.mjs");
    check.arg(format!("http://{address}")).arg(chromium);
    if let Some(screenshots) = screenshots {
        fs::create_dir_all(screenshots)?;
        check.arg(screenshots.canonicalize()?);
    }
    run(&mut check)
}

/// Installs the packages of the lockfile, out of the sources' way.
fn packages() -> anyhow::Result<PathBuf> {
    let (from, to) = (root().join("tests/browser"), target().join("browser"));
    fs::create_dir_all(&to)?;
    for name in ["check.mjs", "package.json", "package-lock.json"] {
        fs::copy(from.join(name), to.join(name))
            .with_context(|| format!("tests/browser/{name}"))?;
    }
    let mut install = Command::new("npm");
    install.current_dir(&to);
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    run(&mut install)?;
    Ok(to)
}

fn free_address() -> anyhow::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.to_string())
}
