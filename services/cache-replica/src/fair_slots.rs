//! Slots for long work, which waiting callers get in turns: every second slot goes to policies of the cluster, and
//! the others to one namespace after the other. So policies of one namespace cannot keep others waiting, however much
//! they ask for. A free slot goes to the next caller, whoever it is.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Slots, and who waits for one.
#[derive(Debug)]
pub(crate) struct FairSlots(Mutex<QueueState>);

/// A slot, until it is dropped.
#[derive(Debug)]
pub(crate) struct FairSlot(Option<Arc<FairSlots>>);

type WaitQueue = VecDeque<oneshot::Sender<FairSlot>>;

#[derive(Debug, Default)]
struct QueueState {
    free: usize,
    cluster: WaitQueue,
    /// The queues of callers by namespace; none is empty.
    namespaces: BTreeMap<String, WaitQueue>,
    /// The waiting namespaces in the order of their turns.
    turns: VecDeque<String>,
    /// The last slot went to a policy of the cluster.
    was_of_cluster: bool,
    /// All that wait, with those that no longer do and were not looked at since.
    queued: usize,
    /// The queue length at which callers that no longer wait are removed.
    sweep_at: usize,
}

/// The least number that is queued when those that no longer wait are taken out.
const SWEEP_MIN: usize = 64;

impl FairSlots {
    pub(crate) fn new(free: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(QueueState {
            free,
            sweep_at: SWEEP_MIN,
            ..QueueState::default()
        })))
    }

    /// Waits for a slot. `namespace`: of the policies that want it; empty: policies of the cluster.
    pub(crate) async fn take(self: &Arc<Self>, namespace: &str) -> FairSlot {
        loop {
            let given = {
                let mut state = self.0.lock();
                if let Some(left) = state.free.checked_sub(1) {
                    state.free = left;
                    return FairSlot(Some(Arc::clone(self)));
                }
                state.wait(namespace)
            };
            // Nobody drops the other end while these slots are there.
            if let Ok(slot) = given.await {
                return slot;
            }
        }
    }

    /// Returns a free slot, if no caller waits for one.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<FairSlot> {
        let mut state = self.0.lock();
        state.free = state.free.checked_sub(1)?;
        Some(FairSlot(Some(Arc::clone(self))))
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.0.lock().free
    }
}

impl QueueState {
    fn wait(&mut self, namespace: &str) -> oneshot::Receiver<FairSlot> {
        if self.queued >= self.sweep_at {
            self.sweep();
        }
        self.queued += 1;
        let (give, given) = oneshot::channel();
        if namespace.is_empty() {
            self.cluster.push_back(give);
        } else if let Some(waiting) = self.namespaces.get_mut(namespace) {
            waiting.push_back(give);
        } else {
            self.namespaces.insert(namespace.to_owned(), [give].into());
            self.turns.push_back(namespace.to_owned());
        }
        given
    }

    /// Removes waiting callers that gave up. It is needed while no slot becomes free, since only a freed slot removes
    /// them otherwise.
    fn sweep(&mut self) {
        let waits = |give: &oneshot::Sender<FairSlot>| !give.is_closed();
        self.cluster.retain(waits);
        self.namespaces.retain(|_, waiting| {
            waiting.retain(waits);
            !waiting.is_empty()
        });
        self.turns
            .retain(|namespace| self.namespaces.contains_key(namespace));
        let of_namespaces = self.namespaces.values().map(WaitQueue::len);
        self.queued = self.cluster.len() + of_namespaces.sum::<usize>();
        self.sweep_at = SWEEP_MIN.max(2 * self.queued);
    }

    /// Takes the next waiting caller.
    fn next(&mut self) -> Option<oneshot::Sender<FairSlot>> {
        let next = self.take_next()?;
        self.queued -= 1;
        Some(next)
    }

