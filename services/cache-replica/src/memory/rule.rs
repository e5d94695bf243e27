//! The rule that evicts views and takes them back, without a clock and without a view. Pure.
//!
//! 1. Pinned views and the system's own are never evicted.
//! 2. A view over a limit of its own is evicted, and no other for it.
//! 3. While the cluster's views alone are over the limit, huge views are evicted first, the largest before the others. A
//!    view is huge if it alone takes more than half of the memory that the others leave, so that one huge view never
//!    evicts all others. Then the least recently used views are evicted.
//! 4. While all views together are over the limit, tenants' views are evicted: huge ones first, then those of the
//!    namespace whose views take most, the least recently used first. A tenants' view is one that only policies of
//!    namespaces need. All others are the cluster's.
//! 5. An evicted view comes back, one at a time, when it fits below [`ROOM_SHARE`] of the limit at its
//!    last known size: the cluster's first, then those that were asked for since, then the most recently used.
//! 6. For an evicted view that a query asked for, and that is not huge, older views are evicted: those that no query
//!    has used for [`REST_MS`].
//! 7. For any evicted view of the cluster, tenants' views are evicted. For a tenants' view, none of the cluster is.
//!    For one that rule 6 is about, views of another namespace are evicted if they take more than those of its own
//!    would with it, and older ones if they take no less than those of its own.
//! 8. A view that is evicted soon after its return waits longer before it comes back.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

/// The share of the limit that may be taken once a view has come back. The rest stays free, so that it
/// is not evicted again at the next change.
pub(crate) const ROOM_SHARE: (u64, u64) = (9, 10);

/// The time after its last use for which a view is not evicted in favour of a returning view.
pub(crate) const REST_MS: u64 = 30_000;

/// The shortest time that an evicted view stays away. It doubles with each eviction soon after a
/// return.
const AWAY_MIN_MS: u64 = 1_000;

/// The longest time for which a view stays evicted although there is room.
const AWAY_MAX_MS: u64 = 300_000;

/// The time after which a view that was over a limit of its own is tried again, if somebody asks for
/// it.
const OWN_LIMIT_RETRY_MS: u64 = 60_000;

/// A view, as the rule sees it. Moments are in milliseconds since any one moment.
#[derive(Clone, Debug)]
pub(crate) struct EvictableView {
    /// The view's size in memory; of an evicted view, the size at its eviction.
    pub(crate) bytes: u64,
    /// The view's own limit.
    pub(crate) bytes_max: Option<u64>,
    /// The view is pinned, or one of the system's own.
    pub(crate) stays: bool,
    /// The namespace of a tenants' view; empty: policies of several namespaces need the view. `None`: the view is the
    /// cluster's.
    pub(crate) tenant: Option<Arc<str>>,
    /// The time of the last query; 0: there was none.
    pub(crate) used_at: u64,
    /// Decides between views that were last used at the same moment: the lowest value is evicted first. The value
    /// differs between replicas, so that not all of them evict the same view.
    pub(crate) tie: u64,
    pub(crate) phase: Phase,
}

impl EvictableView {
    /// Returns the namespace of a tenants' view. A view that stays is the cluster's.
    fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref().filter(|_| !self.stays)
    }
}

/// The phase of a view between memory and eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Held,
    /// On its way back.
    Coming,
    Evicted {
        since: u64,
        why: EvictionReason,
        /// The number of consecutive evictions soon after a return, including the latest.
        times: u32,
    },
}

/// The reason of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EvictionReason {
    /// The view is over a limit of its own.
    OwnLimit,
    /// The view alone takes more than half of the memory for views.
    Huge,
    /// The view was used less recently than the others, or is a tenants' view: see the rule.
    Oldest,
}

impl EvictionReason {
    /// Returns the label of the reason in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::OwnLimit => "own_limit",
            Self::Huge => "huge",
            Self::Oldest => "least_recently_used",
        }
    }
}

