//! Slots for long work, which waiting callers get in turns: every second slot goes to policies of the cluster, and
//! the others to policies of namespaces. In both classes one owner comes after the other. So neither the policies of one
//! namespace nor the requests in it can keep others waiting, however much they ask for. A free slot goes to the next caller that may have it, whoever it is.
//!
//! Work that ends soon may take all slots. Of slots for work that may take long, one owner leaves one to the others
//! ([`FairSlots::leaving_one`]).

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use anteroom_wire::beneficiary::Beneficiary;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Slots, and who waits for one.
#[derive(Debug)]
pub(crate) struct FairSlots(Mutex<QueueState>);

/// A slot of an owner, until it is dropped.
#[derive(Debug)]
pub(crate) struct FairSlot(Option<(Arc<FairSlots>, Beneficiary)>);

type GiveSlot = oneshot::Sender<FairSlot>;

/// While a slot is free, each owner that waits holds all the slots that it may hold.
#[derive(Debug)]
struct QueueState {
    free: usize,
    held: HeldSlots,
    cluster: TurnQueues,
    namespaces: TurnQueues,
    /// The last slot that was waited for went to a policy of the cluster.
    was_of_cluster: bool,
    /// All that wait, with those that no longer do and were not looked at since.
    queued: usize,
    /// The queue length at which callers that no longer wait are removed.
    sweep_at: usize,
}

/// The slots that owners hold.
#[derive(Debug)]
struct HeldSlots {
    /// Owners that hold none are absent.
    by_owner: BTreeMap<Beneficiary, usize>,
    /// The most slots that one owner holds.
    owner_max: usize,
}

/// The callers that wait, of owners that take turns.
#[derive(Debug)]
struct TurnQueues {
    /// The queues of callers by owner; none is empty.
    queues: BTreeMap<Beneficiary, VecDeque<GiveSlot>>,
    /// The waiting owners in the order of their turns.
    turns: VecDeque<Beneficiary>,
}

/// Returns true for policies of the cluster, which have every second turn.
fn is_of_cluster(owner: &Beneficiary) -> bool {
    owner.policy_namespace().is_empty()
}

/// The least number that is queued when those that no longer wait are taken out.
const SWEEP_MIN: usize = 64;

impl FairSlots {
    /// Slots for work that ends soon: one owner may hold all of them.
    pub(crate) fn new(free: usize) -> Arc<Self> {
        Self::with_owner_max(free, free)
    }

    /// Slots for work that may take long: of two or more, one owner holds all but one. So however much one owner asks
    /// for, and however long that takes, any other owner without a slot gets one at once. Where several owners hold
    /// all slots, one that waits comes next after a single turn of each other waiting owner, and as many turns of the
    /// cluster.
    pub(crate) fn leaving_one(free: usize) -> Arc<Self> {
        Self::with_owner_max(free, free.saturating_sub(1).max(1))
    }

    fn with_owner_max(free: usize, owner_max: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(QueueState {
            free,
            held: HeldSlots {
                by_owner: BTreeMap::new(),
                owner_max,
            },
            cluster: TurnQueues::new(),
            namespaces: TurnQueues::new(),
            was_of_cluster: false,
            queued: 0,
            sweep_at: SWEEP_MIN,
        })))
    }

    /// Waits for a slot for `owner`.
    pub(crate) async fn take(self: &Arc<Self>, owner: Beneficiary) -> FairSlot {
        loop {
            let given = {
                let mut state = self.0.lock();
                if state.try_hold(&owner) {
                    return FairSlot(Some((Arc::clone(self), owner)));
                }
                state.wait(owner.clone())
            };
            // Nobody drops the other end while these slots are there.
            if let Ok(slot) = given.await {
                return slot;
            }
        }
    }

    /// Returns a free slot, if `owner` may have one. No caller that waits could have it.
    pub(crate) fn try_take(self: &Arc<Self>, owner: Beneficiary) -> Option<FairSlot> {
        match self.0.lock().try_hold(&owner) {
            true => Some(FairSlot(Some((Arc::clone(self), owner)))),
            false => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.0.lock().free
    }
}

impl QueueState {
    fn try_hold(&mut self, owner: &Beneficiary) -> bool {
        let may_hold = self.free > 0 && self.held.may_grow(owner);
        if may_hold {
            self.hold(owner);
        }
        may_hold
    }

    fn hold(&mut self, owner: &Beneficiary) {
        self.free -= 1;
        self.held.add(owner);
    }

