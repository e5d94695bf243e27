//! Reads the log's index for new leaders: once for all groups that are taken together.
//!
//! A watcher that takes a group's lease may use only an index whose reading began after that, since the writer before
//! may have written until then. For the same reason an index is used only for the groups that asked for it: other
//! writers go on while it is read.

use std::time::Duration;

use anteroom_bus::Bus;
use anteroom_model::Group;
use anteroom_runtime::backoff::Backoff;
use tokio::sync::{mpsc, oneshot};

use crate::log_writer::log_snapshot::LogSnapshot;

/// The time in which requests are gathered: groups are taken together at a start, and when their leader has gone.
const GATHER: Duration = Duration::from_millis(15);

/// Requests that wait; there is one for each group at most.
const REQUESTS_MAX: usize = 64;

/// Waits while the index cannot be read, in milliseconds.
const RETRY_BASE_MS: u64 = 200;
const RETRY_MAX_MS: u64 = 5_000;

type Request = (Group, oneshot::Sender<LogSnapshot>);

/// Asks for the index. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    requests: mpsc::Sender<Request>,
}

/// Reads the index for all who ask.
#[derive(Debug)]
pub(crate) struct IndexReader {
    requests: mpsc::Receiver<Request>,
}

impl Index {
    /// Returns both ends.
    pub(crate) fn new() -> (Self, IndexReader) {
        let (sender, requests) = mpsc::channel(REQUESTS_MAX);
        (Self { requests: sender }, IndexReader { requests })
    }

    /// Returns the log's content of the group's views. Call it only after the group's lease was taken.
    pub(crate) async fn snapshot(&self, group: Group) -> LogSnapshot {
        loop {
            let (sender, snapshot) = oneshot::channel();
            let sent = self.requests.send((group, sender)).await;
            match snapshot.await {
                Ok(snapshot) => return snapshot,
                Err(_) if sent.is_err() => std::future::pending().await, // The process ends.
                Err(_) => {}
            }
        }
    }
}

impl IndexReader {
    /// Answers requests, for ever.
    pub(crate) async fn run(mut self, bus: &dyn Bus) {
        while let Some(first) = self.requests.recv().await {
            tokio::time::sleep(GATHER).await;
            let mut asked = vec![first];
            while let Ok(request) = self.requests.try_recv() {
                asked.push(request);
            }
            let mut groups = read(bus).await;
            // Who is not there any more has lost the lease meanwhile, and maybe taken it again.
            asked.retain(|(_, reply)| !reply.is_closed());
            for (group, reply) in asked {
                let _ = reply.send(groups.remove(&group).unwrap_or_default());
            }
        }
    }
}

async fn read(bus: &dyn Bus) -> std::collections::HashMap<Group, LogSnapshot> {
    let mut backoff = Backoff::new(RETRY_BASE_MS, RETRY_MAX_MS);
    loop {
        match bus.index().await {
            Ok(index) => return LogSnapshot::by_group(index),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "index of the log not read: tried again; check NATS if this repeats"
                );
                tokio::time::sleep(backoff.next(rand::random())).await;
            }
        }
    }
}
