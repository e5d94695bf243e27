//! The end of a webhook: it drains, and then it stops.
//!
//! A process that is asked to stop is not ready from that moment on, so the webhook's Service leaves it out. Until
//! every API server has heard of that, reviews go on to come, by connections that were kept and by new ones. A review
//! that is lost then is a refused write where the failure policy is `Fail`: an API server posts it only once.
//!
//! | | while the webhook drains | once it stops |
//! |---|---|---|
//! | a new connection | is taken | is refused |
//! | a kept connection | leaves with its next answer: see `server::listen` | is closed, unless reviews are under way |
//! | a review | is decided | is decided, if it was received before |
//! | log, certificate, configurations | are followed and kept | are left alone |
//! | heartbeats | go on | the last one says that the webhook leaves |
//!
//! So a policy that becomes ready meanwhile is enforced here too: the coordinator waits for whoever sends heartbeats.

use std::time::Duration;

use anteroom_runtime::Shutdown;

/// The moments at which a webhook begins to drain, and at which it stops. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    /// Asked for when the process has to end.
    process: Shutdown,
    /// Asked for when the webhook has drained, or when one of its tasks has failed.
    stop: Shutdown,
    period: Duration,
}

impl Drain {
    /// A drain of this length, from when the process is asked to stop.
    pub(crate) fn new(process: &Shutdown, period: Duration) -> Self {
        let stop = match period.is_zero() {
            true => process.clone(),
            false => Shutdown::new(),
        };
        Self {
            process: process.clone(),
            stop,
            period,
        }
    }

    /// Returns the shutdown that the webhook's tasks obey.
    pub(crate) fn stop(&self) -> &Shutdown {
        &self.stop
    }

    /// Returns true from when the process was asked to stop.
    pub(crate) fn has_begun(&self) -> bool {
        self.process.is_triggered()
    }

    /// Waits until the process is asked to stop.
    pub(crate) async fn begun(&self) {
        self.process.triggered().await;
    }

    /// Returns the task that leads from one moment to the other; `None`: both are the same. A webhook of which a task
    /// has failed does not drain, and its process stops with it.
    pub(crate) fn task(&self) -> Option<impl Future<Output = anyhow::Result<()>> + use<>> {
        let Self {
            process,
            stop,
            period,
        } = self.clone();
        (!period.is_zero()).then_some(async move {
            let drained = async {
                process.triggered().await;
                tracing::info!(
                    seconds = period.as_secs(),
                    "drain started: reviews are decided until it is over"
                );
                tokio::time::sleep(period).await;
            };
            tokio::select! {
                () = drained => stop.trigger("the webhook has drained"),
                () = stop.triggered() => {
                    process.trigger(stop.reason().unwrap_or("a task of the webhook failed"));
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use anteroom_runtime::supervise::Tasks;
    use anyhow::anyhow;
    use tokio::time::Instant;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn a_webhook_stops_once_it_has_drained() {
        let process = Shutdown::new();
        let drain = Drain::new(&process, PERIOD);
        let tasks = Tasks::new(drain.stop().clone());
        tasks.spawn("drain", drain.task().unwrap());
        assert!(!drain.has_begun());
        process.trigger("SIGTERM received");
        let begun = Instant::now();
        drain.begun().await;
        assert!(drain.has_begun() && !drain.stop().is_triggered());
        tasks.join().await.unwrap();
        assert!(drain.stop().is_triggered());
        assert_eq!(begun.elapsed(), PERIOD);
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_of_which_a_task_fails_does_not_drain() {
        let process = Shutdown::new();
        let drain = Drain::new(&process, PERIOD);
        let tasks = Tasks::new(drain.stop().clone());
        tasks.spawn("drain", drain.task().unwrap());
        tasks.spawn("a", async { Err(anyhow!("no luck")) });
        let begun = Instant::now();
        tasks.join().await.unwrap_err();
        assert_eq!(process.reason(), Some("task a failed: no luck"));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[test]
    fn without_a_drain_a_webhook_stops_with_its_process() {
        let process = Shutdown::new();
        let drain = Drain::new(&process, Duration::ZERO);
        assert!(drain.task().is_none());
        process.trigger("SIGTERM received");
        assert!(drain.has_begun() && drain.stop().is_triggered());
    }
}
