//! What decides whether a change may land, step by step.

use std::process::Command;

use crate::{
    parts,
    shell::{cargo, root, run, say},
    tidy,
};

/// The version that this repository is checked with.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// All steps, cheapest first.
pub(crate) fn all() -> anyhow::Result<()> {
    tidy::check()?;
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    run(cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ])
    .env("CARGO_TERM_COLOR", "always"))?;
    run(
        cargo(&["doc", "--workspace", "--no-deps", "--all-features"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    licences()?;
    test(&[])?;
    say("the demo, once, as a new user runs it");
    run(&mut cargo(&[
        "run",
        "--release",
        "-p",
        "anteroom",
        "--",
        "demo",
        "--once",
        "-o",
        "json",
    ]))
}

/// Licences, banned crates and sources; advisories need a database that is not a package.
fn licences() -> anyhow::Result<()> {
    let installed = Command::new("cargo-deny").arg("--version").output();
    if !installed.is_ok_and(|output| output.status.success()) {
        say("installing cargo-deny (once, some minutes)");
        run(&mut cargo(&[
            "install",
            "cargo-deny",
            "--locked",
            "--no-default-features",
            "--version",
            CARGO_DENY_VERSION,
        ]))?;
    }
    run(Command::new("cargo-deny").current_dir(root()).args([
        "--all-features",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}

/// Everything that tests run, then the tests.
pub(crate) fn test(args: &[String]) -> anyhow::Result<()> {
    parts::build(false)?;
    // The end-to-end tests run the services as processes of their own.
    run(&mut cargo(&[
        "build",
        "--workspace",
        "--all-targets",
        "--all-features",
    ]))?;
    let mut test = cargo(&["test", "--all-features"]);
    if args.is_empty() {
        test.arg("--workspace");
    }
    run(test.args(args))
}

/// The CRDs are written by the same test that holds them against the types.
pub(crate) fn write_crds() -> anyhow::Result<()> {
    run(cargo(&["test", "-p", "anteroom-watcher", "--test", "crds"]).env("ANTEROOM_UPDATE", "1"))
}

/// A benchmark, optimised.
pub(crate) fn bench(name: &str, args: &[String]) -> anyhow::Result<()> {
    parts::build(false)?;
    run(&mut cargo(&["build", "--release", "--workspace", "--bins"]))?;
    run(cargo(&[
        "run",
        "--release",
        "-p",
        "anteroom-e2e",
        "--bin",
        name,
        "--",
    ])
    .args(args))
}

/// The benchmark of decisions; with `write_docs`, its page too.
pub(crate) fn measure(write_docs: bool, args: &[String]) -> anyhow::Result<()> {
    let mut args = args.to_vec();
    if write_docs {
        let page = root().join("docs/benchmarks.md");
        args.extend(["--write-docs".to_owned(), page.display().to_string()]);
    }
    bench("bench", &args)
}
