//! Queries that take longer than the others of their request should wait: each goes on beside them, and
//! gets an error of its own once no time is left.

use std::sync::Arc;

use anteroom_model::FactError;
use bytes::Bytes;
use tokio::time::timeout;

use super::{
    batch::{Batch, QueryContext},
    cel::CelQueryContext,
    evaluator::Evaluator,
    path::{AnswerPath, Stage},
    traits::LazyTraits,
};
use crate::scan::{PieceKey, Scan};

/// The state of a query after a worker had it.
enum OffloadOutcome {
    Done(Result<Bytes, FactError>),
    /// The query is to be evaluated slice by slice.
    Sliced(Arc<Scan>),
    /// The query is to be evaluated over the whole view.
    Whole,
}

impl Evaluator {
    /// Returns the result of the query with this number, before the deadline. An evaluation that goes on after that
    /// is ended by its budget, and its result is dropped.
    pub(crate) async fn answer_offloaded(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
    ) -> Result<Bytes, FactError> {
        let deadline = batch.deadline;
        match timeout(deadline.left(), self.answer_at_length(batch, index)).await {
            Ok(result) => result,
            Err(_) => Err(deadline.exceeded()),
        }
    }

    async fn answer_at_length(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
    ) -> Result<Bytes, FactError> {
        if CelQueryContext::of(batch, &batch.queries[index]).is_some() {
            return self.answer_cel_at_length(batch, index).await;
        }
        let planned = match self.plan_offloaded(batch, index).await? {
            OffloadOutcome::Done(result) => return result,
            planned => planned,
        };
        // Each scan of a request builds a result of its own.
        let permit = batch.scans.acquire().await;
        let _permit = permit.map_err(|_| batch.deadline.exceeded())?;
        match planned {
            OffloadOutcome::Sliced(scan) => self.evaluate_slices(batch, index, &scan).await,
            _ => self.evaluate_whole(batch, index).await,
        }
    }

    /// Runs [`Evaluator::plan`] on a worker thread.
    async fn plan_offloaded(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
    ) -> Result<OffloadOutcome, FactError> {
        let permit = self.workers.take(batch.beneficiary.clone()).await;
        let (this, batch) = (Arc::clone(self), Arc::clone(batch));
        let span = tracing::Span::current();
        let plan = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            // It may have waited for a thread.
            batch.deadline.check()?;
            span.in_scope(|| Ok(this.plan(batch.context(&batch.queries[index])?)))
        });
        plan.await.unwrap_or_else(|error| {
            Err(FactError::EvaluationFailed {
                message: format!("the evaluation ended unexpectedly: {error}"),
            })
        })
    }

    /// Evaluates a query over a few objects, or plans the scan of all objects.
    fn plan(&self, context: QueryContext<'_>) -> OffloadOutcome {
        let mut traits = LazyTraits::new(self, context);
        let path = AnswerPath::choose(Stage::Worker, &mut traits);
        match (path, traits.remembered, traits.sliced) {
            (AnswerPath::Remembered, Some(result), _) => OffloadOutcome::Done(result),
            (AnswerPath::Inline | AnswerPath::Offloaded, ..) => {
                let result = self.evaluate_over(context, traits.found.as_ref());
                self.remember(context, &result);
                OffloadOutcome::Done(result)
            }
            (AnswerPath::Sliced, _, Some(sliced)) => {
                let pieces = match sliced.is_of_objects_alone() {
                    true => self.pieces.get(&piece_key(context)),
                    false => None,
                };
                let (budget, _) = context.deadline().limit(self.budget);
                let scan = Scan::new(
                    sliced,
                    &context.batch.state,
                    context.select,
                    context.query(),
                    self.plans.functions(),
                    budget,
                    pieces.as_deref(),
                );
                OffloadOutcome::Sliced(Arc::new(scan))
            }
            // A remembered or sliced path comes with its result.
            (AnswerPath::Whole | AnswerPath::Remembered | AnswerPath::Sliced, ..) => {
                OffloadOutcome::Whole
            }
        }
    }

    async fn evaluate_slices(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
        scan: &Arc<Scan>,
    ) -> Result<Bytes, FactError> {
        // An error of a slice may not be the first of the list.
        let Some(result) = self
            .scans
            .run(scan, &batch.beneficiary, batch.deadline)
            .await?
        else {
            return self.evaluate_whole(batch, index).await;
        };
        self.metrics.evaluated();
        self.metrics.scanned();
        let context = batch.context(&batch.queries[index])?;
        context.examines(None);
        let is_shortened = scan.budget.steps < self.budget.steps;
        if is_shortened && matches!(result, Err(FactError::BudgetExceeded { .. })) {
            return Err(batch.deadline.exceeded());
        }
        if result.is_ok() && scan.sliced.is_of_objects_alone() {
            self.pieces.put(piece_key(context), scan.pieces());
        }
        self.remember(context, &result);
        match self.is_verified() {
            true => {
                let all = self.evaluate_whole(batch, index).await;
                self.verified(context, result, all)
            }
            false => result,
        }
    }

    async fn evaluate_whole(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
    ) -> Result<Bytes, FactError> {
        let (this, of) = (Arc::clone(self), Arc::clone(batch));
        let evaluate = move || {
            let context = of.context(&of.queries[index])?;
            let result = this.evaluate_over(context, None);
            this.remember(context, &result);
            result
        };
        self.scans
            .whole(&batch.beneficiary, batch.deadline, evaluate)
            .await?
    }
}

fn piece_key(context: QueryContext<'_>) -> PieceKey {
    PieceKey {
        view: context.batch.view.id().clone(),
        query: context.prepared.key().clone(),
    }
}
