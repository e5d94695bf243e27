//! Reads under way: equal reads share a single request.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use futures::{FutureExt as _, future::Shared};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument as _;

/// Reads in progress, by the key that equal reads share.
#[derive(Debug)]
pub(super) struct SharedReads<K, T> {
    under_way: Arc<Mutex<HashMap<K, SharedRead<T>>>>,
}

/// A read in progress, perhaps begun by a different reader. The read goes on if its readers give up, since more may
/// have joined.
#[derive(Clone, Debug)]
pub(super) struct SharedRead<T> {
    result: Shared<oneshot::Receiver<T>>,
    /// The begin of the read.
    pub(super) begun: Instant,
}

impl<T: Clone> SharedRead<T> {
    /// Returns the result; `None` if the read panicked.
    pub(super) async fn result(self) -> Option<T> {
        self.result.await.ok()
    }
}

impl<K, T> Default for SharedReads<K, T> {
    fn default() -> Self {
        Self {
            under_way: Arc::default(),
        }
    }
}

impl<K, T> SharedReads<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Joins the read of this key, or begins it. Says whether it was joined.
    pub(super) fn join<F>(&self, key: K, begin: impl FnOnce() -> F) -> (SharedRead<T>, bool)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut under_way = self.under_way.lock();
        if let Some(shared) = under_way.get(&key) {
            return (shared.clone(), true);
        }
        let (sender, result) = oneshot::channel();
        let shared = SharedRead {
            result: result.shared(),
            begun: Instant::now(),
        };
        under_way.insert(key.clone(), shared.clone());
        // After any end, no reader joins the read any more.
        let ended = Ended {
            under_way: Arc::clone(&self.under_way),
            key,
        };
        let read = begin();
        let reading = async move {
            let brought = read.await;
            drop(ended);
            // Nobody may be waiting any more.
            let _ = sender.send(brought);
        };
        tokio::spawn(reading.in_current_span());
        (shared, false)
    }
}

struct Ended<K: Eq + Hash, T> {
    under_way: Arc<Mutex<HashMap<K, SharedRead<T>>>>,
    key: K,
}

impl<K: Eq + Hash, T> Drop for Ended<K, T> {
    fn drop(&mut self) {
        self.under_way.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Equal reads share one while it is under way; a later one reads again.
    #[tokio::test]
    async fn equal_reads_are_one_while_they_are_under_way() {
        let shared_reads: SharedReads<&str, usize> = SharedReads::default();
        let begun = Arc::new(AtomicUsize::new(0));
        let (land, landing) = tokio::sync::watch::channel(false);
        let join = |key| {
            let (begun, mut landing) = (Arc::clone(&begun), landing.clone());
            shared_reads.join(key, move || async move {
                let at = begun.fetch_add(1, Ordering::SeqCst);
                landing.wait_for(|now| *now).await.unwrap();
                at
            })
        };
        let (first, joined) = join("a");
        assert!(!joined);
        let (second, joined) = join("a");
        assert!(joined);
        assert_eq!(first.begun, second.begun);
        let (other, joined) = join("b");
        assert!(!joined, "a read of a different key is not shared");
        land.send_replace(true);
        let first = first.result().await.unwrap();
        assert_eq!(second.result().await, Some(first));
        assert_ne!(other.result().await, Some(first));
        let (again, joined) = join("a");
        assert!(!joined, "nothing is kept");
        assert!(again.result().await.is_some());
        assert_eq!(begun.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_read_that_panics_is_not_joined_for_ever() {
        let shared_reads: SharedReads<(), ()> = SharedReads::default();
        let (shared, _) = shared_reads.join((), || async { panic!("a test's own") });
        assert_eq!(shared.result().await, None);
        let (shared, joined) = shared_reads.join((), || async {});
        assert!(!joined);
        assert_eq!(shared.result().await, Some(()));
    }
}
