//! Supervision of long-running tasks: an end that nobody asked for is an error that names the task.

use std::{any::Any, borrow::Cow, future::Future, panic::AssertUnwindSafe};

use anyhow::{Context as _, anyhow};
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::task::{AbortHandle, JoinSet};

use crate::Shutdown;

/// The long-running tasks of a service, or of a part of one, as of a term.
///
/// A task fails if it ends before shutdown was asked for: well, with an error or with a panic. A task of a service
/// then asks for shutdown, since half a service is worse than a restarted one. Of a [part](Tasks::of_part), only its
/// owner is told, by [`Tasks::failed`].
///
/// Dropping this aborts the tasks.
#[derive(Debug)]
pub struct Tasks {
    shutdown: Shutdown,
    is_service: bool,
    tasks: Mutex<JoinSet<anyhow::Result<()>>>,
}

impl Tasks {
    /// No tasks yet, of a whole service: the failure of one asks for its shutdown.
    pub fn new(shutdown: Shutdown) -> Self {
        Self {
            shutdown,
            is_service: true,
            tasks: Mutex::new(JoinSet::new()),
        }
    }

    /// No tasks yet, of a part that may end before the service does: await [`Tasks::failed`] beside its work, and end it
    /// by [`Tasks::stop`]. `shutdown` is the service's.
    pub fn of_part(shutdown: Shutdown) -> Self {
        Self {
            is_service: false,
            ..Self::new(shutdown)
        }
    }

    /// Runs `future` until it ends, which it should once shutdown is asked for. A task that is aborted by the handle
    /// has not failed.
    pub fn spawn(
        &self,
        name: impl Into<Cow<'static, str>>,
        future: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) -> AbortHandle {
        let (name, shutdown) = (name.into(), self.shutdown.clone());
        let is_service = self.is_service;
        self.tasks.lock().spawn(async move {
            let outcome = AssertUnwindSafe(future).catch_unwind().await;
            let outcome = match outcome {
                Ok(Ok(())) if shutdown.is_triggered() => Ok(()),
                Ok(Ok(())) => Err(anyhow!("it ended before it was asked to")),
                Ok(Err(error)) => Err(error),
                Err(panic) => Err(anyhow!("it panicked: {}", panic_message(&*panic))),
            };
            let outcome = outcome.with_context(|| format!("task {name} failed"));
            if let (true, Err(error)) = (is_service, &outcome) {
                shutdown.trigger(format!("{error:#}"));
            }
            outcome
        })
    }

    /// Runs a `future` that never ends by itself, and drops it once shutdown is asked for.
    pub fn spawn_until_shutdown(
        &self,
        name: impl Into<Cow<'static, str>>,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        let stop = self.shutdown.token();
        self.spawn(name, async move {
            stop.run_until_cancelled(future).await;
            Ok(())
        })
    }

    /// Waits for a task to fail, for ever if none does. Dropping the future loses nothing.
    pub async fn failed(&mut self) -> anyhow::Error {
        loop {
            match self.tasks.get_mut().join_next().await {
                Some(Ok(Err(error))) => return error,
                // It ended in time, or was aborted.
                Some(Ok(Ok(())) | Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Aborts the tasks, and waits until none of them runs any more.
    pub async fn stop(self) {
        self.tasks.into_inner().shutdown().await;
    }

    /// Waits until all tasks have ended. The first failure is the result.
    pub async fn join(self) -> anyhow::Result<()> {
        let mut tasks = self.tasks.into_inner();
        let mut first = Ok(());
        while let Some(ended) = tasks.join_next().await {
            first = first.and(ended.unwrap_or(Ok(())));
        }
        first
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn until_shutdown(shutdown: Shutdown) -> anyhow::Result<()> {
        shutdown.triggered().await;
        Ok(())
    }

    #[tokio::test]
    async fn tasks_that_stop_when_asked_are_no_failure() {
        let shutdown = Shutdown::new();
        let tasks = Tasks::new(shutdown.clone());
        tasks.spawn("a", until_shutdown(shutdown.clone()));
        shutdown.trigger("done");
        tasks.join().await.unwrap();
    }

    #[tokio::test]
    async fn an_end_an_error_and_a_panic_shut_the_others_down() {
        type Task = futures::future::BoxFuture<'static, anyhow::Result<()>>;
        let cases: [(Task, &str); 3] = [
            (
                async { Ok(()) }.boxed(),
                "task b failed: it ended before it was asked to",
            ),
            (
                async { Err(anyhow!("no luck")) }.boxed(),
                "task b failed: no luck",
            ),
            (
                async { panic!("at {}", 3) }.boxed(),
                "task b failed: it panicked: at 3",
            ),
        ];
        for (task, expected) in cases {
            let shutdown = Shutdown::new();
            let tasks = Tasks::new(shutdown.clone());
            tasks.spawn("a", until_shutdown(shutdown.clone()));
            tasks.spawn("b", task);
            let error = tasks.join().await.unwrap_err();
            assert_eq!(format!("{error:#}"), expected);
            assert_eq!(shutdown.reason(), Some(expected));
        }
    }

    #[tokio::test]
    async fn a_part_that_fails_tells_its_owner_and_leaves_the_service_running() {
        let shutdown = Shutdown::new();
        let mut tasks = Tasks::of_part(shutdown.clone());
        tasks.spawn("a", until_shutdown(shutdown.clone()));
        let aborted = tasks.spawn("b", until_shutdown(shutdown.clone()));
        aborted.abort();
        tasks.spawn(format!("group {}", 3), async { Err(anyhow!("no luck")) });
        let error = tasks.failed().await;
        assert_eq!(format!("{error:#}"), "task group 3 failed: no luck");
        assert!(!shutdown.is_triggered());
        tasks.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_aborted_or_asked_to_end_report_no_failure() {
        let shutdown = Shutdown::new();
        let mut tasks = Tasks::of_part(shutdown.clone());
        tasks.spawn_until_shutdown("deaf", std::future::pending());
        tasks.spawn("b", std::future::pending()).abort();
        shutdown.trigger("done");
        let wait = std::time::Duration::from_secs(1);
        let failed = tokio::time::timeout(wait, tasks.failed()).await;
        assert!(failed.is_err(), "{failed:?}");
        tasks.join().await.unwrap();
    }
}
