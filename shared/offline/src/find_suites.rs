//! Finding the suites below folders.

use std::path::{Path, PathBuf};

use crate::documents::{InputError, inside};

/// Suites of one run; more is an error.
pub const SUITES_MAX: usize = 10_000;

/// The files named `name` below `path`, hidden folders included, since that is where suites are kept; or
/// `path` itself, where it is a file. In the order of their names.
///
/// # Errors
/// A folder cannot be read, or there are more than [`SUITES_MAX`].
pub fn suites(path: &Path, name: &str) -> Result<Vec<PathBuf>, InputError> {
    let mut found = Vec::new();
    if path.is_dir() {
        walk(path, name, &mut found)?;
    } else {
        found.push(path.to_owned());
    }
    Ok(found)
}

fn walk(folder: &Path, name: &str, found: &mut Vec<PathBuf>) -> Result<(), InputError> {
    for path in inside(folder)? {
        if path.is_dir() {
            if !path.is_symlink() && !path.ends_with(".git") {
                walk(&path, name, found)?;
            }
        } else if path.ends_with(name) {
            found.push(path);
        }
        if found.len() > SUITES_MAX {
            let path = folder.to_owned();
            return Err(InputError::TooMany { path });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn suites_are_found_in_hidden_folders_too() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            "b/.kyverno-test/t.yaml",
            "a/t.yaml",
            "a/u.yaml",
            ".git/t.yaml",
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = suites(folder.path(), "t.yaml").unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|path| path.strip_prefix(folder.path()).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["a/t.yaml", "b/.kyverno-test/t.yaml"]);
        let file = folder.path().join("a/u.yaml");
        assert_eq!(suites(&file, "t.yaml").unwrap(), [file]);
    }
}
