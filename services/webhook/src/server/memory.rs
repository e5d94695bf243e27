//! The memory of reviews that are being decided: by bytes, whatever their number.
//!
//! A parsed review takes as much memory as its text, or a hundred times that: objects of many small values take the most.
//! So its text says what it takes at most, and the review reserves that until it is answered. If too little memory is
//! free, it waits, and is refused if none gets free in half of its time. Small reviews have a reserve of their own, so that
//! none of them waits for a large one. A review that would take more than two thirds of the memory for large ones is refused
//! at once: one owner has no more, by one review or by many.
//!
//! The namespaces of the requests share each of the two fairly, so none of them takes what the others need. A namespace
//! that is refused because of its own reviews is told so: see [`NoMemory`].

use std::{sync::Arc, time::Duration};

use anteroom_engine::incoming::ReviewOwner;
use anteroom_policy::COMPILE_STEPS_MAX;
use anteroom_runtime::fair_quota::{FairPermit, FairQuota};
use tokio::time::Instant;

/// Memory that every review takes.
const REVIEW_BYTES_MIN: u64 = 64 * 1024;

/// Memory above which a review takes the memory of large ones.
const SMALL_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// The share of the memory that is for small reviews alone.
const SMALL_DIVISOR: u64 = 4;

/// Bytes of bodies that wait for memory at once. With one more, it is refused at once.
const WAITING_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The most memory that compiling a policy takes beside its review: 32 bytes for each of
/// [`COMPILE_STEPS_MAX`](anteroom_policy::COMPILE_STEPS_MAX) steps.
pub(super) const COMPILED_BYTES_MAX: u64 = 32 * COMPILE_STEPS_MAX;

/// The memory for reviews that are being decided.
#[derive(Debug)]
pub(crate) struct ReviewMemory {
    small: Arc<FairQuota<ReviewOwner>>,
    large: Arc<FairQuota<ReviewOwner>>,
    /// Bodies of reviews that wait for memory.
    waiting: Arc<FairQuota<ReviewOwner>>,
}

/// The memory that a review needs, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct NeededMemory {
    /// The bytes of its body.
    pub(super) body: usize,
    /// The most that its parts take once they are parsed, with all copies that are made of them.
    pub(super) parsed: u64,
    /// Memory for other work, as far as there is so much.
    pub(super) beside: u64,
}

/// The memory of one review, until this is dropped.
#[derive(Debug)]
pub(super) struct ReservedMemory {
    _taken: FairPermit<ReviewOwner>,
    /// The time for which the review waited for it.
    pub(super) waited: Duration,
}

/// The reason why there is no memory for a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoMemory {
    /// The other reviews of the same owner take more than the owner's part.
    OwnReviews,
    /// Reviews of other owners take it.
    OtherReviews,
    /// The review may take more than one may have.
    Never {
        /// The most that it takes.
        bytes: u64,
        /// The limit of one review.
        bytes_max: u64,
    },
}

