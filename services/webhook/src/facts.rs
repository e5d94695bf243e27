//! Facts, by whatever way leads to them, within the time that the API server waits.
//!
//! ```text
//! FactRequest ── road ──▶ ways ──▶ views ──▶ View ──▶ Fallback     (a replica)
//!                          │
//!                          └─────▶ live ──▶ Live                   (a watcher)
//! ```
//!
//! - `road` decides by which ways a fact is reached; `confined` what a namespaced policy may read.
//! - `views` asks replicas: `attempts` hedges, `floors` keeps decisions from going back in time.
//! - `live` asks a watcher; `seal` opens what either says of Secrets.
//! - `audit` compares some answers of views with what is read live.

mod attempts;
mod audit;
mod confined;
mod decode;
mod floors;
mod live;
mod origin;
mod road;
mod seal;
mod views;

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Bus, Call};
use anteroom_model::{
    ErrorCode, ExistingObjects, FactError, Incarnation, ObjectKey, Revision, ViewId,
    limits::QUERIES_PER_REQUEST_MAX,
};
use anteroom_policy::FactRequest;
use anteroom_runtime::telemetry;
use anteroom_wire::{body, envelope::TraceContext, live::LiveCall};
use bytes::Bytes;
use futures::{
    FutureExt as _,
    future::{BoxFuture, join_all},
};
use serde_json::Value;
use tokio::time::Instant;

use self::{
    audit::{Audit, Sample},
    live::Live,
    road::{LiveWay, Road, ViewWay, Way},
    views::{Question, Views},
};
use crate::{catalog::Catalog, metrics::WebhookMetrics};

pub(crate) use origin::Origin;

/// How long a view that does not answer is waited for where there is another way, at most; at most
/// half of the time too.
const TURN_BACK_AFTER_MAX: Duration = Duration::from_secs(2);

/// Reads facts. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    views: Views,
    live: Live,
    audit: Audit,
}

/// In whose name facts are read.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    /// Namespace (empty for a `ClusterPolicy`) and name.
    pub(crate) policy: ObjectKey,
    pub(crate) rule: String,
}

impl Reader {
    /// The namespace that the policy is confined to, if it is a namespaced one.
    fn namespace(&self) -> Option<&str> {
        Some(&*self.policy.namespace).filter(|namespace| !namespace.is_empty())
    }
}

/// What one rule asks for at once.
#[derive(Debug)]
pub(crate) struct Needs<'a> {
    /// To tell its facts from those of the other rules.
    pub(crate) asker: usize,
    pub(crate) reader: &'a Reader,
    pub(crate) requests: Vec<FactRequest>,
}

/// The answer to one [`FactRequest`].
#[derive(Debug)]
pub(crate) struct Fact {
    /// That of the [`Needs`].
    pub(crate) asker: usize,
    pub(crate) id: u32,
    /// `None`: it is a part of a fact, and not to be had without reading the fact.
    pub(crate) answer: Option<Result<Value, FactError>>,
    /// Where it comes from; `None` where nobody answered.
    pub(crate) origin: Option<Arc<Origin>>,
    /// It travelled sealed, and so must what is made of it.
    pub(crate) secret: bool,
}

impl Fact {
    pub(crate) fn unanswered(asker: usize, id: u32, error: FactError) -> Self {
        Self {
            asker,
            id,
            answer: Some(Err(error)),
            origin: None,
            secret: false,
        }
    }

    fn declined(asker: usize, id: u32) -> Self {
        Self {
            asker,
            id,
            answer: None,
            origin: None,
            secret: false,
        }
    }
}

/// Facts on their way.
pub(crate) type Arriving<'a> = BoxFuture<'a, Vec<Fact>>;

/// A fact on its way, and why the last way that was tried did not lead there.
struct Traveller<'a> {
    asker: usize,
    reader: &'a Reader,
    road: Road,
    turned_back: Option<ErrorCode>,
}

/// Those who ask one view at once.
struct Party<'a> {
    travellers: Vec<(Traveller<'a>, ViewWay)>,
    /// Another way is open to each of them.
    may_turn_back: bool,
}

impl Party<'_> {
    fn takes(&self, way: &ViewWay, may_turn_back: bool) -> bool {
        self.may_turn_back == may_turn_back
            && self.travellers.len() < QUERIES_PER_REQUEST_MAX
            && self.travellers.first().is_some_and(|(_, first)| {
                (&first.view, first.age_max_ms, first.secret)
                    == (&way.view, way.age_max_ms, way.secret)
            })
    }
}

impl Facts {
    /// `audit_ratio` is the part of answers from views that are compared with live ones.
    pub(crate) fn new(
        bus: Arc<dyn Bus>,
        metrics: WebhookMetrics,
        hedge: Duration,
        audit_ratio: f64,
    ) -> Self {
        let views = Views::new(Arc::clone(&bus), metrics.clone(), hedge);
        let live = Live::new(bus, metrics.clone(), hedge);
        Self {
            audit: Audit::new(views.clone(), live.clone(), metrics, audit_ratio),
            views,
            live,
        }
    }

