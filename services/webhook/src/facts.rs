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
mod floors;
mod live;
mod origin;
mod road;
mod seal;
mod views;

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Bus, Call};
use anteroom_model::{ErrorCode, FactError, ObjectKey, limits::QUERIES_PER_REQUEST_MAX};
use anteroom_policy::FactRequest;
use anteroom_runtime::telemetry;
use anteroom_wire::{body, envelope::TraceContext};
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

/// The answer to one [`FactRequest`].
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) id: u32,
    /// `None`: it is a part of a fact, and not to be had without reading the fact.
    pub(crate) answer: Option<Result<Value, FactError>>,
    /// Where it comes from; `None` where nobody answered.
    pub(crate) origin: Option<Arc<Origin>>,
}

impl Fact {
    fn unanswered(id: u32, error: FactError) -> Self {
        Self {
            id,
            answer: Some(Err(error)),
            origin: None,
        }
    }

    fn declined(id: u32) -> Self {
        Self {
            id,
            answer: None,
            origin: None,
        }
    }
}

/// A fact on its way, and why the last way that was tried did not lead there.
struct Traveller {
    road: Road,
    turned_back: Option<ErrorCode>,
}

/// Those who ask one view at once.
struct Party {
    travellers: Vec<(Traveller, ViewWay)>,
    /// Another way is open to each of them.
    may_turn_back: bool,
}

impl Party {
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

    /// Answers all `needs` of a rule, side by side; those of one view together, from one state of it.
    pub(crate) async fn answer(
        &self,
        catalog: &Catalog,
        reader: &Reader,
        needs: Vec<FactRequest>,
        deadline: Instant,
    ) -> Vec<Fact> {
        let (mut facts, mut travellers) = (Vec::new(), Vec::new());
        for need in needs {
            let id = need.id;
            match road::road(need, reader, catalog) {
                Ok(road) => travellers.push(Traveller {
                    road,
                    turned_back: None,
                }),
                Err(error) => facts.push(Fact::unanswered(id, error)),
            }
        }
        facts.extend(self.travel(reader, travellers, deadline).await);
        facts
    }

    /// Takes each by its next way, and those that have to turn back by the one after it.
    fn travel<'a>(
        &'a self,
        reader: &'a Reader,
        travellers: Vec<Traveller>,
        deadline: Instant,
    ) -> BoxFuture<'a, Vec<Fact>> {
        let mut parties: Vec<Party> = Vec::new();
        let mut arriving: Vec<BoxFuture<'a, Vec<Fact>>> = Vec::new();
        for mut traveller in travellers {
            match traveller.road.ways.pop_front() {
                Some(Way::View(way)) => {
                    let may_turn_back = !traveller.road.ways.is_empty();
                    let fits = |party: &&mut Party| party.takes(&way, may_turn_back);
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
                    let fact = Fact::declined(traveller.road.id);
                    arriving.push(std::future::ready(vec![fact]).boxed());
                }
                Some(Way::Live(way)) => {
                    let read = self.by_live_read(reader, traveller, way, deadline);
                    arriving.push(read.map(|fact| vec![fact]).boxed());
                }
                None => {
                    let message = "no way leads there".to_owned();
                    let error = FactError::RequestInvalid { message };
                    let fact = Fact::unanswered(traveller.road.id, error);
                    arriving.push(std::future::ready(vec![fact]).boxed());
                }
            }
        }
        let by_view = parties
            .into_iter()
            .map(|party| self.by_view(reader, party, deadline).boxed());
        arriving.extend(by_view);
        join_all(arriving)
            .map(|facts| facts.into_iter().flatten().collect())
            .boxed()
    }

    /// One request to one view. An error of it is the answer to each of its queries.
    async fn by_view(&self, reader: &Reader, party: Party, deadline: Instant) -> Vec<Fact> {
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
                    if let (Some(live), Some(origin)) = (traveller.road.stands_for, &origin) {
                        self.audit.consider(|| Sample {
                            reader: reader.clone(),
                            variable: traveller.road.variable,
                            view: way,
                            live,
                            answer: answer.clone(),
                            revision: origin.revision(),
                        });
                    }
                    facts.push(Fact {
                        id: traveller.road.id,
                        answer: Some(answer),
                        origin: origin.clone(),
                    });
                }
            }
        }
        if !turned_back.is_empty() {
            facts.extend(self.travel(reader, turned_back, deadline).await);
        }
        facts
    }

    async fn by_live_read(
        &self,
        reader: &Reader,
        traveller: Traveller,
        way: LiveWay,
        deadline: Instant,
    ) -> Fact {
        let Traveller { road, turned_back } = traveller;
        let read = self.live.read(reader, &road.variable, way, deadline).await;
        match read {
            Err(error) => Fact::unanswered(road.id, error),
            Ok((answer, mut origin)) => {
                origin.turned_back(turned_back);
                Fact {
                    id: road.id,
                    answer: Some(Ok(answer)),
                    origin: Some(Arc::new(origin)),
                }
            }
        }
    }
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
