//! One name for one thing: no name of a type is defined in many files, so that a reader or a search finds what is meant.

use std::{collections::BTreeMap, path::Path};

/// The most files that define a type of one name.
const FILES_MAX: usize = 4;

/// Names that may be defined in more files.
const ALLOWED: [&str; 2] = [
    // Each service has one, the options of its command; only the command line names it, by the service's crate.
    "Command",
    // The options of a service, or of a command of the command line: one for each module that has options.
    "Args",
];

/// The keywords that define a type.
const KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

/// The names of types, each with the files that define it.
#[derive(Debug, Default)]
pub(super) struct TypeNames(BTreeMap<String, Vec<String>>);

impl TypeNames {
    /// Adds the types that a source file of a service or a shared crate defines. Tests, benchmarks and examples are
    /// passed over, and types within a function or an impl.
    pub(super) fn add(&mut self, file: &str, text: &str) {
        let is_product = file.starts_with("services/") || file.starts_with("shared/");
        let mut parts = Path::new(file).components();
        let is_test = parts.any(|part| {
            let part = part.as_os_str();
            ["tests", "tests.rs", "benches", "examples"]
                .iter()
                .any(|test| part == *test)
        });
        if !is_product || is_test {
            return;
        }
        for line in text.lines() {
            let Some(name) = defined(line) else {
                continue;
            };
            let files = self.0.entry(name.to_owned()).or_default();
            if files.last().is_none_or(|last| last != file) {
                files.push(file.to_owned());
            }
        }
    }

    /// Returns a complaint about each name that too many files define.
    pub(super) fn check(&self) -> Vec<String> {
        let many = self
            .0
            .iter()
            .filter(|(name, files)| files.len() > FILES_MAX && !ALLOWED.contains(&name.as_str()));
        let complaint = |(name, files): (&String, &Vec<String>)| {
            format!(
                "{}: types named `{name}` are defined in {} files, {FILES_MAX} at most: name this one for what \
                 it holds (the others: {})",
                files[0],
                files.len(),
                files[1..].join(", ")
            )
        };
        many.map(complaint).collect()
    }
}

/// Returns the name of the type that a line defines. Lines with an indent are within a function, an impl or a module
/// of tests.
fn defined(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) => {
            let rest = rest.strip_prefix('(').map_or(Some(rest), |within| {
                within.split_once(')').map(|(_, rest)| rest)
            });
            rest?.strip_prefix(' ')?
        }
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let name = rest.split(|c| !is_word(c)).next()?;
    (KEYWORDS.contains(&keyword) && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_seen_whatever_its_kind_and_visibility() {
        for line in [
            "struct Entry;",
            "pub struct Entry<'a, T> {",
            "pub(crate) enum Entry {",
            "pub(in crate::a) type Entry = String;",
            "trait Entry: Clone {",
        ] {
            assert_eq!(defined(line), Some("Entry"), "{line}");
        }
        for line in [
            "    struct Entry;",
            "impl Entry {",
            "// struct Entry",
            "pub use a::Entry;",
            "",
        ] {
            assert_eq!(defined(line), None, "{line}");
        }
    }

    #[test]
    fn a_name_that_more_than_four_files_define_is_a_problem() {
        let mut names = TypeNames::default();
        for file in ["a", "b", "c", "d"] {
            names.add(
                &format!("services/x/src/{file}.rs"),
                "struct Found;\nstruct Found;\n",
            );
        }
        for file in [
            "services/x/tests/a.rs",
            "shared/x/src/a/tests.rs",
            "tests/x/src/a.rs",
        ] {
            names.add(file, "struct Found;");
        }
        names.add(
            "shared/x/src/a.rs",
            "fn a() {\n    struct Found;\n}\nstruct Other;",
        );
        assert!(names.check().is_empty(), "{:?}", names.check());
        names.add("shared/x/src/b.rs", "pub(crate) enum Found {}");
        let problems = names.check();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].contains("`Found` are defined in 5 files"),
            "{problems:?}"
        );
        assert!(problems[0].contains("shared/x/src/b.rs"), "{problems:?}");
    }
}
