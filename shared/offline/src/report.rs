//! Reports of rows, for people and machines.

mod applied;
mod json;
mod junit;
mod markdown;
mod table;

use std::path::PathBuf;

use serde::Serialize;

use crate::check::{Row, RowResult};

pub use applied::{Applied, StatusCounts, applied};
pub use json::json;
pub use junit::junit;
pub use markdown::markdown;
pub use table::table;

/// A suite that was run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// Its name for people.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Its rows.
    pub rows: Vec<Row>,
    /// The reason why it could not be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The number of rows by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Rows that are as expected.
    pub passed: usize,
    /// Not as expected.
    pub failed: usize,
    /// About what is not run.
    pub not_run: usize,
    /// Suites that could not be run.
    pub errors: usize,
}

impl Counts {
    /// The counts of all suites.
    pub fn of(suites: &[Checked]) -> Self {
        let mut counts = Self::default();
        for suite in suites {
            counts.errors += usize::from(suite.error.is_some());
            for row in &suite.rows {
                match row.result {
                    RowResult::Pass => counts.passed += 1,
                    RowResult::Fail => counts.failed += 1,
                    RowResult::NotRun => counts.not_run += 1,
                }
            }
        }
        counts
    }

    /// Returns whether all that was run is as expected.
    pub fn is_success(self) -> bool {
        self.failed == 0 && self.errors == 0
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// One suite with a row of each result, and one that could not be run.
    pub(crate) fn checked() -> Vec<Checked> {
        let row = |result, reason: &str, message: &str| Row {
            policy: "p".to_owned(),
            rule: "r".to_owned(),
            resource: "Pod/default/a".to_owned(),
            result,
            reason: reason.to_owned(),
            message: message.to_owned(),
            remark: String::new(),
        };
        vec![
            Checked {
                name: "first".to_owned(),
                path: "a/t.yaml".into(),
                rows: vec![
                    row(RowResult::Pass, "Ok", ""),
                    row(
                        RowResult::Fail,
                        "Want pass, got fail",
                        "a <b> & \"c\"\nnext",
                    ),
                    row(RowResult::NotRun, "Not run", "not made"),
                ],
                error: None,
            },
            Checked {
                name: "second".to_owned(),
                path: "b/t.yaml".into(),
                rows: Vec::new(),
                error: Some("cannot read x".to_owned()),
            },
        ]
    }

    #[test]
    fn rows_and_errors_are_counted() {
        let counts = Counts::of(&checked());
        let expected = Counts {
            passed: 1,
            failed: 1,
            not_run: 1,
            errors: 1,
        };
        assert_eq!(counts, expected);
        assert!(!counts.is_success());
        assert!(
            Counts {
                failed: 0,
                errors: 0,
                ..counts
            }
            .is_success()
        );
        assert!(
            !Counts {
                failed: 0,
                ..counts
            }
            .is_success()
        );
    }
}
