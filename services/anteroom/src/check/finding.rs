//! The findings of checks. Pure.

use super::cluster::Cluster;
use crate::asker::ReadResult;

/// A fact that should hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check {
    /// The anchor of `docs/checks.md`, and the name in JSON.
    pub(super) id: &'static str,
    pub(super) category: &'static str,
    /// The fact, as it should be.
    pub(super) fact: &'static str,
    /// True: for a cluster without an installation alone.
    pub(super) is_pre: bool,
    pub(super) find: fn(&Cluster) -> Finding,
}

/// The finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The fact holds.
    Good,
    /// The fact does not hold, and that may be meant so.
    Warning(String),
    /// The fact does not hold.
    Failed(String),
    /// The fact is not known, for this reason.
    NotAsked(String),
}

/// The most objects that a finding names.
const NAMED_MAX: usize = 5;

impl Finding {
    /// Returns the finding that `find` makes of an answer; without one the check is not asked.
    pub(super) fn of<T>(asked: &ReadResult<T>, find: impl FnOnce(&T) -> Self) -> Self {
        match asked {
            Ok(answer) => find(answer),
            Err(reason) => Self::NotAsked(reason.clone()),
        }
    }

    /// Good without problems, else what `otherwise` makes of them: a line for each of the first.
    pub(super) fn none(problems: Vec<String>, otherwise: fn(String) -> Self) -> Self {
        if problems.is_empty() {
            return Self::Good;
        }
        let more = problems.len().saturating_sub(NAMED_MAX);
        let mut lines = problems;
        lines.truncate(NAMED_MAX);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        otherwise(lines.join("\n"))
    }
}
