//! The time that heartbeats were on their way.
//!
//! A beat that waited in a socket or in a server's queue tells ages that were true when it was sent. So each beat says how
//! long after the begin of its term it was sent. The time of its arrival minus that is the time on the way, plus a
//! constant that nobody knows: the distance of the two clocks' begins. It is the same for all beats of a term. So the
//! beat with the least difference was on its way for the shortest time, and every other one for as much longer. Only
//! durations of the same machine are ever subtracted.
//!
//! If all beats are equally late, none seems late: an age is then as it would be if beats did not say when they were sent,
//! and never younger.
//!
//! Clocks run at slightly different rates, and that of a virtual machine may stand still while it is paused. So the least
//! difference is that of the last beats alone: see [`PERIOD`].

use std::{collections::BTreeMap, time::Duration};

use anteroom_model::Group;
use anteroom_wire::beat::Beat;

use crate::freshness::Moment;

/// The time in which beats come for which a least difference is kept, and then for as long again. It is counted by beats that
/// arrive: however long none came, the ones before are known when the next ones come.
const PERIOD: Duration = Duration::from_secs(60);

/// The delays of beats, for the last writer of each group.
#[derive(Debug, Default)]
pub(crate) struct BeatDelays(BTreeMap<Group, Arrivals>);

/// The arrivals of one writer's beats.
#[derive(Debug)]
struct Arrivals {
    term: u32,
    holder: String,
    /// The least difference of arrival and sending in this period.
    least_ms: i64,
    /// The least one in the period before.
    before_ms: i64,
    /// When this period began.
    begun: Moment,
}

impl BeatDelays {
    /// Takes in the arrival of a beat. Returns for how many milliseconds it was on its way, beyond the shortest time that a
    /// beat of its term took lately; 0 if it does not say when it was sent.
    pub(crate) fn arrived(&mut self, now: Moment, beat: &Beat) -> u64 {
        let Some(sent_ms) = beat.sent_ms else {
            return 0;
        };
        let sent_ms = i64::try_from(sent_ms).unwrap_or(i64::MAX);
        let arrived_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let difference_ms = arrived_ms.saturating_sub(sent_ms);
        match self.0.get_mut(&beat.group) {
            Some(known) if known.term == beat.term && known.holder == beat.holder => {
                known.take(now, difference_ms)
            }
            _ => {
                let first = Arrivals {
                    term: beat.term,
                    holder: beat.holder.clone(),
                    least_ms: difference_ms,
                    before_ms: i64::MAX,
                    begun: now,
                };
                self.0.insert(beat.group, first);
                0
            }
        }
    }

    /// Terms of the group have begun anew: the same number names another term.
    pub(crate) fn forget(&mut self, group: Group) {
        self.0.remove(&group);
    }

    /// Terms of all groups have begun anew.
    pub(crate) fn forget_all(&mut self) {
        self.0.clear();
    }
}

impl Arrivals {
    fn take(&mut self, now: Moment, difference_ms: i64) -> u64 {
        if now.saturating_sub(self.begun) >= PERIOD {
            self.before_ms = std::mem::replace(&mut self.least_ms, difference_ms);
            self.begun = now;
        }
        self.least_ms = self.least_ms.min(difference_ms);
        let least_ms = self.least_ms.min(self.before_ms);
        u64::try_from(difference_ms.saturating_sub(least_ms)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::Incarnation;

    use super::*;

    fn beat(term: u32, sent_ms: Option<u64>) -> Beat {
        Beat {
            incarnation: Incarnation("1".to_owned()),
            group: Group(1),
            term,
            holder: "w".to_owned(),
            page: 0,
            sent_ms,
            views: Vec::new(),
        }
    }

    fn at(ms: u64) -> Moment {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_beat_is_late_by_what_it_took_longer_than_the_fastest_one() {
        let mut delays = BeatDelays::default();
        for (arrived_ms, sent_ms, late_ms) in [
            // Even the first one may have waited.
            (90_000, 500, 0),
            (90_100, 1_000, 0),
            (90_700, 1_500, 100),
            // For long, none came: then all of them at once, the earliest first.
            (290_100, 2_000, 199_000),
            (290_101, 100_000, 101_001),
            (290_102, 201_000, 2),
            (290_600, 201_500, 0),
        ] {
            let found = delays.arrived(at(arrived_ms), &beat(1, Some(sent_ms)));
            assert_eq!(found, late_ms, "{arrived_ms}");
        }
    }

    #[test]
    fn a_clock_that_stood_still_makes_no_beat_late_for_ever() {
        let mut delays = BeatDelays::default();
        let mut arrived = |sent_ms, lost_ms| {
            let now = at(5_000 + sent_ms + lost_ms);
            delays.arrived(now, &beat(1, Some(sent_ms)))
        };
        assert_eq!(arrived(0, 0), 0);
        assert_eq!(arrived(500, 30_000), 30_000);
        let mut late_until_ms = 0;
        for sent_ms in (1_000..300_000).step_by(500) {
            let late_ms = arrived(sent_ms, 30_000);
            if late_ms > 0 {
                assert_eq!(late_ms, 30_000);
                late_until_ms = sent_ms;
            }
        }
        assert!(Duration::from_millis(late_until_ms) <= 2 * PERIOD);
        // The reader's own clock did.
        assert_eq!(arrived(300_000, 0), 0);
        assert_eq!(arrived(300_500, 0), 0);
    }

    #[test]
    fn clocks_of_different_rates_make_no_beat_late() {
        let mut delays = BeatDelays::default();
        for beats in 0..20_000_u64 {
            let sent_ms = beats * 500;
            let late_ms = delays.arrived(at(sent_ms + sent_ms / 2_000), &beat(1, Some(sent_ms)));
            assert!(late_ms <= 100, "{late_ms} ms after {sent_ms} ms");
        }
    }

    #[test]
    fn another_term_has_a_begin_of_its_own_and_beats_of_older_writers_have_none() {
        let mut delays = BeatDelays::default();
        assert_eq!(delays.arrived(at(1_000), &beat(1, Some(900))), 0);
        assert_eq!(delays.arrived(at(2_000), &beat(1, None)), 0);
        assert_eq!(delays.arrived(at(3_000), &beat(1, Some(1_900))), 1_000);
        assert_eq!(delays.arrived(at(9_000), &beat(2, Some(0))), 0);
        assert_eq!(delays.arrived(at(9_600), &beat(2, Some(500))), 100);
        delays.forget(Group(1));
        assert_eq!(delays.arrived(at(99_000), &beat(2, Some(0))), 0);
        let hostile = beat(2, Some(u64::MAX));
        assert_eq!(delays.arrived(at(99_001), &hostile), 0);
    }
}
