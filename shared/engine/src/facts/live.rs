//! Asks a watcher for facts that no view has.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anteroom_bus::{Address, Bus, RequestError};
use anteroom_model::FactError;
use anteroom_seal::{AskedOf, Keys};
use anteroom_wire::live::{LiveCall, LiveReply, LiveRequest, decode_outcome, encode_request};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{Instrument as _, field::Empty};

use super::{
    attempts::{self, LaterAttempts},
    decode::{DecodedResults, Decoder},
    memory::{FactHolder, FactMemory, FactPermit},
    message::{call, millis, reply_error, request_error, review_number, too_large},
    origin::Origin,
    outages::{Outages, PATIENCE_DEFAULT},
    route::LiveRead,
    seal::Question,
};
use crate::{recorder::SharedRecorder, rule::RuleRef};

/// Asks watchers. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Live {
    bus: Arc<dyn Bus>,
    recorder: SharedRecorder,
    /// No read is asked for a second time before this.
    hedge_min: Duration,
    later: Arc<LaterAttempts>,
    of_scans: bool,
    asker_keys: Keys,
    decoder: Decoder,
    /// The outages of all watchers together.
    outages: Outages<()>,
}

/// The answer of a live read.
#[derive(Debug)]
pub(super) struct LiveAnswer {
    pub(super) value: Value,
    /// The memory of the value; `None`: it is small, or was not counted.
    pub(super) memory: Option<FactPermit>,
    pub(super) origin: Origin,
}

impl Live {
    pub(super) fn new(
        bus: Arc<dyn Bus>,
        recorder: SharedRecorder,
        hedge_min: Duration,
        asker_keys: Keys,
        memory: FactMemory,
    ) -> Self {
        Self {
            bus,
            recorder,
            hedge_min,
            later: Arc::default(),
            of_scans: false,
            asker_keys,
            decoder: Decoder::new(memory),
            outages: Outages::new(PATIENCE_DEFAULT),
        }
    }

    /// Marks the reads as reads of scans, which leave room for admission requests.
    pub(super) fn for_scans(mut self) -> Self {
        self.of_scans = true;
        self
    }

    /// Sets the memory that answers are read into.
    pub(super) fn with_memory(mut self, memory: FactMemory) -> Self {
        self.decoder = Decoder::new(memory);
        self
    }

    /// Sets the time for which requests wait for a watcher, from the begin of an outage on.
    pub(super) fn with_patience(mut self, patience: Duration) -> Self {
        self.outages = Outages::new(patience);
        self
    }

    /// Makes a live read for a part of a policy that is about no single request. Its answer takes no memory of facts.
    pub(super) async fn read(
        &self,
        reader: &RuleRef,
        variable: &str,
        live: LiveRead,
        deadline: Instant,
    ) -> Result<(Value, Origin), FactError> {
        let read = self.read_for("", None, reader, variable, live, deadline);
        let answer = read.await?;
        Ok((answer.value, answer.origin))
    }

    /// Makes a live read for a context entry of a policy, about a request in this namespace (empty: of the cluster). The
    /// answer takes memory of `holder`, if there is one.
    pub(super) async fn read_for(
        &self,
        review_namespace: &str,
        holder: Option<&FactHolder>,
        reader: &RuleRef,
        variable: &str,
        live: LiveRead,
        deadline: Instant,
    ) -> Result<LiveAnswer, FactError> {
        let span = tracing::info_span!(
            "live read",
            otel.kind = "client",
            otel.status_code = Empty,
            "rpc.system" = "anteroom",
            policy = %reader.policy,
            rule = reader.rule,
            variable,
            watcher = Empty,
            age_ms = Empty,
            error = Empty,
        );
        let begun = Instant::now();
        let to = match &live.call {
            LiveCall::Write { .. } => Address::Write,
            _ => Address::Live,
        };
        let changes_nothing = changes_nothing(&live.call);
        let review = (review_namespace, review_number(deadline));
        let question = self.question(review, reader, variable, live)?;
        let read = self
            .patiently(&to, &question, changes_nothing, deadline)
            .instrument(span.clone())
            .await;
        match &read {
            Ok(reply) => {
                span.record("watcher", &reply.watcher);
                span.record("age_ms", reply.age_ms);
            }
            Err(error) => {
                span.record("otel.status_code", "ERROR");
                span.record("error", error.code().as_str());
            }
        }
        let code = read.as_ref().err().map(FactError::code);
        self.recorder.live_read(code, begun.elapsed());
        let reply = read?;
        let origin = Origin::live(&reply);
        let results = vec![Ok(reply.result)];
        let decoded = self.decoder.results(results, holder, deadline).await?;
        let DecodedResults { values, memory } = decoded;
        let value = values.into_iter().next().unwrap_or_else(|| {
            let message = "the reply has no result".to_owned();
            Err(FactError::RequestInvalid { message })
        })?;
        Ok(LiveAnswer {
            value,
            memory,
            origin,
        })
    }

