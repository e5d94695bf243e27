//! The demo's system: watcher, replica and webhook in this process.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_bus::Bus;
use anteroom_command::serve::{self, PartsArgs, RunningServices};
use anteroom_load::{Answer, Client, Target, ingress, review};
use anteroom_runtime::{Service, certs::issue::Authority, supervise::Tasks, wall_clock};
use anyhow::{Context, bail};
use parking_lot::Mutex;
use rand::Rng;

use crate::{args::DemoArgs, cluster::Cluster};

/// The name in the certificate that the load generator checks.
const SERVER_NAME: &str = "localhost";

/// The longest that a review may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two looks at whether the webhook enforces yet.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// The age of facts that the tour accepts: nobody waits the usual minute for them to be too old, and a watcher that is silent
/// is named.
pub(crate) const STALE_AFTER: Duration = Duration::from_secs(10);

pub(crate) struct System {
    parts: RunningServices,
    service: Service,
    client: kube::Client,
    watcher_args: anteroom_watcher::Args,
    /// `None` while it is stopped.
    watcher: Mutex<Option<Watcher>>,
    target: Target,
    /// Holds the certificate's files while the webhook follows them.
    _certificate: tempfile::TempDir,
}

/// A watcher that runs, and can be stopped by itself.
struct Watcher {
    service: Service,
    tasks: Tasks,
}

/// The figures of one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) objects: u64,
    pub(crate) view_bytes: u64,
    pub(crate) watches: u64,
    pub(crate) rss_bytes: u64,
}

/// From an Ingress being created to its host being denied to others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freshness {
    pub(crate) p50_ms: f64,
    pub(crate) max_ms: f64,
}

impl System {
    /// Starts everything; nothing is waited for.
    pub(crate) async fn start(args: &DemoArgs, cluster: &Cluster) -> anyhow::Result<Self> {
        let now = wall_clock::now();
        let authority = Authority::new("anteroom demo", now)?;
        let pem = authority.issue(&[SERVER_NAME.to_owned()], now)?;
        let certificate = tempfile::tempdir().context("no temporary folder for the certificate")?;
        let (chain, key) = (
            certificate.path().join("tls.crt"),
            certificate.path().join("tls.key"),
        );
        std::fs::write(&chain, pem.chain)?;
        std::fs::write(&key, pem.key)?;

        let address = free_address()?;
        let mut parts = PartsArgs::default();
        parts.webhook.listen_address = address;
        // No other webhook would take over.
        parts.webhook.drain_seconds = 0;
        parts.webhook.tls.tls_cert_file = Some(chain);
        parts.webhook.tls.tls_key_file = Some(key);
        if args.has_tour() {
            parts.watcher.stale_after = STALE_AFTER;
            parts.replica.age_max_ms = u64::try_from(STALE_AFTER.as_millis())?;
        }
        let service = Service::new("demo");
        let bus = serve::connect(args.nats.as_deref()).await?;
        let (client, watcher_args) = (cluster.client(), parts.watcher.clone());
        // The webhook gets no client: it registers itself nowhere.
        let parts = RunningServices::without_watcher(parts, bus, client.clone(), None, &service);
        if let Some(address) = args.console {
            parts.serve_console(address)?;
        }
        let target = Target {
            address,
            server_name: SERVER_NAME.to_owned(),
            ca_pem: authority.certificate_pem.into_bytes(),
            path: format!("/validate?timeout={}s", REVIEW_TIMEOUT.as_secs()),
            timeout: REVIEW_TIMEOUT,
        };
        let system = Self {
            parts,
            service,
            client,
            watcher_args,
            watcher: Mutex::default(),
            target,
            _certificate: certificate,
        };
        system.start_watcher();
        Ok(system)
    }

