//! Limits of live reads. Scans have limits of their own, so they take nothing from admission. The policies of one namespace
//! have a part together, so that they leave the rest to others.

use std::{collections::HashMap, sync::Arc};

use anteroom_model::FactError;
use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::{LiveArgs, bucket::Bucket};

/// The divisor of admission's limits that gives the separate limits of scans, at least 1.
const SCANS_PART: u32 = 4;

/// The divisor of admission's limits that gives the share of a namespace's policies, at least 1.
const NAMESPACE_PART: u32 = 4;

/// The policies of all namespaces together have so many hundredths of what admission has, so that policies of the cluster
/// have the rest; one at least.
const NAMESPACES_PERCENT: u32 = 75;

/// Namespaces that are counted at once. At the limit, those that have read nothing for a while are forgotten.
const NAMESPACES_MAX: usize = 1_024;

/// The limits of live reads for one kind of readers.
#[derive(Debug)]
pub(super) struct Limits {
    bucket: Mutex<Bucket>,
    places: Arc<Semaphore>,
    per_second: u32,
    at_once: u32,
}

impl Limits {
    /// For admission.
    pub(super) fn of_admission(args: &LiveArgs) -> Self {
        Self::new(args.live_reads_per_second, args.live_read_concurrency)
    }

    /// For scans.
    pub(super) fn of_scans(args: &LiveArgs) -> Self {
        let part = |whole: u32| (whole / SCANS_PART).max(1);
        Self::new(
            part(args.live_reads_per_second),
            part(args.live_read_concurrency),
        )
    }

    fn new(per_second: u32, at_once: u32) -> Self {
        Self {
            bucket: Mutex::new(Bucket::new(per_second, Instant::now())),
            places: Arc::new(Semaphore::new(at_once as usize)),
            per_second,
            at_once,
        }
    }

    /// Waits until a read may begin.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where that is after `deadline`.
    pub(super) async fn turn(&self, deadline: Instant) -> Result<(), FactError> {
        let now = Instant::now();
        let most = deadline.saturating_duration_since(now);
        let wait = self.bucket.lock().take(now, most);
        let wait = wait.ok_or_else(|| {
            busy(&format!(
                "{} live reads are begun in a second",
                self.per_second
            ))
        })?;
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// A place, until it is dropped.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where none is free before `deadline`.
    pub(super) async fn place(&self, deadline: Instant) -> Result<SemaphorePermit<'_>, FactError> {
        self.within(deadline, self.places.acquire()).await
    }

    /// A place as from [`Limits::place`], which may outlive these limits.
    async fn owned_place(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, FactError> {
        let place = Arc::clone(&self.places).acquire_owned();
        self.within(deadline, place).await
    }

    async fn within<P>(
        &self,
        deadline: Instant,
        place: impl Future<Output = Result<P, AcquireError>>,
    ) -> Result<P, FactError> {
        let most = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(most, place).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(busy(&format!("{} live reads are under way", self.at_once))),
        }
    }

    /// Returns true if no read is under way, and the rate of reads was low enough to be forgotten.
    fn is_unused(&self, now: Instant) -> bool {
        self.places.available_permits() == self.at_once as usize && self.bucket.lock().is_full(now)
    }
}

/// The shares of namespaces in the live reads of admission.
#[derive(Debug)]
pub(super) struct Shares {
    per_second: u32,
    at_once: u32,
    /// The share of all of them together.
    together: Limits,
    namespaces: Mutex<HashMap<String, Arc<Limits>>>,
}

impl Shares {
    pub(super) fn new(args: &LiveArgs) -> Self {
        let part = |whole: u32| (whole / NAMESPACE_PART).max(1);
        Self {
            per_second: part(args.live_reads_per_second),
            at_once: part(args.live_read_concurrency),
            together: Limits::new(
                percent_of(args.live_reads_per_second),
                percent_of(args.live_read_concurrency),
            ),
            namespaces: Mutex::default(),
        }
    }

    /// Waits until a policy of this namespace may begin one more read, and returns its places, until they are dropped.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where that is after `deadline`.
    pub(super) async fn admit(
        &self,
        namespace: &str,
        deadline: Instant,
    ) -> Result<[OwnedSemaphorePermit; 2], FactError> {
        let limits = self.of_namespace(namespace);
        let of_namespace = |error| match error {
            FactError::LiveReadBusy { message } => busy(&format!(
                "{message} for policies of namespace `{namespace}`"
            )),
            error => error,
        };
        let of_all = |error| match error {
            FactError::LiveReadBusy { message } => {
                busy(&format!("{message} for policies of namespaces together"))
            }
            error => error,
        };
        limits.turn(deadline).await.map_err(of_namespace)?;
        let place = limits.owned_place(deadline).await.map_err(of_namespace)?;
        self.together.turn(deadline).await.map_err(of_all)?;
        let other = self.together.owned_place(deadline).await.map_err(of_all)?;
        Ok([place, other])
    }

