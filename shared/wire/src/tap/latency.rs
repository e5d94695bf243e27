//! Times in buckets.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Buckets. Bounds grow by the square root of 2, from 8 µs to 134 s: a quantile is at most 41 % too high.
const BUCKETS: usize = 49;

/// The upper bound of the first bucket.
const FIRST_US: f64 = 8.0;

/// A histogram of durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies([u64; BUCKETS]);

impl Default for Latencies {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Latencies {
    /// Counts one time, in microseconds. What is longer than the last bound counts as if it were that long.
    pub fn add(&mut self, us: u64) {
        let count = &mut self.0[bucket(us)];
        *count = count.saturating_add(1);
    }

    /// Adds all times of `other`.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(&other.0) {
            *count = count.saturating_add(*more);
        }
    }

    /// The number of times.
    pub fn count(&self) -> u64 {
        let counts = self.0.iter();
        counts.fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// Returns an upper bound in microseconds of that part of all times, as in 0.99; `None` if there are none.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank among fewer than 2^52"
        )]
        let rank = ((count as f64 * part).ceil() as u64).clamp(1, count);
        let mut seen = 0_u64;
        let at = self.0.iter().position(|count| {
            seen = seen.saturating_add(*count);
            seen >= rank
        });
        at.map(bound)
    }
}

/// The upper bound of a bucket, in microseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 134 s"
)]
fn bound(bucket: usize) -> u64 {
    let exponent = i32::try_from(bucket).unwrap_or_default();
    (FIRST_US * std::f64::consts::SQRT_2.powi(exponent)).round() as u64
}

/// The first bucket whose bound is not below a time.
fn bucket(us: u64) -> usize {
    // Two buckets for each doubling: the doubling is the position of the highest bit.
    let doublings = (us.max(8) / 8).ilog2() as usize;
    let first = (2 * doublings).min(BUCKETS - 1);
    (first..BUCKETS)
        .find(|bucket| us <= bound(*bucket))
        .unwrap_or(BUCKETS - 1)
}

/// The buckets that are not empty, as pairs: most are.
impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counted = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        serializer.collect_seq(counted)
    }
}

impl<'de> Deserialize<'de> for Latencies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let counted = Vec::<(usize, u64)>::deserialize(deserializer)?;
        let mut latencies = Self::default();
        for (bucket, count) in counted {
            let kept = latencies.0.get_mut(bucket.min(BUCKETS - 1));
            if let Some(kept) = kept {
                *kept = kept.saturating_add(count);
            }
        }
        Ok(latencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_in_the_first_bucket_that_holds_it() {
        for us in (0..100_000).chain([1 << 20, (1 << 24) + 1, 134_217_728]) {
            let at = bucket(us);
            assert!(us <= bound(at), "{us}");
            assert!(at == 0 || us > bound(at - 1), "{us}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_quantile_is_at_most_41_percent_too_high() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        (1..=1_000).for_each(|us| latencies.add(us));
        for (part, exact) in [(0.5, 500), (0.99, 990), (1.0, 1_000)] {
            let found = latencies.quantile(part).unwrap();
            assert!(
                (exact..=exact * 142 / 100).contains(&found),
                "{part}: {found}"
            );
        }
        assert_eq!(latencies.count(), 1_000);
        let mut twice = latencies.clone();
        twice.merge(&latencies);
        assert_eq!(twice.count(), 2_000);
        assert_eq!(twice.quantile(0.5), latencies.quantile(0.5));
    }

    #[test]
    fn a_time_in_a_bucket_that_is_not_known_here_counts_as_the_longest() {
        let told = serde_json::json!([[BUCKETS, 2], [99, 3]]);
        let latencies: Latencies = serde_json::from_value(told).unwrap();
        assert_eq!(latencies.count(), 5);
        assert_eq!(latencies.quantile(0.1), Some(bound(BUCKETS - 1)));
    }

    /// Whoever logs in as a webhook may tell of any counts.
    #[test]
    fn counts_beyond_all_numbers_have_a_quantile() {
        let told = serde_json::json!([[0, u64::MAX], [3, u64::MAX], [7, 1]]);
        let latencies: Latencies = serde_json::from_value(told).unwrap();
        assert_eq!(latencies.count(), u64::MAX);
        assert_eq!(latencies.quantile(0.5), Some(bound(0)));
        assert_eq!(latencies.quantile(1.0), Some(bound(0)));
    }
}
