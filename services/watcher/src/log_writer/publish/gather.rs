//! Changes in quick succession are appended together, so that they share the cost of waking the bus and every reader.
//! At some hundred changes a second, that is most of a change's cost.

use std::time::Duration;

use tokio::time::Instant;

use super::{Publisher, WriteQueue};

/// The shortest time from one batch to the next, where few changes wait and nothing else.
/// A change that comes alone waits for nothing.
pub(super) const GATHER: Duration = Duration::from_millis(8);

/// The time at which the last batch began.
#[derive(Debug, Default)]
pub(super) struct Pace {
    begun: Option<Instant>,
}

impl Pace {
    /// A batch begins now.
    pub(super) fn begin(&mut self) {
        self.begun = Some(Instant::now());
    }
}

impl Publisher {
    /// Lets changes gather for a while, unless some waiting item is urgent.
    pub(super) async fn gather(&self, pace: &Pace) {
        let Some(until) = pace.begun.map(|begun| begun + GATHER) else {
            return;
        };
        while Instant::now() < until && self.read(WriteQueue::may_gather) {
            let more = self.shared.work.notified();
            // At its end nothing more has come.
            let _ = tokio::time::timeout_at(until, more).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{ObjectKey, ResourceVersion};
    use bytes::Bytes;

    use super::*;
    use crate::log_writer::publish::{
        ChangeOrigin, Work, WriteHandle, tests::opened, write_queue::GATHERED_MAX,
    };

    fn change(publisher: &Publisher, handle: &WriteHandle, name: &str) {
        let (key, version) = (ObjectKey::new("n", name), ResourceVersion::new("1"));
        let now = Instant::now();
        publisher
            .with(|queue| queue.put(handle, key, version, Bytes::new(), now, ChangeOrigin::List));
    }

    fn written(publisher: &Publisher) -> usize {
        match publisher.with(|queue| queue.next_work(Instant::now())) {
            Some(Work::Append(batch)) => batch.records.len(),
            Some(Work::Purge(_)) | None => 0,
        }
    }

    /// Returns the time that a writer waits, while `then` happens 3 ms after it began to.
    async fn waits(publisher: &Publisher, pace: &Pace, then: impl FnOnce()) -> Duration {
        let begun = Instant::now();
        let happens = async {
            tokio::time::sleep(Duration::from_millis(3)).await;
            then();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = publisher.gather(pace) => {}
            () = happens => {}
        }
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn changes_that_come_thick_are_one_batch() {
        let (publisher, handle) = opened();
        written(&publisher);
        let mut pace = Pace::default();
        change(&publisher, &handle, "first");
        assert_eq!(waits(&publisher, &pace, || ()).await, Duration::ZERO);
        assert_eq!(written(&publisher), 1);
        pace.begin();
        change(&publisher, &handle, "second");
        let more = || change(&publisher, &handle, "third");
        assert!(waits(&publisher, &pace, more).await >= GATHER);
        assert_eq!(written(&publisher), 2);
        pace.begin();
        tokio::time::advance(GATHER).await;
        change(&publisher, &handle, "alone");
        assert_eq!(waits(&publisher, &pace, || ()).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_control_record_or_a_full_batch_ends_the_wait() {
        let (publisher, handle) = opened();
        let mut pace = Pace::default();
        pace.begin();
        assert_eq!(
            waits(&publisher, &pace, || ()).await,
            Duration::ZERO,
            "a record of where a view stands waits for nothing"
        );
        written(&publisher);
        change(&publisher, &handle, "one");
        let synced = || publisher.with(|queue| queue.complete(&handle));
        assert!(waits(&publisher, &pace, synced).await < GATHER);
        written(&publisher);
        (0..GATHERED_MAX).for_each(|at| change(&publisher, &handle, &at.to_string()));
        let another = || change(&publisher, &handle, "another");
        assert!(waits(&publisher, &pace, another).await < GATHER);
    }
}
