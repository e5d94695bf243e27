//! Facts from the replicas, within the time that the API server waits.

mod attempts;
mod floors;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::{Address, Bus, Call, RequestError};
use anteroom_model::{EntryKind, FactError, ViewId, limits::QUERIES_PER_REQUEST_MAX};
use anteroom_policy::FactRequest;
use anteroom_runtime::telemetry;
use anteroom_wire::{
    body,
    envelope::TraceContext,
    query::{Query, QueryReply, QueryRequest, decode_outcome, encode_request},
};
use bytes::Bytes;
use futures::future::join_all;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use self::floors::Floors;
use crate::{catalog::Catalog, metrics::WebhookMetrics};

/// Asks the replicas.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    bus: Arc<dyn Bus>,
    metrics: WebhookMetrics,
    /// Without an answer for so long, another replica is asked.
    hedge: Duration,
    floors: Arc<Floors>,
}

/// The answer to one [`FactRequest`].
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) id: u32,
    pub(crate) answer: Result<Value, FactError>,
    /// Where it comes from; `None` where nobody answered.
    pub(crate) origin: Option<Arc<Origin>>,
}

/// What an answer was read from: see the decision's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) view: ViewId,
    pub(crate) replica: String,
    pub(crate) incarnation: String,
    pub(crate) revision: u64,
    pub(crate) version: String,
    pub(crate) age_ms: u64,
}

impl Facts {
    pub(crate) fn new(bus: Arc<dyn Bus>, metrics: WebhookMetrics, hedge: Duration) -> Self {
        Self {
            bus,
            metrics,
            hedge,
            floors: Arc::default(),
        }
    }

    /// Answers all `needs` of a policy (confined to `namespace`, if it is a namespaced one), side by
    /// side; those of one entry together, from one state of its view.
    pub(crate) async fn answer(
        &self,
        catalog: &Catalog,
        namespace: Option<&str>,
        needs: Vec<FactRequest>,
        deadline: Instant,
    ) -> Vec<Fact> {
        self.floors.forget_others(catalog);
        let mut by_entry: BTreeMap<String, Vec<FactRequest>> = BTreeMap::new();
        for need in needs {
            let entry = need.target.to_string();
            by_entry.entry(entry).or_default().push(need);
        }
        let requests = by_entry.into_iter().flat_map(|(entry, mut needs)| {
            let mut chunks = Vec::new();
            while needs.len() > QUERIES_PER_REQUEST_MAX {
                let rest = needs.split_off(QUERIES_PER_REQUEST_MAX);
                chunks.push(std::mem::replace(&mut needs, rest));
            }
            chunks.push(needs);
            chunks.into_iter().map(move |needs| (entry.clone(), needs))
        });
        let answers = requests.map(|(entry, needs)| {
            let binding = catalog.binding(EntryKind::Cached, &entry, namespace);
            let view = binding.map(|binding| &binding.view);
            self.of_entry(view, entry, needs, deadline)
        });
        join_all(answers).await.into_iter().flatten().collect()
    }

    /// One request. An error of it is the answer to each of its queries.
    async fn of_entry(
        &self,
        view: Result<&ViewId, FactError>,
        entry: String,
        needs: Vec<FactRequest>,
        deadline: Instant,
    ) -> Vec<Fact> {
        let (ids, queries): (Vec<_>, Vec<_>) = needs.into_iter().map(split).unzip();
        let reply = match view {
            Ok(view) => self
                .ask(view, entry, queries, deadline)
                .await
                .map(|reply| (view, reply)),
            Err(error) => Err(error),
        };
        let (view, reply) = match reply {
            Ok(reply) => reply,
            Err(error) => {
                let failed = |id| Fact {
                    id,
                    answer: Err(error.clone()),
                    origin: None,
                };
                return ids.into_iter().map(failed).collect();
            }
        };
        let origin = Arc::new(Origin {
            view: view.clone(),
            replica: reply.replica,
            incarnation: reply.incarnation.0,
            revision: reply.revision.0,
            version: reply.version.0.into(),
            age_ms: reply.age_ms,
        });
        let fact = |(id, result): (u32, Result<Bytes, FactError>)| Fact {
            id,
            answer: result
                .and_then(|body| body::to_json(&body).map_err(|error| unreadable(&error))),
            origin: Some(Arc::clone(&origin)),
        };
        ids.into_iter().zip(reply.results).map(fact).collect()
    }

