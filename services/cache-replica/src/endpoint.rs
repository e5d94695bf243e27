//! The endpoint of one view: the addresses at which its calls arrive.
//!
//! An endpoint that is subscribed to the view's own address is ready. It subscribes once the view is complete and
//! fresh (or has an error of its source to return), and leaves by draining: calls on their way are answered.
//!
//! The endpoint is subscribed to the view's other address ([`Address::Fallback`]) as long as the view is known,
//! whatever its state.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Address, Bus, BusError, Incoming, Serving};
use anteroom_mirror::{ViewHandle, ViewStatus};
use anteroom_runtime::{Check, telemetry};
use anteroom_view::LifeState;
use anteroom_wire::WireError;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use crate::{answer::Answerer, memory::ViewUsage, metrics::QueryMetrics};

/// The wait before an address is subscribed to again, after the bus refused or ended the subscription.
const JOIN_RETRY: Duration = Duration::from_millis(500);

/// The endpoint of one view.
pub(crate) struct ViewEndpoint {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) replica: String,
    pub(crate) view: ViewHandle,
    pub(crate) answerer: Arc<Answerer>,
    pub(crate) usage: Arc<ViewUsage>,
    pub(crate) metrics: QueryMetrics,
    /// Part of the replica's readiness: it is ready while calls to the view arrive here.
    pub(crate) check: Check,
}

/// The reason why an endpoint left the view's address.
enum Closed {
    /// The view serves no more, or the replica stops.
    Drained,
    /// The bus ended it.
    Ended,
}

