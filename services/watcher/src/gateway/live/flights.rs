//! Reads under way: equal reads share a single request.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use futures::{FutureExt as _, future::Shared};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Instrument as _;

/// Reads in progress, by the key that equal reads share.
#[derive(Debug)]
pub(super) struct Flights<K, T> {
    under_way: Arc<Mutex<HashMap<K, Flight<T>>>>,
}

/// A read in progress, perhaps begun by a different reader. The read goes on if its readers give up, since more may
/// have joined.
#[derive(Clone, Debug)]
pub(super) struct Flight<T> {
    landed: Shared<oneshot::Receiver<T>>,
    /// The begin of the read.
    pub(super) begun: Instant,
}

impl<T: Clone> Flight<T> {
    /// Returns the result; `None` if the read panicked.
    pub(super) async fn landed(self) -> Option<T> {
        self.landed.await.ok()
    }
}

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self {
            under_way: Arc::default(),
        }
    }
}

impl<K, T> Flights<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Joins the flight of this key, or begins it. Says whether it was joined.
    pub(super) fn join<F>(&self, key: K, begin: impl FnOnce() -> F) -> (Flight<T>, bool)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut under_way = self.under_way.lock();
        if let Some(flight) = under_way.get(&key) {
            return (flight.clone(), true);
        }
        let (sender, landed) = oneshot::channel();
        let flight = Flight {
            landed: landed.shared(),
            begun: Instant::now(),
        };
        under_way.insert(key.clone(), flight.clone());
        // After any end, no reader joins the flight any more.
        let ended = Ended {
            under_way: Arc::clone(&self.under_way),
            key,
        };
        let read = begin();
        let flying = async move {
            let brought = read.await;
            drop(ended);
            // Nobody may be waiting any more.
            let _ = sender.send(brought);
        };
        tokio::spawn(flying.in_current_span());
        (flight, false)
    }
}

struct Ended<K: Eq + Hash, T> {
    under_way: Arc<Mutex<HashMap<K, Flight<T>>>>,
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
        let flights: Flights<&str, usize> = Flights::default();
        let begun = Arc::new(AtomicUsize::new(0));
        let (land, landing) = tokio::sync::watch::channel(false);
        let join = |key| {
            let (begun, mut landing) = (Arc::clone(&begun), landing.clone());
            flights.join(key, move || async move {
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
        assert!(!joined, "another read is another flight");
        land.send_replace(true);
        let first = first.landed().await.unwrap();
        assert_eq!(second.landed().await, Some(first));
        assert_ne!(other.landed().await, Some(first));
        let (again, joined) = join("a");
        assert!(!joined, "nothing is kept");
        assert!(again.landed().await.is_some());
        assert_eq!(begun.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn a_flight_that_panics_is_not_joined_for_ever() {
        let flights: Flights<(), ()> = Flights::default();
        let (flight, _) = flights.join((), || async { panic!("a test's own") });
        assert_eq!(flight.landed().await, None);
        let (flight, joined) = flights.join((), || async {});
        assert!(!joined);
        assert_eq!(flight.landed().await, Some(()));
    }
}
