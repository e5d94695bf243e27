//! Checks of the repository itself that no other tool makes.

mod book;
mod dependencies;
mod knots;
mod layers;
mod links;
mod metrics;
mod module_lists;
mod paths;
mod pronouns;
mod prose;
mod type_names;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use crate::{
    architecture,
    crates::{self, Crate},
    dashboards, planted,
    shell::{root, say},
};

/// A longer source file is about more than one thing.
const LINES_MAX: usize = 600;

/// The crates that a crate must not have: the direction of the workspace's dependencies.
struct Forbidden {
    /// The crate's folder.
    folder: &'static str,
    /// Neither directly nor through other crates of the workspace. A name that ends with `-` is a prefix.
    reaches: &'static [&'static str],
    /// Not directly. A crate below it may have them, and hides them.
    names: &'static [&'static str],
}

const FORBIDDEN: [Forbidden; 15] = [
    Forbidden {
        folder: "shared/model",
        reaches: &["tokio", "async-nats", "kube", "rmp-serde", "anteroom-"],
        names: &[],
    },
    Forbidden {
        folder: "shared/jmespath",
        reaches: &["tokio", "async-nats", "kube", "rmp-serde", "anteroom-"],
        names: &[],
    },
    // It knows JSON values, bodies of objects, and the library of values and functions.
    Forbidden {
        folder: "shared/cel",
        reaches: &[
            "tokio",
            "async-nats",
            "kube",
            "anteroom-bus",
            "anteroom-patch",
            "anteroom-policy",
            "anteroom-view",
        ],
        names: &["rmp-serde", "anteroom-model"],
    },
    Forbidden {
        folder: "shared/functions",
        reaches: &[
            "tokio",
            "async-nats",
            "kube",
            "rmp-serde",
            "anteroom-bus",
            "anteroom-model",
            "anteroom-policy",
            "anteroom-view",
            "anteroom-wire",
        ],
        names: &[],
    },
    Forbidden {
        folder: "shared/wire",
        reaches: &[
            "tokio",
            "async-nats",
            "kube",
            "anteroom-bus",
            "anteroom-view",
        ],
        names: &[],
    },
    Forbidden {
        folder: "shared/view",
        reaches: &["tokio", "async-nats", "kube", "anteroom-bus"],
        names: &["rmp-serde"],
    },
    Forbidden {
        folder: "shared/patch",
        reaches: &[
            "tokio",
            "async-nats",
            "kube",
            "rmp-serde",
            "anteroom-model",
            "anteroom-policy",
        ],
        names: &[],
    },
    Forbidden {
        folder: "shared/plan",
        reaches: &[
            "tokio",
            "async-nats",
            "kube",
            "anteroom-bus",
            "anteroom-mirror",
        ],
        names: &["rmp-serde"],
    },
    Forbidden {
        folder: "shared/policy",
        reaches: &["tokio", "async-nats", "kube", "anteroom-bus"],
        names: &["rmp-serde", "anteroom-wire"],
    },
    // The engine has adapters of a cluster, which nothing calls here.
    Forbidden {
        folder: "shared/offline",
        reaches: &["kube"],
        names: &[
            "tokio",
            "async-nats",
            "rmp-serde",
            "anteroom-bus",
            "anteroom-wire",
        ],
    },
    Forbidden {
        folder: "shared/seal",
        reaches: &[
            "async-nats",
            "kube",
            "rmp-serde",
            "anteroom-bus",
            "anteroom-wire",
            "anteroom-view",
            "anteroom-mirror",
        ],
        names: &[],
    },
    Forbidden {
        folder: "shared/engine",
        reaches: &["kube"],
        names: &["async-nats", "rmp-serde", "axum"],
    },
    Forbidden {
        folder: "shared/bus",
        reaches: &["kube", "anteroom-mirror"],
        names: &["rmp-serde"],
    },
    Forbidden {
        folder: "shared/mirror",
        reaches: &["kube"],
        names: &["async-nats", "rmp-serde"],
    },
    // It reads the log and nothing else.
    Forbidden {
        folder: "services/cache-replica",
        reaches: &["kube", "k8s-openapi", "anteroom-policy"],
        names: &[],
    },
];

