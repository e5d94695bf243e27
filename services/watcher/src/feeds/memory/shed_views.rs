//! The views that the memory limit stopped, and the order in which they are fed again. Pure.
//!
//! | state of a view | ends |
//! |---|---|
//! | waits | when its wait is over and it fits: the cluster's views are fed first, and of those the smallest |
//! | resumes | when its source was read or refused, after [`RESUME_MAX`] at the latest |
//! | resumed | when it has stayed for [`WAIT_MAX`]: then it is forgotten |
//!
//! One view of the process resumes at a time. If memory runs out meanwhile, that view is stopped, and no other. A
//! view that is stopped again waits twice as long as before, up to [`WAIT_MAX`]. So a view that does not fit costs
//! few lists, and the views beside it go on.
//!
//! A view that is stopped is not read, so nothing says that it shrank. After [`WAIT_MAX`] it is tried although its
//! last size does not fit.

use std::{collections::BTreeMap, time::Duration};

use anteroom_model::ViewId;
use tokio::time::Instant;

use crate::log_writer::publish::ViewSize;

/// The shortest time from stopping a view to feeding it again.
const WAIT_MIN: Duration = Duration::from_secs(5);

/// The longest time from stopping a view to feeding it again, if there is room.
const WAIT_MAX: Duration = Duration::from_secs(10 * 60);

/// The longest time for which a resuming view keeps the other stopped views waiting.
const RESUME_MAX: Duration = Duration::from_secs(2 * 60);

/// The room for views divided by this has to be left beside a view that is fed again.
const RESERVE_PART: u64 = 10;

/// The views that the memory limit stopped.
#[derive(Debug, Default)]
pub(super) struct ShedViews {
    views: BTreeMap<ViewId, ShedView>,
}

#[derive(Debug)]
struct ShedView {
    /// The account of the feeder that feeds the view.
    account: u64,
    /// The size of the view, as far as it was read.
    size: ViewSize,
    /// Times that it was stopped.
    stops: u32,
    state: ShedState,
    /// The time at which the view entered `state`.
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShedState {
    Waits,
    Resumes,
    Resumed,
}

/// The memory for views, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryBudget {
    /// The bytes that all views may take.
    pub(super) bytes_max: u64,
    /// The bytes that they take.
    pub(super) bytes: u64,
}

impl MemoryBudget {
    pub(super) fn is_exceeded(self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Returns whether a view of this size may be fed again.
    fn holds(self, view_bytes: u64) -> bool {
        let reserve = self.bytes_max / RESERVE_PART;
        self.bytes
            .saturating_add(view_bytes)
            .saturating_add(reserve)
            <= self.bytes_max
    }
}

impl ShedView {
    /// Returns the time for which the view waits.
    fn wait(&self) -> Duration {
        let doubled = 1 << self.stops.saturating_sub(1).min(16);
        (WAIT_MIN * doubled).min(WAIT_MAX)
    }

    fn may_resume(&self, budget: MemoryBudget, now: Instant) -> bool {
        let waited = now.saturating_duration_since(self.since);
        let fits = budget.holds(self.size.bytes) || (waited >= WAIT_MAX && budget.holds(0));
        self.state == ShedState::Waits && waited >= self.wait() && fits
    }
}

impl ShedViews {
    /// Notes that the view of this size is stopped.
    pub(super) fn stop(&mut self, account: u64, view: &ViewId, mut size: ViewSize, now: Instant) {
        let before = self.views.remove(view);
        let stops = before.as_ref().map_or(0, |before| before.stops);
        // While a view resumes it was read in part.
        let read_before = before.filter(|before| before.state == ShedState::Resumes);
        let bytes_before = read_before.map_or(0, |before| before.size.bytes);
        size.bytes = size.bytes.max(bytes_before);
        let stopped = ShedView {
            account,
            size,
            stops: stops.saturating_add(1),
            state: ShedState::Waits,
            since: now,
        };
        self.views.insert(view.clone(), stopped);
    }

