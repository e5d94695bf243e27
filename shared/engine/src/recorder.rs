//! The interface to the metrics of the engine's work.

use std::{fmt, sync::Arc, time::Duration};

use anteroom_model::ErrorCode;

use crate::{
    policies::PolicySet,
    rule::{RuleName, RuleResult},
};

/// Counts the engine's work. A decision makes one call for each rule and each query, so a recorder looks up its
/// counters once: see [`RuleName::recorded`].
pub trait Recorder: fmt::Debug + Send + Sync {
    /// Counts a rule that spoke of a request, with the time from its first step to its report.
    fn rule(&self, _rule: &RuleName, _result: RuleResult, _took: Duration) {}

    /// Counts a request that is sent to a replica.
    fn query_attempt(&self) {}

    /// Counts a query with all its attempts. `error` is `None` for an answer.
    fn query(&self, _error: Option<ErrorCode>, _took: Duration) {}

    /// Counts a query of a local view, by its outcome: `ok`; `long` for one that is left to replicas since it takes long
    /// or waits for a position of the log, and then `alone` if it was answered here after all; or the code of an error, which replicas are asked for.
    fn local_query(&self, _outcome: &'static str) {}

    /// Counts a live read. `error` is `None` for an answer.
    fn live_read(&self, _error: Option<ErrorCode>, _took: Duration) {}

    /// Counts a view's answer that was to be compared with a live one.
    fn audit(&self, _result: AuditResult) {}

    /// Takes over the policies in force; from now on nothing is counted for any other.
    fn policies(&self, _policies: &PolicySet) {}

    /// Counts an attempt of a rule on objects that exist already, by its outcome.
    fn mutate_existing(&self, _outcome: &'static str) {}

    /// Counts a violation for the reporter, by its outcome: `sent`, `failed` or `dropped`.
    fn violation(&self, _outcome: &'static str) {}
}

/// A recorder that is shared by all parts of an engine.
pub type SharedRecorder = Arc<dyn Recorder>;

/// Counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecorder;

impl Recorder for NoRecorder {}

/// The result of comparing a view's answer with a live one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditResult {
    /// Both answers are equal, at once or after a moment.
    Same,
    /// The view's answer differs from the live one.
    Different,
    /// The view or the API server could not be read.
    Error,
    /// The limit of comparisons at once is reached, or the answer is large.
    Skipped,
}

impl AuditResult {
    /// Returns the label of the result.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Different => "different",
            Self::Error => "error",
            Self::Skipped => "skipped",
        }
    }
}
