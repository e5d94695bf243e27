//! Views of this process, which are asked before replicas.
//!
//! Their answers count as those of replicas do: an answer is no older than the last one (`floors`), and has its revision
//! and age. Errors count for nothing here: replicas may answer, or say the same.

use std::{fmt, time::Duration};

use anteroom_model::{ErrorSubject, FactError, ViewId};
use anteroom_wire::query::{QueryOutcome, QueryReply, QueryRequest};
use futures::future::BoxFuture;

/// Views that this process holds itself.
pub trait LocalViews: fmt::Debug + Send + Sync {
    /// Returns true if the view is local, whether it answers or not.
    fn holds(&self, view: &ViewId) -> bool;

    /// Answers a request where that takes no time that other reviews could miss; `None`: it takes long, or waits for
    /// a position of the log.
    fn answer_at_once(
        &self,
        view: &ViewId,
        request: &QueryRequest,
        time: Duration,
    ) -> Option<QueryOutcome>;

    /// Answers a request within this time.
    fn answer<'a>(
        &'a self,
        view: &'a ViewId,
        request: &'a QueryRequest,
        time: Duration,
    ) -> BoxFuture<'a, QueryOutcome>;
}

/// The answer of a local view before anything takes long.
pub(super) enum AtOnce {
    Answered(QueryReply),
    /// It takes long, or waits for a position of the log.
    TakesLong,
    /// The view does not answer.
    No,
}

/// Returns the reply, unless a result in it is an error that says more of this process than of the data.
pub(super) fn without_own_errors(reply: QueryReply) -> QueryOutcome {
    let mut errors = reply
        .results
        .iter()
        .filter_map(|result| result.as_ref().err());
    let own = errors.find(|error| is_of_this_process(error)).cloned();
    own.map_or(Ok(reply), Err)
}

/// Returns true for a budget too: that of a replica may be larger.
fn is_of_this_process(error: &FactError) -> bool {
    matches!(error, FactError::BudgetExceeded { .. })
        || error.class().subject == ErrorSubject::Service
}
