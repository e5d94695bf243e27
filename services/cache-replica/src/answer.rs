//! Answering one call: decode, prepare, evaluate over one state of the view, reply.

mod scanned;

use std::sync::Arc;

use anteroom_bus::Call;
use anteroom_jmespath::{Budget, Environment, MissingKey};
use anteroom_mirror::{ReadPosition, ViewHandle};
use anteroom_model::{FactError, Revision};
use anteroom_plan::{Aggregate, Language};
use anteroom_view::{Object, Select, Snapshot};
use anteroom_wire::{
    WireError,
    query::{self, Query, QueryOutcome, QueryReply, QueryRequest},
};
use bytes::Bytes;
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    Args,
    aggregates::{Aggregates, Eased},
    deadline::Deadline,
    indexes::{Asked, Indexes},
    kept::Kept,
    memo::{Memo, QueryKey},
    memory::Use,
    metrics::QueryMetrics,
    narrowed::{Most, Narrowed},
    plan::{Plan, Plans},
    references::References,
    retained,
    scan::{AllPieces, Scans},
    sealed,
};
use scanned::Answered;

/// Evaluations that run at once for each core. More than one, so that the system's scheduler gives
/// a short one its turn beside long ones; bounded, so that threads and what they build are.
const EVALUATIONS_PER_CORE: usize = 4;

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
    narrowed: Narrowed,
    aggregates: Aggregates,
    scans: Scans,
    pieces: AllPieces,
    metrics: QueryMetrics,
    references: Arc<References>,
}

/// Where a query is evaluated: one state of one view.
#[derive(Clone, Copy)]
struct At<'a> {
    view: &'a ViewHandle,
    state: &'a Snapshot,
    position: &'a ReadPosition,
}

/// A query with all that can be known before the data.
struct Prepared {
    query: Query,
    key: QueryKey,
    plan: Result<(Plan, Select), FactError>,
}

/// What a query has to look at.
struct Found {
    objects: Vec<Object>,
    /// What is evaluated over them, where that is not the query as it is.
    eased: Option<Eased>,
}

/// The queries of a request, as far as they have been evaluated.
struct Evaluated {
    answered: Vec<Answered>,
    state: Snapshot,
    position: ReadPosition,
}

/// The queries of one request.
struct Batch {
    queries: Vec<Prepared>,
    age_max_ms: Option<u64>,
}

impl Batch {
    fn selects(&self) -> impl Iterator<Item = &Select> {
        let plans = self
            .queries
            .iter()
            .filter_map(|query| query.plan.as_ref().ok());
        plans.map(|(_, select)| select)
    }
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
        let indexes = Arc::new(Indexes::new(language));
        Self {
            replica,
            budget: args.budget(turns),
            concurrency: args.concurrency,
            places: Semaphore::new(args.concurrency as usize),
            turns: Arc::new(Semaphore::new(turns)),
            plans: Plans::new(anteroom_policy::query_functions()),
            memo: Memo::new(args.memo_bytes_max),
            narrowed: Narrowed::new(Arc::clone(&indexes), args.verify_plans),
            aggregates: Aggregates::new(Arc::new(Kept::new(language)), indexes),
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
        let begun = self.metrics.begun();
        let deadline = Deadline::after(call.deadline);
        let outcome = match query::decode_request(&call.body) {
            Err(error) => Err(invalid(&error)),
            Ok(request) => {
                record_request(&request);
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
        let (body, outcome) = encode(outcome);
        record_outcome(&outcome);
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
        let revision_min = least_revision(view, &request);
        let batch = Arc::new(self.prepare(request));
        if let Some(revision_min) = revision_min {
            view.wait_for(revision_min, deadline.left()).await?;
        }
        self.references
            .known(view, batch.selects(), deadline.left())
            .await;
        if let Some(reply) = self.at_once(view, &batch, deadline)? {
            self.scans.short();
            return Ok(reply);
        }
        let objects = view.status().borrow().objects;
        let evaluated = match objects <= INLINE_OBJECTS_MAX {
            true => self.evaluate(view, &batch, deadline)?,
            false => self.beside(view, &batch, deadline).await?,
        };
        let at = At {
            view,
            state: &evaluated.state,
            position: &evaluated.position,
        };
        let mut results = Vec::with_capacity(evaluated.answered.len());
        for (index, answered) in evaluated.answered.into_iter().enumerate() {
            results.push(self.finish(at, &batch, index, answered, deadline).await?);
        }
        deadline.check()?;
        Ok(self.reply(at.position, results))
    }

    /// As [`Answerer::evaluate`], on a thread for that.
    async fn beside(
        self: &Arc<Self>,
        view: &ViewHandle,
        batch: &Arc<Batch>,
        deadline: Deadline,
    ) -> Result<Evaluated, FactError> {
        let turn = timeout(deadline.left(), Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            return Err(deadline.exceeded());
        };
        let (this, view, batch) = (Arc::clone(self), view.clone(), Arc::clone(batch));
        let span = tracing::Span::current();
        let evaluation = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            span.in_scope(|| this.evaluate(&view, &batch, deadline))
        });
        evaluation.await.unwrap_or_else(|error| {
            Err(FactError::EvaluationFailed {
                message: format!("the evaluation ended unexpectedly: {error}"),
            })
        })
    }