impl ViewEndpoint {
    /// Serves whenever the view does, and at the fallback address all the while, until `stop`. Then it
    /// drains, and returns once every call has been answered.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let calls = TaskTracker::new();
        tokio::join!(
            self.serve_while_ready(&stop, &calls),
            self.serve_fallback(&stop, &calls)
        );
        calls.close();
        calls.wait().await;
    }

    /// Serves at the fallback address. Callers use it when no replica answers at the view's own address. The answer
    /// there is the reason, or the result over old data for callers that accept their age.
    async fn serve_fallback(&self, stop: &CancellationToken, calls: &TaskTracker) {
        let at = Address::Fallback(self.view.id().clone());
        while !stop.is_cancelled() {
            match stop.run_until_cancelled(self.bus.serve(&at)).await {
                Some(Ok(serving)) => self.take_all(serving, stop, calls).await,
                Some(Err(error)) => {
                    tracing::debug!(view = %self.view.id(), %error,
                        "fallback address of the view not subscribed: tried again in 0.5 s");
                }
                None => return,
            }
            pause(stop).await;
        }
    }

    /// Answers every call of a subscription until the subscription ends, which it does by draining after `stop`.
    async fn take_all(&self, mut serving: Serving, stop: &CancellationToken, calls: &TaskTracker) {
        let mut draining = false;
        loop {
            tokio::select! {
                call = serving.next() => match call {
                    Some(call) => self.take(call, calls),
                    None => return,
                },
                () = stop.cancelled(), if !draining => {
                    draining = true;
                    serving.drain();
                }
            }
        }
    }

    async fn serve_while_ready(&self, stop: &CancellationToken, calls: &TaskTracker) {
        let mut status = self.view.status();
        while self.until_serving(&mut status, stop).await {
            match self.open().await {
                Err(error) => {
                    let reason = format!("its address on the bus: {error}");
                    self.check.not_ready(reason);
                    pause(stop).await;
                }
                Ok(subscriptions) => {
                    self.check.ready();
                    tracing::debug!(view = %self.view.id(), "view served");
                    let closed = self.serve(subscriptions, stop, calls).await;
                    if stop.is_cancelled() {
                        break; // Nobody waits for it to come back.
                    }
                    self.check.not_ready("its address on the bus");
                    if matches!(closed, Closed::Ended) {
                        pause(stop).await;
                    }
                }
            }
        }
    }

    /// Waits until the view serves; false once asked to stop.
    async fn until_serving(
        &self,
        status: &mut watch::Receiver<ViewStatus>,
        stop: &CancellationToken,
    ) -> bool {
        let serving = async {
            loop {
                let now = status.borrow_and_update().clone();
                if now.serves() {
                    return true;
                }
                match now.state {
                    // The fallback address tells that. Calls to other views may still come here.
                    LifeState::Evicted => self.check.ready(),
                    state => {
                        let reason = format!("the view, which is {}", state.name());
                        self.check.not_ready(reason);
                    }
                }
                if status.changed().await.is_err() {
                    return false;
                }
            }
        };
        stop.run_until_cancelled(serving).await.unwrap_or(false)
    }

    async fn open(&self) -> Result<[Serving; 2], BusError> {
        let view = self.view.id().clone();
        let replica = self.replica.clone();
        let own = Address::Replica {
            replica,
            view: view.clone(),
        };
        let own = self.bus.serve(&own).await?;
        let shared = self.bus.serve(&Address::View(view)).await?;
        Ok([shared, own])
    }

    async fn serve(
        &self,
        mut subscriptions: [Serving; 2],
        stop: &CancellationToken,
        calls: &TaskTracker,
    ) -> Closed {
        let mut serving = self.view.serving();
        let mut draining = false;
        loop {
            let [shared, own] = &mut subscriptions;
            let call = tokio::select! {
                call = shared.next() => call,
                call = own.next() => call,
                () = until_leaving(&mut serving, stop), if !draining => {
                    draining = true;
                    subscriptions.iter().for_each(Serving::drain);
                    continue;
                }
            };
            match call {
                Some(call) => self.take(call, calls),
                None => break,
            }
        }
        // One subscription has ended; messages on their way to the remaining subscription still arrive.
        for mut subscription in subscriptions {
            subscription.drain();
            while let Some(call) = subscription.next().await {
                self.take(call, calls);
            }
        }
        if draining {
            Closed::Drained
        } else {
            Closed::Ended
        }
    }

    fn take(&self, call: Result<Incoming, WireError>, calls: &TaskTracker) {
        let incoming = match call {
            Ok(incoming) => incoming,
            Err(error) => {
                self.metrics.count_unreadable();
                tracing::warn!(
                    view = %self.view.id(),
                    %error,
                    "query dropped: its envelope cannot be decoded; check that all services have the same version"
                );
                return;
            }
        };
        let span = query_span(&self.view, &incoming);
        let (answerer, view) = (Arc::clone(&self.answerer), self.view.clone());
        let usage = Arc::clone(&self.usage);
        let answering = async move {
            let body = answerer.answer(&view, &usage, &incoming.call).await;
            if let Err(error) = incoming.answer(body).await {
                tracing::warn!(
                    view = %view.id(),
                    %error,
                    "reply not sent: the caller runs into its deadline; check NATS if this repeats"
                );
            }
        };
        calls.spawn(answering.instrument(span));
    }
}

/// Waits until the view serves no more, or the replica stops.
async fn until_leaving(serving: &mut watch::Receiver<bool>, stop: &CancellationToken) {
    tokio::select! {
        _ = serving.wait_for(|serves| !serves) => {}
        () = stop.cancelled() => {}
    }
}

async fn pause(stop: &CancellationToken) {
    stop.run_until_cancelled(tokio::time::sleep(JOIN_RETRY))
        .await;
}

/// The span of a request, as a child of the caller's span.
fn query_span(view: &ViewHandle, incoming: &Incoming) -> tracing::Span {
    use tracing::field::Empty;
    let span = tracing::info_span!(
        "query",
        otel.kind = "server",
        view = view.id().as_str(),
        entry = Empty,
        queries = Empty,
        revision = Empty,
        age_ms = Empty,
        objects = Empty,
        error = Empty,
    );
    if let Some(trace) = &incoming.call.trace {
        telemetry::set_parent(&span, &trace.traceparent, &trace.tracestate);
    }
    span
}