    /// Returns the account and the view that is to be fed again, if there is one. `can_resume`: the accounts whose
    /// feeders can feed a view again.
    pub(super) fn next(
        &self,
        budget: MemoryBudget,
        can_resume: impl Fn(u64) -> bool,
        now: Instant,
    ) -> Option<(u64, ViewId)> {
        if self.resuming(now).is_some() {
            return None;
        }
        let views = self
            .views
            .iter()
            .filter(|(_, shed)| can_resume(shed.account));
        let due = views.filter(|(_, shed)| shed.may_resume(budget, now));
        let first = due.min_by_key(|(view, shed)| (shed.size, *view));
        first.map(|(view, shed)| (shed.account, view.clone()))
    }

    /// The view is fed again.
    pub(super) fn resume(&mut self, view: &ViewId, now: Instant) {
        if let Some(shed) = self.views.get_mut(view) {
            (shed.state, shed.since) = (ShedState::Resumes, now);
        }
    }

    /// The source of a view that resumes was read, or refuses to be.
    pub(super) fn end_resume(&mut self, view: &ViewId, now: Instant) {
        if let Some(shed) = self.views.get_mut(view) {
            (shed.state, shed.since) = (ShedState::Resumed, now);
        }
    }

    /// Returns the account and the view that resumes, if one does.
    pub(super) fn resuming(&self, now: Instant) -> Option<(u64, &ViewId)> {
        let mut views = self.views.iter();
        let resuming = views.find(|(_, shed)| {
            let lasts = now.saturating_duration_since(shed.since);
            shed.state == ShedState::Resumes && lasts < RESUME_MAX
        });
        resuming.map(|(view, shed)| (shed.account, view))
    }

    /// Forgets the views that have stayed.
    pub(super) fn forget_stayed(&mut self, now: Instant) {
        self.views.retain(|_, shed| {
            let lasts = now.saturating_duration_since(shed.since);
            shed.state == ShedState::Waits || lasts < WAIT_MAX
        });
    }

    /// Nobody needs the view any more.
    pub(super) fn forget(&mut self, view: &ViewId) {
        self.views.remove(view);
    }

