//! Dependencies of each crate: each is named by the code that it is for, and none leads where its crate must not.
//!
//! A name counts where it begins a path (`tokio::spawn`) or follows `use`. Items and modules behind `#[cfg(test)]`, and
//! files and folders named `tests`, are test code; so are `tests`, `benches` and `examples` beside `src`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

use super::knots::tokens;
use crate::crates::{Crate, dependencies, listed};

/// Dependencies that no code names, with the reason.
const UNNAMED: [(&str, &str, &str); 2] = [
    (
        "shared/runtime",
        "k8s-openapi",
        "its tests choose the version of Kubernetes, which `kube` needs",
    ),
    (
        "tests/e2e",
        "k8s-openapi",
        "its program `up` chooses the version of Kubernetes, which `kube` needs",
    ),
];

/// Crates whose name in code is another one than in the manifest.
const RENAMED: [(&str, &str); 2] = [("anteroom", "anteroom_command"), ("md-5", "md5")];

/// The names that a crate's code uses.
#[derive(Debug, Default)]
struct Named {
    source: BTreeSet<String>,
    tests: BTreeSet<String>,
}

/// Checks that the code of each crate names its dependencies.
pub(super) fn check_named(
    root: &Path,
    crates: &[Crate],
    problems: &mut Vec<String>,
) -> anyhow::Result<()> {
    for of in crates {
        let named = read(&root.join(&of.folder))
            .with_context(|| format!("cannot read the sources of {}", of.folder))?;
        problems.extend(unnamed(of, &named));
    }
    Ok(())
}

/// The complaints about dependencies of a crate that its code does not name, and about exceptions that it does.
fn unnamed(of: &Crate, named: &Named) -> Vec<String> {
    let folder = &of.folder;
    let mut problems = Vec::new();
    let has_reason = |dependency: &str| {
        UNNAMED
            .iter()
            .any(|(owner, name, _)| *owner == folder.as_str() && *name == dependency)
    };
    for dependency in listed(&of.manifest, "dependencies").names {
        let name = in_code(dependency);
        if named.source.contains(&name) || has_reason(dependency) {
            continue;
        }
        problems.push(match named.tests.contains(&name) {
            true => format!(
                "{folder}/Cargo.toml: only tests name {dependency}: move it to [dev-dependencies]"
            ),
            false => format!("{folder}/Cargo.toml: nothing in `src` names {dependency}: remove it"),
        });
    }
    for dependency in listed(&of.manifest, "dev-dependencies").names {
        let is_named = named.tests.contains(&in_code(dependency));
        // A crate depends on itself to have its own features in its tests.
        if !is_named && dependency != of.name && !has_reason(dependency) {
            problems.push(format!(
                "{folder}/Cargo.toml: no test, benchmark or example names {dependency}: remove it"
            ));
        }
    }
    for (owner, dependency, _) in UNNAMED {
        let is_excepted = owner == folder.as_str();
        if is_excepted && named.source.contains(&in_code(dependency)) {
            problems.push(format!(
                "{folder}: names {dependency} now: remove it from UNNAMED in xtask/src/tidy/dependencies.rs"
            ));
        }
    }
    problems
}

/// The name of a dependency in code.
fn in_code(dependency: &str) -> String {
    let renamed = RENAMED.iter().find(|(name, _)| *name == dependency);
    renamed.map_or_else(
        || dependency.replace('-', "_"),
        |(_, own)| (*own).to_owned(),
    )
}

/// Reads the names in a crate's folder.
fn read(folder: &Path) -> anyhow::Result<Named> {
    let (mut named, mut files) = (Named::default(), Vec::new());
    for part in ["src", "tests", "benches", "examples"] {
        let part = folder.join(part);
        if part.exists() {
            collect(&part, &mut files)?;
        }
    }
    let for_tests: BTreeSet<PathBuf> = files.iter().flat_map(File::test_modules).collect();
    let src = folder.join("src");
    let is_for_tests = |path: &Path| {
        path.file_stem().is_some_and(|stem| stem == "tests")
            || for_tests.contains(&path.with_extension(""))
    };
    for file in &files {
        let above = file.path.ancestors().take_while(|path| **path != *src);
        let is_test = !file.path.starts_with(&src) || above.into_iter().any(is_for_tests);
        take(&file.source, &file.tests, is_test, &mut named);
    }
    Ok(named)
}

/// The tokens of a file: of its code, and of its items behind `#[cfg(test)]`.
#[derive(Debug)]
struct File {
    path: PathBuf,
    source: Vec<String>,
    tests: Vec<String>,
}

impl File {
    /// The paths, without `.rs`, of the modules that the file declares for tests alone.
    fn test_modules(&self) -> Vec<PathBuf> {
        let is_root = ["lib", "main", "mod"]
            .iter()
            .any(|root| self.path.file_stem().is_some_and(|stem| stem == *root));
        let children = match is_root {
            true => self.path.with_file_name(""),
            false => self.path.with_extension(""),
        };
        let declared = self.tests.windows(3);
        let declared = declared.filter(|three| three[0] == "mod" && three[2] == ";");
        declared.map(|three| children.join(&three[1])).collect()
    }
}

fn collect(folder: &Path, files: &mut Vec<File>) -> anyhow::Result<()> {
    for item in fs::read_dir(folder)? {
        let path = item?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let read = tokens(&fs::read_to_string(&path)?);
            let (source, tests) =
                read.with_context(|| format!("cannot read {}", path.display()))?;
            files.push(File {
                path,
                source,
                tests,
            });
        }
    }
    Ok(())
}

