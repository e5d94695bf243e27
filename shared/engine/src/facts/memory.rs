//! The memory of large facts, from before they are decoded until their rule has ended.
//!
//! A few bytes of an answer may be a value of hundreds of bytes, a rule reads many facts, and many reviews wait at once. So
//! each review has little memory of its own, for small facts. All large facts share a limited memory.
//!
//! A review that holds memory and waits for more could wait for a review that does the same. So one review at a time has the
//! *turn*: memory that no other review takes. A fact that finds no room waits for room, or for the turn of its review. The
//! review that has the turn waits for no other review. So it comes to its end, and each turn does.
//!
//! The owners of reviews share the room fairly, and have turns one after another. Two kinds of rules have no turns, and find
//! room or none. The rule of a trigger holds its facts while it goes through lists of objects, which takes long. A
//! namespaced policy could hold the turn for long on purpose, or leave no memory in the turn to policies of the cluster.

use std::{
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use anteroom_model::{FactError, limits::RESULT_MEMORY_BYTES_MAX};
use anteroom_runtime::fair_quota::{FairPermit, FairQuota};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::message::millis;
use crate::incoming::ReviewOwner;

/// The memory of a review's small facts together, beside the memory of large facts. Policies of namespaces have as much of
/// their own.
const SMALL_BYTES_MAX: u64 = 1024 * 1024;

/// The parts that the memory of large facts is divided into.
const PARTS: u64 = 12;

/// The parts for all reviews that do not have the turn.
const ROOM_PARTS: u64 = 2;

/// The parts for facts that wait, in the bytes in which they came.
const WAITING_PARTS: u64 = 1;

/// The memory of large facts where no other is set: in a turn, the largest fact finds room.
const MEMORY_BYTES_DEFAULT: u64 =
    RESULT_MEMORY_BYTES_MAX as u64 / (PARTS - ROOM_PARTS - WAITING_PARTS) * PARTS;

/// The unit in which the memory of a turn is counted.
const KIB: u64 = 1024;

/// The memory of large facts. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct FactMemory(Arc<MemoryParts>);

#[derive(Debug)]
struct MemoryParts {
    /// The bytes of facts of reviews that do not have the turn.
    room: Arc<FairQuota<ReviewOwner>>,
    /// The turn, of which there is one.
    turn: Arc<FairQuota<ReviewOwner>>,
    /// The bytes of facts in a turn.
    turn_bytes: u64,
    /// The bytes of answers whose facts wait for memory.
    waiting: Arc<FairQuota<ReviewOwner>>,
}

/// The holder of facts: a review, or an attempt of a trigger's rule. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct FactHolder {
    state: Arc<HolderState>,
    /// The facts are those of policies of a namespace.
    is_of_namespace: bool,
}

#[derive(Debug)]
struct HolderState {
    owner: ReviewOwner,
    is_trigger: bool,
    small_bytes: AtomicU64,
    /// The small facts of policies of a namespace.
    small_bytes_of_namespace: AtomicU64,
    /// The turn of a review, while facts are held in it. Locked by the one fact that waits for memory.
    turn: Mutex<Weak<FactTurn>>,
}

/// The turn of a review, until none of its facts is held any more.
#[derive(Debug)]
struct FactTurn {
    /// The memory, in units of [`KIB`].
    memory: Arc<Semaphore>,
    _turn: FairPermit<ReviewOwner>,
}

/// Memory that facts take, until all clones are dropped.
#[derive(Clone, Debug)]
pub struct FactPermit {
    _held: Arc<HeldBytes>,
}

#[derive(Debug)]
enum HeldBytes {
    InRoom {
        _bytes: FairPermit<ReviewOwner>,
    },
    InTurn {
        _bytes: OwnedSemaphorePermit,
        _turn: Arc<FactTurn>,
    },
}

/// The memory that there was first: room, or the turn.
enum RoomOrTurn {
    Room(FairPermit<ReviewOwner>),
    Turn(FairPermit<ReviewOwner>),
}

impl FactHolder {
    /// A review of this owner.
    pub fn review(owner: ReviewOwner) -> Self {
        Self::new(owner, false)
    }

