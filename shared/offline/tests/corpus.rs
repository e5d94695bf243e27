//! The suites of the published Kyverno policies: each row comes to what is expected.

// Helpers of a test are no tests to clippy.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anteroom_offline::{Row, RowResult, Suite, check, suites};
use anteroom_policy::Arrival;

/// A folder of published policies; `None`, said aloud, if it is absent.
fn folder(name: &str) -> Option<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let folder = corpus.join(name);
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

/// The suites of policies in CEL, classic ones and those of policies.kyverno.io, where the folder is whole.
const SUITES_IN_CEL: usize = 131;

/// The results of a folder's suites.
#[derive(Default)]
struct Found {
    suites: usize,
    /// Suites of which every row passes.
    good: usize,
    passed: usize,
    not_run: usize,
    failed: BTreeMap<String, Vec<Row>>,
}

fn run(folder: &Path) -> Found {
    let mut found = Found::default();
    let arrival = Arrival {
        now_ns: 1_700_000_000_000_000_000,
        seed: 7,
    };
    for path in suites(folder, "kyverno-test.yaml").unwrap() {
        let policy = path.strip_prefix(folder).unwrap();
        let policy = policy.parent().and_then(Path::parent).unwrap();
        for mut suite in Suite::read(&path).unwrap() {
            suite.arrival = Some(arrival);
            let rows = check(&suite).unwrap();
            found.suites += 1;
            found.good += usize::from(rows.iter().all(|row| row.result == RowResult::Pass));
            for row in rows {
                match row.result {
                    RowResult::Pass => found.passed += 1,
                    RowResult::NotRun => found.not_run += 1,
                    RowResult::Fail => {
                        let failed = found.failed.entry(policy.display().to_string());
                        failed.or_default().push(row);
                    }
                }
            }
        }
    }
    found.tell();
    found
}

impl Found {
    fn tell(&self) {
        let count = self.failed.values().map(Vec::len).sum::<usize>();
        println!(
            "{} rows pass, {count} do not, {} are not run; {} of {} suites pass whole",
            self.passed, self.not_run, self.good, self.suites
        );
        for (policy, rows) in &self.failed {
            println!("{policy}: {} rows", rows.len());
            for row in rows {
                println!(
                    "  {} {}: {} ({})",
                    row.rule, row.resource, row.reason, row.message
                );
            }
        }
    }
}

#[test]
fn published_suites_give_their_expected_results() {
    let Some(folder) = folder("kyverno-policies") else {
        return;
    };
    let found = run(&folder);
    let failed = &found.failed;
    assert!(failed.is_empty(), "not as expected: {:?}", failed.keys());
    let passed = found.passed;
    assert!(passed >= PASSED_MIN, "{passed} rows pass, {PASSED_MIN} did");
}

#[test]
fn published_suites_of_policies_in_cel_give_their_expected_results() {
    let Some(folder) = folder("kyverno-policies-cel") else {
        return;
    };
    let found = run(&folder);
    let failed = &found.failed;
    assert!(failed.is_empty(), "not as expected: {:?}", failed.keys());
    let counts = (found.suites, found.good, found.not_run);
    assert_eq!(counts, (SUITES_IN_CEL, SUITES_IN_CEL, 0));
}
