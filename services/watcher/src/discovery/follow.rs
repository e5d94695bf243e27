//! Keeps the catalog up to date: asks again when a definition changes, when somebody misses
//! something, and now and then in any case.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anteroom_runtime::backoff::Backoff;
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

use super::{Catalog, fetch};
use crate::apiserver::ApiServer;

/// How often it is asked when nothing is known to have changed.
const INTERVAL: Duration = Duration::from_secs(30);

/// How often it is asked while an entry cannot be resolved.
const INTERVAL_EAGER: Duration = Duration::from_secs(5);

/// How long a definition has to be served after it was made, and changes to come together.
const SETTLE: Duration = Duration::from_millis(300);

/// Waits after a failure, in milliseconds.
const RETRY_BASE_MS: u64 = 800;
const RETRY_MAX_MS: u64 = 30_000;

/// How the catalog is asked for, and where it is found. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Discovery {
    /// The catalog; `None` until it was read once.
    pub catalog: watch::Sender<Option<Arc<Catalog>>>,
    /// Changes with what is served.
    pub served: watch::Sender<()>,
    /// Asks now.
    pub nudge: Arc<Notify>,
    /// Somebody waits for a resource that is not served.
    pub eager: Arc<AtomicBool>,
}

impl Default for Discovery {
    fn default() -> Self {
        Self {
            catalog: watch::Sender::new(None),
            served: watch::Sender::new(()),
            nudge: Arc::default(),
            eager: Arc::default(),
        }
    }
}

impl Discovery {
    /// Asks, for ever.
    pub(crate) async fn run(&self, api: &ApiServer) {
        let mut backoff = Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS);
        loop {
            match fetch::catalog(api).await {
                Ok(catalog) => {
                    backoff.reset();
                    self.found(catalog);
                    self.wait().await;
                }
                Err(fault) => {
                    tracing::warn!(%fault, "the API server does not say what it serves");
                    sleep(backoff.next(rand::random())).await;
                }
            }
        }
    }

    fn found(&self, mut catalog: Catalog) {
        let before = self.catalog.borrow().clone();
        if let Some(before) = &before {
            catalog.carry_over(before);
        }
        let changed = before.is_none_or(|before| *before != catalog);
        if changed {
            for broken in &catalog.broken {
                let super::Broken {
                    group,
                    version,
                    problem,
                } = broken;
                tracing::warn!(group, version, problem, "an API group does not answer");
            }
        }
        // Told also when nothing changed: that it is still so is news.
        self.catalog.send_replace(Some(Arc::new(catalog)));
        if changed {
            self.served.send_replace(());
        }
    }

    async fn wait(&self) {
        let eager = self.eager.load(Ordering::Relaxed);
        let interval = if eager { INTERVAL_EAGER } else { INTERVAL };
        if timeout(interval, self.nudge.notified()).await.is_ok() {
            sleep(SETTLE).await;
        }
    }
}
