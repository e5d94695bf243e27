//! Limits of live reads. Scans have limits of their own, so they take nothing from admission.

use std::time::Instant;

use anteroom_model::FactError;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{LiveArgs, bucket::Bucket};

/// Scans have this part of what admission has, beside it; one at least.
const SCANS_PART: u32 = 4;

/// The limits of live reads for one kind of readers.
#[derive(Debug)]
pub(super) struct Limits {
    bucket: Mutex<Bucket>,
    places: Semaphore,
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
            places: Semaphore::new(at_once as usize),
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
        let most = deadline.saturating_duration_since(Instant::now());
        match tokio::time::timeout(most, self.places.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(busy(&format!("{} live reads are under way", self.at_once))),
        }
    }
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
