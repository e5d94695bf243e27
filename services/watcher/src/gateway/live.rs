//! Live reads: data that no view has, read from their source when a rule needs them. Any watcher makes them, leader
//! or not.
//!
//! Writes have an address of their own, so that NATS can limit who may ask for them.
//!
//! A caller can read nothing that no policy reads. A request names policy, rule and context entry, and the watcher
//! makes only calls that this entry can make ([`policies`]).
//!
//! | limit | of what |
//! |---|---|
//! | one read at a time | equal reads under way: they share one read ([`shared_reads`]) |
//! | rate | reads that begin in a second ([`bucket`]) |
//! | number, size, time | reads; scans have limits of their own ([`limits`]) |
//! | number, bytes | requests before anybody knows whom they are for ([`arrivals`]) |
//! | memory, by turns of the namespaces ([`memory_turns`]) | answers that take much once they are parsed ([`large_answers`]), requests that do once they are decoded ([`large_requests`]) |
//! | two at once, by turns of the namespaces | long evaluations ([`evaluate`]) |
//! | a while | the only data kept: metadata of images ([`crate::gateway::images`]) |

mod allowed;
mod args;
mod arrivals;
mod bucket;
mod encoded_request;
mod evaluate;
mod faults;
mod large_answers;
mod large_requests;
mod limits;
mod memory_turns;
mod metrics;
mod mutate_existing;
mod policies;
mod reader;
mod shared_reads;

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Address, Bus, BusError, Incoming, Serving};
use anteroom_mirror::{Mirror, MirrorMetrics};
use anteroom_model::{FactError, ObjectKey, system};
use anteroom_runtime::{Check, telemetry};
use anteroom_seal::Keys;
use anteroom_wire::live;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, field::Empty};

use crate::gateway::calls::Caller;

pub use args::LiveArgs;
use arrivals::{Arrivals, UnreadBytes};
pub(crate) use metrics::LiveMetrics;
use reader::LiveReader;

/// The time after which a lost subscription is tried again.
const JOIN_RETRY: Duration = Duration::from_millis(500);

/// Returns true if an administrator allows something to the policy that has this key.
pub(crate) type AllowsPolicy = dyn Fn(&ObjectKey) -> bool + Send + Sync;

/// The parts that live reads work with.
#[derive(Clone)]
pub(crate) struct LiveTools {
    /// The bus that brings requests.
    pub bus: Arc<dyn Bus>,
    /// Makes the reads.
    pub caller: Caller,
    /// Metrics of reads.
    pub metrics: LiveMetrics,
    /// Metrics of its mirror of the policies.
    pub mirrored: MirrorMetrics,
    /// The name of this watcher, for people.
    pub watcher: String,
    /// The limits.
    pub args: LiveArgs,
    /// The policies that may read Secrets.
    pub may_read_secrets: Arc<AllowsPolicy>,
    /// The policies that may change existing objects.
    pub may_write: Arc<AllowsPolicy>,
    /// The keys that Secrets are asked for with.
    pub asker_keys: Keys,
}

/// The checks that say whether calls are taken: who waits for a watcher to be ready may ask it then.
pub(crate) struct LiveChecks {
    pub reads: Check,
    pub writes: Check,
}

/// Serves live reads and writes until `stop` is cancelled. It subscribes once the policies were read: a watcher
/// without policies would refuse valid requests.
pub(crate) async fn serve(tools: LiveTools, checks: LiveChecks, stop: CancellationToken) {
    let bus = Arc::clone(&tools.bus);
    let mirror = Arc::new(policies::mirror(
        Arc::clone(&bus),
        tools.mirrored.clone(),
        &stop,
    ));
    let reader = Arc::new(LiveReader::new(tools, Arc::clone(&mirror)));
    reader.images().tell_files().await;
    let requests = Arrivals::default();
    let at = async |address: Address, check: Check| {
        while wait_for_policies(&mirror, &stop).await {
            match bus.serve(&address).await {
                Ok(mut serving) => {
                    check.ready();
                    take(&reader, &address, &mut serving, &requests, &stop).await;
                    check.not_ready("the subscription, which was lost");
                }
                Err(error) => waits(&error, &stop).await,
            }
        }
    };
    let LiveChecks { reads, writes } = checks;
    tokio::join!(at(Address::Live, reads), at(Address::Write, writes));
    requests.tasks.close();
    requests.tasks.wait().await;
}

