//! Bytes that owners share fairly.
//!
//! An owner may hold as many bytes as are free (a dynamic threshold, after Choudhury and Hahne, 1998). So one busy
//! owner comes to half of the bytes, two come to a third each, and some are left for the next one. An owner without
//! bytes takes any number that is free.
//!
//! Requests of one owner wait in their order. Of the first ones of all owners, the smallest that may have its bytes goes
//! next.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

/// A number of bytes that owners share.
#[derive(Debug)]
pub(super) struct FairBytes<K: Copy + Eq + Hash> {
    bytes_max: usize,
    ledger: Mutex<Ledger<K>>,
}

#[derive(Debug)]
struct Ledger<K> {
    free: usize,
    /// Owners that neither hold bytes nor wait for some are absent.
    owners: HashMap<K, OwnerBytes>,
    /// The number of requests that wait, of all owners.
    waiting: usize,
    next_request: u64,
}

#[derive(Debug, Default)]
struct OwnerBytes {
    held: usize,
    /// The sum of `queue`.
    waiting: usize,
    /// In order of arrival.
    queue: BTreeMap<u64, WaitingRequest>,
}

#[derive(Debug)]
struct WaitingRequest {
    bytes: usize,
    granted: oneshot::Sender<()>,
}

/// Bytes of an owner. Dropping the permit gives them back.
#[derive(Debug)]
pub(super) struct BytesPermit<'a, K: Copy + Eq + Hash> {
    of: &'a FairBytes<K>,
    owner: K,
    bytes: usize,
    /// The request that the bytes are for, until its task knows that they were granted.
    request: Option<u64>,
}

impl<K: Copy + Eq + Hash> FairBytes<K> {
    /// Bytes that nobody holds yet. Zero counts as one.
    pub(super) fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.max(1);
        Self {
            bytes_max,
            ledger: Mutex::new(Ledger {
                free: bytes_max,
                owners: HashMap::new(),
                waiting: 0,
                next_request: 0,
            }),
        }
    }

    /// The number of all bytes, held or free.
    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Takes bytes for an owner; `None`: it may not have them now.
    pub(super) fn try_take(&self, owner: K, bytes: usize) -> Option<BytesPermit<'_, K>> {
        let is_taken = self.ledger.lock().try_take(owner, bytes);
        // A permit is made only for bytes that were taken: dropping it gives them back.
        is_taken.then(|| BytesPermit {
            of: self,
            owner,
            bytes,
            request: None,
        })
    }

    /// Waits for bytes for an owner; `None`: it may not have them until `deadline`.
    pub(super) async fn take_by(
        &self,
        owner: K,
        bytes: usize,
        deadline: Instant,
    ) -> Option<BytesPermit<'_, K>> {
        let (mut permit, granted) = {
            let mut ledger = self.ledger.lock();
            let mut permit = BytesPermit {
                of: self,
                owner,
                bytes,
                request: None,
            };
            if ledger.try_take(owner, bytes) {
                return Some(permit);
            }
            let (request, granted) = ledger.enqueue(owner, bytes);
            permit.request = Some(request);
            (permit, granted)
        };
        timeout_at(deadline, granted).await.ok()?.ok()?;
        permit.request = None;
        Some(permit)
    }

    /// Returns whether an owner holds or waits for bytes, and would have more than an equal part with these. The equal
    /// part is one of as many as there are owners, and one for the next owner.
    pub(super) fn would_exceed_part(&self, owner: K, bytes: usize) -> bool {
        let ledger = self.ledger.lock();
        let parts = ledger.owners.len() + 1;
        ledger.owners.get(&owner).is_some_and(|owner| {
            let wanted = owner.held.saturating_add(owner.waiting);
            wanted.saturating_add(bytes) > self.bytes_max / parts
        })
    }
}

/// Returns whether an owner that holds so many bytes may have these of those that are free.
fn may_take(held: usize, bytes: usize, free: usize) -> bool {
    let left = free.checked_sub(bytes);
    left.is_some_and(|left| held == 0 || held + bytes <= left)
}

