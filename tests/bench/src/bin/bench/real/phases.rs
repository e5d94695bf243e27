//! The phases of the time from an entry's creation to its first answer.

use std::collections::BTreeMap;

use anteroom_e2e::{audit::Asked, services::Running, world::World};
use anteroom_runtime::wall_clock;
use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::processes;

/// The state when the entry was created.
pub(super) struct Phases {
    at: Timestamp,
    counts: Counts,
}

/// Sums since the processes started.
struct Counts {
    cpu_ms: BTreeMap<&'static str, f64>,
    publish_s: f64,
    batches: f64,
    batch_bytes: f64,
}

impl Counts {
    async fn now(world: &World) -> anyhow::Result<Self> {
        let watcher: &Running = world.system.watcher.as_ref().context("no watcher")?;
        let mut cpu_ms = BTreeMap::new();
        for (name, process) in processes(world) {
            *cpu_ms.entry(name).or_default() += process.cpu_ns()? as f64 / 1e6;
        }
        Ok(Self {
            cpu_ms,
            publish_s: watcher.metric("anteroom_publish_seconds_sum", &[]).await?,
            batches: watcher
                .metric("anteroom_publish_seconds_count", &[])
                .await?,
            batch_bytes: watcher
                .metric("anteroom_publish_batch_bytes_sum", &[])
                .await?,
        })
    }
}

impl Phases {
    pub(super) async fn begin(world: &World) -> anyhow::Result<Self> {
        Ok(Self {
            counts: Counts::now(world).await?,
            at: wall_clock::now(),
        })
    }

    /// Seconds since the entry's creation unless said otherwise: when the watcher asked for the first
    /// page, when it had the last; how long the API server took for the pages, and the log for the
    /// batches; CPU time of each process.
    pub(super) async fn end(self, world: &World, usable_s: f64) -> anyhow::Result<Value> {
        let now = Counts::now(world).await?;
        let asked = world.cluster.asked()?;
        let pages: Vec<&Asked> = asked
            .iter()
            .filter(|of| of.verb == "list" && of.resource == "pods" && of.received >= self.at)
            .filter(|of| of.ended && !of.uri.contains("limit=1&") && !of.uri.ends_with("limit=1"))
            .collect();
        let since = |at: Timestamp| at.duration_since(self.at).as_secs_f64();
        let first_asked_s = pages.first().map(|page| since(page.received));
        let last_page_s = pages.last().map(|page| since(page.at));
        let in_pages = pages
            .iter()
            .map(|page| page.at.duration_since(page.received).as_secs_f64());
        let cpu_ms = now.cpu_ms.iter().map(|(name, ms)| {
            let before = self.counts.cpu_ms.get(name).copied().unwrap_or_default();
            (*name, (ms - before).round())
        });
        Ok(json!({
            "first_page_asked_s": first_asked_s,
            "last_page_s": last_page_s,
            "after_the_last_page_s": last_page_s.map(|last| usable_s - last),
            "pages": pages.len(),
            "api_server_in_pages_s": in_pages.sum::<f64>(),
            "log_in_batches_s": now.publish_s - self.counts.publish_s,
            "batches": now.batches - self.counts.batches,
            "batch_bytes": now.batch_bytes - self.counts.batch_bytes,
            "cpu_ms": cpu_ms.collect::<BTreeMap<_, _>>(),
        }))
    }
}
