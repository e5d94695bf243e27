//! Paths in backticks on a page: each must name a file or a folder of the repository, and each test named after a
//! path must be in it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

/// Folders at the root. A path that begins with one of them is whole.
const ROOTS: [&str; 6] = [
    "deploy/",
    "docs/",
    "services/",
    "shared/",
    "tests/",
    "xtask/",
];

/// A path that begins so, or ends with `.rs`, is short: a crate is understood before it.
const SHORT: &str = "src/";

/// All files of a repository.
pub(super) struct Files {
    root: PathBuf,
    /// Relative to `root`.
    paths: Vec<PathBuf>,
}

impl Files {
    /// Lists the files below `root`, but for hidden ones and those in folders `target`.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub(super) fn list(root: &Path) -> anyhow::Result<Self> {
        let (mut paths, mut folders) = (Vec::new(), vec![root.to_owned()]);
        while let Some(folder) = folders.pop() {
            let items = fs::read_dir(&folder);
            for item in items.with_context(|| format!("cannot read {}", folder.display()))? {
                let item = item?;
                let (name, path) = (item.file_name(), item.path());
                if name.as_encoded_bytes().starts_with(b".") || name == "target" {
                    continue;
                }
                if item.file_type()?.is_dir() {
                    folders.push(path);
                } else {
                    paths.push(path.strip_prefix(root).unwrap_or(&path).to_owned());
                }
            }
        }
        Ok(Self {
            root: root.to_owned(),
            paths,
        })
    }

    /// Returns the complaints about a page's paths: those that name nothing, and those without the test that the page
    /// names in them.
    pub(super) fn check(&self, page: &str, text: &str) -> Vec<String> {
        let named = text.split('`').skip(1).step_by(2);
        named
            .filter_map(|named| self.complaint(named))
            .map(|complaint| format!("{page}: names {complaint}"))
            .collect()
    }

    fn complaint(&self, named: &str) -> Option<String> {
        let (path, test) = match named.split_once("::") {
            Some((path, test)) => (path, Some(test)),
            None => (named, None),
        };
        if !is_path(path, test.is_some()) {
            return None;
        }
        let files = self.named(path);
        if files.is_empty() {
            return Some(format!("`{path}`, which does not exist"));
        }
        let test = test?;
        let is_there = files.iter().any(|file| self.has_function(file, test));
        (!is_there).then(|| format!("`{test}`, which is no function in `{path}`"))
    }

    /// Returns the files with this path, and all files of a folder with this path.
    fn named(&self, path: &str) -> Vec<&Path> {
        let is_whole = is_whole(path);
        let paths = self.paths.iter().map(PathBuf::as_path);
        paths
            .filter(|file| match is_whole {
                true => file.starts_with(path),
                false => file.ancestors().any(|folder| folder.ends_with(path)),
            })
            .collect()
    }

    fn has_function(&self, file: &Path, name: &str) -> bool {
        let text = fs::read_to_string(self.root.join(file)).unwrap_or_default();
        text.contains(&format!("fn {name}("))
    }
}

fn is_whole(text: &str) -> bool {
    ROOTS.iter().any(|folder| text.starts_with(folder))
}

/// Returns whether a text in backticks is a path: a whole one, a short one, or one of more steps before a test.
fn is_path(text: &str, is_before_test: bool) -> bool {
    let is_short = text.starts_with(SHORT)
        || Path::new(text).extension().is_some_and(|end| end == "rs")
        || (is_before_test && text.contains('/'));
    let is_plain = !text.contains(|c: char| c.is_whitespace() || "*{<(".contains(c));
    is_plain && (is_whole(text) || is_short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let files = Files::list(crate::shell::root()).unwrap();
        files.check("PAGE.md", text)
    }

    #[test]
    fn a_whole_path_names_a_file_or_a_folder_from_the_root() {
        let text = "`xtask/src/main.rs`, `xtask/src/`, `cargo test` and `tests/**/*.rs`";
        assert_eq!(complaints(text), [""; 0]);
        for text in ["`xtask/src/nowhere.rs`", "`xtask/nowhere/`", "`xtask/tidy`"] {
            assert!(complaints(text)[0].contains("does not exist"), "{text}");
        }
    }

    #[test]
    fn a_short_path_names_the_end_of_a_files_or_a_folders_path() {
        let text = "`main.rs`, `tidy/paths.rs`, `src/tidy/paths.rs`, `src/tidy` and `src/tidy/`";
        assert_eq!(complaints(text), [""; 0]);
        for text in [
            "`nowhere.rs`",
            "`nowhere/paths.rs`",
            "`y/paths.rs`",
            "`src/nowhere`",
            "`src/tid`",
        ] {
            assert!(complaints(text)[0].contains("does not exist"), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_paths_are_no_problem() {
        let text = "`apps/v1`, `feeds::join`, `/readyz`, `.rs`, `cat nowhere.rs`\n```sh\ncat src/nowhere\n```\n";
        assert_eq!(complaints(text), [""; 0]);
    }

    #[test]
    fn a_test_named_after_a_path_is_in_it() {
        let name = "a_test_named_after_a_path_is_in_it";
        for path in [
            "paths.rs",
            "tidy/paths.rs",
            "xtask/src/tidy",
            "src/tidy",
            "xtask/src",
        ] {
            assert_eq!(complaints(&format!("`{path}::{name}`")), [""; 0], "{path}");
        }
        let of = |text: &str| complaints(text).concat();
        assert!(of("`paths.rs::a_test_named`").contains("no function in `paths.rs`"));
        assert!(of("`tidy/links.rs::a_test_named_after_a_path_is_in_it`").contains("no function"));
        assert!(of("`nowhere/tidy::a_test`").contains("`nowhere/tidy`, which does not exist"));
    }
}