    /// An attempt of a rule on existing objects, whose trigger is this owner's.
    pub fn trigger(owner: ReviewOwner) -> Self {
        Self::new(owner, true)
    }

    fn new(owner: ReviewOwner, is_trigger: bool) -> Self {
        Self {
            state: Arc::new(HolderState {
                owner,
                is_trigger,
                small_bytes: AtomicU64::new(0),
                small_bytes_of_namespace: AtomicU64::new(0),
                turn: Mutex::default(),
            }),
            is_of_namespace: false,
        }
    }

    /// Returns the holder of facts for policies of this namespace; empty: of the cluster.
    pub(super) fn for_policies_of(&self, namespace: &str) -> Self {
        Self {
            state: Arc::clone(&self.state),
            is_of_namespace: self.is_of_namespace || !namespace.is_empty(),
        }
    }

    /// The party that the memory is counted for.
    pub(crate) fn owner(&self) -> ReviewOwner {
        self.state.owner
    }

    /// Returns whether its facts may be held in a turn.
    fn has_turns(&self) -> bool {
        !self.state.is_trigger && !self.is_of_namespace
    }

    /// Takes so many bytes of the memory for small facts. Returns false, and takes none, if less is left.
    fn takes_small(&self, bytes: u64) -> bool {
        let add = |taken: u64| {
            let taken = taken.saturating_add(bytes);
            (taken <= SMALL_BYTES_MAX).then_some(taken)
        };
        let small_bytes = match self.is_of_namespace {
            true => &self.state.small_bytes_of_namespace,
            false => &self.state.small_bytes,
        };
        let taken = small_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        taken.is_ok()
    }
}

impl FactPermit {
    fn of(held: HeldBytes) -> Self {
        Self {
            _held: Arc::new(held),
        }
    }
}

impl Default for FactMemory {
    fn default() -> Self {
        Self::new(MEMORY_BYTES_DEFAULT)
    }
}

impl FactMemory {
    /// Memory of so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let part = bytes_max / PARTS;
        let (room, waiting) = (part * ROOM_PARTS, part * WAITING_PARTS);
        Self(Arc::new(MemoryParts {
            room: FairQuota::new(room, room),
            turn: FairQuota::new(1, 1),
            turn_bytes: bytes_max - room - waiting,
            waiting: FairQuota::new(waiting, waiting),
        }))
    }

    /// Takes memory for the facts of one answer, which has `encoded_bytes`, and whose values take `bytes`. `None`: they
    /// are small.
    ///
    /// # Errors
    /// [`FactError::BudgetExceeded`]: there can never be so much. [`FactError::DeadlineExceeded`]: there was none before
    /// `deadline`, or too many facts wait already.
    pub(crate) async fn take(
        &self,
        encoded_bytes: usize,
        bytes: u64,
        holder: &FactHolder,
        deadline: Instant,
    ) -> Result<Option<FactPermit>, FactError> {
        if holder.takes_small(bytes) {
            return Ok(None);
        }
        if let Ok(taken) = self.0.room.try_take(holder.owner(), bytes) {
            let held = HeldBytes::InRoom { _bytes: taken };
            return Ok(Some(FactPermit::of(held)));
        }
        let bytes_max = match holder.has_turns() {
            true => self.0.turn_bytes,
            false => self.0.room.units_max(),
        };
        if bytes > bytes_max {
            return Err(FactError::BudgetExceeded {
                message: format!(
                    "its results take {bytes} bytes of memory, and the facts of a review have {bytes_max}"
                ),
            });
        }
        // In a box, so that the future of a small fact stays small.
        let waiting = Box::pin(self.0.wait(encoded_bytes, bytes, holder, deadline));
        waiting.await.map(Some)
    }

    /// Returns whether nobody holds any of it, or waits for some.
    #[cfg(test)]
    pub(crate) fn is_free(&self) -> bool {
        let nobody = ReviewOwner::of("nobody", "");
        let mut all = [&self.0.room, &self.0.turn, &self.0.waiting].into_iter();
        all.all(|quota| quota.try_take(nobody, quota.units_max()).is_ok())
    }
}

