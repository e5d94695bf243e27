//! Queries that look through a large view: begun where the others are evaluated, and run beside them.

use std::sync::Arc;

use anteroom_model::FactError;
use anteroom_plan::Sliced;
use bytes::Bytes;

use super::{Answerer, At, Batch, Prepared};
use crate::{
    deadline::Deadline,
    narrowed::document,
    scan::{PieceKey, SLICE_OBJECTS, Scan},
};

/// A namespace with less than this part of a view is looked through whole.
const NAMESPACE_SHARE_MIN: usize = 4;

/// What has become of a query so far.
pub(super) enum Answered {
    /// It has its result.
    Done(Result<Bytes, FactError>),
    /// It is to be run.
    Scan(Arc<Scan>),
    /// It is to be evaluated over the whole view.
    Whole,
}

impl Answerer {
    /// Looks through all objects, where they are few or most of them are known; or says how they are to
    /// be looked through.
    pub(super) fn begin(
        &self,
        at: At<'_>,
        prepared: &Prepared,
        deadline: Deadline,
    ) -> Result<Answered, FactError> {
        let read = at.state.read();
        let meant = prepared
            .plan
            .as_ref()
            .map_or(0, |(_, select)| select.looks_at(read, read.len()));
        if meant <= SLICE_OBJECTS {
            return Ok(Answered::Done(self.over(at, prepared, None, deadline)?));
        }
        // A slice of the view is mostly none of a small namespace.
        let scan = match meant >= read.len() / NAMESPACE_SHARE_MIN {
            true => self.scan(at, prepared, deadline),
            false => None,
        };
        let Some(scan) = scan else {
            return Ok(Answered::Whole);
        };
        if scan.slices() > 1 {
            return Ok(Answered::Scan(Arc::new(scan)));
        }
        scan.step();
        let Some(result) = scan.result() else {
            return Ok(Answered::Whole);
        };
        let result = self.scanned(at, prepared, &scan, result, deadline)?;
        Ok(Answered::Done(match self.narrowed.is_verified() {
            true => {
                let all = self.over(at, prepared, None, deadline)?;
                self.verified(at, prepared, result, all)
            }
            false => result,
        }))
    }

    /// Runs what was begun to its end.
    pub(super) async fn finish(
        self: &Arc<Self>,
        at: At<'_>,
        batch: &Arc<Batch>,
        index: usize,
        answered: Answered,
        deadline: Deadline,
    ) -> Result<Result<Bytes, FactError>, FactError> {
        let scan = match answered {
            Answered::Done(result) => return Ok(result),
            Answered::Whole => return self.whole(at, batch, index, deadline).await,
            Answered::Scan(scan) => scan,
        };
        let Some(result) = self.scans.run(&scan, deadline).await? else {
            return self.whole(at, batch, index, deadline).await;
        };
        let prepared = &batch.queries[index];
        let result = self.scanned(at, prepared, &scan, result, deadline)?;
        match self.narrowed.is_verified() {
            true => {
                let all = self.whole(at, batch, index, deadline).await?;
                Ok(self.verified(at, prepared, result, all))
            }
            false => Ok(result),
        }
    }

    /// Evaluates one query over the whole view.
    async fn whole(
        self: &Arc<Self>,
        at: At<'_>,
        batch: &Arc<Batch>,
        index: usize,
        deadline: Deadline,
    ) -> Result<Result<Bytes, FactError>, FactError> {
        let (this, batch) = (Arc::clone(self), Arc::clone(batch));
        let (view, state, position) = (at.view.clone(), at.state.clone(), at.position.clone());
        let evaluate = move || {
            let at = At {
                view: &view,
                state: &state,
                position: &position,
            };
            this.over(at, &batch.queries[index], None, deadline)
        };
        self.scans.whole(deadline, evaluate).await?
    }

    /// A scan for a query; `None` where it cannot be cut into slices.
    fn scan(&self, at: At<'_>, prepared: &Prepared, deadline: Deadline) -> Option<Scan> {
        let (plan, select) = prepared.plan.as_ref().ok()?;
        let document = document(select, at.state.read())?;
        let cut = || Sliced::of(&plan.expression, document).map(Arc::new);
        let sliced = plan.slicings.get(document, cut)?;
        select.among(at.state.read(), [].iter())?;
        let pieces = sliced
            .is_of_objects_alone()
            .then(|| self.pieces.get(&piece_key(at, prepared)))
            .flatten();
        let (budget, _) = deadline.limit(self.budget);
        Some(Scan::new(
            sliced,
            (at.state, select),
            &prepared.query,
            self.plans.functions(),
            budget,
            pieces.as_deref(),
        ))
    }

    /// Keeps what a scan came to; the outer error is that of the whole request.
    fn scanned(
        &self,
        at: At<'_>,
        prepared: &Prepared,
        scan: &Scan,
        result: Result<Bytes, FactError>,
        deadline: Deadline,
    ) -> Result<Result<Bytes, FactError>, FactError> {
        self.metrics.evaluated();
        self.metrics.scanned();
        let shortened = scan.budget.steps < self.budget.steps;
        if shortened && matches!(result, Err(FactError::BudgetExceeded { .. })) {
            return Err(deadline.exceeded());
        }
        if result.is_ok() && scan.sliced.is_of_objects_alone() {
            self.pieces.put(piece_key(at, prepared), scan.pieces());
        }
        if prepared
            .plan
            .as_ref()
            .is_ok_and(|(plan, _)| plan.repeatable)
        {
            let content = at.position.content;
            self.memo
                .put(at.view.id(), content, &prepared.key, result.clone());
        }
        Ok(result)
    }
}

fn piece_key(at: At<'_>, prepared: &Prepared) -> PieceKey {
    PieceKey {
        view: at.view.id().clone(),
        query: prepared.key.clone(),
    }
}
