//! Asking the replicas, and before them this process, where a view is local.
//!
//! A replica that serves a view is asked first. Where there is none, one that knows the view says why
//! it does not serve it, or answers from last-good data to who accepts its age.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Address, Bus};
use anteroom_model::{FactError, Incarnation, Retry, Revision, ViewId};
use anteroom_seal::{AskedOf, Keys};
use anteroom_wire::query::{
    Query, QueryOutcome, QueryReply, QueryRequest, decode_outcome, encode_request,
};
use futures::future::{Either, select};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, Span, field::Empty};

use super::{
    attempts::{self, LaterAttempts},
    decode::{DecodedResults, Decoder, EncodedResult},
    floors::Floors,
    local::{AtOnce, LocalViews, without_own_errors},
    memory::{FactHolder, FactMemory, FactPermit},
    message::{call, millis, reply_error, request_error, too_large},
    origin::Origin,
    outages::{Outages, PATIENCE_DEFAULT},
    pending::PendingFact,
    route::ViewRead,
    seal,
};
use crate::{recorder::SharedRecorder, rule::RuleRef};

/// The time limit of a question for the log's end, which an answer seems to be beyond.
const END_TIMEOUT: Duration = Duration::from_millis(200);

/// The time that an answer of this process takes in place before other tasks have a turn.
const YIELD_AFTER: Duration = Duration::from_micros(200);

/// The view of an outage, and the age that its readers accept. A view may be too old for one reader alone, and its
/// outage must cost no other.
type OutageKey = (ViewId, Option<u64>);

/// Asks replicas. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Views {
    bus: Arc<dyn Bus>,
    /// The views of this process.
    local: Option<Arc<dyn LocalViews>>,
    recorder: SharedRecorder,
    /// The time without an answer after which another replica is asked.
    hedge: Duration,
    later: Arc<LaterAttempts>,
    asker_keys: Keys,
    decoder: Decoder,
    floors: Arc<Floors>,
    /// The outages of views that no replica serves.
    outages: Outages<OutageKey>,
    of_scans: bool,
}

/// A request to one view.
#[derive(Clone, Debug)]
pub(super) struct Question {
    view: ViewId,
    request: QueryRequest,
    /// The results travel sealed.
    secret: bool,
}

