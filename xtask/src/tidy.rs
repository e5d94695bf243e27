//! Checks of the repository itself that no other tool makes.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::shell::{root, say};

/// A longer source file is about more than one thing.
const LINES_MAX: usize = 600;

/// Which crates a crate may never reach, directly: the direction of the workspace's dependencies.
const FORBIDDEN: [(&str, &[&str]); 13] = [
    (
        "shared/model",
        &["tokio", "async-nats", "kube", "rmp-serde", "anteroom-"],
    ),
    (
        "shared/jmespath",
        &["tokio", "async-nats", "kube", "rmp-serde", "anteroom-"],
    ),
    (
        "shared/cel",
        &["tokio", "async-nats", "kube", "rmp-serde", "anteroom-"],
    ),
    (
        "shared/wire",
        &[
            "tokio",
            "async-nats",
            "kube",
            "anteroom-bus",
            "anteroom-view",
        ],
    ),
    (
        "shared/view",
        &["tokio", "async-nats", "kube", "rmp-serde", "anteroom-bus"],
    ),
    (
        "shared/patch",
        &[
            "tokio",
            "async-nats",
            "kube",
            "rmp-serde",
            "anteroom-model",
            "anteroom-policy",
        ],
    ),
    (
        "shared/plan",
        &[
            "tokio",
            "async-nats",
            "kube",
            "rmp-serde",
            "anteroom-bus",
            "anteroom-mirror",
        ],
    ),
    (
        "shared/policy",
        &[
            "tokio",
            "async-nats",
            "kube",
            "rmp-serde",
            "anteroom-bus",
            "anteroom-wire",
        ],
    ),
    (
        "shared/offline",
        &[
            "tokio",
            "async-nats",
            "kube",
            "rmp-serde",
            "anteroom-bus",
            "anteroom-wire",
        ],
    ),
    (
        "shared/seal",
        &[
            "async-nats",
            "kube",
            "rmp-serde",
            "anteroom-bus",
            "anteroom-wire",
            "anteroom-view",
            "anteroom-mirror",
        ],
    ),
    ("shared/bus", &["kube", "rmp-serde", "anteroom-mirror"]),
    ("shared/mirror", &["async-nats", "kube", "rmp-serde"]),
    // It reads the log and nothing else.
    ("services/cache-replica", &["kube", "k8s-openapi"]),
];

/// What runs: nothing that is shared knows of it.
const SERVICES: [&str; 5] = [
    "anteroom",
    "anteroom-cache-replica",
    "anteroom-reporter",
    "anteroom-watcher",
    "anteroom-webhook",
];

/// The one crate that may name each of these.
const ALONE: [(&str, &[&str]); 3] = [
    ("async-nats", &["shared/bus"]),
    ("rmp-serde", &["shared/wire"]),
    ("aws-lc-rs", &["shared/seal"]),
];

pub(crate) fn check() -> anyhow::Result<()> {
    let mut problems = Vec::new();
    let mut files = Vec::new();
    for folder in ["services", "shared", "tests", "xtask"] {
        collect(&root().join(folder), &mut files)?;
    }
    for file in &files {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file
            .strip_prefix(root())
            .unwrap_or(file)
            .display()
            .to_string();
        if file.extension().is_some_and(|e| e == "rs") {
            source(&name, &text, &mut problems);
        } else if name.ends_with("Cargo.toml") {
            manifest(&name, &text, &mut problems);
        }
    }
    if !problems.is_empty() {
        bail!("{} problems:\n  {}", problems.len(), problems.join("\n  "));
    }
    say(&format!("{} files are tidy", files.len()));
    Ok(())
}

fn source(name: &str, text: &str, problems: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        problems.push(format!(
            "{name}: {lines} lines, {LINES_MAX} at most: it is about more than one thing"
        ));
    }
    // A module's `tests.rs` is about its module.
    let speaks = text.starts_with("//!") || text.starts_with("#!") || name.ends_with("/tests.rs");
    if !speaks {
        problems.push(format!(
            "{name}: begins without saying what it is about (`//!`)"
        ));
    }
    for (number, line) in text.lines().enumerate() {
        if line.ends_with(' ') || line.contains('\t') {
            problems.push(format!("{name}:{}: tab or trailing blank", number + 1));
        }
    }
}

