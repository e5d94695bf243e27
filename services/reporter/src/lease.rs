//! The Lease at the API server by which one reporter reports at a time.
//!
//! The holder renews the lease. Every other reporter watches by its own clock whether the lease changes, and takes
//! it once it was unchanged for its duration. So wall clocks of two machines are never compared.

use std::time::Duration;

use anteroom_runtime::wall_clock;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use tokio::time::Instant;

/// The time that the lease holds without being renewed.
const DURATION: Duration = Duration::from_secs(15);

/// The time between two renewals, or looks at it.
const PERIOD: Duration = Duration::from_secs(3);

/// The time for which a holder goes on without a renewal, shorter than the wait of other reporters.
const RENEWAL_MAX: Duration = Duration::from_secs(10);

/// The longest time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

const SILENT: &str = "the API server does not answer";

/// Returns the time that a holder may still go on which began to renew it last then; `None`: no more.
fn time_left(renewed: Instant, now: Instant) -> Option<Duration> {
    let left = RENEWAL_MAX.checked_sub(now.saturating_duration_since(renewed));
    left.filter(|left| !left.is_zero())
}

/// The lease as it was seen, and when it was seen to change.
#[derive(Clone, Debug)]
struct SeenLease {
    version: Option<String>,
    since: Instant,
}

/// Returns whether it can be taken.
fn is_free(seen: &mut Option<SeenLease>, lease: &Lease, holder: &str, now: Instant) -> bool {
    let spec = lease.spec.as_ref();
    let held_by = spec.and_then(|spec| spec.holder_identity.as_deref());
    if held_by.is_none_or(|by| by.is_empty() || by == holder) {
        return true;
    }
    let version = lease.metadata.resource_version.clone();
    let known = seen.as_ref().filter(|seen| seen.version == version);
    let since = known.map_or(now, |seen| seen.since);
    *seen = Some(SeenLease { version, since });
    let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let holds = seconds.map_or(DURATION, Duration::from_secs);
    now.saturating_duration_since(since) >= holds
}

/// A reporter that wants to hold the lease.
pub(crate) struct Candidate {
    api: Api<Lease>,
    name: String,
    holder: String,
    seen: Option<SeenLease>,
}

impl Candidate {
    pub(crate) fn new(client: &Client, namespace: &str, name: &str, holder: String) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            name: name.to_owned(),
            holder,
            seen: None,
        }
    }

    /// Waits until the lease is ours. Calls `told` with the reason for each wait.
    pub(crate) async fn take(&mut self, told: impl Fn(String)) {
        loop {
            match self.try_once().await {
                Ok(None) => return,
                Ok(Some(by)) => told(format!("the lease {}, which {by} holds", self.name)),
                Err(error) => told(format!("the lease {}: {error}", self.name)),
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Renews the lease until renewals fail for too long, or a different reporter holds it. Returns the reason of the
    /// loss.
    pub(crate) async fn hold(&mut self) -> String {
        // Other reporters count from the moment at which they see the change, which is never before the request.
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(PERIOD).await;
            let begun = Instant::now();
            let Some(left) = time_left(renewed, begun) else {
                return format!("the lease {} was not renewed in time", self.name);
            };
            let tried = tokio::time::timeout(left, self.try_once()).await;
            match tried.unwrap_or_else(|_| Err(SILENT.to_owned())) {
                Ok(None) => renewed = begun,
                Ok(Some(by)) => return format!("{by} took the lease {}", self.name),
                Err(error) if time_left(renewed, Instant::now()).is_none() => {
                    return format!("the lease {} could not be renewed: {error}", self.name);
                }
                Err(error) => {
                    tracing::warn!(
                        lease = %self.name,
                        %error,
                        "lease not renewed: tried again until it ends; check the API server"
                    );
                }
            }
        }
    }

    /// Releases the lease, so that the next reporter need not wait for its expiry.
    pub(crate) async fn release(&mut self) {
        let released = async {
            let mut lease = self.api.get(&self.name).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(&*self.holder) {
                spec.holder_identity = None;
                self.api
                    .replace(&self.name, &PostParams::default(), &lease)
                    .await?;
            }
            Ok::<(), kube::Error>(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(REQUEST_TIMEOUT, released).await {
            tracing::debug!(%error, "lease not released: a successor waits until it ends");
        }
    }

    /// `None`: it is ours, from now on.
    async fn try_once(&mut self) -> Result<Option<String>, String> {
        match tokio::time::timeout(REQUEST_TIMEOUT, self.attempt()).await {
            Ok(Ok(held_by)) => Ok(held_by),
            // Somebody was faster: it is seen the next time.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                Ok(Some("somebody else".to_owned()))
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(SILENT.to_owned()),
        }
    }

    async fn attempt(&mut self) -> kube::Result<Option<String>> {
        let Some(mut lease) = self.api.get_opt(&self.name).await? else {
            let mut lease = Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    ..ObjectMeta::default()
                },
                spec: None,
            };
            self.sign(&mut lease);
            self.api.create(&PostParams::default(), &lease).await?;
            return Ok(None);
        };
        if !is_free(&mut self.seen, &lease, &self.holder, Instant::now()) {
            let held_by = lease.spec.and_then(|spec| spec.holder_identity);
            return Ok(Some(held_by.unwrap_or_default()));
        }
        self.sign(&mut lease);
        // The request carries the version read: of two reporters that see the lease free, the slower fails.
        self.api
            .replace(&self.name, &PostParams::default(), &lease)
            .await?;
        Ok(None)
    }

    fn sign(&self, lease: &mut Lease) {
        let now = MicroTime(wall_clock::now());
        let spec: &mut LeaseSpec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&*self.holder) {
            spec.holder_identity = Some(self.holder.clone());
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + 1);
        }
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        spec.renew_time = Some(now);
    }
}

#[cfg(test)]
mod tests;
