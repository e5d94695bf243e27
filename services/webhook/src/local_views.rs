//! Views of this process (`--local-views`, or a replica in this process): which there are, and how the engine asks them.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use anteroom_cache_replica::{LocalReplica, OptionsState};
use anteroom_engine::{
    catalog::{Catalogs, EntrySet},
    facts::LocalViews,
    off_thread::off_thread,
};
use anteroom_model::{FactError, ViewId};
use anteroom_runtime::Shutdown;
use anteroom_wire::query::{QueryOutcome, QueryRequest};
use futures::{FutureExt as _, future::BoxFuture};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::{sleep, timeout};

/// The least time between two choices of the views that are local. A new one has the log read again for all of them.
const PACE: Duration = Duration::from_secs(5);

/// The views of a replica in this process; there are none before it runs.
#[derive(Debug)]
pub(crate) struct ReplicaViews(pub(crate) Arc<OnceLock<Arc<LocalReplica>>>);

impl LocalViews for ReplicaViews {
    fn holds(&self, view: &ViewId) -> bool {
        self.0.get().is_some_and(|replica| replica.holds(view))
    }

    fn answer_at_once(
        &self,
        view: &ViewId,
        request: &QueryRequest,
        time: Duration,
    ) -> Option<QueryOutcome> {
        self.0.get()?.answer_at_once(view, request, time)
    }

    fn answer<'a>(
        &'a self,
        view: &'a ViewId,
        request: &'a QueryRequest,
        time: Duration,
    ) -> BoxFuture<'a, QueryOutcome> {
        match self.0.get() {
            Some(replica) => replica.answer(view, request, time).boxed(),
            None => {
                let view = view.as_str().to_owned();
                std::future::ready(Err(FactError::NoReplica { view })).boxed()
            }
        }
    }
}

/// Has the replica hold the views that entries are bound to, but those that only policies of namespaces need. Tells the
/// memory that they take, until shutdown.
pub(crate) async fn keep(
    replica: Arc<LocalReplica>,
    mut catalogs: Catalogs,
    bytes: Gauge,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let stop = shutdown.token();
    let keeping = async {
        let mut held: Option<(Arc<EntrySet>, Option<OptionsState>)> = None;
        replica.options_known().await;
        loop {
            let catalog = catalogs.borrow_and_update().clone();
            let entries = catalog.map(|catalog| Arc::clone(&catalog.entries));
            // A view that policies of the cluster need may be one that only those of namespaces need later.
            let options = replica.options_state();
            let is_new = |entries: &Arc<EntrySet>| {
                let is_same = held
                    .as_ref()
                    .is_some_and(|(held, of)| Arc::ptr_eq(held, entries) && *of == options);
                !is_same
            };
            if let Some(entries) = entries.filter(is_new) {
                // There may be a hundred thousand of them.
                off_thread(|| replica.hold(entries.views()));
                held = Some((entries, options));
                sleep(PACE).await;
            }
            bytes.set(i64::try_from(replica.bytes()).unwrap_or(i64::MAX));
            if replica.options_state() != options {
                continue; // Those of a new entry's view came after the entry.
            }
            if let Ok(Err(_)) = timeout(PACE, catalogs.changed()).await {
                // No catalog comes any more: the webhook ends.
                std::future::pending::<()>().await;
            }
        }
    };
    stop.run_until_cancelled(keeping).await;
    Ok(())
}
