//! The memory of reviews that are being decided: by bytes, whatever their number.
//!
//! A parsed review takes 25 to 31 times the memory of its body (measured with objects of many small values). So each
//! review reserves 32 times its body until it is answered. If too little memory is free, it waits, and is refused if
//! none gets free in half of its time. Small reviews have a reserve of their own, so that none of them waits for a
//! large one.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};

/// The memory for each byte of a body, parsed data included.
const BYTES_PER_BODY_BYTE: usize = 32;

/// Memory that every review takes.
const REVIEW_BYTES_MIN: usize = 64 * 1024;

/// Memory above which a review takes the room of large ones: that of a body of about 60 KB.
const SMALL_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The share of the room that is for small reviews alone.
const SMALL_SHARE: usize = 4;

/// Bytes of bodies that wait for room at once. With one more, it is refused at once.
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The bytes for one place of the semaphore.
const PLACE_BYTES: usize = 1024;

/// The room for reviews that are being decided.
#[derive(Debug)]
pub(crate) struct ReviewMemory {
    small: Room,
    large: Room,
    waiting_bytes: AtomicUsize,
}

#[derive(Debug)]
struct Room {
    places: Semaphore,
    size: u32,
}

impl Room {
    fn new(bytes: usize) -> Self {
        let size = (bytes / PLACE_BYTES).clamp(1, Semaphore::MAX_PERMITS / 2);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        Self {
            places: Semaphore::new(size as usize),
            size,
        }
    }

    /// Returns the places for a review. A review that is larger than the whole memory takes all places.
    fn places_for(&self, bytes: usize) -> u32 {
        u32::try_from(bytes / PLACE_BYTES).map_or(self.size, |places| places.clamp(1, self.size))
    }
}

impl ReviewMemory {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let small = bytes / SMALL_SHARE;
        Self {
            small: Room::new(small),
            large: Room::new(bytes - small),
            waiting_bytes: AtomicUsize::new(0),
        }
    }

    /// Reserves memory for a review with a body of this size, which is given back when the result is dropped. `None`:
    /// too little became free in half of the time until `deadline`.
    pub(super) async fn admit(
        &self,
        body: usize,
        deadline: Instant,
    ) -> Option<SemaphorePermit<'_>> {
        let bytes = body
            .saturating_mul(BYTES_PER_BODY_BYTE)
            .saturating_add(REVIEW_BYTES_MIN);
        let room = match bytes <= SMALL_BYTES_MAX {
            true => &self.small,
            false => &self.large,
        };
        let places = room.places_for(bytes);
        if let Ok(taken) = room.places.try_acquire_many(places) {
            return Some(taken);
        }
        let _waiting = self.wait(body)?;
        let patience = deadline.saturating_duration_since(Instant::now()) / 2;
        let until = Instant::now() + patience.max(Duration::from_millis(1));
        timeout_at(until, room.places.acquire_many(places))
            .await
            .ok()?
            .ok()
    }

    fn wait(&self, bytes: usize) -> Option<WaitingBody<'_>> {
        let fits = |now: usize| Some(now + bytes).filter(|sum| *sum <= WAITING_BYTES_MAX);
        let counter = &self.waiting_bytes;
        counter
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .ok()?;
        Some(WaitingBody { counter, bytes })
    }
}

/// A body that waits for room.
struct WaitingBody<'a> {
    counter: &'a AtomicUsize,
    bytes: usize,
}

impl Drop for WaitingBody<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const MIB: usize = 1024 * 1024;

    fn in_seconds(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn large_reviews_wait_for_room_and_small_ones_for_none_of_them() {
        let memory = ReviewMemory::new(128 * MIB as u64);
        let first = memory.admit(3 * MIB, in_seconds(10)).await;
        assert!(first.is_some());
        let second = memory.admit(3 * MIB, in_seconds(10));
        let mut second = std::pin::pin!(second);
        assert!(second.as_mut().now_or_never().is_none(), "there is no room");
        let small = memory.admit(2_000, in_seconds(10)).now_or_never();
        assert!(small.flatten().is_some());
        drop(first);
        assert!(second.await.is_some());
        assert_eq!(memory.waiting_bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_that_finds_no_room_is_refused_after_half_of_its_time() {
        let memory = ReviewMemory::new(128 * MIB as u64);
        let _first = memory.admit(8 * MIB, in_seconds(10)).await.unwrap();
        let begun = Instant::now();
        assert!(memory.admit(MIB, in_seconds(10)).await.is_none());
        assert_eq!(begun.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_wait_are_limited() {
        let memory = ReviewMemory::new(128 * MIB as u64);
        let _first = memory.admit(8 * MIB, in_seconds(10)).await.unwrap();
        let mut waiting: Vec<_> = (0..4)
            .map(|_| Box::pin(memory.admit(8 * MIB, in_seconds(10))))
            .collect();
        for waiting in &mut waiting {
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        let refused = memory.admit(MIB, in_seconds(10)).now_or_never();
        assert!(refused.unwrap().is_none(), "at once");
    }
}