fn manifest(name: &str, text: &str, problems: &mut Vec<String>) {
    let Some(folder) = name.strip_suffix("/Cargo.toml") else {
        return;
    };
    let dependencies = dependencies(text);
    for (owner, forbidden) in FORBIDDEN {
        let reached = dependencies.iter().filter(|d| {
            forbidden
                .iter()
                .any(|f| **d == *f || (f.ends_with('-') && d.starts_with(f)))
        });
        if folder == owner {
            problems.extend(reached.map(|d| format!("{name}: {owner} must not depend on {d}")));
        }
    }
    if folder.starts_with("shared/") {
        let services = dependencies.iter().filter(|d| SERVICES.contains(d));
        problems.extend(services.map(|d| format!("{name}: what is shared must not depend on {d}")));
    }
    for (dependency, owners) in ALONE {
        if dependencies.contains(&dependency) && !owners.contains(&folder) {
            problems.push(format!(
                "{name}: only {} may depend on {dependency}",
                owners.join(", ")
            ));
        }
    }
    if !text.contains("[lints]\nworkspace = true") && !folder.ends_with("fuzz") {
        problems.push(format!("{name}: does not inherit the workspace's lints"));
    }
}

/// What a manifest's crate depends on, however that is written: by its own table, for some targets only, or
/// by another name. Not what its tests and its build do.
fn dependencies(manifest: &str) -> Vec<&str> {
    let is_table = |header: &str| header == "dependencies" || header.ends_with(".dependencies");
    let (mut named, mut lists, mut describes) = (Vec::new(), false, false);
    for line in manifest.lines().map(str::trim) {
        let header = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(header) = header {
            lists = is_table(header);
            let own = header.rsplit_once('.');
            let own = own.filter(|(table, _)| is_table(table));
            describes = own.is_some();
            named.extend(own.map(|(_, name)| name.trim_matches(['"', '\''])));
        } else if lists {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let is_name = !name.is_empty() && !name.starts_with('#');
            named.extend(is_name.then(|| name.trim_matches(['"', '\''])));
        }
        if lists || describes {
            named.extend(package(line));
        }
    }
    named
}

/// `tokio`, of `package = "tokio"`.
fn package(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("package")?;
    let value = rest.trim_start().strip_prefix('=')?.trim_start();
    value.strip_prefix('"')?.split('"').next()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for item in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = item?.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|e| e == "rs" || e == "toml") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_is_seen_however_it_is_written() {
        for written in [
            "[dependencies]\ntokio.workspace = true",
            "[dependencies]\n# For this.\ntokio = { version = \"1\" }",
            "[dependencies]\n\"tokio\" = \"1\"",
            "[dependencies.tokio]\nversion = \"1\"",
            "[dependencies]\nserde = \"1\"\n\n[target.'cfg(unix)'.dependencies]\ntokio = \"1\"",
            "[target.'cfg(unix)'.dependencies.tokio]\nworkspace = true",
            "[dependencies]\nrt = { package = \"tokio\", version = \"1\" }",
            "[dependencies.rt]\npackage = \"tokio\"",
        ] {
            assert!(dependencies(written).contains(&"tokio"), "{written}");
            let mut problems = Vec::new();
            manifest("shared/model/Cargo.toml", written, &mut problems);
            let told = "shared/model/Cargo.toml: shared/model must not depend on tokio";
            assert!(problems.iter().any(|problem| problem == told), "{written}");
        }
        for written in [
            "[dev-dependencies]\ntokio = \"1\"",
            "[dependencies]\nserde = \"1\"\n\n[dev-dependencies.tokio]\nversion = \"1\"",
            "[package]\nname = \"tokio\"",
        ] {
            assert!(!dependencies(written).contains(&"tokio"), "{written}");
        }
    }

    #[test]
    fn a_replica_knows_no_api_server() {
        let mut problems = Vec::new();
        let written = "[dependencies]\nkube.workspace = true";
        manifest("services/cache-replica/Cargo.toml", written, &mut problems);
        assert!(
            problems[0].contains("must not depend on kube"),
            "{problems:?}"
        );
    }
}
