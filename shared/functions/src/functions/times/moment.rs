//! A point in time, and the zone in which it is shown.

use std::cmp::Ordering;

use jiff::{SignedDuration, civil::DateTime};

/// From the first day of the year 1, from where Go counts, to 1970, in nanoseconds.
const YEAR_1_NS: i128 = 62_135_596_800 * 1_000_000_000;

/// Years that are written with four digits.
const YEARS: std::ops::RangeInclusive<i16> = 0..=9999;

const SECOND_NS: i128 = 1_000_000_000;

const YEAR_1970: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Two are equal, or one is earlier, as points in time; where they are shown does not matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Nanoseconds after 1970-01-01T00:00:00Z.
    at_ns: i128,
    /// The civil time at the offset.
    shown: DateTime,
    offset_s: i32,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.at_ns == other.at_ns
    }
}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.at_ns.partial_cmp(&other.at_ns)
    }
}

impl Moment {
    /// The moment at which a clock shows this civil time, so many seconds ahead of UTC.
    pub(super) fn of_civil(shown: DateTime, offset_s: i32) -> Option<Self> {
        let shown_ns = shown.duration_since(YEAR_1970).as_nanos();
        Self::at(shown_ns - i128::from(offset_s) * SECOND_NS, offset_s)
    }

    /// In UTC.
    pub(super) fn of_unix_ns(ns: i128) -> Option<Self> {
        Self::at(ns, 0)
    }

    /// Nanoseconds after 1970.
    pub(super) fn unix_ns(&self) -> i128 {
        self.at_ns
    }

    /// `None` where a clock would show another year than can be written.
    fn at(at_ns: i128, offset_s: i32) -> Option<Self> {
        let shown_ns = at_ns.checked_add(i128::from(offset_s) * SECOND_NS)?;
        let seconds = i64::try_from(shown_ns.div_euclid(SECOND_NS)).ok()?;
        let rest_ns = i32::try_from(shown_ns.rem_euclid(SECOND_NS)).ok()?;
        let since = SignedDuration::new(seconds, rest_ns);
        let shown = YEAR_1970.checked_add(since).ok()?;
        YEARS.contains(&shown.year()).then_some(Self {
            at_ns,
            shown,
            offset_s,
        })
    }

    /// The moment as a clock shows it that is so many seconds ahead of UTC.
    pub(super) fn shown_at(&self, offset_s: i32) -> Option<Self> {
        Self::at(self.at_ns, offset_s)
    }

    /// `None` where that is in another year than can be written.
    pub(super) fn in_utc(&self) -> Option<Self> {
        self.shown_at(0)
    }

    /// So many nanoseconds later; `None` outside of the years that can be written.
    pub(super) fn later(&self, ns: i128) -> Option<Self> {
        Self::at(self.at_ns.checked_add(ns)?, self.offset_s)
    }

    /// The last whole multiple of the duration since the year 1; the same where it is not positive.
    pub(super) fn truncated(&self, ns: i128) -> Option<Self> {
        if ns <= 0 {
            return Some(*self);
        }
        let at = self.at_ns;
        Self::at(at - (at + YEAR_1_NS).rem_euclid(ns), self.offset_s)
    }

    /// Nanoseconds from an earlier time to this one, as many as a duration of Go holds.
    pub(super) fn since(&self, earlier: &Self) -> i128 {
        let ns = self.at_ns - earlier.at_ns;
        ns.clamp(i64::MIN.into(), i64::MAX.into())
    }

    /// Writes the moment by RFC 3339, without fractions of a second.
    pub(super) fn text(&self) -> String {
        let shown = self.shown.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        let minutes = self.offset_s / 60;
        match minutes {
            0 => format!("{shown}Z"),
            _ => {
                let sign = if minutes < 0 { '-' } else { '+' };
                let (hours, minutes) = (minutes.abs() / 60, minutes.abs() % 60);
                format!("{shown}{sign}{hours:02}:{minutes:02}")
            }
        }
    }

    /// Minute, hour, day, month and weekday: when a job runs that runs then.
    pub(super) fn cron(&self) -> String {
        let shown = self.shown;
        format!(
            "{} {} {} {} {}",
            shown.minute(),
            shown.hour(),
            shown.day(),
            shown.month(),
            shown.weekday().to_sunday_zero_offset(),
        )
    }
}
