//! Queries that take longer than the others of their request should wait: each beside them, and with an
//! error of its own once no time is left.

use std::{sync::Arc, time::Instant};

use anteroom_model::FactError;
use anteroom_plan::Sliced;
use bytes::Bytes;
use tokio::time::timeout;

use super::{
    Answerer,
    batch::{Asking, Batch},
};
use crate::{
    narrowed::{Most, document},
    scan::{PieceKey, SLICE_OBJECTS, Scan},
};

/// A namespace with less than this part of a view is looked through whole.
const NAMESPACE_SHARE_MIN: usize = 4;

/// What has become of a query so far.
enum Begun {
    /// It has its result.
    Done(Result<Bytes, FactError>),
    /// It is to be run.
    Scan(Arc<Scan>),
    /// It is to be evaluated over the whole view.
    Whole,
}

impl Answerer {
    /// The result of one query, whatever it takes, within the time that there is. What goes on when that
    /// is over ends by its budget; nobody waits for it.
    pub(super) async fn beside(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
    ) -> Result<Bytes, FactError> {
        let deadline = batch.deadline;
        match timeout(deadline.left(), self.to_its_end(batch, index)).await {
            Ok(result) => result,
            Err(_) => Err(deadline.exceeded()),
        }
    }

    async fn to_its_end(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
    ) -> Result<Bytes, FactError> {
        match self.begun(batch, index).await? {
            Begun::Done(result) => result,
            more => {
                // What each builds counts by itself.
                let place = batch.scans.acquire().await;
                let _place = place.map_err(|_| batch.deadline.exceeded())?;
                match more {
                    Begun::Scan(scan) => self.run(batch, index, &scan).await,
                    _ => self.whole(batch, index).await,
                }
            }
        }
    }

    /// As [`Answerer::begin`], on a thread for that.
    async fn begun(self: &Arc<Self>, batch: &Arc<Batch>, index: usize) -> Result<Begun, FactError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(|_| batch.deadline.exceeded())?;
        let (this, batch) = (Arc::clone(self), Arc::clone(batch));
        let span = tracing::Span::current();
        let begin = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            // It may have waited for a thread.
            batch.deadline.check()?;
            span.in_scope(|| Ok(this.begin(batch.asking(&batch.queries[index])?)))
        });
        begin.await.unwrap_or_else(|error| {
            Err(FactError::EvaluationFailed {
                message: format!("the evaluation ended unexpectedly: {error}"),
            })
        })
    }

    /// Evaluates a query that an index finds the objects of, or that looks at no more than a slice; or
    /// says how all objects are to be looked through.
    fn begin(&self, asking: Asking<'_>) -> Begun {
        // Whatever its plan's other results took: to ask is nothing beside the thread that this is on, and
        // it may be there by now.
        if let Some(result) = self.remembered(asking) {
            return Begun::Done(result);
        }
        let begun = Instant::now();
        if let Some(found) = self.found(asking, worth(asking)) {
            return Begun::Done(self.over(asking, Some(&found), begun));
        }
        let read = asking.read();
        let meant = asking.select.looks_at(read, read.len());
        if meant <= SLICE_OBJECTS {
            return Begun::Done(self.over(asking, None, begun));
        }
        // A slice of the view is mostly none of a small namespace.
        let scan = match meant >= read.len() / NAMESPACE_SHARE_MIN {
            true => self.scan(asking),
            false => None,
        };
        let Some(scan) = scan else {
            return Begun::Whole;
        };
        if scan.slices() > 1 {
            return Begun::Scan(Arc::new(scan));
        }
        scan.step();
        let Some(result) = scan.result() else {
            return Begun::Whole;
        };
        let result = self.scanned(asking, &scan, result);
        Begun::Done(match self.narrowed.is_verified() {
            true => self.verified(asking, result, self.over(asking, None, Instant::now())),
            false => result,
        })
    }

    /// Runs a scan to its end.
    async fn run(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        index: usize,
        scan: &Arc<Scan>,
    ) -> Result<Bytes, FactError> {
        let Some(result) = self.scans.run(scan, batch.deadline).await? else {
            return self.whole(batch, index).await;
        };
        let asking = batch.asking(&batch.queries[index])?;
        let result = self.scanned(asking, scan, result);
        match self.narrowed.is_verified() {
            true => {
                let all = self.whole(batch, index).await;
                self.verified(asking, result, all)
            }
            false => result,
        }
    }

    /// Evaluates one query over the whole view.
    async fn whole(self: &Arc<Self>, batch: &Arc<Batch>, index: usize) -> Result<Bytes, FactError> {
        let (this, of, deadline) = (Arc::clone(self), Arc::clone(batch), batch.deadline);
        let evaluate = move || {
            let asking = of.asking(&of.queries[index])?;
            this.over(asking, None, Instant::now())
        };
        self.scans.whole(deadline, evaluate).await?
    }

    /// A scan for a query; `None` where it cannot be cut into slices.
    fn scan(&self, asking: Asking<'_>) -> Option<Scan> {
        let Asking { plan, select, .. } = asking;
        let document = document(select, asking.read())?;
        let cut = || Sliced::of(&plan.expression, document).map(Arc::new);
        let sliced = plan.slicings.get(document, cut)?;
        select.among(asking.read(), [].iter())?;
        let pieces = sliced
            .is_of_objects_alone()
            .then(|| self.pieces.get(&piece_key(asking)))
            .flatten();
        let (budget, _) = asking.deadline().limit(self.budget);
        Some(Scan::new(
            sliced,
            (&asking.batch.state, select),
            asking.query(),
            self.plans.functions(),
            budget,
            pieces.as_deref(),
        ))
    }

    /// Keeps what a scan came to.
    fn scanned(
        &self,
        asking: Asking<'_>,
        scan: &Scan,
        result: Result<Bytes, FactError>,
    ) -> Result<Bytes, FactError> {
        self.metrics.evaluated();
        self.metrics.scanned();
        let shortened = scan.budget.steps < self.budget.steps;
        if shortened && matches!(result, Err(FactError::BudgetExceeded { .. })) {
            return Err(asking.deadline().exceeded());
        }
        if result.is_ok() && scan.sliced.is_of_objects_alone() {
            self.pieces.put(piece_key(asking), scan.pieces());
        }
        self.remember(asking, &result);
        result
    }
}

/// How many objects an index may find, before looking through all that are meant costs no more.
fn worth(asking: Asking<'_>) -> Most {
    let half = usize::try_from(asking.objects() / 2).unwrap_or(usize::MAX);
    Most {
        objects: asking.select.looks_at(asking.read(), half),
        steps: usize::MAX,
    }
}

fn piece_key(asking: Asking<'_>) -> PieceKey {
    PieceKey {
        view: asking.batch.view.id().clone(),
        query: asking.prepared.key().clone(),
    }
}