/// The programs: nothing depends on them but the one that has them all.
const SERVICES: [&str; 5] = [
    "anteroom",
    "anteroom-cache-replica",
    "anteroom-reporter",
    "anteroom-watcher",
    "anteroom-webhook",
];

/// Services that have another one as a library: a webhook may hold views of its own, as a replica does.
const LIBRARIES: [(&str, &str); 1] = [("services/webhook", "anteroom-cache-replica")];

/// For tests and the demo: users install neither.
const NEVER_INSTALLED: [&str; 2] = ["anteroom-load", "anteroom-simapi"];

/// The only crates that may name these dependencies.
const ALONE: [(&str, &[&str]); 3] = [
    // The floor of the benchmark is compared with the bus, so it does without.
    ("async-nats", &["shared/bus", "tests/bench"]),
    ("rmp-serde", &["shared/wire"]),
    ("aws-lc-rs", &["shared/seal"]),
];

pub(crate) fn check() -> anyhow::Result<()> {
    let mut problems = Vec::new();
    let (mut files, mut named, mut riddles) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut types = type_names::TypeNames::default();
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
        if file.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        source(&name, &text, &mut problems);
        problems.extend(module_lists::check(&name, &text));
        types.add(&name, &text);
        pronouns::read(&name, &text, &mut riddles, &mut problems);
        if name.starts_with("services/") || name.starts_with("shared/") {
            let names = metrics::names(Path::new(&name), &text);
            named.extend(names.into_iter().map(str::to_owned));
        }
    }
    problems.extend(types.check());
    problems.extend(pronouns::check(&riddles));
    problems.extend(metrics::check(&page(metrics::PAGE)?, &named));
    let crates = crates::all(root())?;
    for one in &crates {
        manifest(one, &crates, &mut problems);
    }
    dependencies::check_named(root(), &crates, &mut problems)?;
    let folders: Vec<&str> = crates.iter().map(|one| one.folder.as_str()).collect();
    knots::check(root(), &folders, &mut problems)?;
    layers::check(root(), &mut problems)?;
    problems.extend(architecture::check(&crates)?);
    let pages = links::pages(root())?;
    // What has changed names what is gone, too.
    let present = pages
        .iter()
        .filter(|(name, _)| !name.ends_with("CHANGELOG.md"));
    let paths = paths::Files::list(root())?;
    for (name, text) in present {
        problems.extend(paths.check(&name.display().to_string(), text));
    }
    problems.extend(links::check(&pages, |path| root().join(path).exists()));
    problems.extend(book::check(&pages));
    problems.extend(prose::check(&pages));
    problems.extend(dashboards::check());
    problems.extend(planted::check());
    if !problems.is_empty() {
        bail!("{} problems:\n  {}", problems.len(), problems.join("\n  "));
    }
    say(&format!("{} files are tidy", files.len()));
    Ok(())
}

