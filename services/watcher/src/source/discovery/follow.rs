//! Keeps the served resources up to date: asks again when a definition changes, when somebody misses
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

use super::{ServedResources, fetch, loss};
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

/// The resources that the API server serves, and the ways to have them read again. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Discovery {
    /// The resources; `None` until they were read once.
    pub served_resources: watch::Sender<Option<Arc<ServedResources>>>,
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
            served_resources: watch::Sender::new(None),
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
                Ok(Some(served)) => {
                    backoff.reset();
                    self.found(served);
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
    ) -> Result<Option<ServedResources>, Fault> {
        let before = self.served_resources.borrow().clone();
        let mut served = fetch::served_resources(api).await?;
        let less = match &before {
            Some(before) => loss::is_any(before, &served),
            None => true,
        };
        if less {
            match check.judge(api.readiness().await, Instant::now()) {
                RefusalVerdict::Unconfirmed => return Ok(None),
                RefusalVerdict::AskAgain => served = fetch::served_resources(api).await?,
                RefusalVerdict::Confirmed => {}
            }
            if let Some(before) = &before {
                loss::mark(before, &mut served, &loss::registered(api).await?);
            }
        }
        check.allowed();
        Ok(Some(served))
    }

    fn found(&self, mut served: ServedResources) {
        let before = self.served_resources.borrow().clone();
        if let Some(before) = &before {
            served.carry_over(before);
        }
        let changed = before.is_none_or(|before| *before != served);
        if changed {
            for broken in &served.broken {
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
        // Unchanged resources are sent too: their age is news.
        self.served_resources.send_replace(Some(Arc::new(served)));
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
