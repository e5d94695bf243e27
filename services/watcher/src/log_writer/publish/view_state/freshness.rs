//! The age of a view's news.

use tokio::time::Instant;

use crate::log_writer::publish::{suspends::Suspends, work::ChangeOrigin};

/// The times that the age of a view's news follows from.
#[derive(Debug, Default)]
pub(in crate::log_writer::publish) struct Freshness {
    /// The time at which the source was last heard from.
    heard: Option<Instant>,
    /// The time at which the source was last heard from before the view was opened anew. It counts until the
    /// differences are complete in the log, since readers are served data of that age meanwhile.
    served_heard: Option<Instant>,
    /// The time at which the source was last heard from before the running list, if a list runs: the list's objects
    /// may be as old.
    heard_before_list: Option<Instant>,
    /// The time of the oldest change of the batch on its way.
    in_flight_since: Option<Instant>,
    /// The time of the oldest change that was dropped, until readers learn that the view failed.
    untold_since: Option<Instant>,
}

impl Freshness {
    /// Returns the time at which the source was last heard from.
    pub(in crate::log_writer::publish) fn news_at(&self) -> Option<Instant> {
        self.heard
    }

    /// The source was heard from at this time.
    pub(in crate::log_writer::publish) fn note_news(&mut self, at: Instant) {
        self.heard = self.heard.max(Some(at));
    }

    pub(super) fn begin_list(&mut self) {
        self.heard_before_list = self.heard;
    }

    /// Ends the list: the whole view was listed, and later changes are newer.
    pub(super) fn end_list(&mut self) {
        self.heard_before_list = None;
    }

    /// A new epoch begins. Until its differences are complete, readers are served the earlier objects.
    pub(super) fn begin_epoch(&mut self) {
        self.served_heard = self.served_heard.or(self.heard);
    }

    /// The log says that the differences of the epoch are complete, or that the view cannot be read.
    pub(in crate::log_writer::publish) fn serve_epoch(&mut self) {
        self.served_heard = None;
    }

    /// Returns the time since which a change that came at `at` may be so at the source.
    pub(super) fn since(&self, at: Instant, origin: &ChangeOrigin) -> Instant {
        match (origin, self.heard_before_list) {
            (ChangeOrigin::List, Some(heard)) => at.min(heard),
            // A watch may bring an event late. Without it, the log is as old as the last word before it.
            (ChangeOrigin::Event(_), _) => self.heard.map_or(at, |heard| at.min(heard)),
            (ChangeOrigin::List | ChangeOrigin::Own, _) => at,
        }
    }

    /// A change of this age is on its way to the log.
    pub(in crate::log_writer::publish) fn send(&mut self, since: Instant) {
        let oldest = self.in_flight_since.get_or_insert(since);
        *oldest = since.min(*oldest);
    }

    /// Returns whether a change is on its way to the log.
    pub(in crate::log_writer::publish) fn is_in_flight(&self) -> bool {
        self.in_flight_since.is_some()
    }

    /// All changes that were on their way are in the log.
    pub(in crate::log_writer::publish) fn arrive(&mut self) {
        self.in_flight_since = None;
    }

    /// Drops all changes that are not in the log. Until readers learn of that, their data grow old.
    pub(super) fn drop_changes(&mut self, oldest_pending: Option<Instant>, now: Instant) {
        self.untold_since = Some(self.oldest_change(oldest_pending).unwrap_or(now));
        (self.in_flight_since, self.served_heard) = (None, None);
    }

    /// Notes that readers know that the view was dropped or has failed.
    pub(super) fn tell_failure(&mut self) {
        self.untold_since = None;
    }

    /// Returns the time of the oldest change that is not in the log. `oldest_pending`: the time of the
    /// oldest queued change.
    fn oldest_change(&self, oldest_pending: Option<Instant>) -> Option<Instant> {
        let changes = [self.in_flight_since, oldest_pending, self.untold_since];
        changes.into_iter().flatten().min()
    }

    /// Returns the time since the source was last heard from, plus the wait of the oldest change; `u64::MAX`: it was
    /// never heard from. While the differences of a new epoch are on their way, it is the age of the served data.
    pub(super) fn news_age_ms(
        &self,
        oldest_pending: Option<Instant>,
        now: Instant,
        suspends: &Suspends,
    ) -> u64 {
        let Some(heard) = self.served_heard.or(self.heard) else {
            return u64::MAX;
        };
        let age = suspends.age(heard, now);
        let oldest = self.oldest_change(oldest_pending);
        let waited = oldest.map(|since| suspends.age(since, now));
        u64::try_from((age + waited.unwrap_or_default()).as_millis()).unwrap_or(u64::MAX)
    }
}
