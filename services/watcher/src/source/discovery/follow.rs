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
    time::{Instant, sleep, timeout},
};

use super::{Catalog, fetch, loss};
use crate::source::{
    apiserver::{ApiServer, Fault},
    reflect::forbidden_check::{ForbiddenCheck, RefusalVerdict},
};

/// The interval at which kinds are read when nothing is known to have changed.
const INTERVAL: Duration = Duration::from_secs(30);

/// The interval at which kinds are read while an entry cannot be resolved.
const INTERVAL_EAGER: Duration = Duration::from_secs(5);

/// The time that a new definition has to be served, and that changes have to come together.
const SETTLE: Duration = Duration::from_millis(300);

/// Waits after a failure, in milliseconds.
const RETRY_BASE_MS: u64 = 800;
const RETRY_MAX_MS: u64 = 30_000;

/// The longest wait for an API server that starts, in milliseconds.
const NOT_READY_MAX_MS: u64 = 2_000;

/// The catalog of kinds, and the ways to have it read again. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Discovery {
    /// The catalog; `None` until it was read once.
    pub catalog: watch::Sender<Option<Arc<Catalog>>>,
    /// Changes whenever the served kinds change.
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
        let mut check = ForbiddenCheck::default();
        loop {
            match self.read_served(api, &mut check).await {
                Ok(Some(catalog)) => {
                    backoff.reset();
                    self.found(catalog);
                    self.wait().await;
                }
                Ok(None) => {
                    tracing::info!("API server not ready: its kinds are not known yet");
                    sleep(backoff.next_within(rand::random(), NOT_READY_MAX_MS)).await;
                }
                Err(fault) => {
                    tracing::warn!(
                        %fault,
                        "kinds of the API server not read: tried again; check the watcher's rights"
                    );
                    sleep(backoff.next(rand::random())).await;
                }
            }
        }
    }

    /// Reads the kinds that are served now; `None`: the API server cannot tell yet. That a kind is missing is
    /// believed only of an API server that is ready.
    async fn read_served(
        &self,
        api: &ApiServer,
        check: &mut ForbiddenCheck,
    ) -> Result<Option<Catalog>, Fault> {
        let before = self.catalog.borrow().clone();
        let mut catalog = fetch::catalog(api).await?;
        let less = match &before {
            Some(before) => loss::is_any(before, &catalog),
            None => true,
        };
        if less {
            match check.judge(api.readiness().await, Instant::now()) {
                RefusalVerdict::Unconfirmed => return Ok(None),
                RefusalVerdict::AskAgain => catalog = fetch::catalog(api).await?,
                RefusalVerdict::Confirmed => {}
            }
            if let Some(before) = &before {
                loss::mark(before, &mut catalog, &loss::registered(api).await?);
            }
        }
        check.allowed();
        Ok(Some(catalog))
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
                tracing::warn!(
                    group,
                    version,
                    problem,
                    "API group out of service: its kinds stay as they were last known; check its APIService"
                );
            }
        }
        // An unchanged catalog is sent too: its age is news.
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
