//! The service: stands by, leads, and begins again.

use std::{sync::Arc, time::Duration};

use anteroom_bus::Bus;
use anteroom_runtime::{Check, Readiness, Service};
use kube::Client;

use crate::{
    apiserver::ApiServer,
    args::Args,
    lead::Campaign,
    metrics::WatcherMetrics,
    publish::End,
    term::{self, Outcome, Setting},
};

/// How often it is looked whether the API server answers.
const REACH_INTERVAL: Duration = Duration::from_secs(5);

/// The largest answer to that.
const VERSION_BYTES_MAX: usize = 64 * 1024;

/// What the watcher waits for. All but the first two say something of the leader only: a standby has
/// nothing of its own to wait for.
#[derive(Debug)]
pub(crate) struct Checks {
    /// The bus.
    pub bus: Check,
    /// The API server.
    pub api: Check,
    /// Whether it leads or stands by.
    pub lead: Check,
    /// That `CachedContextEntry` can be read.
    pub entries: Check,
    /// That policies can be read.
    pub policies: Check,
    /// That every wanted view was read, or cannot be.
    pub views: Check,
}

impl Checks {
    fn new(readiness: &Readiness) -> Self {
        Self {
            bus: readiness.check("bus", "the bus to be within reach"),
            api: readiness.check("api-server", "the API server to answer"),
            lead: readiness.check("lead", "to lead or to stand by"),
            entries: readiness.check("entries", "the first list of CachedContextEntry"),
            policies: readiness.check("policies", "the first list of policies"),
            views: readiness.check("views", "every view to be read once"),
        }
    }

    fn leads(&self) {
        self.lead.ready();
        self.entries
            .not_ready("the first list of CachedContextEntry");
        self.policies.not_ready("the first list of policies");
        self.views.not_ready("every view to be read once");
    }

    fn stands_by(&self) {
        self.lead.not_ready("to lead or to stand by");
        self.entries.ready();
        self.policies.ready();
        self.views.ready();
    }
}

/// Runs the watcher until shutdown is asked for.
///
/// Neither the API server nor the bus need be there: it waits for them, and its readiness says so.
///
/// # Errors
/// Where a part of it ended by itself, which none should.
pub async fn run(
    args: Args,
    bus: Arc<dyn Bus>,
    client: Client,
    service: Service,
) -> anyhow::Result<()> {
    let me = args.holder();
    let setting = Setting {
        bus,
        api: ApiServer::new(client),
        metrics: WatcherMetrics::register(&service.metrics),
        checks: Arc::new(Checks::new(&service.readiness)),
        shutdown: service.shutdown.clone(),
    };
    tokio::select! {
        never = reach(&setting) => match never {},
        result = terms(&setting, &me) => result,
    }
}

async fn terms(setting: &Setting, me: &str) -> anyhow::Result<()> {
    let Setting {
        bus,
        checks,
        metrics,
        shutdown,
        ..
    } = setting;
    let mut term_seen = 0;
    loop {
        checks.stands_by();
        metrics.leads(None);
        let campaign = Campaign {
            bus: &**bus,
            me,
            term_seen,
            bus_check: &checks.bus,
            lead_check: &checks.lead,
        };
        let leadership = tokio::select! {
            leadership = campaign.win() => leadership,
            () = shutdown.triggered() => return Ok(()),
        };
        term_seen = leadership.term;
        tracing::info!(term = leadership.term, holder = me, "leading");
        checks.leads();
        metrics.leads(Some(leadership.term));
        match Box::pin(term::lead(setting, &leadership)).await? {
            Outcome::Shutdown => return Ok(()),
            Outcome::Over(End::Fenced) => tracing::warn!("another watcher leads now"),
            Outcome::Over(End::LogRemade) => {
                tracing::warn!("the log was made anew: everything is written again");
            }
        }
    }
}

/// Keeps saying whether the API server answers.
async fn reach(setting: &Setting) -> std::convert::Infallible {
    loop {
        match setting.api.get("/version", VERSION_BYTES_MAX).await {
            Ok(_) => setting.checks.api.ready(),
            Err(fault) => setting
                .checks
                .api
                .not_ready(format!("the API server: {fault}")),
        }
        tokio::time::sleep(REACH_INTERVAL).await;
    }
}