    /// Returns the question as it travels: sealed if it may be about Secrets, or writes values that were read from
    /// them. Only the watcher knows whether a read is about Secrets. So without a key the question travels in the
    /// clear, and the watcher refuses it if it is about Secrets.
    fn question(
        &self,
        (review_namespace, review): (&str, u64),
        reader: &RuleRef,
        variable: &str,
        live: LiveRead,
    ) -> Result<Question, FactError> {
        let is_open = matches!(
            live.call,
            LiveCall::ConfigMap { .. } | LiveCall::Existing { .. }
        );
        let request = LiveRequest {
            policy: reader.policy.clone(),
            rule: reader.rule.clone(),
            variable: variable.to_owned(),
            call: live.call,
            query: live.query,
            review_namespace: review_namespace.to_owned(),
            review,
            of_scan: self.of_scans,
        };
        let body = encode_request(&request).map_err(|error| too_large(&error))?;
        match !is_open && self.asker_keys.are_there() {
            true => Question::sealed(&self.asker_keys, AskedOf::Live, &body),
            false => Ok(Question::open(body)),
        }
    }

    /// Asks again while no watcher can be asked. A request that changes something and may have arrived is not
    /// repeated; one that never left is.
    async fn patiently(
        &self,
        to: &Address,
        question: &Question,
        changes_nothing: bool,
        deadline: Instant,
    ) -> Result<LiveReply, FactError> {
        let may_have_arrived = AtomicBool::new(false);
        loop {
            if let Some(error) = self.outages.refusal(&()) {
                return Err(error);
            }
            let asked = self.attempt(to, question, changes_nothing, deadline, &may_have_arrived);
            let error = match asked.await {
                Err(error @ FactError::NoWatcher) => error,
                Err(error @ FactError::BusUnavailable { .. })
                    if changes_nothing || !may_have_arrived.load(Ordering::Relaxed) =>
                {
                    error
                }
                asked => {
                    if asked
                        .as_ref()
                        .err()
                        .is_none_or(|error| !error.class().retry.is_outage())
                    {
                        self.outages.answered(&());
                    }
                    return asked;
                }
            };
            // There is one outage at most, which is everybody's.
            if !self.outages.wait(&(), "", &error, deadline).await {
                return Err(error);
            }
        }
    }

    async fn attempt(
        &self,
        to: &Address,
        question: &Question,
        changes_nothing: bool,
        deadline: Instant,
        may_have_arrived: &AtomicBool,
    ) -> Result<LiveReply, FactError> {
        let remaining = deadline.saturating_duration_since(Instant::now());
        // A watcher that dies must not take the whole of the time with it; one that is slow is waited
        // for, since asking another one doubles what the API server has to do.
        let hedge = match changes_nothing {
            true => (remaining / 4).max(self.hedge_min),
            false => remaining,
        };
        attempts::race(hedge, &self.later, deadline, millis(remaining), || {
            self.send(to, question, deadline, may_have_arrived)
        })
        .await
    }

    /// Makes one attempt. Notes if the connection was lost before an answer came.
    async fn send(
        &self,
        to: &Address,
        question: &Question,
        deadline: Instant,
        may_have_arrived: &AtomicBool,
    ) -> Result<LiveReply, FactError> {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let call = call(question.body.clone(), remaining);
        match self.bus.request(to, call, remaining).await {
            Ok(reply) => {
                let is_refusal = |reply: &[u8]| {
                    matches!(
                        decode_outcome(reply),
                        Ok(Err(FactError::AskerUnknown { .. }))
                    )
                };
                let reply = question.answer(reply, is_refusal)?;
                decode_outcome(&reply).map_err(|error| reply_error(&error))?
            }
            Err(error) => {
                if matches!(error, RequestError::Bus(_)) {
                    may_have_arrived.store(true, Ordering::Relaxed);
                }
                Err(request_error(error, FactError::NoWatcher))
            }
        }
    }
}

/// Returns whether it may be asked twice.
fn changes_nothing(call: &LiveCall) -> bool {
    match call {
        LiveCall::Api { data, .. } | LiveCall::Service { data, .. } => data.is_none(),
        LiveCall::ConfigMap { .. }
        | LiveCall::Image { .. }
        | LiveCall::Existing { .. }
        | LiveCall::MayWrite { .. } => true,
        LiveCall::Write { .. } => false,
    }
}