fn page(name: &str) -> anyhow::Result<String> {
    fs::read_to_string(root().join(name)).with_context(|| format!("cannot read {name}"))
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

fn manifest(of: &Crate, crates: &[Crate], problems: &mut Vec<String>) {
    let folder = of.folder.as_str();
    let name = format!("{folder}/Cargo.toml");
    let dependencies = crates::dependencies(&of.manifest);
    for row in FORBIDDEN.iter().filter(|row| row.folder == folder) {
        let is_in = |list: &[&str], d: &str| {
            list.iter()
                .any(|f| d == *f || (f.ends_with('-') && d.starts_with(f)))
        };
        let named = dependencies.iter();
        let named = named.filter(|d| is_in(row.reaches, d) || is_in(row.names, d));
        problems.extend(named.map(|d| format!("{name}: {folder} must not depend on {d}")));
        let reached = dependencies::reached(of, crates).into_iter();
        let through = reached.filter(|(d, by)| is_in(row.reaches, d) && *by != folder);
        problems.extend(through.map(|(d, by)| {
            format!("{name}: {folder} must not depend on {d}, which it does through {by}")
        }));
    }
    let is_service = folder.starts_with("services/") && folder != "services/anteroom";
    if folder.starts_with("shared/") || is_service {
        let is_library = |d: &str| LIBRARIES.contains(&(folder, d));
        let services = dependencies
            .iter()
            .filter(|d| SERVICES.contains(d) && !is_library(d));
        problems.extend(services.map(|d| format!("{name}: {folder} must not depend on {d}")));
    }
    if folder.starts_with("services/") || folder.starts_with("shared/") {
        let installed = dependencies.iter().filter(|d| NEVER_INSTALLED.contains(d));
        problems.extend(installed.map(|d| format!("{name}: what users install must not hold {d}")));
    }
    for (dependency, owners) in ALONE {
        if dependencies.contains(&dependency) && !owners.contains(&folder) {
            problems.push(format!(
                "{name}: only {} may depend on {dependency}",
                owners.join(", ")
            ));
        }
    }
    if !of.manifest.contains("[lints]\nworkspace = true") {
        problems.push(format!("{name}: does not inherit the workspace's lints"));
    }
}

/// Adds all source files and manifests below a folder.
pub(crate) fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
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

    fn of(folder: &str, manifest: &str) -> Crate {
        Crate {
            folder: folder.to_owned(),
            name: folder.replace("shared/", "anteroom-"),
            manifest: manifest.to_owned(),
        }
    }

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
            assert!(
                crates::dependencies(written).contains(&"tokio"),
                "{written}"
            );
            let mut problems = Vec::new();
            manifest(&of("shared/model", written), &[], &mut problems);
            let told = "shared/model/Cargo.toml: shared/model must not depend on tokio";
            assert!(problems.iter().any(|problem| problem == told), "{written}");
        }
        for written in [
            "[dev-dependencies]\ntokio = \"1\"",
            "[dependencies]\nserde = \"1\"\n\n[dev-dependencies.tokio]\nversion = \"1\"",
            "[package]\nname = \"tokio\"",
        ] {
            assert!(
                !crates::dependencies(written).contains(&"tokio"),
                "{written}"
            );
        }
    }

    #[test]
    fn an_installed_service_depends_on_no_simulator_and_no_load_generator() {
        for tool in NEVER_INSTALLED {
            let mut problems = Vec::new();
            let written = format!("[dependencies]\n{tool}.workspace = true");
            manifest(&of("services/anteroom", &written), &[], &mut problems);
            assert!(problems[0].contains("must not hold"), "{problems:?}");
        }
    }

    #[test]
    fn service_depends_on_another_only_in_the_command() {
        let written =
            "[dependencies]\nanteroom-webhook.workspace = true\n[lints]\nworkspace = true";
        for (folder, expected) in [
            ("services/reporter", 1),
            ("shared/engine", 1),
            ("services/anteroom", 0),
        ] {
            let mut problems = Vec::new();
            manifest(&of(folder, written), &[], &mut problems);
            assert_eq!(problems.len(), expected, "{folder}: {problems:?}");
        }
        for (folder, library) in LIBRARIES {
            let mut problems = Vec::new();
            let written =
                format!("[dependencies]\n{library}.workspace = true\n[lints]\nworkspace = true");
            manifest(&of(folder, &written), &[], &mut problems);
            assert!(problems.is_empty(), "{problems:?}");
        }
    }

    #[test]
    fn a_pure_crate_reaches_no_runtime_through_another_crate() {
        let crates = [
            of("shared/view", "[dependencies]\nanteroom-wire = \"1\""),
            of(
                "shared/wire",
                "[dependencies]\ntokio = \"1\"\nrmp-serde = \"1\"",
            ),
        ];
        let mut problems = Vec::new();
        manifest(&crates[0], &crates, &mut problems);
        let told = "shared/view must not depend on tokio, which it does through shared/wire";
        let through: Vec<_> = problems
            .iter()
            .filter(|told| told.contains("through"))
            .collect();
        assert!(through[0].ends_with(told), "{problems:?}");
        assert_eq!(through.len(), 1, "MessagePack is hidden by its crate");
    }

    #[test]
    fn a_replica_knows_no_api_server() {
        let mut problems = Vec::new();
        let written = "[dependencies]\nkube.workspace = true";
        manifest(&of("services/cache-replica", written), &[], &mut problems);
        assert!(
            problems[0].contains("must not depend on kube"),
            "{problems:?}"
        );
    }
}