    fn wait(&mut self, owner: Beneficiary) -> oneshot::Receiver<FairSlot> {
        if self.queued >= self.sweep_at {
            self.sweep();
        }
        self.queued += 1;
        let (give, given) = oneshot::channel();
        let queues = match is_of_cluster(&owner) {
            true => &mut self.cluster,
            false => &mut self.namespaces,
        };
        queues.push(owner, give);
        given
    }

    /// Removes waiting callers that gave up. It is needed while no slot becomes free, since only a freed slot removes
    /// them otherwise.
    fn sweep(&mut self) {
        self.queued = self.cluster.sweep() + self.namespaces.sweep();
        self.sweep_at = SWEEP_MIN.max(2 * self.queued);
    }

    /// Takes back an owner's slot, and gives it to the next waiting caller, if there is one that may have it.
    fn pass_on(&mut self, owner: &Beneficiary) -> Option<(Beneficiary, GiveSlot)> {
        self.free += 1;
        self.held.remove(owner);
        let (first, second) = match self.was_of_cluster {
            true => (&mut self.namespaces, &mut self.cluster),
            false => (&mut self.cluster, &mut self.namespaces),
        };
        let next = first.next(&self.held);
        let (owner, give) = next.or_else(|| second.next(&self.held))?;
        self.was_of_cluster = is_of_cluster(&owner);
        self.queued -= 1;
        self.hold(&owner);
        Some((owner, give))
    }
}

impl HeldSlots {
    fn may_grow(&self, owner: &Beneficiary) -> bool {
        let held = self.by_owner.get(owner);
        held.is_none_or(|held| *held < self.owner_max)
    }

    fn add(&mut self, owner: &Beneficiary) {
        *self.by_owner.entry(owner.clone()).or_default() += 1;
    }

    fn remove(&mut self, owner: &Beneficiary) {
        if let Some(held) = self.by_owner.get_mut(owner) {
            *held -= 1;
            if *held == 0 {
                self.by_owner.remove(owner);
            }
        }
    }
}

impl TurnQueues {
    fn new() -> Self {
        Self {
            queues: BTreeMap::new(),
            turns: VecDeque::new(),
        }
    }

    fn push(&mut self, owner: Beneficiary, give: GiveSlot) {
        if let Some(waiting) = self.queues.get_mut(&owner) {
            waiting.push_back(give);
        } else {
            self.queues.insert(owner.clone(), [give].into());
            self.turns.push_back(owner);
        }
    }

    /// Removes callers that gave up, and returns the number of the others.
    fn sweep(&mut self) -> usize {
        self.queues.retain(|_, waiting| {
            waiting.retain(|give| !give.is_closed());
            !waiting.is_empty()
        });
        self.turns.retain(|owner| self.queues.contains_key(owner));
        self.queues.values().map(VecDeque::len).sum()
    }

    /// Takes the next caller whose owner may hold one more slot.
    fn next(&mut self, held: &HeldSlots) -> Option<(Beneficiary, GiveSlot)> {
        let at = self.turns.iter().position(|owner| held.may_grow(owner))?;
        let owner = self.turns.remove(at)?;
        let waiting = self.queues.get_mut(&owner)?;
        let next = waiting.pop_front()?;
        match waiting.is_empty() {
            true => drop(self.queues.remove(&owner)),
            false => self.turns.push_back(owner.clone()),
        }
        Some((owner, next))
    }
}

