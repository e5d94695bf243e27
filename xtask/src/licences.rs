//! Dependencies that are allowed: licences, banned crates, sources. Advisories need a database that is no package.

use std::{collections::BTreeSet, process::Stdio};

use anyhow::{Context, bail};
use serde_json::Value;
use spdx::{Expression, ParseMode};

use crate::shell::{cargo, say};

/// The licences that a dependency may be used under.
const ALLOWED: [&str; 9] = [
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that nothing may depend on, with the reason.
const BANNED: [(&str, &str); 3] = [
    ("openssl-sys", "one TLS stack: rustls on aws-lc-rs"),
    ("serde_yaml", "deprecated; serde-saphyr is what kube uses"),
    ("rustls-pemfile", "unmaintained; rustls-pki-types reads PEM"),
];

/// The targets that Anteroom is built for.
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// Checks every package that the workspace is compiled from.
pub(crate) fn check() -> anyhow::Result<()> {
    let (mut problems, mut sources) = (BTreeSet::new(), BTreeSet::new());
    let mut checked = BTreeSet::new();
    for target in TARGETS {
        for package in packages(target)? {
            problems.extend(complaints(&package));
            sources.extend(package["source"].as_str().map(str::to_owned));
            checked.insert(package["id"].to_string());
        }
    }
    problems.extend(foreign(&sources));
    if !problems.is_empty() {
        let all: Vec<String> = problems.into_iter().collect();
        bail!("{} problems:\n  {}", all.len(), all.join("\n  "));
    }
    say(&format!("{} packages may be depended on", checked.len()));
    Ok(())
}

/// The packages of the resolved workspace, as `cargo metadata` describes them.
fn packages(target: &str) -> anyhow::Result<Vec<Value>> {
    let output = cargo(&[
        "metadata",
        "--format-version=1",
        "--all-features",
        "--locked",
    ])
    .args(["--filter-platform", target])
    .stderr(Stdio::inherit())
    .output()?;
    if !output.status.success() {
        bail!("cargo metadata ended with {}", output.status);
    }
    let mut metadata: Value = serde_json::from_slice(&output.stdout)?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => bail!("cargo metadata named no packages"),
    }
}

/// The complaints about one package.
fn complaints(package: &Value) -> Vec<String> {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    let name = format!("{} {}", text("name"), text("version"));
    let mut problems = Vec::new();
    match is_allowed(text("license")) {
        Ok(true) => {}
        Ok(false) => problems.push(format!(
            "{name}: licence {:?} is not allowed",
            text("license")
        )),
        Err(error) => problems.push(format!("{name}: {error:#}")),
    }
    let banned = BANNED.iter().filter(|(banned, _)| *banned == text("name"));
    problems.extend(banned.map(|(_, reason)| format!("{name} is banned: {reason}")));
    // A crate of ours names its dependencies' versions; those of others are their own affair.
    if package["source"].is_null() {
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let open = dependencies.filter(|d| d["req"] == "*" && d["path"].is_null());
        problems.extend(open.map(|d| format!("{name}: {} is of any version", d["name"])));
    }
    problems
}

/// Returns true if a package may be used under this SPDX expression.
fn is_allowed(licence: &str) -> anyhow::Result<bool> {
    let expression = Expression::parse_mode(licence, ParseMode::LAX)
        .with_context(|| format!("licence {licence:?}"))?;
    Ok(expression.evaluate(|required| {
        let is_ours = |id: spdx::LicenseId| ALLOWED.contains(&id.name);
        required.license.id().is_some_and(is_ours)
    }))
}

/// The complaint about packages from anywhere but the one registry.
fn foreign(sources: &BTreeSet<String>) -> Option<String> {
    let is_registry = |source: &String| source.starts_with("registry+");
    let fine = sources.len() <= 1 && sources.iter().all(is_registry);
    (!fine).then(|| format!("packages come from more than one registry: {sources:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_licence_is_allowed_where_one_of_a_choice_and_all_of_a_sum_are() {
        for (licence, allowed) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0-only OR MIT", true),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("MIT AND GPL-3.0-only", false),
            ("AGPL-3.0-only", false),
        ] {
            assert_eq!(is_allowed(licence).unwrap(), allowed, "{licence}");
        }
        assert!(is_allowed("").is_err());
        assert!(is_allowed("Whatever-1.0").is_err());
    }

    #[test]
    fn banned_unversioned_and_foreign_dependencies_are_problems() {
        let package = |name: &str, req: &str| {
            json!({ "name": name, "version": "1.0.0", "license": "MIT", "source": null,
                "dependencies": [{ "name": "d", "req": req }] })
        };
        assert!(complaints(&package("mine", "^1")).is_empty());
        assert!(complaints(&package("mine", "*"))[0].contains("any version"));
        assert!(complaints(&package("serde_yaml", "^1"))[0].contains("deprecated"));
        let sources = |all: &[&str]| foreign(&all.iter().map(|s| (*s).to_owned()).collect());
        assert!(sources(&["registry+one"]).is_none());
        assert!(sources(&["registry+one", "registry+two"]).is_some());
        assert!(sources(&["git+one"]).is_some());
    }
}
