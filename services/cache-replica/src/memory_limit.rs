//! The memory limit of a replica: its option, and what evaluations and indexes may take of it. Pure.

use anteroom_jmespath::JSON_BYTES_MAX;
use anteroom_runtime::units;

/// The memory of a replica beside views, results and plans: code, connections, and freed memory that the allocator
/// keeps. Measured at 7,000 objects of 2 KB after load: 34 MB resident, of which 15 MB are views, results and plans.
pub(crate) const PROCESS_BYTES: u64 = 20 * 1024 * 1024;

/// The least limit that leaves room for anything.
const LIMIT_MIN: u64 = 64 * 1024 * 1024;

/// The share of a limit that is kept for evaluations under way: a tenth.
const EVALUATIONS_SHARE: u64 = 10;

/// The share of a limit that the JSON documents of all evaluations may take beside the limit: a third. The container has
/// half as much again as the limit.
const JSON_SHARE: u64 = 3;

/// The bytes that an evaluation may always build, even under a low limit, and the memory of its JSON documents.
const EVALUATION_BYTES_MIN: u64 = 1024 * 1024;

/// The share of a limit that indexes and counters may take: a quarter.
const DERIVED_SHARE: u64 = 4;

/// The bytes that indexes and counters may take without a limit.
const DERIVED_BYTES_MAX_DEFAULT: u64 = 128 * 1024 * 1024;

/// Returns the bytes that all indexes and counters together may take under this limit.
pub(crate) fn derived_bytes(limit: Option<u64>) -> u64 {
    limit.map_or(DERIVED_BYTES_MAX_DEFAULT, |limit| limit / DERIVED_SHARE)
}

/// The bytes that all evaluations together may build under this limit.
pub(crate) fn evaluations_bytes(limit: u64) -> u64 {
    limit / EVALUATIONS_SHARE
}

/// Returns the bytes that one of `concurrent` evaluations may build under this limit, at most `asked`.
pub(crate) fn evaluation_bytes(limit: Option<u64>, concurrent: usize, asked: u64) -> u64 {
    let Some(limit) = limit else {
        return asked;
    };
    let concurrent = u64::try_from(concurrent.max(1)).unwrap_or(u64::MAX);
    asked.min((evaluations_bytes(limit) / concurrent).max(EVALUATION_BYTES_MIN))
}

/// Returns the memory that the JSON documents of one of `concurrent` evaluations may take under this limit: 14 MiB of the
/// chart's 341 MiB on two cores.
pub(crate) fn json_bytes(limit: Option<u64>, concurrent: usize) -> u64 {
    let Some(limit) = limit else {
        return JSON_BYTES_MAX;
    };
    let concurrent = u64::try_from(concurrent.max(1)).unwrap_or(u64::MAX);
    JSON_BYTES_MAX.min((limit / JSON_SHARE / concurrent).max(EVALUATION_BYTES_MIN))
}

/// Parses a limit of memory, as [`units::bytes`] does.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let bytes = units::bytes(text)?;
    if bytes < LIMIT_MIN {
        return Err(format!(
            "`{text}` leaves no room for any view: use {}Mi or more",
            LIMIT_MIN >> 20
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_leaves_room_for_views() {
        assert_eq!(parse("64Mi"), Ok(LIMIT_MIN));
        assert!(parse("67108863").unwrap_err().contains("no room"));
        assert!(parse("64Wi").is_err());
    }

    #[test]
    fn indexes_have_a_quarter_of_a_limit() {
        assert_eq!(derived_bytes(Some(800 << 20)), 200 << 20);
        assert_eq!(derived_bytes(None), DERIVED_BYTES_MAX_DEFAULT);
    }

    #[test]
    fn evaluations_stay_within_their_share() {
        assert_eq!(evaluation_bytes(None, 8, 77), 77);
        let limit = 800 << 20;
        assert_eq!(evaluation_bytes(Some(limit), 8, u64::MAX), 10 << 20);
        assert_eq!(evaluation_bytes(Some(limit), 8, 77), 77);
        assert_eq!(
            evaluation_bytes(Some(LIMIT_MIN), 64, u64::MAX),
            EVALUATION_BYTES_MIN
        );
    }

    /// A condition looks for a value among 100,000 names, in a replica of the chart.
    #[test]
    fn json_of_evaluations_stays_within_its_share() {
        assert_eq!(json_bytes(None, 8), JSON_BYTES_MAX);
        assert_eq!(json_bytes(Some(u64::MAX), 8), JSON_BYTES_MAX);
        assert_eq!(json_bytes(Some(LIMIT_MIN), 64), EVALUATION_BYTES_MIN);
        let of_chart = json_bytes(Some(341 << 20), 8);
        assert!(of_chart * 8 <= (512 - 341) << 20);
        let names = serde_json::Value::from(vec!["web-000000.example.com"; 100_000]);
        let taken = anteroom_jmespath::json_memory::copied_bytes(&names, of_chart);
        assert!(taken.is_some());
    }
}
