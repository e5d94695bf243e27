//! Reads facts of a cluster over the bus.

use std::{sync::Arc, time::Duration};

use anteroom_bus::Bus;
use anteroom_model::{ExistingObjects, FactError, Incarnation, Revision, ViewId};
use anteroom_seal::Keys;
use anteroom_wire::live::LiveCall;
use futures::{FutureExt as _, future::join_all};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    audit::{Audit, Sample},
    live::{Live, LiveAnswer},
    local::LocalViews,
    memory::{FactHolder, FactMemory, FactPermit},
    message::review_number,
    origin::Origin,
    pending::{PendingFact, ViewBatch, are_several, by_asker, final_error},
    route::{Backend, LiveRead, ViewRead, route},
    source::{Arriving, Deadline, FactAnswer, FactResult, FactSource, RuleRequests},
    views::{Question, Views},
};
use crate::{catalog::Catalog, recorder::SharedRecorder, rule::RuleRef};

/// The longest wait for a view that does not answer, if there is another backend; it is at most half of the time that
/// is left, too.
const FALLBACK_AFTER_MAX: Duration = Duration::from_secs(2);

/// Reads facts of a cluster over the bus. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BusFacts {
    views: Views,
    live: Live,
    audit: Audit,
}

impl BusFacts {
    /// Asks over this bus, and for Secrets with these keys. `audit_ratio` is the part of answers from views that are
    /// compared with live ones.
    pub fn new(
        bus: Arc<dyn Bus>,
        asker_keys: Keys,
        recorder: SharedRecorder,
        hedge: Duration,
        audit_ratio: f64,
    ) -> Self {
        let (shared, counted_by) = (Arc::clone(&bus), Arc::clone(&recorder));
        let memory = FactMemory::default();
        let views = Views::new(
            shared,
            counted_by,
            hedge,
            asker_keys.clone(),
            memory.clone(),
        );
        let live = Live::new(bus, Arc::clone(&recorder), hedge, asker_keys, memory);
        Self {
            audit: Audit::new(views.clone(), live.clone(), recorder, audit_ratio),
            views,
            live,
        }
    }

