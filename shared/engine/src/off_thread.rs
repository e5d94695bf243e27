//! Long work beside the other tasks of a runtime.

pub use anteroom_runtime::off_thread::off_thread;
pub(crate) use anteroom_runtime::off_thread::off_thread_if;

/// Bytes above which a request, and what is made of it, is large: work on it may take long.
pub(crate) const SHORT_BYTES_MAX: usize = 64 * 1024;

/// Does work on so many bytes, such as parsing or writing them. Where they are many, no other task waits for it.
pub fn off_thread_if_large<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    off_thread_if(bytes > SHORT_BYTES_MAX, work)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns whether another task goes on, in a runtime with one thread, during work on so many bytes that takes so
    /// long.
    async fn another_task_goes_on(bytes: usize, wait: Duration) -> bool {
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (done, waiting) = std::sync::mpsc::channel();
        let other = tokio::spawn(async move {
            begun.await.unwrap();
            // Nobody receives it where the work is over.
            let _ = done.send(());
        });
        let work = tokio::spawn(async move {
            begin.send(()).unwrap();
            off_thread_if_large(bytes, || waiting.recv_timeout(wait).is_ok())
        });
        let goes_on = work.await.unwrap();
        other.await.unwrap();
        goes_on
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_on_many_bytes_holds_up_no_other_task() {
        let (short, long) = (Duration::from_millis(50), Duration::from_secs(30));
        assert!(!another_task_goes_on(SHORT_BYTES_MAX, short).await);
        assert!(another_task_goes_on(SHORT_BYTES_MAX + 1, long).await);
    }
}