/// The views that are to be evicted, and to be loaded again, by their positions in the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) evict: Vec<(usize, EvictionReason)>,
    pub(crate) load: Option<usize>,
    /// The views take more than the limit, and none may be evicted.
    pub(crate) over: bool,
}

/// Returns the time for which a view stays away after this many evictions in a row.
fn away_ms(times: u32) -> u64 {
    let doublings = times.saturating_sub(1).min(16);
    (AWAY_MIN_MS << doublings).min(AWAY_MAX_MS)
}

/// Decides which views to evict and to load. `room` is the memory for views; `None`: only the views' own limits
/// count.
pub(crate) fn decide(now: u64, room: Option<u64>, views: &[EvictableView]) -> Decision {
    let mut state = EvictionState {
        now,
        views,
        held: vec![true; views.len()],
        decision: Decision::default(),
    };
    for (at, view) in views.iter().enumerate() {
        let evicted = matches!(view.phase, Phase::Evicted { .. });
        if evicted || over_own(view) {
            state.held[at] = false;
        }
        if !evicted && over_own(view) {
            state.decision.evict.push((at, EvictionReason::OwnLimit));
        }
    }
    if let Some(room) = room {
        state.make_room(room);
    }
    state.bring_back(room.unwrap_or(u64::MAX));
    state.decision
}

fn over_own(view: &EvictableView) -> bool {
    !view.stays && view.bytes_max.is_some_and(|max| view.bytes > max)
}

struct EvictionState<'v> {
    now: u64,
    views: &'v [EvictableView],
    held: Vec<bool>,
    decision: Decision,
}