    /// Asks one view. The reply has as many results as there are queries.
    async fn ask(
        &self,
        view: &ViewId,
        entry: String,
        queries: Vec<Query>,
        deadline: Instant,
    ) -> Result<QueryReply, FactError> {
        let span = tracing::info_span!(
            "query",
            otel.kind = "client",
            otel.status_code = tracing::field::Empty,
            "rpc.system" = "anteroom",
            "messaging.destination.name" = %view,
            view = %view,
            entry,
            queries = queries.len(),
            attempts = tracing::field::Empty,
            replica = tracing::field::Empty,
            revision = tracing::field::Empty,
            age_ms = tracing::field::Empty,
            error = tracing::field::Empty,
        );
        let begun = Instant::now();
        let expected = queries.len();
        let (revision_min, revision_min_of) = self
            .floors
            .of(view)
            .map(|floor| (floor.revision, floor.incarnation))
            .unzip();
        let request = QueryRequest {
            entry,
            queries,
            age_max_ms: None,
            revision_min,
            revision_min_of,
            reply_key: None,
        };
        let outcome = self
            .attempt(view, &request, deadline)
            .instrument(span.clone())
            .await
            .and_then(|reply| match reply.results.len() {
                found if found == expected => {
                    self.floors.raise(view, &reply);
                    Ok(reply)
                }
                found => Err(FactError::RequestInvalid {
                    message: format!("the reply has {found} results for {expected} queries"),
                }),
            });
        record(&span, &outcome);
        let code = outcome.as_ref().err().map(FactError::code);
        self.metrics.query(code, begun.elapsed());
        outcome
    }

    async fn attempt(
        &self,
        view: &ViewId,
        request: &QueryRequest,
        deadline: Instant,
    ) -> Result<QueryReply, FactError> {
        let body = encode_request(request).map_err(|error| FactError::BudgetExceeded {
            message: error.to_string(),
        })?;
        let given_ms = millis(deadline.saturating_duration_since(Instant::now()));
        attempts::race(self.hedge, deadline, given_ms, || {
            self.metrics.attempt();
            self.send(view, body.clone(), deadline)
        })
        .await
    }

    /// One attempt.
    async fn send(
        &self,
        view: &ViewId,
        body: Bytes,
        deadline: Instant,
    ) -> Result<QueryReply, FactError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let trace = telemetry::current_trace().map(|(traceparent, tracestate)| TraceContext {
            traceparent,
            tracestate,
        });
        let call = Call {
            body,
            deadline: left,
            trace,
        };
        let to = Address::View(view.clone());
        match self.bus.request(&to, call, left).await {
            Ok(reply) => decode_outcome(&reply).map_err(|error| unreadable(&error))?,
            Err(RequestError::NoResponders) => Err(FactError::NoReplica {
                view: view.as_str().to_owned(),
            }),
            Err(RequestError::TimedOut { timeout_ms }) => Err(FactError::DeadlineExceeded {
                deadline_ms: timeout_ms,
            }),
            Err(error) => Err(FactError::BusUnavailable {
                message: error.to_string(),
            }),
        }
    }
}

fn split(need: FactRequest) -> (u32, Query) {
    let query = Query {
        expression: need.expression,
        parameters: need.parameters,
        missing_key_is_error: need.missing_key_is_error,
        selection: None,
    };
    (need.id, query)
}

fn unreadable(error: &anteroom_wire::WireError) -> FactError {
    FactError::RequestInvalid {
        message: format!("the replica's reply cannot be read: {error}"),
    }
}

fn record(span: &Span, outcome: &Result<QueryReply, FactError>) {
    match outcome {
        Ok(reply) => {
            span.record("replica", &reply.replica);
            span.record("revision", reply.revision.0);
            span.record("age_ms", reply.age_ms);
        }
        Err(error) => {
            span.record("otel.status_code", "ERROR");
            span.record("error", format!("{} {error}", error.code()));
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