    /// Sets the patience: requests for a view or watcher that does not answer wait up to this time after the begin of
    /// the outage; by default 10 seconds.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self {
            views: self.views.with_patience(patience),
            live: self.live.with_patience(patience),
            ..self
        }
    }

    /// Asks these views of this process before replicas.
    #[must_use]
    pub fn with_local(self, local: Arc<dyn LocalViews>) -> Self {
        Self {
            views: self.views.with_local(local),
            ..self
        }
    }

    /// Sets the bytes of memory that large facts take together, until their rules have ended: three quarters for the facts of
    /// one review at a time, and the rest for all others. By default it is 192 MiB.
    #[must_use]
    pub fn with_memory(self, bytes_max: u64) -> Self {
        let memory = FactMemory::new(bytes_max);
        Self {
            views: self.views.with_memory(memory.clone()),
            live: self.live.with_memory(memory),
            ..self
        }
    }

    /// Returns the same for scans, whose queries and live reads leave room for others.
    pub fn for_scans(self) -> Self {
        Self {
            views: self.views.for_scans(),
            live: self.live.for_scans(),
            ..self
        }
    }

    /// Refuses answers of the view from before this position, from now on.
    pub fn expect(&self, view: &ViewId, incarnation: &Incarnation, revision: Revision) {
        self.views.expect(view, incarnation, revision);
    }

    /// Writes an object that a rule has changed, of this of its targets.
    ///
    /// # Errors
    /// [`FactError::WriteFailed`], or the reason why no watcher could be asked.
    pub async fn write(
        &self,
        reader: &RuleRef,
        target: usize,
        object: Value,
        deadline: Deadline,
    ) -> Result<(), FactError> {
        let call = LiveCall::Write { target, object };
        let read = LiveRead::whole(call);
        let written = self
            .live
            .read(reader, "mutate.targets", read, deadline)
            .await;
        written.map(|_| ())
    }

    /// Reads a part of the existing objects that trigger a rule: `{items, continue}`.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub async fn triggers(
        &self,
        reader: &RuleRef,
        objects: ExistingObjects,
        deadline: Deadline,
    ) -> Result<Value, FactError> {
        let read = LiveRead::whole(LiveCall::Existing { objects });
        let answer = self.live.read(reader, "match", read, deadline).await;
        answer.map(|(part, _)| part)
    }

    /// Returns the right that the watcher lacks to change objects like these; `None`: it lacks none.
    ///
    /// # Errors
    /// The right is not known.
    pub async fn lacks_to_write(
        &self,
        reader: &RuleRef,
        objects: ExistingObjects,
        deadline: Deadline,
    ) -> Result<Option<String>, FactError> {
        let read = LiveRead::whole(LiveCall::MayWrite { objects });
        let (answer, _) = self
            .live
            .read(reader, "mutate.targets", read, deadline)
            .await?;
        Ok(answer.as_str().map(str::to_owned))
    }

    /// Asks the next backend of each route for its fact.
    fn dispatch<'a>(
        &'a self,
        pending: Vec<PendingFact<'a>>,
        holder: &FactHolder,
        deadline: Deadline,
    ) -> Vec<Arriving<'a>> {
        let mut batches: Vec<ViewBatch<'a>> = Vec::new();
        let mut arriving: Vec<Arriving<'a>> = Vec::new();
        for mut fact in pending {
            match fact.route.backends.pop_front() {
                Some(Backend::View(read)) => {
                    let has_fallback = !fact.route.backends.is_empty();
                    let fits = |batch: &&mut ViewBatch<'_>| batch.takes(&read, &fact, has_fallback);
                    match batches.iter_mut().find(fits) {
                        Some(batch) => batch.pending.push((fact, read)),
                        None => batches.push(ViewBatch {
                            pending: vec![(fact, read)],
                            has_fallback,
                        }),
                    }
                }
                // The fact is read once then, for all that is made of it.
                Some(Backend::Live(_)) | None if fact.route.is_pushed_down => {
                    let fact = FactAnswer::of(fact.asker, fact.route.id, FactResult::Declined);
                    arriving.push(std::future::ready(vec![fact]).boxed());
                }
                Some(Backend::Live(read)) => {
                    let holder = holder.for_policies_of(&fact.reader.policy.namespace);
                    let answer = self.read_live(fact, read, holder, deadline);
                    arriving.push(answer.map(|fact| vec![fact]).boxed());
                }
                None => {
                    let message = "no backend has this fact".to_owned();
                    let error = FactError::RequestInvalid { message };
                    let fact = FactAnswer::unanswered(fact.asker, fact.route.id, error);
                    arriving.push(std::future::ready(vec![fact]).boxed());
                }
            }
        }
        let by_view = batches.into_iter().map(|batch| {
            let holder = holder.for_policies_of(batch.policy_namespace());
            self.ask_view(batch, holder, deadline).boxed()
        });
        arriving.extend(by_view);
        arriving
    }

    /// Sends one request to one view. Its error is the answer to each of its queries, or leads to their fallbacks.
    async fn ask_view<'a>(
        &'a self,
        batch: ViewBatch<'a>,
        holder: FactHolder,
        deadline: Deadline,
    ) -> Vec<FactAnswer> {
        let ViewBatch {
            pending,
            has_fallback,
        } = batch;
        let Some(question) = Question::of(&pending) else {
            return Vec::new();
        };
        let question = question.of_review(review_number(deadline));
        let until = match has_fallback {
            true => soon(deadline),
            false => deadline,
        };
        let asked = match self.views.ask(question, until, !has_fallback).await {
            Ok(answer) => match self.views.read(answer, Some(&holder), deadline).await {
                // The answer of a fallback would find no memory either.
                Err(error @ FactError::DeadlineExceeded { .. }) => {
                    return unanswered(pending, &error);
                }
                read => read,
            },
            Err(error) => Err(error),
        };
        // What one rule asks for may be too much; that is not the others' error.
        if matches!(asked, Err(FactError::BudgetExceeded { .. })) && are_several(&pending) {
            let one_by_one = self.one_by_one(pending, has_fallback, &holder, deadline);
            return one_by_one.await;
        }
        let (mut facts, mut falling_back, mut memory) = (Vec::new(), Vec::new(), None);
        let (results, origin): (Vec<_>, _) = match asked {
            Ok(answer) => {
                memory = answer.memory;
                (answer.results, Some(Arc::new(answer.origin)))
            }
            Err(error) => (vec![Err(error); pending.len()], None),
        };
        for ((mut fact, read), result) in pending.into_iter().zip(results) {
            match result {
                Err(error) if !fact.route.backends.is_empty() && !read.ends_with(&error) => {
                    fact.fallback_from = Some(error.code());
                    if error.is_over_part() {
                        fact.over_part = Some(error);
                    }
                    falling_back.push(fact);
                }
                answer => {
                    facts.push(self.answered(fact, read, answer, origin.as_ref(), memory.clone()));
                }
            }
        }
        if !falling_back.is_empty() {
            let arriving = join_all(self.dispatch(falling_back, &holder, deadline)).await;
            facts.extend(arriving.into_iter().flatten());
        }
        facts
    }

    /// Returns a view's answer to a fact. Some answers are compared with live ones.
    fn answered(
        &self,
        fact: PendingFact<'_>,
        read: ViewRead,
        answer: Result<Value, FactError>,
        origin: Option<&Arc<Origin>>,
        memory: Option<FactPermit>,
    ) -> FactAnswer {
        let answer = answer.map_err(|error| final_error(fact.over_part, error));
        let secret = read.secret;
        if let (Some(live), Some(origin)) = (fact.route.stands_for, origin) {
            self.audit.consider(memory.is_some(), || Sample {
                reader: fact.reader.clone(),
                review_namespace: fact.review_namespace.to_owned(),
                variable: fact.route.variable,
                view: read,
                live,
                answer: answer.clone(),
                revision: origin.revision(),
            });
        }
        FactAnswer {
            asker: fact.asker,
            id: fact.route.id,
            answer: FactResult::Got(answer),
            memory,
            origin: origin.cloned(),
            secret,
        }
    }

    /// Sends the requests of each rule by themselves.
    fn one_by_one<'a>(
        &'a self,
        pending: Vec<(PendingFact<'a>, ViewRead)>,
        has_fallback: bool,
        holder: &FactHolder,
        deadline: Deadline,
    ) -> Arriving<'a> {
        let batches = by_asker(pending).into_iter().map(|pending| ViewBatch {
            pending,
            has_fallback,
        });
        let arriving: Vec<_> = batches
            .map(|batch| self.ask_view(batch, holder.clone(), deadline).boxed())
            .collect();
        join_all(arriving)
            .map(|facts| facts.into_iter().flatten().collect())
            .boxed()
    }

    async fn read_live(
        &self,
        fact: PendingFact<'_>,
        read: LiveRead,
        holder: FactHolder,
        deadline: Deadline,
    ) -> FactAnswer {
        let PendingFact {
            asker,
            reader,
            review_namespace,
            route,
            fallback_from,
            over_part,
        } = fact;
        // Parts of lists are held in the turns of triggers.
        let is_part = matches!(read.call, LiveCall::Existing { .. });
        let holder = Some(&holder).filter(|_| !is_part);
        let variable = &route.variable;
        let answer = self
            .live
            .read_for(review_namespace, holder, reader, variable, read, deadline)
            .await;
        match answer {
            Err(error) => FactAnswer::unanswered(asker, route.id, final_error(over_part, error)),
            Ok(LiveAnswer {
                value,
                memory,
                mut origin,
            }) => {
                origin.fallback_from(fallback_from);
                let secret = origin.is_secret();
                FactAnswer {
                    asker,
                    id: route.id,
                    answer: FactResult::Got(Ok(value)),
                    memory,
                    origin: Some(Arc::new(origin)),
                    secret,
                }
            }
        }
    }
}

