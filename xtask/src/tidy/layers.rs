//! Layers inside a crate: the top modules that each top module may use.
//!
//! The imports are those of the import graph of knots: `use` trees, `pub use` trees and paths in the code,
//! however they are written, each counted as the file that defines the name. Tests are left out.

use std::path::Path;

use anyhow::Context;

use super::knots::{Segments, edges, modules};

/// The layers of one crate. A module that is not listed (its root, its entry point) may know all of them, and
/// none of them may know it.
struct Layered {
    /// The crate's folder.
    folder: &'static str,
    /// Each layer, with the layers that it may know.
    layers: &'static [(&'static str, &'static [&'static str])],
}

/// The crates that are layered. A new layer is a row; a new crate is an entry.
const LAYERED: &[Layered] = &[
    Layered {
        folder: "shared/policy",
        layers: &[
            ("ir", &[]),
            ("compile", &["ir"]),
            ("pushdown", &["ir"]),
            ("evaluate", &["ir", "pushdown"]),
            ("permit", &["ir"]),
        ],
    },
    Layered {
        folder: "shared/engine",
        layers: &[
            ("compile_turns", &[]),
            ("exceptions", &["compile_turns"]),
            ("exemptions", &[]),
            ("kinds", &[]),
            ("off_thread", &[]),
            ("phase", &[]),
            ("rule", &[]),
            ("policies", &["compile_turns", "phase", "rule"]),
            ("recorder", &["policies", "rule"]),
            ("violations", &["recorder"]),
            (
                "catalog",
                &[
                    "compile_turns",
                    "exceptions",
                    "kinds",
                    "off_thread",
                    "policies",
                    "recorder",
                ],
            ),
            ("incoming", &["catalog"]),
            (
                "facts",
                &["catalog", "incoming", "off_thread", "recorder", "rule"],
            ),
            ("verdict", &["facts", "incoming", "rule"]),
            (
                "rule_run",
                &["catalog", "facts", "off_thread", "rule", "verdict"],
            ),
            (
                "review_work",
                &["facts", "incoming", "off_thread", "rule", "rule_run"],
            ),
            (
                "drive",
                &["catalog", "facts", "review_work", "rule", "rule_run"],
            ),
            (
                "decide",
                &[
                    "catalog",
                    "drive",
                    "facts",
                    "incoming",
                    "off_thread",
                    "policies",
                    "recorder",
                    "review_work",
                    "rule",
                    "rule_run",
                    "verdict",
                ],
            ),
            (
                "mutate_existing",
                &[
                    "catalog",
                    "decide",
                    "drive",
                    "facts",
                    "incoming",
                    "off_thread",
                    "policies",
                    "recorder",
                    "review_work",
                    "rule",
                    "rule_run",
                    "verdict",
                    "violations",
                ],
            ),
            (
                "judge",
                &[
                    "catalog",
                    "decide",
                    "exemptions",
                    "facts",
                    "mutate_existing",
                    "policies",
                    "recorder",
                    "rule",
                    "verdict",
                    "violations",
                ],
            ),
        ],
    },
    Layered {
        folder: "services/cache-replica",
        layers: &[
            ("deadline", &[]),
            ("fair_slots", &[]),
            ("memo", &[]),
            ("memory_limit", &[]),
            ("metrics", &[]),
            ("plan", &[]),
            ("references", &[]),
            ("sealed", &[]),
            ("shares", &[]),
            ("waiting", &[]),
            ("args", &["memory_limit", "sealed", "shares"]),
            ("beats", &["metrics", "references"]),
            ("derived", &["plan"]),
            ("scan", &["deadline", "derived", "fair_slots", "memo"]),
            (
                "evaluate",
                &[
                    "args",
                    "deadline",
                    "derived",
                    "fair_slots",
                    "memo",
                    "metrics",
                    "plan",
                    "scan",
                ],
            ),
            (
                "memory",
                &["evaluate", "memory_limit", "metrics", "sealed", "shares"],
            ),
            (
                "answer",
                &[
                    "args",
                    "deadline",
                    "evaluate",
                    "memory",
                    "metrics",
                    "references",
                    "sealed",
                ],
            ),
            ("endpoint", &["answer", "memory", "metrics"]),
        ],
    },
    Layered {
        folder: "services/watcher",
        layers: &[
            ("generations", &[]),
            ("source", &[]),
            ("log_writer", &["generations"]),
            ("gateway", &["source"]),
            ("feeds", &["generations", "log_writer", "source"]),
            (
                "coordinator",
                &["feeds", "gateway", "generations", "log_writer", "source"],
            ),
        ],
    },
];

