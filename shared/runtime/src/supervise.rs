//! Tasks whose unexpected end ends the process.

use std::{any::Any, future::Future, panic::AssertUnwindSafe, sync::Arc};

use anyhow::{Context as _, anyhow};
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::Shutdown;

/// The long-running tasks of a service. One that ends before shutdown was asked for, well or with
/// an error or a panic, asks for it: half a service is worse than a restarted one.
///
/// Dropping this aborts the tasks.
#[derive(Debug)]
pub struct Tasks {
    shutdown: Shutdown,
    tasks: Mutex<JoinSet<()>>,
    failure: Arc<Mutex<Option<anyhow::Error>>>,
}

impl Tasks {
    /// None yet.
    pub fn new(shutdown: Shutdown) -> Self {
        Self {
            shutdown,
            tasks: Mutex::new(JoinSet::new()),
            failure: Arc::default(),
        }
    }

    /// Runs `future` until it ends, which it should once shutdown is asked for.
    pub fn spawn(
        &self,
        name: &'static str,
        future: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let shutdown = self.shutdown.clone();
        let failure = Arc::clone(&self.failure);
        self.tasks.lock().spawn(async move {
            let outcome = AssertUnwindSafe(future).catch_unwind().await;
            let outcome: anyhow::Result<()> = match outcome {
                Ok(Ok(())) if shutdown.is_triggered() => return,
                Ok(Ok(())) => Err(anyhow!("it ended before it was asked to")),
                Ok(Err(error)) => Err(error),
                Err(panic) => Err(anyhow!("it panicked: {}", panic_message(&*panic))),
            };
            if let Err(error) = outcome.with_context(|| format!("task {name} failed")) {
                shutdown.trigger(format!("{error:#}"));
                failure.lock().get_or_insert(error);
            }
        });
    }

    /// Waits until all tasks have ended. The first failure is the result.
    pub async fn join(self) -> anyhow::Result<()> {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while tasks.join_next().await.is_some() {}
        match self.failure.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
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
}
