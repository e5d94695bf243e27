//! Tools of Debian's packages that tests run.
//!
//! Those that are not installed are fetched, and taken apart below `target/debian-tools`. That takes no rights on the machine,
//! and starts no service, as installing Prometheus would. Which package is fetched, and that it is Debian's, apt knows.

use std::{
    ffi::OsString,
    fs,
    path::{self, Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    shell::{run, say, target},
    skips::REQUIRE_ALL,
};

/// A tool of a package.
struct Tool {
    package: &'static str,
    /// The places of its file, from a root on.
    files: &'static [&'static str],
}

/// Prometheus' tool; the package has Prometheus beside it.
const PROMTOOL: Tool = Tool {
    package: "prometheus",
    files: &["usr/bin/promtool", "usr/local/bin/promtool"],
};

/// The library that answers in place of the wall clock. The end-to-end tests look in the same places.
const FAKETIME: Tool = Tool {
    package: "libfaketime",
    files: &[
        "usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
        "usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    ],
};

/// The program that makes disks slow, and a library that it takes.
const STRACE: Tool = Tool {
    package: "strace",
    files: &["usr/bin/strace"],
};
const LIBUNWIND: Tool = Tool {
    package: "libunwind8",
    files: &[
        "usr/lib/x86_64-linux-gnu/libunwind.so.8",
        "usr/lib/aarch64-linux-gnu/libunwind.so.8",
    ],
};

/// All of them.
const TOOLS: [Tool; 4] = [PROMTOOL, FAKETIME, STRACE, LIBUNWIND];

impl Tool {
    /// Returns its file: the machine's, or the fetched one.
    fn find(&self) -> Option<PathBuf> {
        let fetched = folder().join(self.package);
        let in_root = |root: &Path| {
            let mut files = self.files.iter().map(|file| root.join(file));
            files.find(|file| file.exists())
        };
        in_root(Path::new("/")).or_else(|| in_root(&fetched))
    }
}

/// Fetches the packages of all tools that are neither installed nor fetched.
///
/// # Errors
/// There is no apt here, or it has no such package.
pub(crate) fn fetch() -> anyhow::Result<()> {
    let missing = TOOLS.iter().filter(|tool| tool.find().is_none());
    let missing: Vec<_> = missing.map(|tool| tool.package).collect();
    if missing.is_empty() {
        say("Debian's tools are there");
        return Ok(());
    }
    fetch_packages(&missing).with_context(|| {
        format!(
            "Debian's packages {} are not there and cannot be fetched: install them, or unset {REQUIRE_ALL} to leave \
             out the tests that take them",
            missing.join(" and ")
        )
    })?;
    match TOOLS.iter().find(|tool| tool.find().is_none()) {
        Some(tool) => bail!("{} has none of {:?}", tool.package, tool.files),
        None => Ok(()),
    }
}

/// Returns the path of Prometheus' tool.
///
/// # Errors
/// It is neither installed nor fetched.
pub(crate) fn promtool() -> anyhow::Result<PathBuf> {
    let found = PROMTOOL.find();
    found.context("promtool is not there: `cargo xtask tools` fetches it")
}

fn folder() -> PathBuf {
    target().join("debian-tools")
}

fn fetch_packages(packages: &[&str]) -> anyhow::Result<()> {
    // Not relative, since apt takes such a folder from the root on.
    let folder = path::absolute(folder())?;
    let fetched = folder.join("fetched");
    empty(&fetched)?;
    // A fresh container has no lists of packages.
    if download(packages, &fetched, &[]).is_err() {
        let own = own_lists(&folder)?;
        run(apt(&own).arg("update"))?;
        download(packages, &fetched, &own)?;
    }
    for file in fs::read_dir(&fetched)? {
        take_apart(&file?.path(), &folder)?;
    }
    fs::remove_dir_all(&fetched)?;
    Ok(())
}

fn empty(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Makes folders for lists of packages that take no rights to be written, and returns apt's options for them.
fn own_lists(folder: &Path) -> anyhow::Result<Vec<OsString>> {
    let mut options = Vec::new();
    for (option, name, part) in [
        ("Dir::State::lists", "lists", "partial"),
        ("Dir::Cache", "cache", "archives/partial"),
    ] {
        let own = folder.join(name);
        fs::create_dir_all(own.join(part))?;
        let mut value = OsString::from(format!("{option}="));
        value.push(&own);
        options.extend([OsString::from("-o"), value]);
    }
    Ok(options)
}

fn apt(options: &[OsString]) -> Command {
    let mut command = Command::new("apt-get");
    // Its own user has no right to write into folders of ours. Where there is no network, it gives up soon.
    command.args(["-q", "-o", "APT::Sandbox::User=root"]);
    command.args([
        "-o",
        "Acquire::Retries=1",
        "-o",
        "Acquire::http::Timeout=20",
    ]);
    command.args(["-o", "Acquire::https::Timeout=20"]);
    command.args(options);
    command
}

/// Downloads the packages into a folder.
fn download(packages: &[&str], into: &Path, options: &[OsString]) -> anyhow::Result<()> {
    let mut command = apt(options);
    run(command.current_dir(into).arg("download").args(packages))
}

/// Takes a package apart into the folder of its name. What was interrupted is never taken for what is complete.
fn take_apart(file: &Path, folder: &Path) -> anyhow::Result<()> {
    let name = file.file_name().and_then(|name| name.to_str());
    let package = name.and_then(|name| Some(name.split_once('_')?.0));
    let package = package.with_context(|| format!("{} has no package's name", file.display()))?;
    let (unfinished, finished) = (folder.join("unfinished"), folder.join(package));
    empty(&unfinished)?;
    run(Command::new("dpkg").arg("-x").arg(file).arg(&unfinished))?;
    if finished.exists() {
        fs::remove_dir_all(&finished)?;
    }
    fs::rename(&unfinished, &finished)?;
    Ok(())
}
