//! The age of a view's data.
//!
//! An age is a sum of durations: what the writer measured until it sent the beat, what the beat took longer on its way
//! than others ([`beat_delay`](crate::beat_delay)), and what we measured since it arrived, suspends of our machine included. Two machines' clocks are never
//! subtracted. A beat counts once everything up to the position that it names has been read, or what superseded it.

use std::{collections::VecDeque, time::Duration};

use anteroom_model::Revision;

/// A moment, as the time since the mirror was made.
pub(crate) type Moment = Duration;

/// Beats that wait for their position to be read: eight seconds' worth, where two seconds without
/// progress make the mirror read again. At the limit, newer ones are left out: the oldest is the
/// one that is reached first.
const PENDING_MAX: usize = 16;

/// The age of one view's data.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    news: Option<News>,
    pending: VecDeque<Pending>,
}

/// The source was heard from `age_ms` before `at`.
#[derive(Clone, Copy, Debug)]
struct News {
    at: Moment,
    age_ms: u64,
}

impl News {
    fn age_ms(self, now: Moment) -> u64 {
        let since = now.saturating_sub(self.at).as_millis();
        self.age_ms
            .saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The position that must have been read for `news` to count.
    revision: Revision,
    news: News,
}

impl Freshness {
    /// A beat arrived: the view's last record stands at `revision`. `complete_to` as in [`Freshness::reached`].
    pub(crate) fn beat(
        &mut self,
        now: Moment,
        revision: Revision,
        age_ms: u64,
        complete_to: Revision,
    ) {
        if age_ms == u64::MAX {
            return; // The writer itself has never heard from the source.
        }
        if revision == Revision(0) {
            return; // The writer has written nothing yet, and its source may have news.
        }
        let news = News { at: now, age_ms };
        if revision <= complete_to {
            self.take(news, now);
        } else if self.pending.len() < PENDING_MAX {
            self.pending.push_back(Pending { revision, news });
        }
    }

    /// Everything up to `complete_to` has been read, or what superseded it. To have read further is not enough: the
    /// record that superseded another one may stand behind the beat's position.
    pub(crate) fn reached(&mut self, now: Moment, complete_to: Revision) {
        while let Some(pending) = self.pending.front().copied()
            && pending.revision <= complete_to
        {
            self.pending.pop_front();
            self.take(pending.news, now);
        }
    }

    /// Another log is read: a beat that waits will not be reached. What is known stays true of what
    /// is served.
    pub(crate) fn forget_positions(&mut self) {
        self.pending.clear();
    }

    /// Forgets all news: an older state will be served than the one that they were about.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns true if a beat waits for its position to be read.
    pub(crate) fn is_behind(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The time since the source was last heard from; `u64::MAX` if that is not known.
    pub(crate) fn age_ms(&self, now: Moment) -> u64 {
        self.news.map_or(u64::MAX, |news| news.age_ms(now))
    }

    fn take(&mut self, news: News, now: Moment) {
        if news.age_ms(now) <= self.age_ms(now) {
            self.news = Some(news);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    #[test]
    fn without_a_beat_the_age_is_unbounded() {
        let mut freshness = Freshness::default();
        assert_eq!(freshness.age_ms(at(5)), u64::MAX);
        freshness.beat(at(5), Revision(0), u64::MAX, Revision(9));
        assert_eq!(freshness.age_ms(at(5)), u64::MAX, "the writer has none");
    }

    #[test]
    fn an_age_is_the_writers_age_plus_the_time_since_its_beat() {
        let mut freshness = Freshness::default();
        freshness.beat(at(100), Revision(7), 30, Revision(7));
        assert_eq!(freshness.age_ms(at(100)), 30);
        assert_eq!(freshness.age_ms(at(350)), 280);
        // A writer that took over and has heard nothing newer does not make it older.
        freshness.beat(at(350), Revision(7), 5_000, Revision(7));
        assert_eq!(freshness.age_ms(at(350)), 280);
    }

    #[test]
    fn a_beat_counts_from_its_arrival_once_its_revision_is_read() {
        let mut freshness = Freshness::default();
        freshness.beat(at(100), Revision(7), 0, Revision(5));
        assert!(freshness.is_behind());
        freshness.reached(at(150), Revision(6));
        assert_eq!(freshness.age_ms(at(150)), u64::MAX);
        freshness.reached(at(180), Revision(8));
        assert_eq!(freshness.age_ms(at(180)), 80);
        assert!(!freshness.is_behind());
    }

    #[test]
    fn pending_beats_are_bounded_and_the_oldest_stays() {
        let mut freshness = Freshness::default();
        for n in 0..100 {
            freshness.beat(at(n), Revision(10 + n), 0, Revision(1));
        }
        assert_eq!(freshness.pending.len(), PENDING_MAX);
        freshness.reached(at(100), Revision(10));
        assert_eq!(freshness.age_ms(at(100)), 100);
    }
}