    fn prepare(&self, request: QueryRequest) -> Batch {
        let prepare = |query: Query| Prepared {
            key: QueryKey::of(&query),
            plan: self.plan(&query),
            query,
        };
        Batch {
            queries: request.queries.into_iter().map(prepare).collect(),
            age_max_ms: request.age_max_ms,
        }
    }

    fn plan(&self, query: &Query) -> Result<(Plan, Select), FactError> {
        let select = match &query.selection {
            Some(selection) => Select::new(selection)?,
            None => Select::default(),
        };
        Ok((self.plans.get(&query.expression)?, select))
    }

    /// The reply, where it takes no time that another query could miss: every result is remembered, or
    /// evaluated over the few objects that can make a difference to it.
    fn at_once(
        &self,
        view: &ViewHandle,
        batch: &Batch,
        deadline: Deadline,
    ) -> Result<Option<QueryReply>, FactError> {
        let (state, position) = view.snapshot(batch.age_max_ms)?;
        let at = At {
            view,
            state: &state,
            position: &position,
        };
        let mut results = Vec::with_capacity(batch.queries.len());
        let mut remembered = 0;
        for prepared in &batch.queries {
            results.push(match self.known(at, prepared) {
                Some(result) => {
                    remembered += usize::from(prepared.plan.is_ok());
                    result
                }
                // What is verified is evaluated over all objects too.
                None if self.narrowed.verifies() => return Ok(None),
                None if looks_at_few(at, prepared) => self.over(at, prepared, None, deadline)?,
                None => match self.found(at, prepared, INLINE) {
                    Some(few) => self.over(at, prepared, Some(&few), deadline)?,
                    None => return Ok(None),
                },
            });
        }
        self.metrics.remembered(remembered);
        Ok(Some(self.reply(&position, results)))
    }

    /// Evaluates all queries over one state of the view, but for those that look through more of it than
    /// a slice: those are begun. Takes as long as they do.
    fn evaluate(
        &self,
        view: &ViewHandle,
        batch: &Batch,
        deadline: Deadline,
    ) -> Result<Evaluated, FactError> {
        let (state, position) = view.snapshot(batch.age_max_ms)?;
        let at = At {
            view,
            state: &state,
            position: &position,
        };
        let answered = batch.queries.iter().map(|prepared| {
            let answered = match self.known(at, prepared) {
                Some(result) => {
                    self.metrics.remembered(usize::from(prepared.plan.is_ok()));
                    Answered::Done(result)
                }
                None => match self.found(at, prepared, worth(at, prepared)) {
                    Some(found) => {
                        Answered::Done(self.over(at, prepared, Some(&found), deadline)?)
                    }
                    None => self.begin(at, prepared, deadline)?,
                },
            };
            deadline.check()?;
            Ok(answered)
        });
        Ok(Evaluated {
            answered: answered.collect::<Result<_, FactError>>()?,
            state: state.clone(),
            position: position.clone(),
        })
    }

