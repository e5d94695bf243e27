//! API calls that are made at intervals, once for the whole cluster.
//!
//! [`schedule`] decides when a call is made again and what readers learn, and [`poller`] carries this out.

mod poller;
mod schedule;

use std::{collections::HashMap, sync::Arc};

use anteroom_model::{SourceInfo, ViewId};
use anteroom_runtime::{Shutdown, supervise::Tasks};
use tokio::time::Instant;
use tokio::{sync::watch, task::AbortHandle};

use crate::{
    gateway::calls::{CallSpec, Caller},
    log_writer::{
        log_snapshot::InheritedView,
        publish::{Opening, Publisher},
    },
    source::metrics::SourceMetrics,
};

/// The pollers of one term: one for each view of an API call.
pub(crate) struct CallPollers {
    caller: Caller,
    publisher: Publisher,
    metrics: SourceMetrics,
    pollers: Tasks,
    running: HashMap<ViewId, Running>,
}

struct Running {
    poller: AbortHandle,
    /// See [`CallPollers::report_good_at`].
    good_at: watch::Sender<Option<Instant>>,
}

impl CallPollers {
    /// Returns the pollers of a term, of which none runs yet.
    pub(crate) fn new(caller: Caller, publisher: Publisher, metrics: SourceMetrics) -> Self {
        Self {
            caller,
            publisher,
            metrics,
            // They never end by themselves: the term's end aborts them.
            pollers: Tasks::of_part(Shutdown::new()),
            running: HashMap::new(),
        }
    }

    /// Starts the poller of a call, unless it runs already. `inherited` is the state of the call's view in the log.
    pub(crate) fn start(
        &mut self,
        info: SourceInfo,
        spec: Arc<CallSpec>,
        inherited: InheritedView,
    ) {
        let view = info.source.view_id();
        if self.running.contains_key(&view) {
            return;
        }
        tracing::info!(%view, call = spec.shown(), "API call started");
        let age_max_ms = u64::try_from(schedule::age_max(&spec).as_millis()).ok();
        let inherited_version = inherited.objects.get(&poller::key()).cloned();
        let handle = self.publisher.with(|queue| {
            inherited
                .unpurged
                .into_iter()
                .for_each(|record| queue.free(record));
            let opening = Opening {
                origin: inherited.origin,
                age_max_ms,
            };
            queue.open_with(info, inherited.objects, opening)
        });
        let (good_at, heard) = watch::channel(None);
        let poller = poller::Poller {
            caller: self.caller.clone(),
            publisher: self.publisher.clone(),
            metrics: self.metrics.of_watch(&view),
            spec,
            handle,
            inherited: inherited_version,
            good_at: heard,
        };
        let name = format!("API call of view {view}");
        let poller = self.pollers.spawn_until_shutdown(name, poller.run());
        self.running.insert(view, Running { poller, good_at });
    }

    /// Notes that the data of an earlier term, which a reader still holds, were good at this moment. Their age is the
    /// sum of the times that the earlier writer and then the reader measured.
    pub(crate) fn report_good_at(&self, view: &ViewId, at: Instant) {
        if let Some(running) = self.running.get(view) {
            // The newest: each reader has at most what the log has.
            running.good_at.send_if_modified(|good| {
                let newer = good.is_none_or(|good| good < at);
                if newer {
                    *good = Some(at);
                }
                newer
            });
        }
    }

    /// Ceases to make a call, and frees its view everywhere.
    pub(crate) fn stop(&mut self, view: &ViewId) {
        let Some(Running { poller, .. }) = self.running.remove(view) else {
            return;
        };
        tracing::info!(%view, "API call stopped: nobody needs it any more");
        poller.abort();
        self.publisher.with(|queue| queue.close(view));
    }

    /// Waits for a poller to fail, which none should. Dropping the future loses nothing.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        self.pollers.failed().await
    }
}

#[cfg(test)]
mod tests;