impl ReviewMemory {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let small = bytes_max / SMALL_DIVISOR;
        Self {
            small: FairQuota::limiting_requests(small),
            large: FairQuota::limiting_requests(bytes_max - small),
            waiting: FairQuota::new(WAITING_BYTES_MAX, WAITING_BYTES_MAX),
        }
    }

    /// Takes memory for a review.
    ///
    /// # Errors
    /// There was none in half of the time until `deadline`, or there can be none.
    pub(super) async fn admit(
        &self,
        owner: ReviewOwner,
        needed: NeededMemory,
        deadline: Instant,
    ) -> Result<ReservedMemory, NoMemory> {
        let body = needed.body as u64;
        let least = REVIEW_BYTES_MIN
            .saturating_add(body)
            .saturating_add(needed.parsed);
        let bytes = least.saturating_add(needed.beside);
        let pool = match bytes <= SMALL_BYTES_MAX.min(self.small.key_units_max()) {
            true => &self.small,
            false => &self.large,
        };
        let bytes_max = pool.key_units_max();
        if least > bytes_max {
            return Err(NoMemory::Never {
                bytes: least,
                bytes_max,
            });
        }
        let bytes = bytes.min(bytes_max);
        if let Ok(taken) = pool.try_take(owner, bytes) {
            let waited = Duration::ZERO;
            return Ok(ReservedMemory {
                _taken: taken,
                waited,
            });
        }
        let begun = Instant::now();
        let patience = deadline.saturating_duration_since(begun) / 2;
        let until = begun + patience.max(Duration::from_millis(1));
        let taken = match self.waiting.try_take(owner, body) {
            Ok(_waiting) => pool.take(owner, bytes, until).await,
            Err(full) => Err(full),
        };
        match taken {
            Ok(taken) => Ok(ReservedMemory {
                _taken: taken,
                waited: begun.elapsed(),
            }),
            Err(_)
                if pool.would_exceed_part(&owner, bytes)
                    || self.waiting.would_exceed_part(&owner, body) =>
            {
                Err(NoMemory::OwnReviews)
            }
            Err(_) => Err(NoMemory::OtherReviews),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const MIB: usize = 1024 * 1024;

    /// The owner of the requests in a namespace.
    fn owner(namespace: &str) -> ReviewOwner {
        ReviewOwner::of(namespace, "")
    }

    /// The memory of a review with a body of so many bytes, which takes 30 times as much as that.
    fn of_body(body: usize) -> NeededMemory {
        NeededMemory {
            body,
            parsed: 30 * body as u64,
            beside: 0,
        }
    }

    fn in_seconds(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn large_reviews_wait_for_memory_and_small_ones_for_none_of_them() {
        let memory = ReviewMemory::new(192 * MIB as u64);
        let first = memory
            .admit(owner("a"), of_body(3 * MIB), in_seconds(10))
            .await;
        assert!(first.is_ok());
        let second = memory.admit(owner("a"), of_body(3 * MIB), in_seconds(10));
        let mut second = std::pin::pin!(second);
        assert!(
            second.as_mut().now_or_never().is_none(),
            "there is no memory"
        );
        let small = memory
            .admit(owner("a"), of_body(2_000), in_seconds(10))
            .now_or_never();
        assert_eq!(small.unwrap().unwrap().waited, Duration::ZERO);
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(first);
        assert_eq!(second.await.unwrap().waited, Duration::from_secs(1));
        assert!(
            memory
                .waiting
                .try_take(owner("a"), WAITING_BYTES_MAX)
                .is_ok()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_that_finds_no_memory_is_refused_after_half_of_its_time() {
        let memory = ReviewMemory::new(192 * MIB as u64);
        let _first = memory
            .admit(owner("a"), of_body(3 * MIB), in_seconds(10))
            .await
            .unwrap();
        for (owner, reason) in [
            (owner("a"), NoMemory::OwnReviews),
            (owner("b"), NoMemory::OtherReviews),
        ] {
            let begun = Instant::now();
            let needed = of_body(2 * MIB);
            let refused = memory.admit(owner, needed, in_seconds(10)).await;
            assert_eq!(refused.map(drop), Err(reason));
            assert_eq!(begun.elapsed().as_secs(), 5);
        }
    }

    /// There is room for four reviews.
    #[tokio::test(start_paused = true)]
    async fn an_owner_of_many_large_reviews_leaves_memory_to_others_and_is_blamed_itself() {
        let memory = ReviewMemory::new(160 * MIB as u64);
        let admit = async |owner| memory.admit(owner, of_body(950_000), in_seconds(10)).await;
        let mut held = Vec::new();
        let refused = loop {
            match admit(owner("a")).await {
                Ok(pool) => held.push(pool),
                Err(reason) => break reason,
            }
        };
        assert_eq!((held.len(), refused), (2, NoMemory::OwnReviews));
        let others = [
            admit(owner("b")).await.unwrap(),
            admit(owner("c")).await.unwrap(),
        ];
        assert!(others.iter().all(|other| other.waited.is_zero()));
        let refused = admit(owner("d")).await;
        assert_eq!(refused.map(drop), Err(NoMemory::OtherReviews));
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_that_takes_more_than_an_owner_may_have_is_refused_at_once() {
        let memory = ReviewMemory::new(128 * MIB as u64);
        let bytes_max = 64 * MIB as u64; // Of 96 MiB.
        let needed = |bytes: u64, beside: u64| NeededMemory {
            body: 1_000,
            parsed: bytes - 1_000 - REVIEW_BYTES_MIN,
            beside,
        };
        let admit = |needed| {
            memory
                .admit(owner("a"), needed, in_seconds(10))
                .now_or_never()
        };
        let refused = admit(needed(bytes_max + 1, 0)).unwrap();
        let bytes = bytes_max + 1;
        assert_eq!(refused.map(drop), Err(NoMemory::Never { bytes, bytes_max }));
        for beside in [0, COMPILED_BYTES_MAX] {
            assert!(admit(needed(bytes_max, beside)).unwrap().is_ok());
        }
    }

    /// Otherwise one giant after another would be admitted, and others would find no memory for as long as that goes on.
    #[tokio::test(start_paused = true)]
    async fn an_owner_of_giant_reviews_leaves_memory_and_the_next_turn_to_others() {
        // One owner has 208 MiB of 312.
        let memory = ReviewMemory::new(416 * MIB as u64);
        let admit = |name: &str, mib: usize, seconds| {
            let needed = NeededMemory {
                body: 1_000,
                parsed: (mib * MIB) as u64 - 1_000 - REVIEW_BYTES_MIN,
                beside: 0,
            };
            Box::pin(memory.admit(owner(name), needed, in_seconds(seconds)))
        };
        let refused = admit("a", 209, 30).await;
        assert!(matches!(refused, Err(NoMemory::Never { .. })));
        let first = admit("a", 208, 30).await.unwrap();
        tokio::time::advance(Duration::from_secs(16)).await;
        let mut second = admit("a", 208, 30);
        assert!((&mut second).now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(10)).await;
        let small = admit("b", 4, 10).await.unwrap();
        assert_eq!(small.waited, Duration::ZERO);
        let mut large = admit("c", 150, 10);
        assert!((&mut large).now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(4)).await;
        drop(first);
        let large = large.await.unwrap();
        assert_eq!(large.waited, Duration::from_secs(4));
        assert!((&mut second).now_or_never().is_none());
        drop(large);
        assert!(second.await.is_ok());
        drop(small);
    }

    /// A quarter of the memory is for small reviews alone.
    #[tokio::test(start_paused = true)]
    async fn a_small_review_takes_the_memory_of_large_ones_where_that_of_small_ones_is_less() {
        let memory = ReviewMemory::new(800 * 1024);
        let needed = NeededMemory {
            body: 1_000,
            parsed: 300 * 1024,
            beside: 0,
        };
        let admitted = memory.admit(owner("a"), needed, in_seconds(10)).await;
        assert!(admitted.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_takes_memory_for_compiling_it_too() {
        let memory = ReviewMemory::new(160 * MIB as u64);
        let admit = async |owner| {
            let needed = NeededMemory {
                beside: COMPILED_BYTES_MAX,
                ..of_body(2_000)
            };
            memory.admit(owner, needed, in_seconds(10)).await
        };
        let held = admit(owner("a")).await.unwrap();
        assert_eq!(
            admit(owner("b")).await.map(drop),
            Err(NoMemory::OtherReviews)
        );
        drop(held);
        assert!(admit(owner("b")).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_wait_are_limited() {
        let memory = ReviewMemory::new(192 * MIB as u64);
        let _first = memory
            .admit(owner("a"), of_body(3 * MIB), in_seconds(10))
            .await
            .unwrap();
        let waits = NeededMemory {
            body: 8 * MIB,
            parsed: 56 * MIB as u64,
            beside: 0,
        };
        let owners = ["b", "c", "d", "e"].into_iter().map(owner);
        let mut waiting: Vec<_> = owners
            .map(|owner| Box::pin(memory.admit(owner, waits, in_seconds(10))))
            .collect();
        for waiting in &mut waiting {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        for (owner, reason) in [
            (owner("f"), NoMemory::OtherReviews),
            (owner("b"), NoMemory::OwnReviews),
        ] {
            let refused = memory
                .admit(owner, of_body(2 * MIB), in_seconds(10))
                .now_or_never();
            assert_eq!(refused.unwrap().map(drop), Err(reason), "at once");
        }
    }
}