impl EvictionState<'_> {
    fn held_views(&self) -> impl Iterator<Item = (usize, &EvictableView)> {
        let all = self.views.iter().enumerate();
        all.filter(|(at, _)| self.held[*at])
    }

    /// Returns whether a view takes more than half of the memory beside the views that stay.
    fn is_huge(&self, bytes: u64, room: u64) -> bool {
        let staying = self.held_views().filter(|(_, view)| view.stays);
        let staying: u64 = staying.map(|(_, view)| view.bytes).sum();
        bytes > room.saturating_sub(staying) / 2
    }

    /// Evicts the cluster's views until they fit without tenants' views, and then tenants' views until all fit.
    fn make_room(&mut self, room: u64) {
        for of_tenants in [false, true] {
            while self.bytes(of_tenants) > room {
                let Some((at, why)) = self.victim(room, of_tenants) else {
                    self.decision.over = true;
                    break;
                };
                self.evict(at, why);
            }
        }
    }

    /// Returns the bytes of the cluster's views, or of all views.
    fn bytes(&self, with_tenants: bool) -> u64 {
        let views = self.held_views();
        let counted = views.filter(|(_, view)| with_tenants || view.tenant().is_none());
        counted.map(|(_, view)| view.bytes).sum()
    }

    /// Returns the tenants' view to evict first, or the cluster's.
    fn victim(&self, room: u64, of_tenants: bool) -> Option<(usize, EvictionReason)> {
        let evictable = || {
            let views = self.held_views().filter(|(_, view)| !view.stays);
            views.filter(move |(_, view)| view.tenant().is_some() == of_tenants)
        };
        let huge = evictable()
            .filter(|(_, view)| self.is_huge(view.bytes, room))
            .max_by_key(|(_, view)| view.bytes);
        if let Some((at, _)) = huge {
            return Some((at, EvictionReason::Huge));
        }
        let taken = self.bytes_by_tenant();
        let first = evictable().min_by_key(|(_, view)| order(view, &taken));
        first.map(|(at, _)| (at, EvictionReason::Oldest))
    }

    /// Returns the bytes that the tenants' views of each namespace take.
    fn bytes_by_tenant(&self) -> HashMap<&str, u64> {
        let mut taken: HashMap<&str, u64> = HashMap::new();
        for (_, view) in self.held_views() {
            if let Some(tenant) = view.tenant() {
                *taken.entry(tenant).or_default() += view.bytes;
            }
        }
        taken
    }

    fn evict(&mut self, at: usize, why: EvictionReason) {
        self.held[at] = false;
        self.decision.evict.push((at, why));
    }

    fn bring_back(&mut self, room: u64) {
        let coming = self.views.iter().any(|view| view.phase == Phase::Coming);
        if coming || !self.decision.evict.is_empty() || self.decision.over {
            return;
        }
        let mark = u128::from(room) * u128::from(ROOM_SHARE.0) / u128::from(ROOM_SHARE.1);
        let mark = u64::try_from(mark).unwrap_or(u64::MAX);
        let mut waiting: Vec<_> = self.views.iter().enumerate().collect();
        waiting.retain(|(_, view)| self.may_return(view));
        waiting.sort_by_key(|(_, view)| {
            Reverse((view.tenant().is_none(), was_asked(view), view.used_at))
        });
        for (at, view) in waiting {
            let free = mark.saturating_sub(self.bytes(true));
            if view.bytes <= free {
                self.decision.load = Some(at);
                return;
            }
            if let Some(victims) = self.victims_for(view, view.bytes - free, room) {
                for victim in victims {
                    self.evict(victim, EvictionReason::Oldest);
                }
                self.decision.load = Some(at);
                return;
            }
        }
    }

    fn may_return(&self, view: &EvictableView) -> bool {
        let Phase::Evicted { since, why, times } = view.phase else {
            return false;
        };
        let away = self.now.saturating_sub(since);
        if over_own(view) && why == EvictionReason::OwnLimit {
            return was_asked(view) && away >= OWN_LIMIT_RETRY_MS.max(away_ms(times));
        }
        away >= away_ms(times)
    }

    /// Returns held views that take `bytes` together and may go for the evicted view; `None`: there are too few.
    fn victims_for(&self, view: &EvictableView, bytes: u64, room: u64) -> Option<Vec<usize>> {
        let is_wanted = was_asked(view) && !self.is_huge(view.bytes, room);
        let is_older = |held: &EvictableView| {
            // It may have been used since `now` was taken.
            let rested_ms = self.now.saturating_sub(held.used_at);
            held.used_at < view.used_at && rested_ms >= REST_MS
        };
        let taken = self.bytes_by_tenant();
        let taken_by = |tenant: &str| taken.get(tenant).copied().unwrap_or(0);
        let may_go = |held: &EvictableView| match (held.tenant(), view.tenant()) {
            _ if held.stays => false,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(other), Some(own)) if other != own => {
                let (others, own) = (taken_by(other), taken_by(own));
                let takes_more = others > own.saturating_add(view.bytes);
                is_wanted && (takes_more || (others >= own && is_older(held)))
            }
            _ => is_wanted && is_older(held),
        };
        let mut victims: Vec<_> = self.held_views().filter(|(_, held)| may_go(held)).collect();
        victims.sort_by_key(|(_, held)| order(held, &taken));
        let (mut freed, mut first) = (0, Vec::new());
        for (at, held) in victims {
            if freed >= bytes {
                break;
            }
            freed += held.bytes;
            first.push(at);
        }
        (freed >= bytes).then_some(first)
    }
}

/// Returns the view's place in the order of eviction. `taken` has the bytes of each tenant.
fn order(view: &EvictableView, taken: &HashMap<&str, u64>) -> (bool, Reverse<u64>, u64, u64) {
    let tenant = view.tenant();
    let bytes = tenant.and_then(|tenant| taken.get(tenant));
    let bytes = bytes.copied().unwrap_or(0);
    (tenant.is_none(), Reverse(bytes), view.used_at, view.tie)
}

/// Returns true if somebody asked for the view since it was evicted.
fn was_asked(view: &EvictableView) -> bool {
    matches!(view.phase, Phase::Evicted { since, .. } if view.used_at > since)
}

#[cfg(test)]
mod tests;