    /// The result of one query, if it does not have to be evaluated.
    fn known(&self, at: At<'_>, prepared: &Prepared) -> Option<Result<Bytes, FactError>> {
        let (plan, select) = match &prepared.plan {
            Ok(prepared) => prepared,
            Err(error) => return Some(Err(error.clone())),
        };
        if let Err(error) = retained::check(at.view.id(), at.state.read(), plan, select) {
            return Some(Err(error));
        }
        let content = at.position.content;
        self.memo.get(at.view.id(), content, &prepared.key)
    }

    /// The objects that can make a difference, where they are known to be no more than `most`.
    fn found(&self, at: At<'_>, prepared: &Prepared, most: Most) -> Option<Found> {
        if at.position.objects <= INLINE_OBJECTS_MAX {
            return None; // They are looked through as fast.
        }
        let (plan, select) = prepared.plan.as_ref().ok()?;
        let query = &prepared.query;
        let eased = self
            .aggregates
            .ease(at.view, at.state, (plan, select), query);
        let plan = eased.as_ref().map_or(plan, Eased::rest);
        let objects = {
            let bound = eased
                .as_ref()
                .map(|eased| eased.parameters(&query.parameters));
            let asked = Asked {
                parameters: match &bound {
                    Some(bound) => bound,
                    None => &query.parameters,
                },
                missing_key_is_error: query.missing_key_is_error,
                bare: select.is_bare(at.state.read()),
            };
            self.narrowed
                .find((at.view, at.state), (plan, select), &asked, most)?
        };
        match eased {
            Some(_) => self.metrics.eased(),
            None => self.metrics.looked_up(),
        }
        Some(Found { objects, eased })
    }

    /// The result of one query over these objects, or over all; the outer error is that of the whole
    /// request.
    fn over(
        &self,
        at: At<'_>,
        prepared: &Prepared,
        found: Option<&Found>,
        deadline: Deadline,
    ) -> Result<Result<Bytes, FactError>, FactError> {
        let (plan, select) = match &prepared.plan {
            Ok(prepared) => prepared,
            Err(error) => return Ok(Err(error.clone())),
        };
        let (budget, shortened) = deadline.limit(self.budget);
        let environment = Environment {
            functions: self.plans.functions(),
            parameters: &prepared.query.parameters,
            missing_key: match prepared.query.missing_key_is_error {
                true => MissingKey::Error,
                false => MissingKey::Null,
            },
            budget,
        };
        let read = at.state.read();
        let all = || {
            let selected = select.of(read)?;
            selected.evaluate(&plan.expression, &environment)
        };
        let few = |found: &Found| {
            let few = select.among(read, found.objects.iter())?;
            Some(match &found.eased {
                None => few.evaluate(&plan.expression, &environment),
                Some(eased) => {
                    let parameters = eased.parameters(environment.parameters);
                    let environment = environment.with_parameters(&parameters);
                    few.evaluate(&eased.rest().expression, &environment)
                }
            })
        };
        let result = match found.and_then(few) {
            None => all(),
            Some(result) => match self.narrowed.is_verified() {
                true => self.verified(at, prepared, result, all()),
                false => result,
            },
        };
        self.metrics.evaluated();
        if shortened && matches!(result, Err(FactError::BudgetExceeded { .. })) {
            return Err(deadline.exceeded());
        }
        if plan.repeatable {
            let result = result.clone();
            self.memo
                .put(at.view.id(), at.position.content, &prepared.key, result);
        }
        Ok(result)
    }