    fn take_next(&mut self) -> Option<oneshot::Sender<FairSlot>> {
        let is_of_cluster =
            !self.cluster.is_empty() && (!self.was_of_cluster || self.turns.is_empty());
        self.was_of_cluster = is_of_cluster;
        if is_of_cluster {
            return self.cluster.pop_front();
        }
        let namespace = self.turns.pop_front()?;
        let waiting = self.namespaces.get_mut(&namespace)?;
        let next = waiting.pop_front();
        match waiting.is_empty() {
            true => drop(self.namespaces.remove(&namespace)),
            false => self.turns.push_back(namespace),
        }
        next
    }
}

impl Drop for FairSlot {
    fn drop(&mut self) {
        let mut given_back = self.0.take();
        while let Some(slots) = given_back {
            let next = {
                let mut state = slots.0.lock();
                let Some(next) = state.next() else {
                    state.free += 1;
                    return;
                };
                next
            };
            // A caller that no longer waits hands the slot back here.
            let refused = next.send(Self(Some(slots))).err();
            given_back = refused.and_then(|mut slot| slot.0.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Lets each of these wait, in this order, and returns the order in which they get the only slot.
    fn order(waiting: &[&'static str]) -> Vec<&'static str> {
        let slots = FairSlots::new(1);
        let mut held = slots.take("").now_or_never();
        assert!(held.is_some());
        let mut left: Vec<_> = waiting
            .iter()
            .map(|namespace| (*namespace, Box::pin(slots.take(namespace))))
            .collect();
        for (_, waits) in &mut left {
            assert!(waits.now_or_never().is_none());
        }
        let mut order = Vec::new();
        while !left.is_empty() {
            drop(held.take());
            let mut polled = left.iter_mut().enumerate();
            let (at, slot) = polled
                .find_map(|(at, (_, waits))| Some((at, waits.now_or_never()?)))
                .unwrap();
            held = Some(slot);
            order.push(left.remove(at).0);
        }
        drop(held);
        assert_eq!(slots.free(), 1);
        order
    }

    #[test]
    fn namespaces_get_slots_by_turns_and_the_cluster_every_second_one() {
        assert_eq!(
            order(&["a", "a", "a", "b", "", "", "c"]),
            ["", "a", "", "b", "c", "a", "a"],
        );
        assert_eq!(order(&["", "", "a"]), ["", "a", ""]);
        assert_eq!(order(&["a", "a", "a"]), ["a", "a", "a"]);
    }

    #[test]
    fn a_slot_passes_over_callers_that_no_longer_wait() {
        let slots = FairSlots::new(1);
        let held = slots.take("").now_or_never();
        let mut gone = Box::pin(slots.take("a"));
        assert!((&mut gone).now_or_never().is_none());
        let mut waits = Box::pin(slots.take("b"));
        assert!((&mut waits).now_or_never().is_none());
        drop(gone);
        drop(held);
        let slot = waits.now_or_never();
        assert!(slot.is_some() && slots.try_take().is_none());
        drop(slot);
        assert!(slots.try_take().is_some());

        // A slot that was given and never looked at is given on.
        let held = slots.take("").now_or_never();
        let mut given = Box::pin(slots.take("a"));
        assert!((&mut given).now_or_never().is_none());
        drop(held);
        drop(given);
        assert_eq!(slots.free(), 1);
    }

    #[test]
    fn callers_that_no_longer_wait_are_removed_from_the_queue() {
        let slots = FairSlots::new(1);
        let held = slots.take("").now_or_never();
        let mut waits = Box::pin(slots.take("z"));
        assert!((&mut waits).now_or_never().is_none());
        for n in 0..1_000 {
            for namespace in ["", "a", &format!("n{n}")] {
                assert!(slots.take(namespace).now_or_never().is_none());
            }
        }
        let (queued, namespaces, turns) = {
            let state = slots.0.lock();
            (state.queued, state.namespaces.len(), state.turns.len())
        };
        assert!(queued <= SWEEP_MIN && namespaces <= SWEEP_MIN && turns <= SWEEP_MIN);
        drop(held);
        assert!(waits.now_or_never().is_some());
        assert_eq!(slots.0.lock().queued, 0);
    }
}