/// Waits until the policies were read once; returns false if `stop` came first. Their age does not matter: a watcher
/// may serve while no watcher leads.
async fn wait_for_policies(mirror: &Mirror, stop: &CancellationToken) -> bool {
    let known = async {
        let mut views = mirror.views();
        loop {
            let policies = views.borrow_and_update().get(&system::policies()).cloned();
            let mut status = policies.map(|view| view.status());
            if policies::are_known(mirror) {
                return;
            }
            let moved = async {
                let moved = match &mut status {
                    Some(status) => status.changed().await.is_ok(),
                    None => false,
                };
                // Without it, or once it is gone, the set of views changes.
                if !moved {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                Ok(()) = views.changed() => {}
                () = moved => {}
            }
        }
    };
    stop.run_until_cancelled(known).await.is_some()
}

async fn waits(error: &BusError, stop: &CancellationToken) {
    tracing::warn!(
        %error,
        "address of live reads or writes not subscribed: tried again; check NATS if this repeats"
    );
    stop.run_until_cancelled(tokio::time::sleep(JOIN_RETRY))
        .await;
}

/// Answers requests until the subscription ends.
async fn take(
    reader: &Arc<LiveReader>,
    address: &Address,
    serving: &mut Serving,
    requests: &Arrivals,
    stop: &CancellationToken,
) {
    let mut leaving = false;
    loop {
        let incoming = tokio::select! {
            incoming = serving.next() => incoming,
            () = stop.cancelled(), if !leaving => {
                // Those on their way are still answered.
                leaving = true;
                serving.drain();
                continue;
            }
        };
        match incoming {
            None if leaving => return,
            None => {
                stop.run_until_cancelled(tokio::time::sleep(JOIN_RETRY))
                    .await;
                return;
            }
            Some(Err(error)) => {
                tracing::warn!(
                    %error,
                    "request for a live read not decoded: refused; check that all services have the same version"
                );
            }
            Some(Ok(mut incoming)) => {
                let unread = requests.admit(incoming.call.body.len());
                if unread.is_err() {
                    incoming.call.body = Bytes::new();
                }
                let span = span(&incoming);
                let reader = Arc::clone(reader);
                let at = address.clone();
                let answering = answer(reader, at, incoming, unread);
                requests.tasks.spawn(answering.instrument(span));
            }
        }
    }
}

async fn answer(
    reader: Arc<LiveReader>,
    at: Address,
    incoming: Incoming,
    unread: Result<UnreadBytes, String>,
) {
    let body = match unread {
        Ok(unread) => reader.answer(&at, &incoming.call, unread).await,
        Err(message) => {
            let busy = Err(limits::busy(&message, false));
            live::encode_outcome(&busy).unwrap_or_default()
        }
    };
    if let Err(error) = incoming.answer(body).await {
        tracing::debug!(%error, "answer of a live read not sent");
    }
}

/// A read that was not made, or brought nothing: without a status code.
fn failed(message: impl Into<String>) -> FactError {
    FactError::LiveReadFailed {
        code: 0,
        message: message.into(),
    }
}

/// The span of a live read, as a child of the caller's span.
fn span(incoming: &Incoming) -> tracing::Span {
    let span = tracing::info_span!(
        "live read",
        otel.kind = "server",
        policy = Empty,
        rule = Empty,
        variable = Empty,
        shared = Empty,
        age_ms = Empty,
        error = Empty,
    );
    if let Some(trace) = &incoming.call.trace {
        telemetry::set_parent(&span, &trace.traceparent, &trace.tracestate);
    }
    span
}

#[cfg(test)]
mod tests;
