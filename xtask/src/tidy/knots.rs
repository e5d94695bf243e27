//! Knots: files of one crate that all reach each other, so that none can be read, tested or moved alone.
//!
//! The import graph is taken from tokens: `use` trees, `pub use` trees, and paths in the code. Tests are left
//! out. A name that a module re-exports counts as the file that defines it.

mod graph;
mod source;

use std::path::Path;

use anyhow::Context;

pub(super) use graph::edges;
pub(super) use source::{Segments, modules, tokens};

/// The largest knot that a crate may have.
const FILES_MAX: usize = 8;

/// Crates whose largest knot is still larger, with its size today. Entries only shrink, and then go.
const EXCEPTIONS: &[(&str, usize)] = &[];

/// Checks each of the crates, named by their folders under `root`.
pub(super) fn check(
    root: &Path,
    crates: &[&str],
    problems: &mut Vec<String>,
) -> anyhow::Result<()> {
    for folder in crates {
        let modules = source::modules(&root.join(folder).join("src"))
            .with_context(|| format!("cannot read the modules of {folder}"))?;
        let mut knots = graph::knots(&modules);
        knots.sort_by_key(|knot| std::cmp::Reverse(knot.len()));
        let excepted = EXCEPTIONS.iter().find(|(name, _)| name == folder);
        let largest = knots.first().map(Vec::as_slice).unwrap_or_default();
        problems.extend(verdict(folder, largest, excepted.map(|(_, files)| *files)));
    }
    let unknown = EXCEPTIONS.iter().filter(|(name, _)| !crates.contains(name));
    problems.extend(unknown.map(|(name, _)| {
        format!("{name}: no such crate; remove it from EXCEPTIONS in xtask/src/tidy/knots.rs")
    }));
    Ok(())
}

/// The complaint about a crate's largest knot, if there is one.
fn verdict(folder: &str, largest: &[String], excepted: Option<usize>) -> Option<String> {
    let files = largest.len();
    let allowed = excepted.unwrap_or(FILES_MAX);
    if files > allowed {
        return Some(format!(
            "{folder}: {files} files all reach each other, {allowed} at most: {}",
            largest.join(" ")
        ));
    }
    let row = "EXCEPTIONS in xtask/src/tidy/knots.rs";
    match excepted {
        Some(_) if files <= FILES_MAX => Some(format!(
            "{folder}: its largest knot has {files} files now: remove it from {row}"
        )),
        Some(allowed) if files < allowed => Some(format!(
            "{folder}: its largest knot has {files} files now, not {allowed}: say so in {row}"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A crate of these files, in a folder of its own.
    fn knots_of(name: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let folder =
            std::env::temp_dir().join(format!("xtask-knots-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let modules = source::modules(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        graph::knots(&modules)
    }

    #[test]
    fn a_ring_of_modules_is_one_knot_however_they_name_each_other() {
        let knots = knots_of(
            "ring",
            &[
                ("lib.rs", "mod a; mod b; mod c; mod d;"),
                ("a.rs", "use crate::b::B;\npub struct A;"),
                ("b.rs", "pub struct B;\nfn f() { super::c::g(); }"),
                ("c/mod.rs", "pub fn g() { json!({ \"a\": crate::a::A }) }"),
                ("d.rs", "use crate::{a::A, b::B};"),
            ],
        );
        assert_eq!(knots, [["a", "b", "c"]]);
    }

    #[test]
    fn modules_in_layers_are_no_knot() {
        let knots = knots_of(
            "layers",
            &[
                ("lib.rs", "mod a; mod b; pub use b::B;"),
                (
                    "a.rs",
                    "pub struct A; // crate::b::B\nconst T: &str = \"crate::b::B\";",
                ),
                ("b.rs", "use crate::a::A; pub struct B(A);"),
            ],
        );
        assert!(knots.is_empty(), "{knots:?}");
    }

    #[test]
    fn a_facade_whose_children_import_it_back_is_a_knot() {
        let knots = knots_of(
            "facade",
            &[
                ("lib.rs", "mod a;"),
                ("a.rs", "mod child; pub use child::Child; pub struct Own;"),
                ("a/child.rs", "use super::Own; pub struct Child(Own);"),
            ],
        );
        assert_eq!(knots, [["a", "a::child"]]);
    }

    #[test]
    fn a_name_counts_as_the_file_that_defines_it_and_not_as_its_facade() {
        let knots = knots_of(
            "defines",
            &[
                ("lib.rs", "mod a;"),
                (
                    "a.rs",
                    "mod one; mod two; pub use one::One; pub use two::Two;",
                ),
                ("a/one.rs", "pub struct One;"),
                ("a/two.rs", "use crate::a::One; pub struct Two(One);"),
            ],
        );
        assert!(knots.is_empty(), "{knots:?}");
    }

    #[test]
    fn modules_for_tests_alone_are_left_out_of_knots() {
        let knots = knots_of(
            "tests",
            &[
                ("lib.rs", "mod a; mod b;"),
                ("a.rs", "use crate::b::B; pub struct A;"),
                (
                    "b.rs",
                    "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }",
                ),
                ("b/tests.rs", "use crate::a::A;"),
            ],
        );
        assert!(knots.is_empty(), "{knots:?}");
    }

    #[test]
    fn a_knot_over_its_limit_is_a_problem_and_so_is_an_exception_that_is_too_large() {
        let knot: Vec<String> = (0..9).map(|n| format!("m{n}")).collect();
        let said = |files: usize, excepted| verdict("shared/x", &knot[..files], excepted);
        assert!(
            said(9, None)
                .unwrap()
                .contains("9 files all reach each other, 8 at most: m0 m1")
        );
        assert!(said(8, None).is_none());
        assert!(said(9, Some(9)).is_none());
        assert!(said(9, Some(10)).unwrap().contains("9 files now, not 10"));
        assert!(
            said(8, Some(9))
                .unwrap()
                .contains("remove it from EXCEPTIONS")
        );
    }
}
