//! The suites of the published Kyverno policies: each row comes to what is expected.

// Helpers of a test are no tests to clippy.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anteroom_offline::{Row, RowResult, Suite, check, suites};

/// The folder of the published policies; `None`, said aloud, if it is absent.
fn folder() -> Option<PathBuf> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/kyverno-policies");
    if !folder.is_dir() {
        let required = std::env::var_os("ANTEROOM_CORPUS_REQUIRED").is_some();
        assert!(!required, "there is no {}", folder.display());
        println!("skipped: there is no {}", folder.display());
        return None;
    }
    Some(folder)
}

/// The rows that pass, where the folder is whole.
const PASSED_MIN: usize = 594;

#[test]
fn published_suites_give_their_expected_results() {
    let Some(folder) = folder() else {
        return;
    };
    let (mut passed, mut not_run) = (0, 0);
    let mut failed: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for path in suites(&folder, "kyverno-test.yaml").unwrap() {
        let policy = path.strip_prefix(&folder).unwrap();
        let policy = policy.parent().and_then(Path::parent).unwrap();
        let suites = Suite::read(&path).unwrap();
        let rows = suites.iter().flat_map(|suite| check(suite).unwrap());
        for row in rows {
            match row.result {
                RowResult::Pass => passed += 1,
                RowResult::NotRun => not_run += 1,
                RowResult::Fail => failed
                    .entry(policy.display().to_string())
                    .or_default()
                    .push(row),
            }
        }
    }
    let count = failed.values().map(Vec::len).sum::<usize>();
    println!("{passed} rows pass, {count} do not, {not_run} are not run");
    for (policy, rows) in &failed {
        println!("{policy}: {} rows", rows.len());
        for row in rows {
            println!(
                "  {} {}: {} ({})",
                row.rule, row.resource, row.reason, row.message
            );
        }
    }
    assert!(failed.is_empty(), "not as expected: {:?}", failed.keys());
    assert!(passed >= PASSED_MIN, "{passed} rows pass, {PASSED_MIN} did");
}