    fn of_namespace(&self, namespace: &str) -> Arc<Limits> {
        let mut namespaces = self.namespaces.lock();
        if let Some(limits) = namespaces.get(namespace) {
            return Arc::clone(limits);
        }
        if namespaces.len() >= NAMESPACES_MAX {
            let now = Instant::now();
            namespaces.retain(|_, limits| !limits.is_unused(now));
        }
        let limits = Arc::new(Limits::new(self.per_second, self.at_once));
        namespaces.insert(namespace.to_owned(), Arc::clone(&limits));
        limits
    }
}

/// Returns the part of all namespaces.
fn percent_of(whole: u32) -> u32 {
    (u64::from(whole) * u64::from(NAMESPACES_PERCENT) / 100).max(1) as u32
}

fn busy(message: &str) -> FactError {
    FactError::LiveReadBusy {
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn scans_have_a_quarter_and_one_at_least() {
        for (whole, part) in [(100, 25), (7, 1), (1, 1), (8, 2)] {
            let args = LiveArgs {
                live_reads_per_second: whole,
                live_read_concurrency: whole,
                ..LiveArgs::default()
            };
            let scans = Limits::of_scans(&args);
            assert_eq!((scans.per_second, scans.at_once), (part, part), "{whole}");
            assert_eq!(Limits::of_admission(&args).at_once, whole);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_has_a_part_and_leaves_the_rest_to_others() {
        let shares = Shares::new(&LiveArgs {
            live_reads_per_second: 100,
            live_read_concurrency: 8,
            ..LiveArgs::default()
        });
        let soon = || Instant::now() + Duration::from_millis(5);
        let held = [
            shares.admit("a", soon()).await.unwrap(),
            shares.admit("a", soon()).await.unwrap(),
        ];
        let full = shares.admit("a", soon()).await.map(drop).unwrap_err();
        assert!(full.to_string().contains("of namespace `a`"), "{full}");
        shares.admit("b", soon()).await.map(drop).unwrap();
        drop(held);
        shares.admit("a", soon()).await.map(drop).unwrap();
        // A quarter of the rate, and as many at once.
        let mut begun = 4;
        while shares.admit("a", Instant::now()).await.is_ok() {
            begun += 1;
        }
        assert!((24..=26).contains(&begun), "{begun}");
        let later = || Instant::now() + Duration::from_secs(1);
        for namespace in 0..NAMESPACES_MAX * 2 {
            let name = namespace.to_string();
            shares.admit(&name, later()).await.map(drop).unwrap();
        }
        assert!(shares.namespaces.lock().len() <= NAMESPACES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn many_namespaces_leave_a_quarter_to_policies_of_the_cluster() {
        let shares = Shares::new(&LiveArgs {
            live_reads_per_second: 100,
            live_read_concurrency: 8,
            ..LiveArgs::default()
        });
        let soon = || Instant::now() + Duration::from_millis(5);
        let mut held = Vec::new();
        for name in ["a", "a", "b", "b", "c", "c"] {
            held.push(shares.admit(name, soon()).await.unwrap());
        }
        let full = shares.admit("d", soon()).await.map(drop).unwrap_err();
        assert!(
            full.to_string().contains("of namespaces together"),
            "{full}"
        );
        drop(held);
        // Three quarters of the rate, and as many at once.
        let mut begun = 6;
        for namespace in 0..100 {
            let name = format!("n{namespace}");
            begun += u32::from(shares.admit(&name, Instant::now()).await.is_ok());
        }
        assert!((74..=76).contains(&begun), "{begun}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_place_or_a_turn_it_is_busy() {
        let limits = Limits::new(1, 1);
        let soon = || Instant::now() + Duration::from_millis(5);
        limits.turn(soon()).await.unwrap();
        let place = limits.place(soon()).await.unwrap();
        let late = limits.turn(soon()).await.unwrap_err();
        assert!(late.to_string().contains("begun in a second"), "{late}");
        let full = limits.place(soon()).await.map(drop).unwrap_err();
        assert!(full.to_string().contains("under way"), "{full}");
        drop(place);
        limits.place(soon()).await.map(drop).unwrap();
    }
}
