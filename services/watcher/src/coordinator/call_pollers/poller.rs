//! Makes a call at its intervals, and hands its answers to the writer of the log.

use std::{sync::Arc, time::Duration};

use anteroom_model::{Failure, ObjectKey, ResourceVersion, Source};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{Instrument as _, field::Empty};

use super::schedule::{CallOutcome, Report, Schedule};
use crate::{
    gateway::calls::{CALL_TIMEOUT, CallFault, CallSpec, Caller, Reply, Validators, encode},
    log_writer::publish::{ChangeOrigin, Publisher, WriteHandle, WriteQueue},
    source::{metrics::WatchMetrics, reflect::content_version},
};

/// The interval at which it is looked whether the log has room again.
const ROOM_INTERVAL: Duration = Duration::from_secs(2);

/// The task that makes one call again and again.
pub(super) struct Poller {
    pub(super) caller: Caller,
    pub(super) publisher: Publisher,
    pub(super) metrics: WatchMetrics,
    pub(super) spec: Arc<CallSpec>,
    pub(super) handle: WriteHandle,
    /// The version that an earlier term wrote, until this term has announced the version.
    pub(super) inherited: Option<ResourceVersion>,
    /// The time at which the inherited version was good, once readers report it.
    pub(super) good_at: watch::Receiver<Option<Instant>>,
}

/// The last answer as the log has it.
#[derive(Default)]
struct Last {
    version: Option<ResourceVersion>,
    validators: Validators,
}

impl Poller {
    pub(super) async fn run(mut self) {
        let mut last = Last::default();
        let mut schedule = match self.inherited {
            Some(_) => Schedule::with_data(Instant::now()),
            None => Schedule::default(),
        };
        loop {
            let span = tracing::info_span!(
                "API call",
                otel.kind = "client",
                otel.status_code = Empty,
                view = %self.handle.view,
                url = self.spec.shown(),
                changed = Empty,
                error = Empty,
            );
            let outcome = self.poll(&mut last).instrument(span.clone()).await;
            if let CallOutcome::Failed(failure) = &outcome {
                span.record("otel.status_code", "ERROR");
                span.record("error", failure.reason.as_str());
            }
            // Afterwards readers only repeat what they have from here.
            if self.inherited.is_some()
                && let Some(good) = *self.good_at.borrow()
            {
                schedule.report_good_at(good);
            }
            let next = schedule.step(&self.spec, outcome, Instant::now(), rand::random());
            span.in_scope(|| self.report(next.report, &last));
            tokio::select! {
                () = tokio::time::sleep(next.wait) => {}
                () = self.room_again() => self.write_again(&mut last),
            }
        }
    }

    /// Returns once the view was suspended, for want of room in the log, and there is room again.
    async fn room_again(&self) {
        let mut interval = tokio::time::interval(ROOM_INTERVAL);
        let view = Some(&self.handle.view);
        let returns = |queue: &WriteQueue| queue.next_to_resume(Instant::now()).as_ref() == view;
        interval.tick().await; // At once.
        while !self.publisher.read(returns) {
            interval.tick().await;
        }
    }

    /// The next call brings all of the view.
    fn write_again(&mut self, last: &mut Last) {
        *last = Last::default();
        let handle = &mut self.handle;
        self.publisher.with(|queue| {
            queue.resume_after_full(&handle.view, Instant::now());
            queue.reread(handle);
        });
    }

    async fn poll(&self, last: &mut Last) -> CallOutcome {
        self.publisher.wait_for_room().await;
        match self.call(last).await {
            Ok(()) => {
                self.metrics.listed();
                CallOutcome::Answered
            }
            Err(fault) => {
                self.metrics.error(fault.label());
                CallOutcome::Failed(fault.failure(self.spec.method(), &self.spec.shown()))
            }
        }
    }

    async fn call(&self, last: &mut Last) -> Result<(), CallFault> {
        let CallSpec { target, data, .. } = &*self.spec;
        // What was posted may have changed something: it is always read anew.
        let none = Validators::default();
        let known = match (&last.version, data) {
            (Some(_), None) => &last.validators,
            _ => &none,
        };
        let made = self
            .caller
            .make(target, data.as_ref(), known, CALL_TIMEOUT)
            .await;
        let Reply::Json(json, validators) = made? else {
            return Ok(());
        };
        let body = encode(&json)?;
        let version = content_version(&body);
        let changed = last.version.as_ref() != Some(&version);
        let span = tracing::Span::current();
        span.record("changed", changed);
        if changed {
            let (handle, now) = (&self.handle, Instant::now());
            self.publisher.with(|queue| {
                if !queue.is_known(handle, &key(), &version) {
                    let origin = ChangeOrigin::Event(span);
                    queue.put(handle, key(), version.clone(), body, now, origin);
                }
            });
        }
        *last = Last {
            version: Some(version),
            validators,
        };
        Ok(())
    }

    fn report(&mut self, report: Report, last: &Last) {
        match report {
            Report::Good => {
                self.inherited = None;
                if let Some(version) = &last.version {
                    self.holds(version, Instant::now());
                }
            }
            Report::Old(failure, good) => {
                self.log_failure(&failure);
                if let Some(version) = self.inherited.take() {
                    tracing::info!(
                        view = %self.handle.view,
                        "response of an earlier term served until a call succeeds"
                    );
                    self.holds(&version, good);
                }
                self.publisher
                    .with(|queue| queue.troubled(&self.handle, failure));
            }
            Report::Troubled(failure) => {
                self.log_failure(&failure);
                self.publisher
                    .with(|queue| queue.troubled(&self.handle, failure));
            }
            Report::Failed(failure) => {
                self.log_failure(&failure);
                self.publisher
                    .with(|queue| queue.refused(&self.handle, failure));
            }
        }
    }

    /// Notes that the log has, or is about to have, all that the view was at this moment.
    fn holds(&mut self, version: &ResourceVersion, at: Instant) {
        let handle = &mut self.handle;
        self.publisher.with(|queue| {
            // As a list of one object, which is known by now.
            queue.begin_list(handle);
            queue.touch(handle, &key());
            queue.listed(handle, version, at);
        });
    }

    fn log_failure(&self, failure: &Failure) {
        tracing::warn!(
            view = %self.handle.view,
            %failure,
            "API call failed: tried again; check the entry's URL and its service"
        );
    }
}

/// Returns the key of the view's one object.
pub(super) fn key() -> ObjectKey {
    ObjectKey::new("", Source::RESPONSE)
}