impl MemoryParts {
    async fn wait(
        &self,
        encoded_bytes: usize,
        bytes: u64,
        holder: &FactHolder,
        deadline: Instant,
    ) -> Result<FactPermit, FactError> {
        let owner = holder.owner();
        let given = deadline.saturating_duration_since(Instant::now());
        let late = |over_part| FactError::DeadlineExceeded {
            deadline_ms: millis(given),
            over_part,
        };
        let encoded_bytes = (encoded_bytes as u64).min(self.waiting.units_max());
        let waiting = self.waiting.try_take(owner, encoded_bytes);
        let _waiting = waiting.map_err(|full| FactError::DeadlineExceeded {
            deadline_ms: 0,
            over_part: full.over_part,
        })?;
        if !holder.has_turns() {
            let taken = self.room.take(owner, bytes, deadline).await;
            let taken = taken.map_err(|full| late(full.over_part))?;
            return Ok(FactPermit::of(HeldBytes::InRoom { _bytes: taken }));
        }
        // All other facts of the review wait for the first: in its turn they find room.
        let Ok(mut known) = timeout_at(deadline, holder.state.turn.lock()).await else {
            return Err(late(self.is_over_part(owner, bytes)));
        };
        let turn = match known.upgrade() {
            Some(turn) => turn,
            None => match self.room_or_turn(bytes, owner, deadline).await {
                Ok(RoomOrTurn::Room(taken)) => {
                    return Ok(FactPermit::of(HeldBytes::InRoom { _bytes: taken }));
                }
                Ok(RoomOrTurn::Turn(taken)) => {
                    let turn = Arc::new(FactTurn::new(self.turn_bytes, taken));
                    *known = Arc::downgrade(&turn);
                    turn
                }
                Err(over_part) => return Err(late(over_part)),
            },
        };
        let taken = Arc::clone(&turn.memory).acquire_many_owned(kib(bytes));
        match timeout_at(deadline, taken).await {
            Ok(Ok(taken)) => Ok(FactPermit::of(HeldBytes::InTurn {
                _bytes: taken,
                _turn: turn,
            })),
            // Other rules of the review hold the memory of its turn.
            Ok(Err(_)) | Err(_) => Err(late(true)),
        }
    }

    /// Waits for room, or for the turn.
    ///
    /// # Errors
    /// There was neither before `deadline`. True: reviews of the same owner use up its part.
    async fn room_or_turn(
        &self,
        bytes: u64,
        owner: ReviewOwner,
        deadline: Instant,
    ) -> Result<RoomOrTurn, bool> {
        let mut room = pin!(self.room.take(owner, bytes, deadline));
        let mut turn = pin!(self.turn.take(owner, 1, deadline));
        // A request that never fits would keep the requests behind it waiting.
        let mut waits_for_room = bytes <= self.room.units_max();
        let (mut waits_for_turn, mut over_part) = (true, false);
        while waits_for_room || waits_for_turn {
            tokio::select! {
                biased;
                taken = &mut room, if waits_for_room => match taken {
                    Ok(taken) => return Ok(RoomOrTurn::Room(taken)),
                    Err(full) => {
                        over_part |= full.over_part;
                        waits_for_room = false;
                    }
                },
                taken = &mut turn, if waits_for_turn => match taken {
                    Ok(taken) => return Ok(RoomOrTurn::Turn(taken)),
                    Err(full) => {
                        over_part |= full.over_part;
                        waits_for_turn = false;
                    }
                },
            }
        }
        Err(over_part)
    }

    /// Returns whether reviews of an owner use up its part before a fact of so many bytes.
    fn is_over_part(&self, owner: ReviewOwner, bytes: u64) -> bool {
        let is_over = |quota: &Arc<FairQuota<ReviewOwner>>, units| {
            let taken = quota.try_take(owner, units);
            taken.is_err_and(|full| full.over_part)
        };
        is_over(&self.room, bytes) || is_over(&self.turn, 1)
    }
}

impl FactTurn {
    fn new(bytes: u64, turn: FairPermit<ReviewOwner>) -> Self {
        Self {
            memory: Arc::new(Semaphore::new(kib(bytes) as usize)),
            _turn: turn,
        }
    }
}

/// Returns so many bytes in units of [`KIB`], rounded up.
fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