impl<K: Copy + Eq + Hash> Ledger<K> {
    fn try_take(&mut self, owner: K, bytes: usize) -> bool {
        let known = self.owners.get(&owner);
        // Requests of one owner do not overtake each other.
        let waits = known.is_some_and(|owner| !owner.queue.is_empty());
        let held = known.map_or(0, |owner| owner.held);
        let may_take = !waits && may_take(held, bytes, self.free);
        if may_take {
            self.hold(owner, bytes);
        }
        may_take
    }

    fn hold(&mut self, owner: K, bytes: usize) {
        self.owners.entry(owner).or_default().held += bytes;
        self.free -= bytes;
    }

    fn enqueue(&mut self, owner: K, bytes: usize) -> (u64, oneshot::Receiver<()>) {
        let request = self.next_request;
        self.next_request += 1;
        self.waiting += 1;
        let (granted, receiver) = oneshot::channel();
        let owner = self.owners.entry(owner).or_default();
        owner.waiting = owner.waiting.saturating_add(bytes);
        let waiting = WaitingRequest { bytes, granted };
        owner.queue.insert(request, waiting);
        (request, receiver)
    }

    /// Takes a request out of its owner's queue; `None`: it is not there any more.
    fn dequeue(&mut self, owner: K, request: u64) -> Option<WaitingRequest> {
        let of = self.owners.get_mut(&owner)?;
        let waiting = of.queue.remove(&request)?;
        of.waiting -= waiting.bytes;
        self.waiting -= 1;
        Some(waiting)
    }

    /// Gives bytes to requests that wait, until none may have its bytes.
    fn grant(&mut self) {
        while self.waiting > 0 {
            let firsts = self.owners.iter().filter_map(|(owner, of)| {
                let (request, waiting) = of.queue.first_key_value()?;
                let is_next = may_take(of.held, waiting.bytes, self.free);
                is_next.then_some((waiting.bytes, *request, *owner))
            });
            let Some((bytes, request, owner)) =
                firsts.min_by_key(|(bytes, request, _)| (*bytes, *request))
            else {
                return;
            };
            if let Some(waiting) = self.dequeue(owner, request) {
                self.hold(owner, bytes);
                // If its task has just given up, dropping the permit gives the bytes back.
                let _ = waiting.granted.send(());
            }
        }
    }

    /// Gives back what a permit stands for: its place in the queue, or its bytes.
    fn give_back(&mut self, owner: K, bytes: usize, request: Option<u64>) {
        let left = request.and_then(|request| self.dequeue(owner, request));
        if let Some(of) = self.owners.get_mut(&owner) {
            if left.is_none() {
                of.held -= bytes;
                self.free += bytes;
            }
            if of.held == 0 && of.queue.is_empty() {
                self.owners.remove(&owner);
            }
        }
        self.grant();
    }
}

