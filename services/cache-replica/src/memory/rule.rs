//! The rule that evicts views and takes them back, without a clock and without a view. Pure.
//!
//! 1. Pinned views and the system's own are never evicted.
//! 2. A view over a limit of its own is evicted, and no other for it.
//! 3. While all views together are over the limit, huge views are evicted first, the largest before the others. A
//!    view is huge if it alone takes more than half of the memory that the others leave, so that one huge view never
//!    evicts all others. Then the least recently used views are evicted.
//! 4. An evicted view comes back, one at a time, when it fits below [`ROOM_SHARE`] of the limit at its
//!    last known size: those that were asked for since first, then the most recently used.
//! 5. For an evicted view that a query asked for, and that is not huge, older views are evicted: those that no query
//!    has used for [`REST_MS`].
//! 6. A view that is evicted soon after its return waits longer before it comes back.

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
    /// The time of the last query; 0: there was none.
    pub(crate) used_at: u64,
    /// Decides between views that were last used at the same moment: the lowest value is evicted first. The value
    /// differs between replicas, so that not all of them evict the same view.
    pub(crate) tie: u64,
    pub(crate) phase: Phase,
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
    /// The view was used less recently than the others.
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
    fn total(&self) -> u64 {
        self.held_views().map(|(_, view)| view.bytes).sum()
    }

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

    fn make_room(&mut self, room: u64) {
        while self.total() > room {
            let evictable = || self.held_views().filter(|(_, view)| !view.stays);
            let huge = evictable()
                .filter(|(_, view)| self.is_huge(view.bytes, room))
                .max_by_key(|(_, view)| view.bytes);
            let oldest = || evictable().min_by_key(|(_, view)| (view.used_at, view.tie));
            let victim = match huge {
                Some((at, _)) => Some((at, EvictionReason::Huge)),
                None => oldest().map(|(at, _)| (at, EvictionReason::Oldest)),
            };
            let Some((at, why)) = victim else {
                self.decision.over = true;
                return;
            };
            self.evict(at, why);
        }
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
        waiting.sort_by_key(|(_, view)| std::cmp::Reverse((was_asked(view), view.used_at)));
        for (at, view) in waiting {
            let free = mark.saturating_sub(self.total());
            if view.bytes <= free {
                self.decision.load = Some(at);
                return;
            }
            if was_asked(view)
                && !self.is_huge(view.bytes, room)
                && let Some(older) = self.older_than(view, view.bytes - free)
            {
                for victim in older {
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

    /// Returns the least recently used views that take `bytes` together, all of them rested and older than `than`;
    /// `None`: there are too few.
    fn older_than(&self, than: &EvictableView, bytes: u64) -> Option<Vec<usize>> {
        let rested = |view: &EvictableView| {
            // It may have been used since `now` was taken.
            let rested_ms = self.now.saturating_sub(view.used_at);
            !view.stays && view.used_at < than.used_at && rested_ms >= REST_MS
        };
        let mut older: Vec<_> = self.held_views().filter(|(_, view)| rested(view)).collect();
        older.sort_by_key(|(_, view)| (view.used_at, view.tie));
        let (mut freed, mut victims) = (0, Vec::new());
        for (at, view) in older {
            if freed >= bytes {
                break;
            }
            freed += view.bytes;
            victims.push(at);
        }
        (freed >= bytes).then_some(victims)
    }
}

/// Returns true if somebody asked for the view since it was evicted.
fn was_asked(view: &EvictableView) -> bool {
    matches!(view.phase, Phase::Evicted { since, .. } if view.used_at > since)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(bytes: u64, used_at: u64) -> EvictableView {
        EvictableView {
            bytes,
            bytes_max: None,
            stays: false,
            used_at,
            tie: 0,
            phase: Phase::Held,
        }
    }

    fn pinned(bytes: u64) -> EvictableView {
        EvictableView {
            stays: true,
            ..held(bytes, 0)
        }
    }

    fn evicted(bytes: u64, used_at: u64, since: u64, why: EvictionReason) -> EvictableView {
        let phase = Phase::Evicted {
            since,
            why,
            times: 1,
        };
        EvictableView {
            phase,
            ..held(bytes, used_at)
        }
    }

    const NOW: u64 = 1_000_000;

    /// The rule, case by case.
    #[test]
    fn views_are_evicted_by_their_use_size_and_limits() {
        let own = EvictableView {
            bytes_max: Some(10),
            ..held(11, 9)
        };
        let tied = |tie| EvictableView { tie, ..held(40, 5) };
        type Case = (
            &'static str,
            Vec<EvictableView>,
            Vec<(usize, EvictionReason)>,
            bool,
        );
        let cases: Vec<Case> = vec![
            ("all fit", vec![held(50, 1), held(50, 2)], vec![], false),
            (
                "the least recently used goes",
                vec![held(40, 3), held(40, 1), held(40, 2)],
                vec![(1, EvictionReason::Oldest)],
                false,
            ),
            (
                "as many as it takes",
                vec![held(45, 3), held(40, 1), held(40, 2), held(50, 4)],
                vec![(1, EvictionReason::Oldest), (2, EvictionReason::Oldest)],
                false,
            ),
            (
                "a huge one goes before older ones",
                vec![held(90, 9), held(10, 1), held(10, 2)],
                vec![(0, EvictionReason::Huge)],
                false,
            ),
            (
                "huge is more than half of what is left beside what stays",
                vec![pinned(60), held(25, 9), held(10, 1), held(10, 2)],
                vec![(1, EvictionReason::Huge)],
                false,
            ),
            (
                "pinned ones stay, and that is said",
                vec![pinned(70), pinned(40), held(10, 9)],
                vec![(2, EvictionReason::Huge)],
                true,
            ),
            (
                "one over its own limit goes alone",
                vec![own.clone(), held(10, 1)],
                vec![(0, EvictionReason::OwnLimit)],
                false,
            ),
            (
                "a pinned one does not go for its own limit",
                vec![EvictableView { stays: true, ..own }],
                vec![],
                false,
            ),
            (
                "a tie is told by each replica for itself",
                vec![tied(2), tied(1), tied(3)],
                vec![(1, EvictionReason::Oldest)],
                false,
            ),
        ];
        for (name, views, expected, over) in cases {
            let decision = decide(NOW, Some(100), &views);
            assert_eq!(decision.evict, expected, "{name}");
            assert_eq!(decision.over, over, "{name}");
            assert_eq!(decision.load, None, "{name}");
        }
    }

    #[test]
    fn views_come_back_where_there_is_room() {
        let since = NOW - 100_000;
        let asked = NOW - 10;
        let rested = NOW - REST_MS;
        let coming = EvictableView {
            phase: Phase::Coming,
            ..held(1, 0)
        };
        let again = EvictableView {
            phase: Phase::Evicted {
                since: NOW - 3_999,
                why: EvictionReason::Oldest,
                times: 3,
            },
            ..held(10, 0)
        };
        let own = EvictableView {
            bytes_max: Some(10),
            ..evicted(20, asked, since, EvictionReason::OwnLimit)
        };
        let unasked = EvictableView {
            used_at: 0,
            ..own.clone()
        };
        let raised = EvictableView {
            bytes_max: Some(30),
            ..unasked.clone()
        };
        let gone = |bytes, used_at| evicted(bytes, used_at, since, EvictionReason::Oldest);
        type Case = (&'static str, Vec<EvictableView>, Option<usize>, Vec<usize>);
        let cases: Vec<Case> = vec![
            (
                "there is room",
                vec![held(50, 1), gone(40, 1)],
                Some(1),
                vec![],
            ),
            ("not quite", vec![held(51, 1), gone(40, 1)], None, vec![]),
            (
                "the most recently used first",
                vec![held(50, 1), gone(40, 1), gone(40, 2)],
                Some(2),
                vec![],
            ),
            (
                "one that was asked for before any other",
                vec![held(50, 1), gone(10, since), gone(40, asked)],
                Some(2),
                vec![],
            ),
            ("one at a time", vec![coming, gone(10, asked)], None, vec![]),
            (
                "older ones go for one that was asked for",
                vec![held(50, rested), held(40, rested - 1), gone(30, asked)],
                Some(2),
                vec![1],
            ),
            (
                "not those that were used lately",
                vec![held(50, rested + 1), held(40, rested + 1), gone(30, asked)],
                None,
                vec![],
            ),
            (
                "nor one that was used since the look began",
                vec![held(50, rested), held(40, NOW + 1), gone(60, NOW + 2)],
                None,
                vec![],
            ),
            (
                "not for one that nobody asked for",
                vec![held(50, 1), held(40, 1), gone(30, 2)],
                None,
                vec![],
            ),
            (
                "not for a huge one",
                vec![held(25, 1), held(25, 1), gone(60, asked)],
                None,
                vec![],
            ),
            (
                "one that goes and comes waits longer",
                vec![again],
                None,
                vec![],
            ),
            (
                "over its own limit, tried for who asks",
                vec![own],
                Some(0),
                vec![],
            ),
            ("and for nobody else", vec![unasked], None, vec![]),
            ("until that is raised", vec![raised], Some(0), vec![]),
        ];
        for (name, views, expected, evicted) in cases {
            let decision = decide(NOW, Some(100), &views);
            assert_eq!(decision.load, expected, "{name}");
            let went: Vec<_> = decision.evict.iter().map(|(at, _)| *at).collect();
            assert_eq!(went, evicted, "{name}");
        }
    }

    #[test]
    fn without_a_limit_only_limits_of_their_own_hold() {
        let own = EvictableView {
            bytes_max: Some(1),
            ..held(2, 0)
        };
        let decision = decide(NOW, None, &[held(u64::MAX / 2, 0), own]);
        assert_eq!(decision.evict, [(1, EvictionReason::OwnLimit)]);
    }
}