    /// For scans: its live reads leave room for others.
    pub(crate) fn for_scans(self) -> Self {
        Self {
            live: self.live.for_scans(),
            ..self
        }
    }

    /// From now on no answer of the view is taken that is of an earlier state.
    pub(crate) fn expect(&self, view: &ViewId, incarnation: &Incarnation, revision: Revision) {
        self.views.expect(view, incarnation, revision);
    }

    /// Sets out for all that the rules need, side by side; what they want of one view travels
    /// together, from one state of it. Each future is one request, and gives the facts that come of it:
    /// so no rule waits for what only another one needs.
    pub(crate) fn ask<'a>(
        &'a self,
        catalog: &Catalog,
        needs: Vec<Needs<'a>>,
        deadline: Instant,
    ) -> Vec<Arriving<'a>> {
        let (mut facts, mut travellers) = (Vec::new(), Vec::new());
        for Needs {
            asker,
            reader,
            requests,
        } in needs
        {
            for request in requests {
                let id = request.id;
                match road::road(request, reader, catalog) {
                    Ok(road) => travellers.push(Traveller {
                        asker,
                        reader,
                        road,
                        turned_back: None,
                    }),
                    Err(error) => facts.push(Fact::unanswered(asker, id, error)),
                }
            }
        }
        let mut arriving = self.travel(travellers, deadline);
        if !facts.is_empty() {
            arriving.push(std::future::ready(facts).boxed());
        }
        arriving
    }

    /// Writes an object that a rule has changed, of this of its targets.
    ///
    /// # Errors
    /// [`FactError::WriteFailed`], or why nobody could be asked.
    pub(crate) async fn write(
        &self,
        reader: &Reader,
        target: usize,
        object: Value,
        deadline: Instant,
    ) -> Result<(), FactError> {
        let call = LiveCall::Write { target, object };
        let way = LiveWay::whole(call);
        let written = self
            .live
            .read(reader, "mutate.targets", way, deadline)
            .await;
        written.map(|_| ())
    }

    /// A part of what triggers a rule and exists: `{items, continue}`.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(crate) async fn triggers(
        &self,
        reader: &Reader,
        objects: ExistingObjects,
        deadline: Instant,
    ) -> Result<Value, FactError> {
        let way = LiveWay::whole(LiveCall::Existing { objects });
        let read = self.live.read(reader, "match", way, deadline).await;
        read.map(|(part, _)| part)
    }

    /// What the watcher lacks to change objects like these; `None`: nothing.
    ///
    /// # Errors
    /// Where that is not known.
    pub(crate) async fn lacks_to_write(
        &self,
        reader: &Reader,
        objects: ExistingObjects,
        deadline: Instant,
    ) -> Result<Option<String>, FactError> {
        let way = LiveWay::whole(LiveCall::MayWrite { objects });
        let (answer, _) = self
            .live
            .read(reader, "mutate.targets", way, deadline)
            .await?;
        Ok(answer.as_str().map(str::to_owned))
    }

    /// Takes each by its next way, and those that have to turn back by the one after it.
    fn travel<'a>(
        &'a self,
        travellers: Vec<Traveller<'a>>,
        deadline: Instant,
    ) -> Vec<Arriving<'a>> {
        let mut parties: Vec<Party<'a>> = Vec::new();
        let mut arriving: Vec<Arriving<'a>> = Vec::new();
        for mut traveller in travellers {
            match traveller.road.ways.pop_front() {
                Some(Way::View(way)) => {
                    let may_turn_back = !traveller.road.ways.is_empty();
                    let fits = |party: &&mut Party<'_>| party.takes(&way, may_turn_back);
                    match parties.iter_mut().find(fits) {
                        Some(party) => party.travellers.push((traveller, way)),
                        None => parties.push(Party {
                            travellers: vec![(traveller, way)],
                            may_turn_back,
                        }),
                    }
                }
                // The fact is read once then, for all that is made of it.
                Some(Way::Live(_)) | None if traveller.road.is_part => {
                    let fact = Fact::declined(traveller.asker, traveller.road.id);
                    arriving.push(std::future::ready(vec![fact]).boxed());
                }
                Some(Way::Live(way)) => {
                    let read = self.by_live_read(traveller, way, deadline);
                    arriving.push(read.map(|fact| vec![fact]).boxed());
                }
                None => {
                    let message = "no way leads there".to_owned();
                    let error = FactError::RequestInvalid { message };
                    let fact = Fact::unanswered(traveller.asker, traveller.road.id, error);
                    arriving.push(std::future::ready(vec![fact]).boxed());
                }
            }
        }
        let by_view = parties
            .into_iter()
            .map(|party| self.by_view(party, deadline).boxed());
        arriving.extend(by_view);
        arriving
    }

    /// One request to one view. An error of it is the answer to each of its queries.
    async fn by_view<'a>(&'a self, party: Party<'a>, deadline: Instant) -> Vec<Fact> {
        let Party {
            travellers,
            may_turn_back,
        } = party;
        let Some(question) = Question::of(&travellers) else {
            return Vec::new();
        };
        let until = match may_turn_back {
            true => soon(deadline),
            false => deadline,
        };
        let asked = self.views.ask(&question, until, !may_turn_back).await;
        // What one rule asks for may be too much; that is not the others' error.
        if matches!(asked, Err(FactError::BudgetExceeded { .. })) && are_several(&travellers) {
            return self.one_by_one(travellers, may_turn_back, deadline).await;
        }
        let (mut facts, mut turned_back) = (Vec::new(), Vec::new());
        let (results, origin): (Vec<_>, _) = match asked {
            Ok(answer) => (answer.results, Some(Arc::new(answer.origin))),
            Err(error) => (vec![Err(error); travellers.len()], None),
        };
        for ((mut traveller, way), result) in travellers.into_iter().zip(results) {
            match result {
                Err(error) if !traveller.road.ways.is_empty() && !way.ends_with(&error) => {
                    traveller.turned_back = Some(error.code());
                    turned_back.push(traveller);
                }
                answer => {
                    let secret = way.secret;
                    if let (Some(live), Some(origin)) = (traveller.road.stands_for, &origin) {
                        self.audit.consider(|| Sample {
                            reader: traveller.reader.clone(),
                            variable: traveller.road.variable,
                            view: way,
                            live,
                            answer: answer.clone(),
                            revision: origin.revision(),
                        });
                    }
                    facts.push(Fact {
                        asker: traveller.asker,
                        id: traveller.road.id,
                        answer: Some(answer),
                        origin: origin.clone(),
                        secret,
                    });
                }
            }
        }
        if !turned_back.is_empty() {
            let arriving = join_all(self.travel(turned_back, deadline)).await;
            facts.extend(arriving.into_iter().flatten());
        }
        facts
    }

    /// The same for each rule by itself.
    fn one_by_one<'a>(
        &'a self,
        travellers: Vec<(Traveller<'a>, ViewWay)>,
        may_turn_back: bool,
        deadline: Instant,
    ) -> Arriving<'a> {
        let parties = by_asker(travellers).into_iter().map(|travellers| Party {
            travellers,
            may_turn_back,
        });
        let arriving: Vec<_> = parties
            .map(|party| self.by_view(party, deadline).boxed())
            .collect();
        join_all(arriving)
            .map(|facts| facts.into_iter().flatten().collect())
            .boxed()
    }

    async fn by_live_read(
        &self,
        traveller: Traveller<'_>,
        way: LiveWay,
        deadline: Instant,
    ) -> Fact {
        let Traveller {
            asker,
            reader,
            road,
            turned_back,
        } = traveller;
        let read = self.live.read(reader, &road.variable, way, deadline).await;
        match read {
            Err(error) => Fact::unanswered(asker, road.id, error),
            Ok((answer, mut origin)) => {
                origin.turned_back(turned_back);
                let secret = origin.was_sealed();
                Fact {
                    asker,
                    id: road.id,
                    answer: Some(Ok(answer)),
                    origin: Some(Arc::new(origin)),
                    secret,
                }
            }
        }
    }
}

