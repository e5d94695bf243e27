//! Answering one call: decode, prepare, evaluate over one state of the view, reply.
//!
//! Queries that take no time are answered where the call arrived; the others beside them, each with an
//! error of its own once no time is left: a long one takes nothing from those of its request.

mod batch;
mod beside;
mod demand;
mod evaluation;
mod reply;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_bus::Call;
use anteroom_jmespath::Budget;
use anteroom_mirror::{ReadPosition, ViewHandle};
use anteroom_model::FactError;
use anteroom_plan::{Aggregate, Language};
use anteroom_wire::{
    WireError,
    query::{self, QueryOutcome, QueryReply, QueryRequest},
};
use bytes::Bytes;
use futures::future::join_all;
use tokio::sync::Semaphore;

use crate::{
    Args,
    aggregates::Aggregates,
    deadline::Deadline,
    followed::Followed,
    indexes::Indexes,
    kept::Kept,
    memo::Memo,
    memory::Use,
    metrics::QueryMetrics,
    narrowed::{Most, Narrowed},
    plan::Plans,
    references::References,
    retained,
    scan::{AllPieces, Scans},
    sealed,
};
use batch::{Asking, Batch, Prepared};
use demand::Demand;

/// Evaluations that run at once for each core. More than one, so that the system's scheduler gives
/// a short one its turn beside long ones; bounded, so that threads and what they build are.
const EVALUATIONS_PER_CORE: usize = 4;

/// Queries of one request that look at the whole view at once: each may build as much as an evaluation
/// may. One more waits, and so may miss its time; its errors are its own.
const SCANS_PER_REQUEST: usize = 4;

/// Views up to this size are evaluated over where the call arrived: a scan takes less than a tenth
/// of a millisecond then, about what it takes to hand it to another thread and back under load.
const INLINE_OBJECTS_MAX: u64 = 64;

/// Values of an index that are looked at, one after the other, where the call arrived: about as long as
/// that many objects take. More are looked at on another thread.
const INLINE_STEPS_MAX: usize = 4_096;

/// What looking something up may cost where the call arrived.
const INLINE: Most = Most {
    objects: INLINE_OBJECTS_MAX as usize,
    steps: INLINE_STEPS_MAX,
};

/// Answers calls to any view.
#[derive(Debug)]
pub(crate) struct Answerer {
    replica: String,
    budget: Budget,
    concurrency: u32,
    /// One for each query under way, those included that wait.
    places: Semaphore,
    /// One for each evaluation that runs.
    turns: Arc<Semaphore>,
    plans: Plans,
    memo: Memo,
    /// See [`Args::quick_max`].
    quick_max: Duration,
    narrowed: Narrowed,
    aggregates: Aggregates,
    scans: Scans,
    pieces: AllPieces,
    metrics: QueryMetrics,
    references: Arc<References>,
}

