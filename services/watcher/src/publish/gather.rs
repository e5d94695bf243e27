//! Changes that come thick are appended together, so that they share what waking the bus and every
//! reader costs: at some hundred a second, that is most of what a change costs.

use std::time::Duration;

use tokio::time::Instant;

use super::{Book, Publisher};

/// How long after a batch the next one begins at the earliest, where few changes wait and nothing else.
/// A change that comes alone waits for nothing.
pub(super) const GATHER: Duration = Duration::from_millis(8);

/// When the last batch began.
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
    /// Lets changes gather for a while, unless what waits is in a hurry.
    pub(super) async fn gather(&self, pace: &Pace) {
        let Some(until) = pace.begun.map(|begun| begun + GATHER) else {
            return;
        };
        while Instant::now() < until && self.look(Book::may_gather) {
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
    use tracing::Span;

    use super::*;
    use crate::publish::{Tenure, Work, book::GATHERED_MAX, tests::opened};

    fn change(publisher: &Publisher, tenure: &Tenure, name: &str) {
        let (key, version) = (ObjectKey::new("n", name), ResourceVersion::new("1"));
        let now = std::time::Instant::now();
        publisher.with(|book| book.put(tenure, key, version, Bytes::new(), now, Span::none()));
    }

    fn written(publisher: &Publisher) -> usize {
        match publisher.with(|book| book.next_work(std::time::Instant::now())) {
            Some(Work::Append(batch)) => batch.records.len(),
            Some(Work::Purge(_)) | None => 0,
        }
    }

    /// How long whoever writes waits, while `then` happens 3 ms after it began to.
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
        let (publisher, tenure) = opened();
        written(&publisher);
        let mut pace = Pace::default();
        change(&publisher, &tenure, "first");
        assert_eq!(waits(&publisher, &pace, || ()).await, Duration::ZERO);
        assert_eq!(written(&publisher), 1);
        pace.begin();
        change(&publisher, &tenure, "second");
        let more = || change(&publisher, &tenure, "third");
        assert!(waits(&publisher, &pace, more).await >= GATHER);
        assert_eq!(written(&publisher), 2);
        pace.begin();
        tokio::time::advance(GATHER).await;
        change(&publisher, &tenure, "alone");
        assert_eq!(waits(&publisher, &pace, || ()).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_in_a_hurry_ends_the_wait() {
        let (publisher, tenure) = opened();
        let mut pace = Pace::default();
        pace.begin();
        assert_eq!(
            waits(&publisher, &pace, || ()).await,
            Duration::ZERO,
            "a record of where a view stands waits for nothing"
        );
        written(&publisher);
        change(&publisher, &tenure, "one");
        let synced = || publisher.with(|book| book.complete(&tenure));
        assert!(waits(&publisher, &pace, synced).await < GATHER);
        written(&publisher);
        (0..GATHERED_MAX).for_each(|at| change(&publisher, &tenure, &at.to_string()));
        let another = || change(&publisher, &tenure, "another");
        assert!(waits(&publisher, &pace, another).await < GATHER);
    }
}