/// Checks the layers of all crates that have some.
pub(super) fn check(root: &Path, problems: &mut Vec<String>) -> anyhow::Result<()> {
    for crate_ in LAYERED {
        let source = root.join(crate_.folder).join("src");
        let found = violations(&source, crate_.layers)
            .with_context(|| format!("cannot read the modules of {}", crate_.folder))?;
        problems.extend(
            found
                .iter()
                .map(|found| format!("{}: {found}", crate_.folder)),
        );
    }
    Ok(())
}

/// The imports below `source` that a layer may not have, and the layers that are listed and are not there.
fn violations(source: &Path, layers: &[(&str, &[&str])]) -> anyhow::Result<Vec<String>> {
    let modules = modules(source)?;
    let top = |file: &Segments| file.first().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for (layer, _) in layers {
        if !modules.keys().any(|file| top(file) == *layer) {
            found.push(format!(
                "there is no module `{layer}`: mend LAYERED in xtask/src/tidy/layers.rs"
            ));
        }
    }
    for (file, reached) in edges(&modules) {
        let (from, to) = (top(&file), top(&reached));
        let row = layers.iter().find(|(layer, _)| *layer == from);
        let is_allowed = |(_, known): &(&str, &[&str])| to == from || known.contains(&to.as_str());
        if row.is_none_or(is_allowed) {
            continue;
        }
        let to = if to.is_empty() {
            "the crate's root"
        } else {
            &to
        };
        found.push(format!(
            "{} uses {}: `{from}` may not know {to}",
            file.join("::"),
            reached.join("::"),
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ROWS: &[(&str, &[&str])] = &[("low", &[]), ("high", &["low"])];

    /// The violations of a crate with these two layers, whose lower one has this text.
    fn found(name: &str, low: &str) -> Vec<String> {
        let folder =
            std::env::temp_dir().join(format!("xtask-layers-{name}-{}", std::process::id()));
        for (file, text) in [
            (
                "lib.rs",
                "mod low; mod high; mod entry; pub use high::High;",
            ),
            (
                "entry.rs",
                "use crate::{high::High, low::Low}; pub fn enter() {}",
            ),
            ("high.rs", "use crate::low::Low; pub struct High(Low);"),
            ("low.rs", "mod child; pub struct Low;"),
            ("low/child.rs", low),
        ] {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = violations(&folder, ROWS).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        found
    }

    #[test]
    fn a_layer_that_knows_one_above_it_is_a_problem_however_it_is_written() {
        let of_high = "low::child uses high: `low` may not know high";
        for (name, low) in [
            ("use", "use crate::high::High;"),
            ("group", "use crate::{low::Low, high::{self, High}};"),
            ("inline", "fn f() { let _ = crate::high::High::new(); }"),
            ("super", "use super::super::high::High;"),
            ("inline-super", "fn f(_: super::super::high::High) {}"),
            ("macro", "fn f() { json!({\"a\": crate::high::High}) }"),
            (
                "renamed",
                "use crate::high as other; fn f(_: other::High) {}",
            ),
            ("root", "use crate::High;"),
            ("re-exported", "pub(crate) use crate::high::High;"),
        ] {
            assert_eq!(found(name, low), [of_high], "{low}");
        }
    }

    #[test]
    fn a_layer_may_not_know_a_module_that_is_in_no_layer() {
        let expected = "low::child uses entry: `low` may not know entry";
        assert_eq!(found("entry", "use crate::entry::enter;"), [expected]);
    }

    #[test]
    fn a_layer_may_know_itself_and_those_of_its_row_and_tests_may_know_all() {
        let low = "use super::Low;\n#[cfg(test)]\nmod tests { use crate::high::High; }";
        assert_eq!(found("fine", low), [""; 0]);
    }

    #[test]
    fn a_layer_without_a_module_is_a_problem() {
        let folder = std::env::temp_dir().join(format!("xtask-layers-gone-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("lib.rs"), "mod low;").unwrap();
        fs::write(folder.join("low.rs"), "pub struct Low;").unwrap();
        let found = violations(&folder, ROWS).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(found[0].contains("no module `high`"), "{found:?}");
    }
}