/// Adds the names of a file.
fn take(source: &[String], tests: &[String], is_test: bool, named: &mut Named) {
    if is_test {
        named.tests.extend(begins(source));
    } else {
        named.source.extend(begins(source));
    }
    named.tests.extend(begins(tests));
}

/// The names that begin a path, or that are imported.
fn begins(tokens: &[String]) -> impl Iterator<Item = String> {
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    let is_name =
        |token: &str| token.starts_with(|first: char| first.is_alphabetic() || first == '_');
    let begins = (0..tokens.len()).filter(move |at| {
        let before = at.checked_sub(1).map_or("", token);
        // Behind `::`, a name begins a path only where nothing stands before it, as in `::tokio`.
        let is_behind = before == "::" && at.checked_sub(2).is_some_and(|at| is_name(token(at)));
        let is_path = token(at + 1) == "::" || matches!(before, "use" | "crate");
        is_name(token(*at)) && is_path && !is_behind
    });
    begins.map(|at| tokens[at].clone())
}

/// Every crate that one depends on, directly or through crates of the workspace. Optional dependencies are left out: who
/// does not choose the feature does not have them.
pub(super) fn reached<'a>(of: &'a Crate, crates: &'a [Crate]) -> BTreeMap<&'a str, &'a str> {
    let mut reached = BTreeMap::new();
    let mut next = vec![of];
    while let Some(of) = next.pop() {
        for dependency in dependencies(&of.manifest) {
            if is_optional(&of.manifest, dependency) || reached.contains_key(dependency) {
                continue;
            }
            reached.insert(dependency, of.folder.as_str());
            next.extend(crates.iter().find(|other| other.name == dependency));
        }
    }
    reached
}

fn is_optional(manifest: &str, dependency: &str) -> bool {
    let is_its = |line: &&str| {
        line.strip_prefix(dependency)
            .is_some_and(|rest| rest.starts_with([' ', '=']))
    };
    let mut lines = manifest.lines().filter(is_its);
    lines.any(|line| line.contains("optional = true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, manifest: &str) -> Crate {
        Crate {
            folder: format!("shared/{name}"),
            name: format!("anteroom-{name}"),
            manifest: manifest.to_owned(),
        }
    }

    fn problems(manifest: &str, source: &str, tests: &str) -> Vec<String> {
        let mut named = Named::default();
        for (text, is_test) in [(source, false), (tests, true)] {
            let (source, tests) = tokens(text).unwrap();
            take(&source, &tests, is_test, &mut named);
        }
        unnamed(&of("x", manifest), &named)
    }

    #[test]
    fn a_dependency_that_no_code_names_is_a_problem() {
        let manifest = "[dependencies]\nserde-json.workspace = true";
        for named in [
            "use serde_json::Value;",
            "fn f(_: ::serde_json::Value) {}",
            "pub use serde_json;",
            "#[serde_json::test]\nfn f() {}",
            "fn f() { json!({\"a\": serde_json::to_value(1)}) }",
        ] {
            assert_eq!(problems(manifest, named, ""), [""; 0], "{named}");
        }
        for silent in [
            "// serde_json::Value",
            "const T: &str = \"serde_json::Value\";",
            "use other::serde_json::Value;",
            "fn f(serde_json: u8) {}",
        ] {
            let said = problems(manifest, silent, "");
            assert!(said[0].contains("names serde-json: remove it"), "{silent}");
        }
    }

    #[test]
    fn a_dependency_that_only_tests_name_is_one_of_the_tests() {
        let manifest = "[dependencies]\nhttp = \"1\"";
        for (source, tests) in [
            ("#[cfg(test)]\nmod tests { use http::Request; }", ""),
            ("", "use http::Request;"),
        ] {
            let said = problems(manifest, source, tests);
            assert!(
                said[0].contains("move it to [dev-dependencies]"),
                "{said:?}"
            );
        }
    }

    #[test]
    fn a_module_that_is_declared_for_tests_is_test_code() {
        let declared = |path: &str| {
            let (source, tests) = tokens("mod a; #[cfg(test)] pub(crate) mod testing;").unwrap();
            let path = PathBuf::from(path);
            let file = File {
                path,
                source,
                tests,
            };
            file.test_modules()
        };
        assert_eq!(declared("src/lib.rs"), [PathBuf::from("src/testing")]);
        assert_eq!(
            declared("src/calls.rs"),
            [PathBuf::from("src/calls/testing")]
        );
    }

    #[test]
    fn a_dependency_of_tests_that_no_test_names_is_a_problem() {
        let manifest = "[dev-dependencies]\nhttp = \"1\"\nanteroom-x = { path = \".\" }";
        let said = problems(manifest, "", "");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("no test, benchmark or example names http"));
        assert_eq!(problems(manifest, "", "use http::Request;"), [""; 0]);
    }

    #[test]
    fn a_dependency_is_reached_through_other_crates_unless_it_is_optional() {
        let crates = [
            of("a", "[dependencies]\nanteroom-b.workspace = true"),
            of(
                "b",
                "[dependencies]\ntokio = \"1\"\nkube = { version = \"1\", optional = true }",
            ),
        ];
        let reached = reached(&crates[0], &crates);
        assert_eq!(reached.get("tokio"), Some(&"shared/b"));
        assert!(!reached.contains_key("kube"));
    }
}
