//! The memory of reviews that are being decided: by bytes, whatever their number.
//!
//! A parsed review takes 25 to 31 times the memory of its body (measured with objects of many small values). So each
//! review reserves 32 times its body until it is answered. If too little memory is free, it waits, and is refused if
//! none gets free in half of its time. Small reviews have a reserve of their own, so that none of them waits for a
//! large one.
//!
//! The namespaces of the requests share each of the two fairly, so none of them takes what the others need. A namespace
//! that is refused because of its own reviews is told so: see [`NoMemory`].

mod fair_bytes;

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use tokio::time::Instant;

use crate::review::Review;
use fair_bytes::{BytesPermit, FairBytes};

/// The memory for each byte of a body, parsed data included.
const BYTES_PER_BODY_BYTE: usize = 32;

/// Memory that every review takes.
const REVIEW_BYTES_MIN: usize = 64 * 1024;

/// Memory above which a review takes the memory of large ones: that of a body of about 60 KB.
const SMALL_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The share of the memory that is for small reviews alone.
const SMALL_DIVISOR: usize = 4;

/// Bytes of bodies that wait for memory at once. With one more, it is refused at once.
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The memory for reviews that are being decided.
#[derive(Debug)]
pub(crate) struct ReviewMemory {
    small: FairBytes<ReviewOwner>,
    large: FairBytes<ReviewOwner>,
    /// Bodies of reviews that wait for memory.
    waiting: FairBytes<ReviewOwner>,
    hashes: RandomState,
}

/// The owner of the memory of a review: the hash of the request's namespace, or of its user where there is no namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReviewOwner(u64);

/// The memory of one review, until this is dropped.
#[derive(Debug)]
pub(super) struct ReservedMemory<'a> {
    _taken: BytesPermit<'a, ReviewOwner>,
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
}