impl Answerer {
    pub(crate) fn new(
        replica: String,
        args: &Args,
        metrics: QueryMetrics,
        references: Arc<References>,
    ) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let turns = cores * EVALUATIONS_PER_CORE;
        let language = Language {
            functions: anteroom_policy::query_functions(),
            matches: anteroom_policy::wildcard_matches,
        };
        let followed = Arc::new(Followed::default());
        let indexes = Arc::new(Indexes::new(language, Arc::clone(&followed)));
        Self {
            replica,
            budget: args.budget(turns),
            concurrency: args.concurrency,
            places: Semaphore::new(args.concurrency as usize),
            turns: Arc::new(Semaphore::new(turns)),
            plans: Plans::new(anteroom_policy::query_functions()),
            memo: Memo::new(args.memo_bytes_max),
            quick_max: args.quick_max,
            narrowed: Narrowed::new(Arc::clone(&indexes), args.verify_plans),
            aggregates: Aggregates::new(Arc::new(Kept::new(language, followed)), indexes),
            scans: Scans::new(args.scan_lanes.unwrap_or(cores)),
            pieces: AllPieces::new(args.memo_bytes_max),
            metrics,
            references,
        }
    }

    /// What is kept of plans and results, in bytes.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.memo.bytes() + self.plans.bytes() + self.pieces.bytes()
    }

    /// The indexes of all views.
    pub(crate) fn indexes(&self) -> &Arc<Indexes> {
        &self.narrowed.indexes
    }

    /// The aggregates of all views.
    pub(crate) fn aggregates(&self) -> &Arc<Kept<Aggregate>> {
        &self.aggregates.kept
    }

    /// Answers a call to `view`, which `usage` is that of. Whatever is wrong is an answer too.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        view: &ViewHandle,
        usage: &Use,
        call: &Call,
    ) -> Bytes {
        usage.used();
        let span = tracing::Span::current();
        let begun = self.metrics.begun();
        let deadline = Deadline::after(call.deadline);
        let outcome = match query::decode_request(&call.body) {
            Err(error) => Err(invalid(&error)),
            Ok(request) => {
                reply::record_request(&span, &request);
                let reply_key = request.reply_key.clone();
                match reply_key {
                    None if usage.is_sealed() => Err(sealed::refused(view.id())),
                    None => self.outcome(view, request, deadline).await,
                    Some(reader) => {
                        let outcome = self.outcome(view, request, deadline).await;
                        outcome.and_then(|reply| sealed::seal(reply, &reader))
                    }
                }
            }
        };
        let outcome = outcome.map_err(|error| with_reason(error, usage));
        let (body, outcome) = reply::encode(outcome);
        reply::record_outcome(&span, &outcome);
        self.metrics.ended(begun, &outcome);
        body
    }

    async fn outcome(
        self: &Arc<Self>,
        view: &ViewHandle,
        request: QueryRequest,
        deadline: Deadline,
    ) -> QueryOutcome {
        let _place = self.places.try_acquire().map_err(|_| FactError::Busy {
            limit: self.concurrency.into(),
        })?;
        deadline.check()?;
        let demand = Demand::of(view, &request);
        let prepare = |query| Prepared::new(query, &self.plans);
        let queries: Vec<_> = request.queries.into_iter().map(prepare).collect();
        demand.wait(view, deadline).await?;
        let selects = queries.iter().filter_map(Prepared::select);
        self.references.known(view, selects, deadline.left()).await;
        let (state, position) = view.snapshot(request.age_max_ms)?;
        let batch = Batch {
            view: view.clone(),
            state,
            position,
            queries,
            deadline,
            scans: Semaphore::new(SCANS_PER_REQUEST),
        };
        let taken = Instant::now();
        let at_once = |prepared| self.at_once(&batch, prepared);
        let results: Vec<_> = batch.queries.iter().map(at_once).collect();
        if results.iter().all(Option::is_some) {
            self.scans.short();
            let results = results.into_iter().flatten().collect();
            return Ok(self.reply(&batch.position, taken, results));
        }
        let batch = Arc::new(batch);
        let results = self.completed(&batch, results).await;
        let late = |result: &Result<_, FactError>| {
            matches!(result, Err(FactError::DeadlineExceeded { .. }))
        };
        // Who has nothing is told so at once.
        if results.iter().all(late) {
            return Err(deadline.exceeded());
        }
        Ok(self.reply(&batch.position, taken, results))
    }

    /// All results, where some are not there yet: side by side, so that none waits for the time that
    /// another takes.
    async fn completed(
        self: &Arc<Self>,
        batch: &Arc<Batch>,
        results: Vec<Option<Result<Bytes, FactError>>>,
    ) -> Vec<Result<Bytes, FactError>> {
        let complete = |(index, result)| async move {
            match result {
                Some(result) => result,
                None => self.beside(batch, index).await,
            }
        };
        join_all(results.into_iter().enumerate().map(complete)).await
    }

    /// The result of one query, where it takes no time that another could miss: it is remembered, or
    /// evaluated over the few objects that can make a difference to it.
    fn at_once(&self, batch: &Batch, prepared: &Prepared) -> Option<Result<Bytes, FactError>> {
        let asking = match batch.asking(prepared) {
            Ok(asking) => asking,
            Err(error) => return Some(Err(error)),
        };
        let Asking { plan, select, .. } = asking;
        if let Err(error) = retained::check(batch.view.id(), asking.read(), plan, select) {
            return Some(Err(error));
        }
        if plan.remembers()
            && let Some(result) = self.remembered(asking)
        {
            return Some(result);
        }
        // What is verified is evaluated over all objects too.
        if self.narrowed.verifies() {
            return None;
        }
        let meant = select.looks_at(asking.read(), INLINE.objects + 1);
        if meant <= INLINE.objects {
            return Some(self.over(asking, None, Instant::now()));
        }
        let begun = Instant::now();
        let found = self.found(asking, INLINE)?;
        Some(self.over(asking, Some(&found), begun))
    }

    /// The results over a state that was `taken` then.
    fn reply(
        &self,
        position: &ReadPosition,
        taken: Instant,
        results: Vec<Result<Bytes, FactError>>,
    ) -> QueryReply {
        let since_ms = u64::try_from(taken.elapsed().as_millis()).unwrap_or(u64::MAX);
        QueryReply {
            replica: self.replica.clone(),
            incarnation: position.incarnation.clone(),
            revision: position.revision,
            version: position.version.clone(),
            age_ms: position.age_ms.saturating_add(since_ms),
            objects: position.objects,
            results,
            sealed: false,
        }
    }
}

/// An eviction with the limit that it was for.
fn with_reason(error: FactError, usage: &Use) -> FactError {
    match (error, usage.evicted()) {
        (FactError::Evicted { view, .. }, Some(message)) => FactError::Evicted { view, message },
        (error, _) => error,
    }
}

fn invalid(error: &WireError) -> FactError {
    FactError::RequestInvalid {
        message: error.to_string(),
    }
}
