//! Answers one call: decodes it, waits for the state that it demands, has its queries evaluated over
//! that state, and encodes the reply.
//!
//! Short queries are answered where the call arrived; the others beside them, each with an error of its
//! own once no time is left. So a long query takes nothing from the others of its request.

mod demand;
mod opening;
mod reply;
mod request_quota;

use std::sync::Arc;

use anteroom_bus::Call;
use anteroom_mirror::ViewHandle;
use anteroom_model::FactError;
use anteroom_runtime::{
    age_clock::BootInstant,
    under_way::{JobsUnderWay, RequestUnderWay},
};
use anteroom_wire::{
    beneficiary::Beneficiary,
    query::{QueryOutcome, QueryReply, QueryRequest},
};
use bytes::Bytes;
use futures::{FutureExt as _, future::join_all};

use crate::{
    Args,
    deadline::Deadline,
    evaluate::{Batch, Evaluator, Prepared, REQUEST_INLINE_STEPS_MAX},
    memory::ViewUsage,
    metrics::QueryMetrics,
    references::References,
    sealed,
};
use demand::Demand;
use opening::{EncodedRequest, PlainRequest, RequestOpener};
use request_quota::RequestQuota;

/// Answers calls to any view.
#[derive(Debug)]
pub(crate) struct Answerer {
    replica: String,
    quota: RequestQuota,
    /// The requests that wait for a position of the log. They take nothing from those that run.
    waiting: RequestQuota,
    /// The reviews that the running requests are for.
    reviews: Arc<JobsUnderWay<Beneficiary>>,
    evaluator: Arc<Evaluator>,
    references: Arc<References>,
    opener: RequestOpener,
    metrics: QueryMetrics,
}

impl Answerer {
    pub(crate) fn new(
        replica: String,
        args: &Args,
        metrics: QueryMetrics,
        references: Arc<References>,
    ) -> Self {
        Self {
            replica,
            quota: RequestQuota::new(args.concurrency),
            waiting: RequestQuota::new(args.concurrency),
            reviews: JobsUnderWay::new(args.lanes() as u64),
            evaluator: Arc::new(Evaluator::new(args, metrics.clone())),
            references,
            opener: RequestOpener::new(args.asker_keys.clone()),
            metrics,
        }
    }

    /// Evaluates the queries, and holds the caches for them.
    pub(crate) fn evaluator(&self) -> &Arc<Evaluator> {
        &self.evaluator
    }

    /// Answers a call to `view`, and notes it in the view's `usage`. Whatever is wrong is an answer too.
    pub(crate) async fn answer(&self, view: &ViewHandle, usage: &ViewUsage, call: &Call) -> Bytes {
        usage.used();
        let span = tracing::Span::current();
        let timer = self.metrics.started();
        let deadline = Deadline::after(call.deadline);
        let mut sealing = None;
        let is_sealed = usage.is_sealed();
        let opened = self
            .opener
            .open(view.id(), is_sealed, &call.body, deadline)
            .await;
        let outcome = match opened {
            Err(error) => Err(error),
            Ok(PlainRequest { encoded, answering }) => {
                sealing = answering;
                let outcome = self.read_and_answer(view, encoded, deadline).await;
                match &sealing {
                    Some(_) => outcome.map(sealed::withheld_results),
                    None => outcome,
                }
            }
        };
        let outcome = outcome.map_err(|error| with_reason(error, usage));
        let (body, outcome) = reply::encode(outcome);
        reply::record_outcome(&span, &outcome);
        self.metrics.finished(timer, &outcome);
        match sealing {
            Some(answering) => sealed::seal(&body, &answering),
            None => body,
        }
    }

    /// Decodes a request and answers it.
    async fn read_and_answer(
        &self,
        view: &ViewHandle,
        encoded: EncodedRequest,
        deadline: Deadline,
    ) -> QueryOutcome {
        let memory = encoded.memory;
        let request = self.opener.decode(encoded, &self.quota, deadline).await?;
        reply::record_request(&tracing::Span::current(), &request);
        self.outcome(view, request, memory, deadline).await
    }

    /// Answers a request of this process, if each of its queries is short and the view is where the request demands it
    /// to be: `None` otherwise. A view that is not fresh does not answer, whatever age the request accepts.
    pub(crate) fn answer_at_once(
        &self,
        view: &ViewHandle,
        request: QueryRequest,
        deadline: Deadline,
    ) -> Option<QueryOutcome> {
        self.short_reply(view, request, deadline).transpose()
    }

    fn short_reply(
        &self,
        view: &ViewHandle,
        request: QueryRequest,
        deadline: Deadline,
    ) -> Result<Option<QueryReply>, FactError> {
        deadline.check()?;
        if request.age_max_ms.is_some() {
            view.snapshot(None)?;
        }
        let demand = Demand::of(view, &request);
        let Some(met) = demand.wait(view, deadline).now_or_never() else {
            // A view that does not answer reaches no position.
            view.snapshot(None)?;
            return Ok(None);
        };
        met?;
        let beneficiary = request.beneficiary();
        // What its values take is counted where they were made.
        let _running = self.quota.admit(&beneficiary, 0)?;
        let age_max_ms = request.age_max_ms;
        let queries = self.prepared(request);
        let (state, position) = view.snapshot(age_max_ms)?;
        let batch = Batch::new(
            view.clone(),
            state,
            position,
            queries,
            beneficiary,
            deadline,
        );
        let taken = BootInstant::now();
        let results: Option<Vec<_>> = self.inline_results(&batch).collect();
        Ok(results.map(|results| {
            self.evaluator.note_short_request();
            self.reply(&batch, taken, results)
        }))
    }

