//! Requests that have arrived and are not answered yet.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use super::limits;

/// The most requests in progress before anybody knows whom they are for. A further request gets the answer that the
/// watcher is busy. Only floods get there: [`limits::WAITING_MAX`] is met before.
const REQUESTS_MAX: usize = 2 * limits::WAITING_MAX as usize;

/// The most bytes of requests whose heads are not read yet. From then on, what a request takes is counted for the party
/// that it is for.
const UNREAD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The bytes of a request, until its head is read.
pub(super) type UnreadBytes = OwnedSemaphorePermit;

/// The requests in progress, at all addresses.
pub(super) struct Arrivals {
    /// The tasks that answer them.
    pub(super) tasks: TaskTracker,
    unread: Arc<Semaphore>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            tasks: TaskTracker::new(),
            unread: Arc::new(Semaphore::new(UNREAD_BYTES_MAX)),
        }
    }
}

impl Arrivals {
    /// Takes a request of so many bytes in.
    ///
    /// # Errors
    /// The reason why the watcher is too busy for the request.
    pub(super) fn admit(&self, bytes: usize) -> Result<UnreadBytes, String> {
        if self.tasks.len() >= REQUESTS_MAX {
            return Err(format!("{REQUESTS_MAX} live reads wait"));
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let unread = Arc::clone(&self.unread).try_acquire_many_owned(bytes);
        unread.map_err(|_| format!("{UNREAD_BYTES_MAX} bytes of live reads wait to be read"))
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::limits::MESSAGE_BYTES_MAX;

    use super::*;

    #[test]
    fn requests_that_nobody_has_read_yet_have_so_many_bytes_together() {
        let arrivals = Arrivals::default();
        let admit_all = |bytes| -> Vec<_> {
            let admitted = std::iter::from_fn(|| arrivals.admit(bytes).ok());
            admitted.collect()
        };
        let unread = admit_all(MESSAGE_BYTES_MAX);
        assert_eq!(unread.len(), UNREAD_BYTES_MAX / MESSAGE_BYTES_MAX);
        let error = arrivals.admit(1).map(drop).unwrap_err();
        assert!(error.contains("bytes of live reads"), "{error}");
        drop(unread);
        assert_eq!(admit_all(UNREAD_BYTES_MAX / 2).len(), 2);
    }

    #[tokio::test]
    async fn so_many_requests_are_in_progress_and_no_more() {
        let arrivals = Arrivals::default();
        let tasks: Vec<_> = (0..REQUESTS_MAX)
            .map(|_| {
                assert!(arrivals.admit(0).is_ok());
                arrivals.tasks.token()
            })
            .collect();
        let error = arrivals.admit(0).map(drop).unwrap_err();
        assert_eq!(error, format!("{REQUESTS_MAX} live reads wait"));
        drop(tasks);
        assert!(arrivals.admit(0).is_ok());
    }
}