    /// What is over all objects counts. What is not over all of them must be the same, unless it costs
    /// too much over all.
    fn verified(
        &self,
        at: At<'_>,
        prepared: &Prepared,
        few: Result<Bytes, FactError>,
        all: Result<Bytes, FactError>,
    ) -> Result<Bytes, FactError> {
        if matches!(all, Err(FactError::BudgetExceeded { .. })) {
            return few;
        }
        if few != all {
            self.metrics.mismatch();
            tracing::error!(
                view = %at.view.id(),
                expression = prepared.query.expression,
                revision = at.position.revision.0,
                "what an index found, or what is kept, is not what a scan says; please report this"
            );
        }
        all
    }

    fn reply(&self, position: &ReadPosition, results: Vec<Result<Bytes, FactError>>) -> QueryReply {
        QueryReply {
            replica: self.replica.clone(),
            incarnation: position.incarnation.clone(),
            revision: position.revision,
            version: position.version.clone(),
            age_ms: position.age_ms,
            objects: position.objects,
            results,
            sealed: false,
        }
    }
}

/// Whether only few objects are meant, or a part of the view that holds few.
fn looks_at_few(at: At<'_>, prepared: &Prepared) -> bool {
    let Ok((_, select)) = &prepared.plan else {
        return false;
    };
    select.looks_at(at.state.read(), INLINE.objects + 1) <= INLINE.objects
}

/// How many objects an index may find, before looking through all that are meant costs no more.
fn worth(at: At<'_>, prepared: &Prepared) -> Most {
    let half = usize::try_from(at.position.objects / 2).unwrap_or(usize::MAX);
    let meant = prepared.plan.as_ref();
    let meant = meant.map_or(half, |(_, select)| select.looks_at(at.state.read(), half));
    Most {
        objects: meant,
        steps: usize::MAX,
    }
}

/// What a request demands of this view: a position of another log than the one that is served says
/// nothing about it.
fn least_revision(view: &ViewHandle, request: &QueryRequest) -> Option<Revision> {
    let revision_min = request.revision_min?;
    let of = request.revision_min_of.as_ref();
    // Whatever the age: this looks at where the data come from. Where there are none, it is waited.
    let served = view.read(Some(u64::MAX), |_, at| {
        of.is_none_or(|of| *of == at.incarnation)
    });
    served.unwrap_or(true).then_some(revision_min)
}

/// An eviction with the limit that it was for.
fn with_reason(error: FactError, usage: &Use) -> FactError {
    match (error, usage.evicted()) {
        (FactError::Evicted { view, .. }, Some(message)) => FactError::Evicted { view, message },
        (error, _) => error,
    }
}

/// An outcome as bytes; one that is too large is an error in its place.
fn encode(outcome: QueryOutcome) -> (Bytes, QueryOutcome) {
    match query::encode_outcome(&outcome) {
        Ok(body) => (body, outcome),
        Err(error) => {
            let outcome = Err(FactError::BudgetExceeded {
                message: format!("the reply: {error}; ask for less, or in several requests"),
            });
            // An error is far below any limit.
            let body = query::encode_outcome(&outcome).unwrap_or_default();
            (body, outcome)
        }
    }
}

fn invalid(error: &WireError) -> FactError {
    FactError::RequestInvalid {
        message: error.to_string(),
    }
}

fn record_request(request: &QueryRequest) {
    let span = tracing::Span::current();
    span.record("entry", request.entry.as_str());
    span.record("queries", request.queries.len());
}

fn record_outcome(outcome: &QueryOutcome) {
    let span = tracing::Span::current();
    match outcome {
        Ok(reply) => {
            span.record("revision", reply.revision.0);
            span.record("age_ms", reply.age_ms);
            span.record("objects", reply.objects);
        }
        Err(error) => {
            span.record("error", error.code().as_str());
        }
    }
}