impl Drop for FairSlot {
    fn drop(&mut self) {
        let mut given_back = self.0.take();
        while let Some((slots, owner)) = given_back {
            let next = slots.0.lock().pass_on(&owner);
            let Some((next, give)) = next else {
                return;
            };
            // A caller that no longer waits hands the slot back here.
            let refused = give.send(Self(Some((slots, next)))).err();
            given_back = refused.and_then(|mut slot| slot.0.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Returns the policies of a namespace, or (empty) the requests of the cluster.
    fn of(namespace: &str) -> Beneficiary {
        Beneficiary::of(namespace, "", false)
    }

    /// Lets each of these wait, in this order, and returns the order in which they get the only slot.
    fn order(waiting: &[&'static str]) -> Vec<&'static str> {
        let slots = FairSlots::new(1);
        let mut held = slots.take(of("")).now_or_never();
        assert!(held.is_some());
        let mut left: Vec<_> = waiting
            .iter()
            .map(|owner| (*owner, Box::pin(slots.take(of(owner)))))
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
    fn an_owner_leaves_one_of_several_slots_to_the_others() {
        for owner in ["a", ""] {
            for (count, most) in [(0, 0), (1, 1), (2, 1), (3, 2), (8, 7)] {
                let slots = FairSlots::leaving_one(count);
                let mut waits = Vec::new();
                let mut held = Vec::new();
                for _ in 0..20 {
                    let mut wait = Box::pin(slots.take(of(owner)));
                    match (&mut wait).now_or_never() {
                        Some(slot) => held.push(slot),
                        None => waits.push(wait),
                    }
                }
                assert_eq!(held.len(), most, "of {count}");
                assert!(slots.try_take(of(owner)).is_none());
                let other = slots.take(of("b")).now_or_never();
                assert_eq!(other.is_some(), count > 1, "of {count}");
                // The slot that `b` gives back is left to other owners again.
                drop(other);
                assert_eq!(slots.free(), count - most);
                assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
                // A slot that the owner gives back goes to its next caller.
                if held.pop().is_some() {
                    assert!((&mut waits[0]).now_or_never().is_some());
                }
                drop((held, waits));
                assert_eq!(slots.free(), count);
                assert!(slots.0.lock().held.by_owner.is_empty());
            }
        }
    }

    #[test]
    fn an_owner_waits_for_one_turn_of_each_other_at_most() {
        for (count, others) in [(1, 1), (1, 3), (2, 1), (2, 2), (2, 5), (4, 2), (4, 6)] {
            let slots = FairSlots::leaving_one(count);
            let mut waiting: Vec<_> = (0..20 * others)
                .map(|n| {
                    (
                        n % others,
                        Box::pin(slots.take(of(&format!("n{}", n % others)))),
                    )
                })
                .collect();
            // The slots in the order in which they were got.
            let mut held = VecDeque::new();
            let mut turns = vec![0; others];
            let mut get = |held: &mut VecDeque<_>, turns: &mut Vec<usize>| {
                waiting.retain_mut(|(of, wait)| match wait.now_or_never() {
                    Some(slot) => {
                        held.push_back(slot);
                        turns[*of] += 1;
                        false
                    }
                    None => true,
                });
            };
            get(&mut held, &mut turns);
            turns.fill(0);
            let mut last = Box::pin(slots.take(of("z")));
            while (&mut last).now_or_never().is_none() {
                drop(held.pop_front());
                get(&mut held, &mut turns);
                assert!(turns.iter().all(|turns| *turns <= 1), "{count} {turns:?}");
            }
            let at_once = turns.iter().sum::<usize>() == 0;
            assert_eq!(at_once, others == 1 && count > 1, "{count} {others}");
        }
    }

    #[test]
    fn a_slot_passes_over_callers_that_no_longer_wait() {
        let slots = FairSlots::new(1);
        let held = slots.take(of("")).now_or_never();
        let mut gone = Box::pin(slots.take(of("a")));
        assert!((&mut gone).now_or_never().is_none());
        let mut waits = Box::pin(slots.take(of("b")));
        assert!((&mut waits).now_or_never().is_none());
        drop(gone);
        drop(held);
        let slot = waits.now_or_never();
        assert!(slot.is_some() && slots.try_take(of("")).is_none());
        drop(slot);
        assert!(slots.try_take(of("")).is_some());

        // A slot that was given and never looked at is given on.
        let held = slots.take(of("")).now_or_never();
        let mut given = Box::pin(slots.take(of("a")));
        assert!((&mut given).now_or_never().is_none());
        drop(held);
        drop(given);
        assert_eq!(slots.free(), 1);
    }

    #[test]
    fn callers_that_no_longer_wait_are_removed_from_the_queue() {
        let slots = FairSlots::new(1);
        let held = slots.take(of("")).now_or_never();
        let mut waits = Box::pin(slots.take(of("z")));
        assert!((&mut waits).now_or_never().is_none());
        for n in 0..1_000 {
            for owner in ["", "a", &format!("n{n}")] {
                assert!(slots.take(of(owner)).now_or_never().is_none());
            }
        }
        let (queued, namespaces, turns) = {
            let state = slots.0.lock();
            let TurnQueues { queues, turns } = &state.namespaces;
            (state.queued, queues.len(), turns.len())
        };
        assert!(queued <= SWEEP_MIN && namespaces <= SWEEP_MIN && turns <= SWEEP_MIN);
        drop(held);
        assert!(waits.now_or_never().is_some());
        assert_eq!(slots.0.lock().queued, 0);
    }
}
