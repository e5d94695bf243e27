//! Paths that a page names: each must exist.

use std::path::Path;

/// Folders at the root whose files pages name.
const ROOTS: [&str; 6] = [
    "deploy/",
    "docs/",
    "services/",
    "shared/",
    "tests/",
    "xtask/",
];

/// The complaints about a page's paths: those in backticks that do not exist under `root`.
pub(super) fn check(root: &Path, page: &str, text: &str) -> Vec<String> {
    let named = text.split('`').skip(1).step_by(2);
    let missing = named.filter(|path| is_path(path) && !root.join(path).exists());
    missing
        .map(|path| format!("{page}: names `{path}`, which does not exist"))
        .collect()
}

fn is_path(text: &str) -> bool {
    ROOTS.iter().any(|folder| text.starts_with(folder)) && !text.contains(['*', ' ', '{'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_does_not_exist_is_a_problem() {
        let said = |text: &str| check(crate::shell::root(), "PAGE.md", text);
        assert!(said("`xtask/src/main.rs` and `cargo test` and `tests/**/*.rs`").is_empty());
        assert!(said("see `xtask/src/nowhere.rs`")[0].contains("does not exist"));
    }
}