    /// Answers a request, however long that takes within the deadline.
    pub(crate) async fn outcome(
        &self,
        view: &ViewHandle,
        request: QueryRequest,
        memory: u64,
        deadline: Deadline,
    ) -> QueryOutcome {
        deadline.check()?;
        let beneficiary = request.beneficiary();
        let review = request.admission_review();
        let review = review.filter(|_| beneficiary.is_of_namespace());
        let running = review.map(|review| self.reviews.begin(beneficiary.clone(), review));
        let is_over_part = || running.as_ref().is_some_and(RequestUnderWay::is_over_part);
        let met = self.meet_demand(view, &request, memory, deadline).await;
        met.map_err(|error| match error {
            FactError::Busy { limit, over_part } => FactError::Busy {
                limit,
                over_part: over_part && is_over_part(),
            },
            error => error,
        })?;
        let outcome = self
            .evaluated(view, request, beneficiary, memory, deadline)
            .await;
        told_of_part(outcome, &is_over_part)
    }

    async fn evaluated(
        &self,
        view: &ViewHandle,
        request: QueryRequest,
        beneficiary: Beneficiary,
        memory: u64,
        deadline: Deadline,
    ) -> QueryOutcome {
        let _running = self.quota.admit(&beneficiary, memory)?;
        let age_max_ms = request.age_max_ms;
        let queries = self.prepared(request);
        let selects = queries.iter().flat_map(Prepared::selects);
        self.references
            .wait_until_settled(view, selects, deadline.left())
            .await;
        let (state, position) = view.snapshot(age_max_ms)?;
        let view = view.clone();
        let batch = Batch::new(view, state, position, queries, beneficiary, deadline);
        let taken = BootInstant::now();
        let results: Vec<_> = self.inline_results(&batch).collect();
        if results.iter().all(Option::is_some) {
            self.evaluator.note_short_request();
            let results = results.into_iter().flatten().collect();
            return Ok(self.reply(&batch, taken, results));
        }
        let batch = Arc::new(batch);
        let results = self.complete(&batch, results).await;
        let is_late = |result: &Result<_, FactError>| {
            matches!(result, Err(FactError::DeadlineExceeded { .. }))
        };
        // A request without any result gets one error.
        if results.iter().all(is_late) {
            return Err(deadline.exceeded());
        }
        Ok(self.reply(&batch, taken, results))
    }

    fn prepared(&self, request: QueryRequest) -> Vec<Prepared> {
        let prepare = |query| Prepared::new(query, self.evaluator.plans());
        request.queries.into_iter().map(prepare).collect()
    }

    /// Evaluates the queries that are short, in order; `None` for each of the others.
    fn inline_results(
        &self,
        batch: &Batch,
    ) -> impl Iterator<Item = Option<Result<Bytes, FactError>>> {
        let mut inline_steps = REQUEST_INLINE_STEPS_MAX;
        batch.queries.iter().map(move |prepared| {
            self.evaluator
                .answer_inline(batch, prepared, &mut inline_steps)
        })
    }

    /// Waits until the view has the position that the request demands. Only a request that has to wait counts as waiting.
    async fn meet_demand(
        &self,
        view: &ViewHandle,
        request: &QueryRequest,
        memory: u64,
        deadline: Deadline,
    ) -> Result<(), FactError> {
        let demand = Demand::of(view, request);
        if let Some(met) = demand.wait(view, deadline).now_or_never() {
            return met;
        }
        let _waiting = self.waiting.admit(&request.beneficiary(), memory)?;
        demand.wait(view, deadline).await
    }

    /// Evaluates the queries without a result. They run in parallel, so that no query waits for a slow one.
    async fn complete(
        &self,
        batch: &Arc<Batch>,
        results: Vec<Option<Result<Bytes, FactError>>>,
    ) -> Vec<Result<Bytes, FactError>> {
        let complete = |(index, result)| async move {
            match result {
                Some(result) => result,
                None => self.evaluator.answer_offloaded(batch, index).await,
            }
        };
        join_all(results.into_iter().enumerate().map(complete)).await
    }

    /// Puts the results into a reply. The state was `taken` at that time, and has aged since.
    fn reply(
        &self,
        batch: &Batch,
        taken: BootInstant,
        results: Vec<Result<Bytes, FactError>>,
    ) -> QueryReply {
        let since_ms = u64::try_from(taken.elapsed().as_millis()).unwrap_or(u64::MAX);
        let position = &batch.position;
        QueryReply {
            replica: self.replica.clone(),
            incarnation: position.incarnation.clone(),
            revision: position.revision,
            version: position.version.clone(),
            age_ms: position.age_ms.saturating_add(since_ms),
            objects: position.objects,
            examined: batch.examined(),
            results,
        }
    }
}

/// Says in the errors whether other reviews in the same namespace use up its part of this replica. A deadline that ran out
/// while they do was theirs.
fn told_of_part(mut outcome: QueryOutcome, is_over_part: &dyn Fn() -> bool) -> QueryOutcome {
    let tell = |error: &mut FactError| match error {
        FactError::DeadlineExceeded { over_part, .. } => *over_part = is_over_part(),
        FactError::Busy { over_part, .. } => *over_part = *over_part && is_over_part(),
        _ => {}
    };
    match &mut outcome {
        Err(error) => tell(error),
        Ok(reply) => {
            let errors = reply
                .results
                .iter_mut()
                .filter_map(|result| result.as_mut().err());
            errors.for_each(tell);
        }
    }
    outcome
}

/// Adds the limit to the error of an evicted view.
pub(crate) fn with_reason(error: FactError, usage: &ViewUsage) -> FactError {
    match (error, usage.evicted()) {
        (FactError::Evicted { view, .. }, Some(message)) => FactError::Evicted { view, message },
        (error, _) => error,
    }
}