    /// Drains everything.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        let stopped = self.stop_watcher().await;
        self.service.shutdown.trigger("the demo is over");
        self.parts.join().await?;
        stopped
    }

    /// Starts a watcher, if none runs.
    pub(crate) fn start_watcher(&self) {
        let mut watcher = self.watcher.lock();
        watcher.get_or_insert_with(|| {
            let service = Service::new("watcher");
            let tasks = Tasks::new(service.shutdown.clone());
            let (args, client) = (self.watcher_args.clone(), self.client.clone());
            let bus = Arc::clone(self.parts.bus());
            let scope = service.scope("watcher");
            tasks.spawn("watcher", anteroom_watcher::run(args, bus, client, scope));
            Watcher { service, tasks }
        });
    }

    /// Stops the watcher, and waits until it has ended.
    pub(crate) async fn stop_watcher(&self) -> anyhow::Result<()> {
        let watcher = self.watcher.lock().take();
        let Some(Watcher { service, tasks }) = watcher else {
            return Ok(());
        };
        service.shutdown.trigger("the demo stops it");
        tasks.join().await
    }

    pub(crate) fn bus(&self) -> &Arc<dyn Bus> {
        self.parts.bus()
    }

    pub(crate) fn target(&self) -> Target {
        self.target.clone()
    }

    /// Waits until a host that is taken is denied: entry, view and policy have arrived everywhere.
    pub(crate) async fn enforced(
        &self,
        patience: Duration,
        cluster: &Cluster,
    ) -> anyhow::Result<()> {
        let taken = cluster
            .oracle()
            .taken_host(&mut rand::rng())
            .context("no Ingress at all")?;
        let last = self.denied(&taken, patience).await?;
        if let Some(last) = last {
            bail!(
                "the policy was not enforced within {} s; last: {last}",
                patience.as_secs()
            );
        }
        Ok(())
    }

    /// Measures how long after its creation an Ingress's host is denied to others.
    pub(crate) async fn freshness(
        &self,
        cluster: &Cluster,
        trials: usize,
    ) -> anyhow::Result<Freshness> {
        let mut taken_ms = Vec::with_capacity(trials);
        for trial in 0..trials {
            let host = format!(
                "fresh-{trial}-{:08x}.anteroom.test",
                rand::rng().random::<u32>()
            );
            cluster
                .create_ingress(&format!("fresh-{trial}"), &host)
                .await?;
            let created = Instant::now();
            if let Some(last) = self.denied(&host, REVIEW_TIMEOUT).await? {
                bail!(
                    "a new Ingress was not seen within {} s; last: {last}",
                    REVIEW_TIMEOUT.as_secs()
                );
            }
            taken_ms.push(created.elapsed().as_secs_f64() * 1000.0);
        }
        taken_ms.sort_by(f64::total_cmp);
        let at = |index: usize| taken_ms.get(index).copied().unwrap_or_default();
        Ok(Freshness {
            p50_ms: at(trials / 2),
            max_ms: at(trials.saturating_sub(1)),
        })
    }

    /// Asks until the host is denied by the policy; at the bound, says what the last answer was.
    async fn denied(&self, host: &str, patience: Duration) -> anyhow::Result<Option<String>> {
        let mut client = Client::new(self.target())?;
        let started = Instant::now();
        loop {
            let uid = format!("{:032x}", rand::rng().random::<u128>());
            let body = review(&uid, &ingress("demo", "somebody-else", host));
            let answer = match client.post(body).await {
                Ok(body) => Answer::parse(&uid, &body).map_err(anyhow::Error::msg),
                Err(error) => Err(error),
            };
            match answer {
                Ok(Answer::Denied { .. }) => return Ok(None),
                other if started.elapsed() > patience => return Ok(Some(format!("{other:?}"))),
                _ => tokio::time::sleep(LOOK_INTERVAL).await,
            }
        }
    }

    /// Reads what there is to see off the services' own metrics.
    pub(crate) fn state(&self, cluster: &Cluster) -> State {
        let mut metrics = self.service.metrics.encode();
        let watcher = self.watcher.lock();
        let own = watcher
            .as_ref()
            .map(|watcher| watcher.service.metrics.encode());
        metrics.push_str(&own.unwrap_or_default());
        let of_views = |name| {
            sum(&metrics, name, |labels| {
                !labels.contains("view=\"anteroom:")
            })
        };
        State {
            objects: of_views("anteroom_view_objects"),
            view_bytes: of_views("anteroom_view_bytes"),
            watches: cluster
                .watches()
                .unwrap_or_else(|| sum(&metrics, "anteroom_watches", |_| true)),
            rss_bytes: sum(&metrics, "process_resident_memory_bytes", |_| true),
        }
    }
}

/// The sum of a metric over the label sets that are wanted.
fn sum(metrics: &str, name: &str, wanted: impl Fn(&str) -> bool) -> u64 {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        let is_it = labels.is_empty() || labels.starts_with('{');
        (is_it && wanted(labels)).then(|| value.parse::<f64>().ok())?
    };
    metrics.lines().filter_map(value).sum::<f64>() as u64
}

/// A loopback address with a port that is free now.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_the_wanted_labels() {
        let text = "a_bytes{view=\"x\",service=\"cache-replica\"} 3\n\
                    a_bytes{view=\"y\",service=\"cache-replica\"} 4\n\
                    a_bytes_total 7\n\
                    plain 2\n";
        assert_eq!(sum(text, "a_bytes", |_| true), 7);
        assert_eq!(sum(text, "a_bytes", |labels| labels.contains("\"y\"")), 4);
        assert_eq!(sum(text, "plain", |_| true), 2);
    }
}
