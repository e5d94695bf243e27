//! A point in time, and the zone in which it is shown.

use std::cmp::Ordering;

use jiff::{Timestamp, civil::DateTime, tz::Offset};

/// From the first day of the year 1, from where Go counts, to 1970, in nanoseconds.
const YEAR_1_NS: i128 = 62_135_596_800 * 1_000_000_000;

/// Years that are written with four digits.
const YEARS: std::ops::RangeInclusive<i16> = 0..=9999;

/// Two are equal, or one is earlier, as points in time; where they are shown does not matter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    at: Timestamp,
    offset: Offset,
}

impl PartialEq for Moment {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.at.partial_cmp(&other.at)
    }
}

impl Moment {
    /// What a clock shows that is so many seconds ahead of UTC.
    pub(super) fn of_civil(shown: DateTime, offset_s: i32) -> Option<Self> {
        let offset = Offset::from_seconds(offset_s).ok()?;
        let at = offset.to_timestamp(shown).ok()?;
        Some(Self { at, offset }).filter(Self::is_shown)
    }

    /// In UTC.
    pub(super) fn of_unix_ns(ns: i128) -> Option<Self> {
        Self::at(ns, Offset::UTC)
    }

    fn at(ns: i128, offset: Offset) -> Option<Self> {
        let at = Timestamp::from_nanosecond(ns).ok()?;
        Some(Self { at, offset }).filter(Self::is_shown)
    }

    fn is_shown(&self) -> bool {
        YEARS.contains(&self.civil().year())
    }

    fn civil(&self) -> DateTime {
        self.offset.to_datetime(self.at)
    }

    /// The same time, where a clock is so many seconds ahead of UTC.
    pub(super) fn shown_at(&self, offset_s: i32) -> Option<Self> {
        let offset = Offset::from_seconds(offset_s).ok()?;
        Some(Self { offset, ..*self }).filter(Self::is_shown)
    }

    pub(super) fn in_utc(&self) -> Self {
        Self {
            at: self.at,
            offset: Offset::UTC,
        }
    }

    /// So many nanoseconds later; `None` outside of the years that can be written.
    pub(super) fn later(&self, ns: i128) -> Option<Self> {
        Self::at(self.at.as_nanosecond().checked_add(ns)?, self.offset)
    }

    /// The last whole multiple of the duration since the year 1; the same where it is not positive.
    pub(super) fn truncated(&self, ns: i128) -> Option<Self> {
        if ns <= 0 {
            return Some(*self);
        }
        let at = self.at.as_nanosecond();
        Self::at(at - (at + YEAR_1_NS).rem_euclid(ns), self.offset)
    }

    /// Nanoseconds from an earlier time to this one, as many as a duration of Go holds.
    pub(super) fn since(&self, earlier: &Self) -> i128 {
        let ns = self.at.as_nanosecond() - earlier.at.as_nanosecond();
        ns.clamp(i64::MIN.into(), i64::MAX.into())
    }

    /// As RFC 3339 has it, without fractions of a second.
    pub(super) fn text(&self) -> String {
        let shown = self.civil().strftime("%Y-%m-%dT%H:%M:%S").to_string();
        let minutes = self.offset.seconds() / 60;
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
        let shown = self.civil();
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
