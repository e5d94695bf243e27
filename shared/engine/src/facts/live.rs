//! Asking a watcher for what no view answers.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Address, Bus, RequestError};
use anteroom_model::FactError;
use anteroom_wire::live::{LiveCall, LiveReply, LiveRequest, decode_outcome, encode_request};
use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{Instrument as _, field::Empty};

use super::{
    attempts,
    decode::Decoder,
    message::{call, millis, too_large, unreadable, value},
    origin::Origin,
    route::LiveRead,
    seal::Seal,
};
use crate::{recorder::SharedRecorder, rule::Reader};

/// Asks watchers. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Live {
    bus: Arc<dyn Bus>,
    recorder: SharedRecorder,
    /// No read is asked for a second time before this.
    hedge_min: Duration,
    of_scans: bool,
    decoder: Decoder,
}

impl Live {
    pub(super) fn new(bus: Arc<dyn Bus>, recorder: SharedRecorder, hedge_min: Duration) -> Self {
        Self {
            bus,
            recorder,
            hedge_min,
            of_scans: false,
            decoder: Decoder::default(),
        }
    }

    /// For scans: what it reads leaves room for others.
    pub(super) fn for_scans(mut self) -> Self {
        self.of_scans = true;
        self
    }

    /// Makes a live read for a context entry of a policy.
    pub(super) async fn read(
        &self,
        reader: &Reader,
        variable: &str,
        live: LiveRead,
        deadline: Instant,
    ) -> Result<(Value, Origin), FactError> {
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
        // Only the watcher knows whether Secrets are read.
        let is_open = matches!(
            live.call,
            LiveCall::ConfigMap { .. } | LiveCall::Existing { .. } | LiveCall::Write { .. }
        );
        let seal = Seal::of(!is_open)?;
        let read = self
            .attempt(reader, variable, live, &seal, deadline)
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
        let LiveReply { result, sealed, .. } = reply;
        let bytes = result.len();
        let read = move || value(&seal.open(result, sealed)?);
        Ok((self.decoder.run(bytes, deadline, read).await?, origin))
    }

    async fn attempt(
        &self,
        reader: &Reader,
        variable: &str,
        live: LiveRead,
        seal: &Seal,
        deadline: Instant,
    ) -> Result<LiveReply, FactError> {
        let changes_nothing = changes_nothing(&live.call);
        let request = LiveRequest {
            policy: reader.policy.clone(),
            rule: reader.rule.clone(),
            variable: variable.to_owned(),
            call: live.call,
            query: live.query,
            reply_key: seal.public(),
            of_scan: self.of_scans,
        };
        let to = match &request.call {
            LiveCall::Write { .. } => Address::Write,
            _ => Address::Live,
        };
        let body = encode_request(&request).map_err(|error| too_large(&error))?;
        let left = deadline.saturating_duration_since(Instant::now());
        // A watcher that dies must not take the whole of the time with it; one that is slow is waited
        // for, since asking another one doubles what the API server has to do.
        let hedge = match changes_nothing {
            true => (left / 4).max(self.hedge_min),
            false => left,
        };
        attempts::race(hedge, deadline, millis(left), || {
            self.send(&to, body.clone(), deadline)
        })
        .await
    }

    async fn send(
        &self,
        to: &Address,
        body: Bytes,
        deadline: Instant,
    ) -> Result<LiveReply, FactError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let asked = self.bus.request(to, call(body, left), left);
        match asked.await {
            Ok(reply) => decode_outcome(&reply).map_err(|error| unreadable(&error))?,
            Err(RequestError::NoResponders) => Err(FactError::NoWatcher),
            Err(RequestError::TimedOut { timeout_ms }) => Err(FactError::DeadlineExceeded {
                deadline_ms: timeout_ms,
            }),
            Err(RequestError::Bus(error)) => Err(FactError::BusUnavailable {
                message: error.to_string(),
            }),
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