impl ReviewMemory {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let small = bytes / SMALL_DIVISOR;
        Self {
            small: FairBytes::new(small),
            large: FairBytes::new(bytes - small),
            waiting: FairBytes::new(WAITING_BYTES_MAX),
            hashes: RandomState::new(),
        }
    }

    /// Returns the owner of a review's memory.
    pub(super) fn owner(&self, review: &Review<'_>) -> ReviewOwner {
        let namespace = &*review.head.namespace;
        let user = namespace.is_empty().then(|| review.user());
        let user = user.flatten().unwrap_or_default();
        ReviewOwner(self.hashes.hash_one((namespace, &*user.username)))
    }

    /// Takes memory for a review with a body of so many bytes.
    ///
    /// # Errors
    /// There was none in half of the time until `deadline`.
    pub(super) async fn admit(
        &self,
        owner: ReviewOwner,
        body: usize,
        deadline: Instant,
    ) -> Result<ReservedMemory<'_>, NoMemory> {
        let bytes = body
            .saturating_mul(BYTES_PER_BODY_BYTE)
            .saturating_add(REVIEW_BYTES_MIN);
        let pool = match bytes <= SMALL_BYTES_MAX {
            true => &self.small,
            false => &self.large,
        };
        // A review that is larger than all of the memory takes all of it.
        let bytes = bytes.min(pool.bytes_max());
        if let Some(taken) = pool.try_take(owner, bytes) {
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
            Some(_waiting) => pool.take_by(owner, bytes, until).await,
            None => None,
        };
        match taken {
            Some(taken) => Ok(ReservedMemory {
                _taken: taken,
                waited: begun.elapsed(),
            }),
            None if pool.would_exceed_part(owner, bytes)
                || self.waiting.would_exceed_part(owner, body) =>
            {
                Err(NoMemory::OwnReviews)
            }
            None => Err(NoMemory::OtherReviews),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;

    const MIB: usize = 1024 * 1024;

    const A: ReviewOwner = ReviewOwner(1);
    const B: ReviewOwner = ReviewOwner(2);
    const C: ReviewOwner = ReviewOwner(3);

    fn in_seconds(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn large_reviews_wait_for_memory_and_small_ones_for_none_of_them() {
        let memory = ReviewMemory::new(128 * MIB as u64);
        let first = memory.admit(A, 3 * MIB, in_seconds(10)).await;
        assert!(first.is_ok());
        let second = memory.admit(A, 3 * MIB, in_seconds(10));
        let mut second = std::pin::pin!(second);
        assert!(
            second.as_mut().now_or_never().is_none(),
            "there is no memory"
        );
        let small = memory.admit(A, 2_000, in_seconds(10)).now_or_never();
        assert_eq!(small.unwrap().unwrap().waited, Duration::ZERO);
        tokio::time::advance(Duration::from_secs(1)).await;
        drop(first);
        assert_eq!(second.await.unwrap().waited, Duration::from_secs(1));
        assert!(memory.waiting.try_take(A, WAITING_BYTES_MAX).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_that_finds_no_memory_is_refused_after_half_of_its_time() {
        let memory = ReviewMemory::new(128 * MIB as u64);
        let _first = memory.admit(A, 8 * MIB, in_seconds(10)).await.unwrap();
        for (owner, reason) in [(A, NoMemory::OwnReviews), (B, NoMemory::OtherReviews)] {
            let begun = Instant::now();
            let refused = memory.admit(owner, MIB, in_seconds(10)).await;
            assert_eq!(refused.map(drop), Err(reason));
            assert_eq!(begun.elapsed().as_secs(), 5);
        }
    }

    /// Objects of 900 KB, in the memory that the chart gives.
    #[tokio::test(start_paused = true)]
    async fn an_owner_of_many_large_reviews_leaves_memory_to_others_and_is_blamed_itself() {
        let memory = ReviewMemory::new(160 * MIB as u64);
        let admit = async |owner| memory.admit(owner, 900_000, in_seconds(10)).await;
        let mut held = Vec::new();
        let refused = loop {
            match admit(A).await {
                Ok(pool) => held.push(pool),
                Err(reason) => break reason,
            }
        };
        assert_eq!((held.len(), refused), (2, NoMemory::OwnReviews));
        let others = [admit(B).await.unwrap(), admit(C).await.unwrap()];
        assert!(others.iter().all(|other| other.waited.is_zero()));
        let refused = admit(ReviewOwner(4)).await;
        assert_eq!(refused.map(drop), Err(NoMemory::OtherReviews));
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_wait_are_limited() {
        let memory = ReviewMemory::new(128 * MIB as u64);
        let _first = memory.admit(A, 8 * MIB, in_seconds(10)).await.unwrap();
        let owners = (2..6).map(ReviewOwner);
        let mut waiting: Vec<_> = owners
            .map(|owner| Box::pin(memory.admit(owner, 8 * MIB, in_seconds(10))))
            .collect();
        for waiting in &mut waiting {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        for (owner, reason) in [
            (ReviewOwner(6), NoMemory::OtherReviews),
            (ReviewOwner(2), NoMemory::OwnReviews),
        ] {
            let refused = memory.admit(owner, MIB, in_seconds(10)).now_or_never();
            assert_eq!(refused.unwrap().map(drop), Err(reason), "at once");
        }
    }

    #[test]
    fn a_request_counts_for_its_namespace_and_else_for_its_user() {
        let memory = ReviewMemory::new(128 * MIB as u64);
        let owner = |namespace: &str, user: &str| {
            let review = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": {
                    "uid": "u", "operation": "CREATE", "namespace": namespace, "object": {},
                    "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
                    "userInfo": { "username": user },
                },
            });
            memory.owner(&Review::parse(review.to_string().as_bytes()).unwrap())
        };
        assert_eq!(owner("n", "alice"), owner("n", "bob"));
        assert_ne!(owner("n", "alice"), owner("m", "alice"));
        assert_eq!(owner("", "alice"), owner("", "alice"));
        assert_ne!(owner("", "alice"), owner("", "bob"));
        assert_ne!(owner("", "n"), owner("n", "n"));
    }
}
