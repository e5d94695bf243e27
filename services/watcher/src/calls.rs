//! API calls that are made at intervals, once for the whole cluster, by the coordinator.
//!
//! [`spec`] says what an entry asks for, [`http`] and [`caller`] make one call, [`machine`] decides when
//! it is made again and what readers are told, [`poller`] does it.

mod caller;
mod fault;
mod http;
mod machine;
mod poller;
mod spec;
#[cfg(test)]
pub(crate) mod testing;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_model::{SourceInfo, ViewId};
use anyhow::bail;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};

use crate::{
    left::LeftView,
    metrics::WatcherMetrics,
    publish::{Opening, Publisher},
};

use caller::Reply;
pub(crate) use caller::{Caller, parse};
pub(crate) use fault::CallFault;
pub(crate) use http::{Answer, Gate, HttpCall, Said, SystemRoots, Validators, client_config};
pub(crate) use spec::{CallSpec, CallTarget, OnFailure, is_of_secrets, parse_url};

/// How long one call may take, from the connection to the last byte.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest response of an API call, where the command line does not say. What it becomes in the
/// log must stay below `OBJECT_BYTES_MAX`.
pub(crate) const API_CALL_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The pollers of one term: one for each view of an API call.
pub(crate) struct Calls {
    caller: Caller,
    publisher: Publisher,
    metrics: WatcherMetrics,
    pollers: JoinSet<()>,
    running: HashMap<ViewId, Running>,
}

struct Running {
    poller: AbortHandle,
    /// See [`Calls::was_good`].
    was_good: watch::Sender<Option<Instant>>,
}

impl Calls {
    /// None yet, in this term.
    pub(crate) fn new(caller: Caller, publisher: Publisher, metrics: WatcherMetrics) -> Self {
        Self {
            caller,
            publisher,
            metrics,
            pollers: JoinSet::new(),
            running: HashMap::new(),
        }
    }

    /// Begins to make a call, unless it is made already. `left` is what the log has of its view.
    pub(crate) fn start(&mut self, info: SourceInfo, spec: Arc<CallSpec>, left: LeftView) {
        let view = info.source.view_id();
        if self.running.contains_key(&view) {
            return;
        }
        tracing::info!(%view, call = spec.shown(), "API call started");
        let age_max_ms = u64::try_from(machine::age_max(&spec).as_millis()).ok();
        let left_version = left.objects.get(&poller::key()).cloned();
        let tenure = self.publisher.with(|book| {
            left.unpurged
                .into_iter()
                .for_each(|record| book.free(record));
            let opening = Opening {
                origin: left.origin,
                age_max_ms,
            };
            book.open_with(info, left.objects, opening)
        });
        let (was_good, heard) = watch::channel(None);
        let poller = poller::Poller {
            caller: self.caller.clone(),
            publisher: self.publisher.clone(),
            metrics: self.metrics.of_watch(&view),
            spec,
            tenure,
            left: left_version,
            was_good: heard,
        };
        let poller = self.pollers.spawn(poller.run());
        self.running.insert(view, Running { poller, was_good });
    }

    /// A reader says that the data of an earlier term, which it still holds, were good at this
    /// moment. An age is what that term's writer measured, and the reader since.
    pub(crate) fn was_good(&self, view: &ViewId, at: Instant) {
        if let Some(running) = self.running.get(view) {
            // The newest: each reader has at most what the log has.
            running.was_good.send_if_modified(|good| {
                let newer = good.is_none_or(|good| good < at);
                if newer {
                    *good = Some(at);
                }
                newer
            });
        }
    }

    /// Whether a call is made for this view.
    pub(crate) fn runs(&self, view: &ViewId) -> bool {
        self.running.contains_key(view)
    }

    /// Ceases to make a call, and frees its view everywhere.
    pub(crate) fn stop(&mut self, view: &ViewId) {
        let Some(Running { poller, .. }) = self.running.remove(view) else {
            return;
        };
        tracing::info!(%view, "API call stopped: nobody needs it any more");
        poller.abort();
        self.publisher.with(|book| book.close(view));
        self.metrics.forget(view);
    }

    /// Waits for ever.
    ///
    /// # Errors
    /// Where a poller ended by itself, which none should. Dropping the future loses nothing.
    pub(crate) async fn watch(&mut self) -> anyhow::Result<std::convert::Infallible> {
        loop {
            match self.pollers.join_next().await {
                None => std::future::pending().await,
                Some(Err(stopped)) if stopped.is_cancelled() => {}
                Some(Err(panic)) => bail!("an API call's poller panicked: {panic}"),
                Some(Ok(())) => bail!("an API call's poller ended by itself"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
