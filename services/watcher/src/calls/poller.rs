//! Makes one call at its intervals, and hands what it brings to the writer of the log.

use std::{sync::Arc, time::Instant};

use anteroom_model::{Failure, ObjectKey, ResourceVersion, Source};
use tokio::sync::watch;
use tracing::{Instrument as _, field::Empty};

use super::{
    CALL_TIMEOUT, CallFault, CallSpec, Caller, Reply, Validators,
    caller::encode,
    machine::{Outcome, Polls, Tell},
};
use crate::{
    metrics::WatchMetrics,
    publish::{Publisher, Tenure},
    reflect::content_version,
};

/// One call that is made for ever.
pub(super) struct Poller {
    pub(super) caller: Caller,
    pub(super) publisher: Publisher,
    pub(super) metrics: WatchMetrics,
    pub(super) spec: Arc<CallSpec>,
    pub(super) tenure: Tenure,
    /// What an earlier term left in the log, until it is told of in this one.
    pub(super) left: Option<ResourceVersion>,
    /// When that was good, once readers say so.
    pub(super) was_good: watch::Receiver<Option<Instant>>,
}

/// What the log has of the last answer.
#[derive(Default)]
struct Last {
    version: Option<ResourceVersion>,
    validators: Validators,
}

impl Poller {
    pub(super) async fn run(mut self) {
        let mut last = Last::default();
        let mut polls = match self.left {
            Some(_) => Polls::with_data(Instant::now()),
            None => Polls::default(),
        };
        loop {
            let span = tracing::info_span!(
                "API call",
                otel.kind = "client",
                otel.status_code = Empty,
                view = %self.tenure.view,
                url = self.spec.shown(),
                changed = Empty,
                error = Empty,
            );
            let outcome = self.poll(&mut last).instrument(span.clone()).await;
            if let Outcome::Failed(failure) = &outcome {
                span.record("otel.status_code", "ERROR");
                span.record("error", failure.reason.as_str());
            }
            // Afterwards readers only repeat what they have from here.
            if self.left.is_some()
                && let Some(good) = *self.was_good.borrow()
            {
                polls.was_good(good);
            }
            let next = polls.step(&self.spec, outcome, Instant::now(), rand::random());
            span.in_scope(|| self.tell(next.tell, &last));
            tokio::time::sleep(next.wait).await;
        }
    }

    async fn poll(&self, last: &mut Last) -> Outcome {
        self.publisher.room().await;
        match self.call(last).await {
            Ok(()) => {
                self.metrics.listed();
                Outcome::Answered
            }
            Err(fault) => {
                self.metrics.error(fault.label());
                Outcome::Failed(fault.failure(self.spec.method(), &self.spec.shown()))
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
            let (tenure, now) = (&self.tenure, Instant::now());
            self.publisher.with(|book| {
                if !book.is_known(tenure, &key(), &version) {
                    book.put(tenure, key(), version.clone(), body, now, span);
                }
            });
        }
        *last = Last {
            version: Some(version),
            validators,
        };
        Ok(())
    }

    fn tell(&mut self, tell: Tell, last: &Last) {
        match tell {
            Tell::Good => {
                self.left = None;
                if let Some(version) = &last.version {
                    self.holds(version, Instant::now());
                }
            }
            Tell::Old(failure, good) => {
                self.say(&failure);
                if let Some(version) = self.left.take() {
                    tracing::info!(view = %self.tenure.view, "what an earlier term read is served");
                    self.holds(&version, good);
                }
                self.publisher
                    .with(|book| book.troubled(&self.tenure, failure));
            }
            Tell::Troubled(failure) => {
                self.say(&failure);
                self.publisher
                    .with(|book| book.troubled(&self.tenure, failure));
            }
            Tell::Failed(failure) => {
                self.say(&failure);
                self.publisher
                    .with(|book| book.refused(&self.tenure, failure));
            }
        }
    }

    /// What the log has of the view, or is about to have, was all of it at this moment.
    fn holds(&mut self, version: &ResourceVersion, at: Instant) {
        let tenure = &mut self.tenure;
        self.publisher.with(|book| {
            // As a list of one object, which is known by now.
            book.begin_list(tenure, false);
            book.touch(tenure, &key());
            book.listed(tenure, version, at);
        });
    }

    fn say(&self, failure: &Failure) {
        tracing::warn!(view = %self.tenure.view, %failure, "an API call failed, it is tried again");
    }
}

/// Of the one object of the view.
pub(super) fn key() -> ObjectKey {
    ObjectKey::new("", Source::RESPONSE)
}