impl Question {
    /// Returns the queries for these facts to one view; `None` if there are none.
    pub(super) fn of(facts: &[(PendingFact<'_>, ViewRead)]) -> Option<Self> {
        let (first, read) = facts.first()?;
        let entry = &first.route.subject;
        let is_of_all = facts.iter().all(|(fact, _)| fact.route.subject == *entry);
        let queries = facts.iter().map(|(_, read)| read.query.clone()).collect();
        let mut question = Self::about(read, first.reader, first.review_namespace, queries);
        if is_of_all {
            question.request.entry.clone_from(entry);
        }
        Some(question)
    }

    /// Returns a question with a single query, by the policy of this reader, which judges something in
    /// `review_namespace`.
    pub(super) fn single(read: &ViewRead, reader: &RuleRef, review_namespace: &str) -> Self {
        Self::about(read, reader, review_namespace, vec![read.query.clone()])
    }

    /// Returns the question as one of the review with this number.
    pub(super) fn of_review(mut self, review: u64) -> Self {
        self.request.review = review;
        self
    }

    fn about(
        read: &ViewRead,
        reader: &RuleRef,
        review_namespace: &str,
        queries: Vec<Query>,
    ) -> Self {
        Self {
            view: read.view.clone(),
            request: QueryRequest {
                queries,
                namespace: reader.policy.namespace.to_string(),
                review_namespace: review_namespace.to_owned(),
                age_max_ms: read.age_max_ms,
                ..QueryRequest::default()
            },
            secret: read.secret,
        }
    }
}

/// The answer of a view, as it came.
#[derive(Debug)]
pub(super) struct EncodedAnswer {
    results: Vec<EncodedResult>,
    origin: Origin,
}

/// The answer of a view: as many results as there were queries.
#[derive(Debug)]
pub(super) struct ViewAnswer {
    pub(super) results: Vec<Result<Value, FactError>>,
    /// The memory of all results; `None`: they are small.
    pub(super) memory: Option<FactPermit>,
    pub(super) origin: Origin,
}

/// A reply, and whether it is last-good data.
type Replied = (QueryReply, bool);

impl Views {
    pub(super) fn new(
        bus: Arc<dyn Bus>,
        recorder: SharedRecorder,
        hedge: Duration,
        asker_keys: Keys,
        memory: FactMemory,
    ) -> Self {
        Self {
            bus,
            local: None,
            recorder,
            hedge,
            later: Arc::default(),
            asker_keys,
            decoder: Decoder::new(memory),
            floors: Arc::default(),
            outages: Outages::new(PATIENCE_DEFAULT),
            of_scans: false,
        }
    }

    /// Marks the queries as queries of scans.
    pub(super) fn for_scans(mut self) -> Self {
        self.of_scans = true;
        self
    }

    /// Sets the memory that answers are read into.
    pub(super) fn with_memory(mut self, memory: FactMemory) -> Self {
        self.decoder = Decoder::new(memory);
        self
    }

    /// Refuses answers of the view from before this position, for every rule that asks here.
    pub(super) fn expect(&self, view: &ViewId, incarnation: &Incarnation, revision: Revision) {
        // The revision is ignored if the log has been left.
        let _ = self.floors.raise_to(view, incarnation, revision);
    }

    /// Sets the time for which requests wait for a view that no replica serves, from the begin of its outage on.
    pub(super) fn with_patience(mut self, patience: Duration) -> Self {
        self.outages = Outages::new(patience);
        self
    }

    /// Asks these views of this process before replicas.
    pub(super) fn with_local(mut self, local: Arc<dyn LocalViews>) -> Self {
        self.local = Some(local);
        self
    }

    /// Asks one view. Where it may be served soon, and `waits`, it is asked again.
    pub(super) async fn ask(
        &self,
        mut question: Question,
        deadline: Instant,
        waits: bool,
    ) -> Result<EncodedAnswer, FactError> {
        let span = tracing::info_span!(
            "query",
            otel.kind = "client",
            otel.status_code = Empty,
            "rpc.system" = "anteroom",
            "messaging.destination.name" = %question.view,
            view = %question.view,
            entry = question.request.entry,
            queries = question.request.queries.len(),
            replica = Empty,
            revision = Empty,
            age_ms = Empty,
            error = Empty,
        );
        let begun = Instant::now();
        question.request.of_scan = self.of_scans;
        let outcome = self
            .nearest(&mut question, deadline, waits)
            .instrument(span.clone())
            .await
            .and_then(|replied| checked(&question, replied));
        record(&span, &outcome);
        if question.request.revision_min.is_some()
            && outcome.as_ref().err().is_some_and(is_not_reached)
        {
            self.floors.forget_end();
        }
        let code = outcome.as_ref().err().map(FactError::code);
        self.recorder.query(code, begun.elapsed());
        let (reply, last_good) = outcome?;
        let origin = Origin::view(&question.view, &reply, last_good);
        Ok(EncodedAnswer {
            results: reply.results,
            origin,
        })
    }

    /// Reads an answer, in memory that `holder` takes until `deadline`. Without a holder none is taken.
    ///
    /// # Errors
    /// The errors of [`Decoder::results`].
    pub(super) async fn read(
        &self,
        answer: EncodedAnswer,
        holder: Option<&FactHolder>,
        deadline: Instant,
    ) -> Result<ViewAnswer, FactError> {
        let EncodedAnswer { results, origin } = answer;
        let decoded = self.decoder.results(results, holder, deadline).await?;
        let DecodedResults { values, memory } = decoded;
        Ok(ViewAnswer {
            results: values,
            memory,
            origin,
        })
    }

    /// Asks the view in this process if it is local and a policy of the cluster asks, and replicas otherwise. A query that
    /// takes long is one for replicas: here, it is answered only where none of them does.
    async fn nearest(
        &self,
        question: &mut Question,
        deadline: Instant,
        waits: bool,
    ) -> Result<Replied, FactError> {
        // Secrets are never asked for here, nor does a policy of a namespace ask here: it has its part of replicas, and would
        // take the threads that decide reviews.
        let may_be_asked = !question.secret && question.request.namespace.is_empty();
        let local = self.local.as_deref().filter(|_| may_be_asked);
        let Some(local) = local.filter(|local| local.holds(&question.view)) else {
            return self.replicas(question, deadline, waits).await;
        };
        self.demand_floor(question);
        let begun = Instant::now();
        let answered = self.at_once(local, question, deadline);
        if begun.elapsed() >= YIELD_AFTER {
            // A review may ask many times, and nothing else would let others have the thread.
            tokio::task::yield_now().await;
        }
        match answered {
            AtOnce::Answered(reply) => return Ok((reply, false)),
            AtOnce::No => return self.replicas(question, deadline, waits).await,
            AtOnce::TakesLong => {}
        }
        // In boxes, so that the future of a short query stays small.
        let mut travelling = question.clone();
        let mut replicas = Box::pin(self.replicas(&mut travelling, deadline, false));
        match timeout_at(half_way(deadline), &mut replicas).await {
            Ok(Err(error)) if error.class().retry != Retry::Final => {}
            Ok(replied) => return replied,
            Err(_) => {
                let here = Box::pin(self.at_length(local, question, deadline));
                return whoever_is_first(here, replicas).await;
            }
        }
        match self.at_length(local, question, deadline).await {
            Some(reply) => Ok((reply, false)),
            None => self.replicas(question, deadline, waits).await,
        }
    }

    fn at_once(&self, local: &dyn LocalViews, question: &Question, deadline: Instant) -> AtOnce {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let Some(outcome) = local.answer_at_once(&question.view, &question.request, remaining)
        else {
            self.recorder.local_query("long");
            return AtOnce::TakesLong;
        };
        let counting = self.counting(question, outcome);
        let outcome = counting.as_ref().err().map(|error| error.code().as_str());
        self.recorder.local_query(outcome.unwrap_or("ok"));
        counting.map_or(AtOnce::No, AtOnce::Answered)
    }

    async fn at_length(
        &self,
        local: &dyn LocalViews,
        question: &Question,
        deadline: Instant,
    ) -> Option<QueryReply> {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let answering = local.answer(&question.view, &question.request, remaining);
        // Some of the results may be late. Nobody else would have them in time.
        let counting = answering.await.and_then(|reply| {
            self.floors.raise(&question.view, &reply)?;
            Ok(reply)
        });
        let outcome = counting.as_ref().err().map(|error| error.code().as_str());
        self.recorder.local_query(outcome.unwrap_or("alone"));
        counting.ok()
    }

    /// Returns the reply of a local view if it counts as one of a replica would, and raises the view's floor to it.
    fn counting(&self, question: &Question, outcome: QueryOutcome) -> QueryOutcome {
        let reply = without_own_errors(outcome?)?;
        self.floors.raise(&question.view, &reply)?;
        Ok(reply)
    }

    /// Asks replicas.
    async fn replicas(
        &self,
        question: &mut Question,
        deadline: Instant,
        waits: bool,
    ) -> Result<Replied, FactError> {
        self.check_floor(&question.view).await;
        self.demand_floor(question);
        let sealed = self.sealed(question)?;
        self.patiently(question, &sealed, deadline, waits).await
    }

    async fn patiently(
        &self,
        question: &Question,
        sealed: &seal::Question,
        deadline: Instant,
        waits: bool,
    ) -> Result<Replied, FactError> {
        let key = (question.view.clone(), question.request.age_max_ms);
        loop {
            if let Some(error) = self.outages.refusal(&key) {
                return Err(error);
            }
            let error = match self.once(question, sealed, deadline).await {
                Ok(replied) => {
                    self.outages.answered(&key);
                    return Ok(replied);
                }
                Err(error) => error,
            };
            let retry = error.class().retry;
            if !retry.view_may_come_back() {
                if !retry.is_outage() {
                    self.outages.answered(&key);
                }
                return Err(error);
            }
            let namespace = &question.request.namespace;
            if !waits || !self.outages.wait(&key, namespace, &error, deadline).await {
                return Err(error);
            }
        }
    }

    /// Asks a replica that serves the view; if there is none, a replica that knows the view.
    async fn once(
        &self,
        question: &Question,
        sealed: &seal::Question,
        deadline: Instant,
    ) -> Result<Replied, FactError> {
        let view = &question.view;
        let at = Address::View(view.clone());
        match self.attempt(&at, view, sealed, deadline).await {
            Ok(reply) => return Ok((reply, false)),
            Err(FactError::NoReplica { .. }) => {}
            Err(error) => return Err(error),
        }
        let at = Address::Fallback(view.clone());
        let reply = self.attempt(&at, view, sealed, deadline).await?;
        Ok((reply, true))
    }

    /// Lowers the view's floor if the log does not reach it.
    async fn check_floor(&self, view: &ViewId) {
        if !self.floors.is_check_due(view) {
            return;
        }
        let asked = Instant::now();
        let head = tokio::time::timeout(END_TIMEOUT, self.bus.head()).await;
        if let Ok(Ok(end)) = head {
            self.floors.end_is(end, asked);
        }
    }

    /// Demands a state of the view that is no older than the last answer.
    fn demand_floor(&self, question: &mut Question) {
        let floor = self.floors.get(&question.view);
        let floor = floor.map(|floor| (floor.revision, floor.incarnation));
        let request = &mut question.request;
        (request.revision_min, request.revision_min_of) = floor.unzip();
    }

    /// Returns the question as it travels: sealed, if it is about Secrets.
    fn sealed(&self, question: &Question) -> Result<seal::Question, FactError> {
        let body = encode_request(&question.request).map_err(|error| too_large(&error))?;
        match question.secret {
            true => seal::Question::sealed(&self.asker_keys, AskedOf::View(&question.view), &body),
            false => Ok(seal::Question::open(body)),
        }
    }

    async fn attempt(
        &self,
        at: &Address,
        view: &ViewId,
        question: &seal::Question,
        deadline: Instant,
    ) -> Result<QueryReply, FactError> {
        let given_ms = millis(deadline.saturating_duration_since(Instant::now()));
        attempts::race(self.hedge, &self.later, deadline, given_ms, || {
            self.recorder.query_attempt();
            self.send(at, view, question, deadline)
        })
        .await
    }

    /// Makes one attempt.
    async fn send(
        &self,
        at: &Address,
        view: &ViewId,
        question: &seal::Question,
        deadline: Instant,
    ) -> Result<QueryReply, FactError> {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let body = question.body.clone();
        match self.bus.request(at, call(body, remaining), remaining).await {
            Ok(reply) => {
                let is_refusal = |reply: &[u8]| {
                    matches!(
                        decode_outcome(reply),
                        Ok(Err(FactError::AskerUnknown { .. }))
                    )
                };
                let reply = question.answer(reply, is_refusal)?;
                let reply = decode_outcome(&reply).map_err(|error| reply_error(&error))??;
                self.floors.raise(view, &reply)?;
                Ok(reply)
            }
            Err(error) => {
                let nobody = FactError::NoReplica {
                    view: view.as_str().to_owned(),
                };
                Err(request_error(error, nobody))
            }
        }
    }
}

/// Returns the answer of this process or that of replicas, whichever comes first.
async fn whoever_is_first(
    here: impl Future<Output = Option<QueryReply>> + Unpin,
    replicas: impl Future<Output = Result<Replied, FactError>> + Unpin,
) -> Result<Replied, FactError> {
    match select(here, replicas).await {
        Either::Left((Some(reply), _)) => Ok((reply, false)),
        Either::Left((None, replicas)) => replicas.await,
        Either::Right((Ok(replied), _)) => Ok(replied),
        Either::Right((Err(error), here)) => here.await.map(|reply| (reply, false)).ok_or(error),
    }
}

/// Returns the time at which half of what is left is over.
fn half_way(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / 2
}

fn checked(question: &Question, replied: Replied) -> Result<Replied, FactError> {
    let (found, expected) = (replied.0.results.len(), question.request.queries.len());
    if found != expected {
        return Err(FactError::RequestInvalid {
            message: format!("the reply has {found} results for {expected} queries"),
        });
    }
    Ok(replied)
}

/// Returns whether the replicas may not have reached the position that a query demanded.
fn is_not_reached(error: &FactError) -> bool {
    matches!(
        error,
        FactError::RevisionNotReached { .. } | FactError::DeadlineExceeded { .. }
    )
}

fn record(span: &Span, outcome: &Result<Replied, FactError>) {
    match outcome {
        Ok((reply, _)) => {
            span.record("replica", &reply.replica);
            span.record("revision", reply.revision.0);
            span.record("age_ms", reply.age_ms);
        }
        Err(error) => {
            span.record("otel.status_code", "ERROR");
            // Messages may quote data.
            span.record("error", error.code().as_str());
        }
    }
}