fn are_several(travellers: &[(Traveller<'_>, ViewWay)]) -> bool {
    travellers
        .windows(2)
        .any(|pair| pair[0].0.asker != pair[1].0.asker)
}

/// Those of each rule, which stand together.
fn by_asker<'a>(travellers: Vec<(Traveller<'a>, ViewWay)>) -> Vec<Vec<(Traveller<'a>, ViewWay)>> {
    let mut groups: Vec<Vec<(Traveller<'a>, ViewWay)>> = Vec::new();
    for traveller in travellers {
        match groups.last_mut() {
            Some(group) if group[0].0.asker == traveller.0.asker => group.push(traveller),
            _ => groups.push(vec![traveller]),
        }
    }
    groups
}

/// Until when a view is waited for where there is another way, which takes time too.
fn soon(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + (deadline.saturating_duration_since(now) / 2).min(TURN_BACK_AFTER_MAX)
}

/// A message within what is left of the time, below the current span.
fn call(body: Bytes, left: Duration) -> Call {
    let trace = telemetry::current_trace().map(|(traceparent, tracestate)| TraceContext {
        traceparent,
        tracestate,
    });
    Call {
        body,
        deadline: left,
        trace,
    }
}

fn value(body: &Bytes) -> Result<Value, FactError> {
    body::to_json(body).map_err(|error| unreadable(&error))
}

fn unreadable(error: &anteroom_wire::WireError) -> FactError {
    FactError::RequestInvalid {
        message: format!("the reply cannot be read: {error}"),
    }
}

fn too_large(error: &anteroom_wire::WireError) -> FactError {
    FactError::BudgetExceeded {
        message: error.to_string(),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