    /// The feeder with this account is gone.
    pub(super) fn forget_account(&mut self, account: u64) {
        self.views.retain(|_, shed| shed.account != account);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: u64 = 1;

    fn view(name: &str) -> ViewId {
        ViewId::new(name)
    }

    fn of_cluster(bytes: u64) -> ViewSize {
        let in_quota = false;
        ViewSize { in_quota, bytes }
    }

    fn budget(bytes: u64) -> MemoryBudget {
        let bytes_max = 1_000;
        MemoryBudget { bytes_max, bytes }
    }

    fn next(shed: &ShedViews, bytes: u64, now: Instant) -> Option<ViewId> {
        shed.next(budget(bytes), |_| true, now)
            .map(|(_, view)| view)
    }

    #[test]
    fn a_view_is_fed_again_once_it_fits_with_a_tenth_to_spare() {
        let (mut shed, now) = (ShedViews::default(), Instant::now());
        shed.stop(ACCOUNT, &view("a"), of_cluster(300), now);
        let late = now + WAIT_MIN;
        assert_eq!(next(&shed, 600, late - Duration::from_millis(1)), None);
        assert_eq!(next(&shed, 601, late), None);
        assert_eq!(next(&shed, 600, late), Some(view("a")));
    }

    #[test]
    fn the_smallest_view_is_fed_first_and_the_others_wait_until_it_is_read() {
        let (mut shed, now) = (ShedViews::default(), Instant::now());
        shed.stop(ACCOUNT, &view("a"), of_cluster(300), now);
        shed.stop(2, &view("b"), of_cluster(200), now);
        let now = now + WAIT_MIN;
        assert_eq!(shed.next(budget(0), |_| true, now), Some((2, view("b"))));
        shed.resume(&view("b"), now);
        assert_eq!(next(&shed, 0, now), None);
        shed.end_resume(&view("b"), now);
        assert_eq!(
            shed.next(budget(200), |_| true, now),
            Some((ACCOUNT, view("a")))
        );
    }

    #[test]
    fn a_resumed_view_that_is_never_read_holds_up_others_for_a_limited_time() {
        let (mut shed, now) = (ShedViews::default(), Instant::now());
        shed.stop(ACCOUNT, &view("a"), of_cluster(300), now);
        shed.stop(ACCOUNT, &view("b"), of_cluster(200), now);
        let now = now + WAIT_MIN;
        shed.resume(&view("b"), now);
        let last = now + RESUME_MAX;
        assert_eq!(next(&shed, 0, last - Duration::from_millis(1)), None);
        assert_eq!(next(&shed, 0, last), Some(view("a")));
    }

    #[test]
    fn a_view_that_does_not_fit_waits_twice_as_long_each_time_up_to_a_limit() {
        let (mut shed, mut now) = (ShedViews::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..40 {
            shed.stop(ACCOUNT, &view("a"), of_cluster(300), now);
            let stopped = now;
            while next(&shed, 0, now).is_none() {
                now += Duration::from_secs(1);
            }
            waits.push((now - stopped).as_secs());
            shed.resume(&view("a"), now);
        }
        assert_eq!(waits[..8], [5, 10, 20, 40, 80, 160, 320, 600]);
        assert!(waits[8..].iter().all(|wait| *wait == 600), "{waits:?}");
    }

    #[test]
    fn a_view_that_was_read_in_part_keeps_the_larger_size() {
        let (mut shed, now) = (ShedViews::default(), Instant::now());
        shed.stop(ACCOUNT, &view("a"), of_cluster(500), now);
        shed.resume(&view("a"), now);
        shed.stop(ACCOUNT, &view("a"), of_cluster(100), now);
        let late = now + WAIT_MIN * 2;
        assert_eq!(next(&shed, 401, late), None);
        assert_eq!(next(&shed, 400, late), Some(view("a")));
        shed.resume(&view("a"), late);
        shed.end_resume(&view("a"), late);
        shed.stop(ACCOUNT, &view("a"), of_cluster(100), late);
        let later = late + WAIT_MIN * 4;
        assert_eq!(
            next(&shed, 800, later),
            Some(view("a")),
            "it was read to its end"
        );
    }

    #[test]
    fn a_view_that_may_have_shrunk_is_tried_after_the_longest_wait() {
        let (mut shed, now) = (ShedViews::default(), Instant::now());
        shed.stop(ACCOUNT, &view("a"), of_cluster(5_000), now);
        let last = now + WAIT_MAX;
        assert_eq!(next(&shed, 0, last - Duration::from_millis(1)), None);
        assert_eq!(next(&shed, 901, last), None);
        assert_eq!(next(&shed, 900, last), Some(view("a")));
    }

    #[test]
    fn a_view_that_has_stayed_is_forgotten_and_one_that_waits_is_not() {
        let (mut shed, now) = (ShedViews::default(), Instant::now());
        for name in ["a", "b"] {
            shed.stop(ACCOUNT, &view(name), of_cluster(300), now);
            shed.stop(ACCOUNT, &view(name), of_cluster(300), now);
        }
        shed.end_resume(&view("a"), now);
        let later = now + WAIT_MAX;
        shed.forget_stayed(later - Duration::from_millis(1));
        assert_eq!(shed.views.len(), 2);
        shed.forget_stayed(later);
        assert_eq!(shed.views.keys().collect::<Vec<_>>(), [&view("b")]);
        shed.stop(ACCOUNT, &view("a"), of_cluster(300), later);
        assert_eq!(shed.views[&view("a")].wait(), WAIT_MIN);
    }

    #[test]
    fn a_feeder_that_ends_leaves_no_view_that_others_wait_for() {
        let (mut shed, now) = (ShedViews::default(), Instant::now());
        shed.stop(ACCOUNT, &view("a"), of_cluster(100), now);
        shed.stop(2, &view("b"), of_cluster(200), now);
        shed.resume(&view("a"), now);
        shed.forget_account(ACCOUNT);
        assert_eq!(next(&shed, 0, now + WAIT_MIN), Some(view("b")));
        shed.forget(&view("b"));
        assert!(shed.views.is_empty());
    }
}