impl FactSource for BusFacts {
    fn ask<'a>(
        &'a self,
        catalog: &Catalog,
        asked: Vec<RuleRequests<'a>>,
        holder: &FactHolder,
        deadline: Deadline,
    ) -> Vec<Arriving<'a>> {
        let (mut facts, mut pending) = (Vec::new(), Vec::new());
        for RuleRequests {
            asker,
            reader,
            review_namespace,
            requests,
        } in asked
        {
            for request in requests {
                let id = request.id;
                match route(request, reader, catalog) {
                    Ok(route) => pending.push(PendingFact {
                        asker,
                        reader,
                        review_namespace,
                        route,
                        fallback_from: None,
                        over_part: None,
                    }),
                    Err(error) => facts.push(FactAnswer::unanswered(asker, id, error)),
                }
            }
        }
        let mut arriving = self.dispatch(pending, holder, deadline);
        if !facts.is_empty() {
            arriving.push(std::future::ready(facts).boxed());
        }
        arriving
    }
}

/// Returns the answers to facts that cannot be read because of this error.
fn unanswered(pending: Vec<(PendingFact<'_>, ViewRead)>, error: &FactError) -> Vec<FactAnswer> {
    let answer = |(fact, _): (PendingFact<'_>, ViewRead)| {
        let error = final_error(fact.over_part, error.clone());
        FactAnswer::unanswered(fact.asker, fact.route.id, error)
    };
    pending.into_iter().map(answer).collect()
}

/// Returns the time by which a view has to answer if there is a fallback, which takes time too.
fn soon(deadline: Deadline) -> Deadline {
    let now = Instant::now();
    now + (deadline.saturating_duration_since(now) / 2).min(FALLBACK_AFTER_MAX)
}
