//! The Service of several webhooks: an address from which each new connection leads to a webhook that is ready.
//!
//! As in Kubernetes, probes say which webhooks are ready, and a connection stays where it leads. The probes are those of the
//! chart's Deployments.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::ensure;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{interval, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    proxy::Proxy,
    services::{self, Running},
    wait,
};

/// The interval between probes of a webhook.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// The time limit of a probe: Kubernetes' default.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Failed probes in a row after which a webhook gets no new connections.
const FAILURES_MAX: u32 = 2;

/// Leads connections to webhooks until it is dropped.
#[derive(Debug)]
pub struct WebhookService {
    members: Arc<Members>,
    _probing: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Members {
    proxy: Proxy,
    all: Mutex<Vec<Member>>,
}

/// A webhook of the Service.
#[derive(Debug)]
struct Member {
    /// The address of its probes.
    admin: SocketAddr,
    /// The address of its reviews.
    reviews: SocketAddr,
    /// Failed probes in a row; at first as if there had been some.
    failures: u32,
}

impl Member {
    fn new(admin: SocketAddr, reviews: SocketAddr) -> Self {
        Self {
            admin,
            reviews,
            failures: FAILURES_MAX,
        }
    }

    fn note_probe(&mut self, is_ready: bool) {
        self.failures = match is_ready {
            true => 0,
            false => self.failures.saturating_add(1),
        };
    }

    fn gets_connections(&self) -> bool {
        self.failures < FAILURES_MAX
    }
}

impl Members {
    /// Changes members, and leads new connections to those that get some.
    fn change(&self, change: impl FnOnce(&mut [Member])) {
        let mut all = self.all.lock();
        change(&mut all);
        let leading = all.iter().filter(|member| member.gets_connections());
        self.proxy
            .lead_to(leading.map(|member| member.reviews).collect());
    }
}

impl WebhookService {
    /// Leads the proxy's connections to these webhooks, to each from when it is ready.
    pub fn start<'r>(
        proxy: Proxy,
        webhooks: impl IntoIterator<Item = &'r Running>,
    ) -> anyhow::Result<Self> {
        let all = webhooks
            .into_iter()
            .map(|webhook| Ok(Member::new(webhook.admin(), webhook.listens_at()?)))
            .collect::<anyhow::Result<_>>()?;
        let members = Arc::new(Members {
            proxy,
            all: Mutex::new(all),
        });
        let probing = tokio::spawn(probe_all(Arc::clone(&members)));
        Ok(Self {
            members,
            _probing: AbortOnDropHandle::new(probing),
        })
    }

    /// Waits until connections lead to so many webhooks.
    pub async fn leads_to(&self, count: usize) -> anyhow::Result<()> {
        let what = format!("the Service to lead to {count} webhooks");
        wait::until(&what, async || {
            let all = self.members.all.lock();
            let leads_to = all.iter().filter(|member| member.gets_connections());
            let leads_to = leads_to.count();
            ensure!(leads_to == count, "to {leads_to}");
            Ok(())
        })
        .await
    }
}

async fn probe_all(members: Arc<Members>) {
    let mut due = interval(PROBE_INTERVAL);
    loop {
        due.tick().await;
        let probed: Vec<SocketAddr> = members.all.lock().iter().map(|of| of.admin).collect();
        let ready = join_all(probed.into_iter().map(is_ready)).await;
        members.change(|all| {
            for (member, is_ready) in all.iter_mut().zip(ready) {
                member.note_probe(is_ready);
            }
        });
    }
}

async fn is_ready(admin: SocketAddr) -> bool {
    let probe = services::get(admin, "/readyz");
    matches!(timeout(PROBE_TIMEOUT, probe).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_gets_connections_from_its_first_good_probe_to_its_second_bad_one() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut member = Member::new(address, address);
        assert!(!member.gets_connections(), "it was never probed");
        for (is_ready, gets_connections) in [
            (false, false),
            (true, true),
            (false, true),
            (true, true),
            (false, true),
            (false, false),
            (true, true),
        ] {
            member.note_probe(is_ready);
            assert_eq!(member.gets_connections(), gets_connections);
        }
    }
}
