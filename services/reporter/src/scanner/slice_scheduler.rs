//! The order in which walks go on. Walks that may have to wait for facts run beside walks that never wait, so that no
//! policy delays another. Pure.

/// Slices under way that may have to wait for facts.
const WAITING_MAX: usize = 8;

/// Slices under way that may have to wait and are about changes; or, counted apart, that are about all
/// objects. So neither kind keeps the other from its turn.
const WAITING_ALIKE_MAX: usize = 6;

/// The interval, in slices of walks that never wait, at which one slice is over all objects, whether there are
/// changes or not.
const TURN_OF_ALL: u64 = 4;

/// The lane of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Slices that never wait: there is one at a time, which has the core to itself.
    Judging,
    /// Slices that may wait, and are about changes.
    Changes,
    /// Slices that may wait, and are about objects that did not change.
    All,
}

/// A walk that could go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) waits: bool,
    pub(super) is_of_all: bool,
}

/// The numbers of slices that are under way.
#[derive(Debug, Default)]
pub(super) struct SliceScheduler {
    judging: usize,
    changes: usize,
    all: usize,
    /// Counts slices that never wait.
    turn: u64,
}

impl SliceScheduler {
    /// Chooses the walk that goes on, and its lane; `None`: none for now. Its slice is under way from now on.
    pub(super) fn next(
        &mut self,
        walks: &(impl Iterator<Item = Candidate> + Clone),
    ) -> Option<(usize, Lane)> {
        let find = |is_wanted: &dyn Fn(Candidate) -> bool| walks.clone().position(is_wanted);
        if self.judging == 0 {
            let is_turn_of_all = (self.turn + 1).is_multiple_of(TURN_OF_ALL);
            let next = find(&|w| !w.waits && w.is_of_all == is_turn_of_all);
            if let Some(at) = next.or_else(|| find(&|w| !w.waits)) {
                self.turn = self.turn.wrapping_add(1);
                self.judging += 1;
                return Some((at, Lane::Judging));
            }
        }
        if self.changes + self.all >= WAITING_MAX {
            return None;
        }
        if self.changes < WAITING_ALIKE_MAX
            && let Some(at) = find(&|w| w.waits && !w.is_of_all)
        {
            self.changes += 1;
            return Some((at, Lane::Changes));
        }
        if self.all < WAITING_ALIKE_MAX
            && let Some(at) = find(&|w| w.waits && w.is_of_all)
        {
            self.all += 1;
            return Some((at, Lane::All));
        }
        None
    }

    /// Notes that a slice has ended.
    pub(super) fn ended(&mut self, lane: Lane) {
        let under_way = match lane {
            Lane::Judging => &mut self.judging,
            Lane::Changes => &mut self.changes,
            Lane::All => &mut self.all,
        };
        *under_way = under_way.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: Candidate = Candidate {
        waits: false,
        is_of_all: false,
    };
    const ALL: Candidate = Candidate {
        waits: false,
        is_of_all: true,
    };
    const SLOW_CHANGE: Candidate = Candidate {
        waits: true,
        is_of_all: false,
    };
    const SLOW_ALL: Candidate = Candidate {
        waits: true,
        is_of_all: true,
    };

    fn next(scheduler: &mut SliceScheduler, walks: &[Candidate]) -> Option<(usize, Lane)> {
        scheduler.next(&walks.iter().copied())
    }

    #[test]
    fn a_hanging_slice_delays_no_other() {
        let mut scheduler = SliceScheduler::default();
        for _ in 0..WAITING_ALIKE_MAX {
            assert_eq!(next(&mut scheduler, &[SLOW_ALL]), Some((0, Lane::All)));
        }
        assert_eq!(
            next(&mut scheduler, &[SLOW_ALL]),
            None,
            "that is enough of them"
        );
        assert_eq!(
            next(&mut scheduler, &[SLOW_ALL, SLOW_CHANGE]),
            Some((1, Lane::Changes))
        );
        assert_eq!(
            next(&mut scheduler, &[SLOW_ALL, SLOW_CHANGE]),
            Some((1, Lane::Changes))
        );
        assert_eq!(next(&mut scheduler, &[SLOW_ALL, SLOW_CHANGE]), None);
        assert_eq!(
            next(&mut scheduler, &[SLOW_ALL, ALL]),
            Some((1, Lane::Judging))
        );
        assert_eq!(next(&mut scheduler, &[ALL]), None, "one at a time");
        scheduler.ended(Lane::Judging);
        assert_eq!(next(&mut scheduler, &[ALL]), Some((0, Lane::Judging)));
        scheduler.ended(Lane::All);
        assert_eq!(next(&mut scheduler, &[SLOW_ALL]), Some((0, Lane::All)));
    }

    #[test]
    fn changes_come_first_but_for_every_fourth_slice() {
        let mut scheduler = SliceScheduler::default();
        let mut taken = Vec::new();
        for _ in 0..8 {
            let (at, lane) = next(&mut scheduler, &[ALL, CHANGE]).unwrap();
            scheduler.ended(lane);
            taken.push(at);
        }
        assert_eq!(taken, [1, 1, 1, 0, 1, 1, 1, 0]);
    }
}