impl<K: Copy + Eq + Hash> Drop for BytesPermit<'_, K> {
    fn drop(&mut self) {
        let mut ledger = self.of.ledger.lock();
        ledger.give_back(self.owner, self.bytes, self.request);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::*;

    type Permits<'a> = Vec<BytesPermit<'a, char>>;

    fn in_seconds(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    /// Takes 10 bytes for as often as the owner gets them now.
    fn take(bytes: &FairBytes<char>, owner: char) -> Permits<'_> {
        std::iter::from_fn(|| bytes.try_take(owner, 10)).collect()
    }

    fn is_untouched(bytes: &FairBytes<char>) -> bool {
        let ledger = bytes.ledger.lock();
        ledger.owners.is_empty() && ledger.waiting == 0 && ledger.free == bytes.bytes_max
    }

    #[test]
    fn one_owner_has_half_and_leaves_some_to_the_next_ones() {
        let bytes = FairBytes::new(1_000);
        let held: Vec<Permits<'_>> = ['a', 'b', 'c', 'd']
            .iter()
            .map(|owner| take(&bytes, *owner))
            .collect();
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [50, 25, 12, 6]);
        drop(held);
        assert!(is_untouched(&bytes));
    }

    #[test]
    fn owners_that_go_on_asking_come_to_equal_parts() {
        let bytes = FairBytes::new(1_000);
        let owners = ['a', 'b', 'c'];
        let mut held = owners.map(|owner| take(&bytes, owner));
        for _ in 0..100 {
            for (permits, owner) in held.iter_mut().zip(owners) {
                permits.pop();
                permits.extend(take(&bytes, owner));
            }
        }
        let counts = held.each_ref().map(Vec::len);
        let equal = counts.iter().all(|count| (23..=26).contains(count));
        assert!(equal, "{counts:?}");
        assert!(bytes.try_take('d', 10).is_some());
    }

    #[test]
    fn an_owner_without_bytes_takes_all_that_are_free() {
        let bytes = FairBytes::new(100);
        let most = bytes.try_take('a', 90).unwrap();
        assert!(bytes.try_take('a', 1).is_none());
        assert!(bytes.try_take('b', 11).is_none());
        assert!(bytes.try_take('b', 10).is_some());
        drop(most);
        assert!(bytes.try_take('b', 100).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_smallest_request_goes_first_but_in_order_within_an_owner() {
        let bytes = FairBytes::new(100);
        let all = bytes.try_take('x', 100).unwrap();
        let order = Mutex::new(Vec::new());
        let wanted = [('a', 90), ('b', 80), ('a', 10), ('c', 70), ('a', 20)];
        let waits = wanted.map(|(owner, wanted)| {
            let (bytes, order) = (&bytes, &order);
            async move {
                let permit = bytes.take_by(owner, wanted, in_seconds(10)).await;
                order.lock().push((owner, wanted));
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(permit.is_some());
            }
        });
        let all_wait = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(all);
        };
        futures::join!(futures::future::join_all(waits), all_wait);
        let expected = [('c', 70), ('b', 80), ('a', 90), ('a', 10), ('a', 20)];
        assert_eq!(*order.lock(), expected);
        assert!(is_untouched(&bytes));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_gives_up_lets_the_next_one_go() {
        let bytes = FairBytes::new(100);
        let held = bytes.try_take('a', 40).unwrap();
        let mut large = Box::pin(bytes.take_by('a', 60, in_seconds(5)));
        assert!(large.as_mut().now_or_never().is_none());
        let mut small = Box::pin(bytes.take_by('a', 10, in_seconds(5)));
        assert!(small.as_mut().now_or_never().is_none());
        drop(large);
        assert!(small.now_or_never().flatten().is_some());
        drop(held);
        assert!(is_untouched(&bytes));
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_are_granted_to_a_request_that_gave_up_come_back() {
        let bytes = FairBytes::new(100);
        let held = bytes.try_take('a', 100).unwrap();
        let mut waits = Box::pin(bytes.take_by('b', 100, in_seconds(5)));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(held);
        assert_eq!(bytes.ledger.lock().free, 0, "they are granted");
        drop(waits);
        assert!(is_untouched(&bytes));
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_exceeds_its_part_by_what_it_holds_and_waits_for() {
        let bytes = FairBytes::new(120);
        assert!(!bytes.would_exceed_part('a', 120), "it has nothing yet");
        let held = bytes.try_take('a', 60).unwrap();
        assert!(bytes.would_exceed_part('a', 1));
        assert!(!bytes.would_exceed_part('b', 100));
        let other = bytes.try_take('b', 20).unwrap();
        assert!(!bytes.would_exceed_part('b', 20));
        assert!(bytes.would_exceed_part('b', 21));
        let mut waits = Box::pin(bytes.take_by('b', 50, in_seconds(5)));
        assert!(waits.as_mut().now_or_never().is_none());
        assert!(bytes.would_exceed_part('b', 1));
        drop((waits, held, other));
        assert!(is_untouched(&bytes));
    }
}
