//! Memory: what is held, what it may take, and what goes where it takes more.
//!
//! The rule is [`rule`]'s; here it is applied to the mirror's views, a few times a second, also while
//! the log is read, so that the limit holds then too.

mod keeper;
pub(crate) mod rule;
mod uses;

pub(crate) use keeper::{Keeper, Wanted};
pub(crate) use uses::{Use, Uses};

/// What a replica takes beside views, results and plans: code, connections, and what the allocator
/// keeps. Measured at 7,000 objects of 2 KB after load: 34 MB resident, of which they take 15.
pub(crate) const PROCESS_BYTES: u64 = 20 * 1024 * 1024;

/// The least limit that leaves room for anything.
pub(crate) const LIMIT_MIN: u64 = 64 * 1024 * 1024;

/// The share of a limit that is kept for evaluations under way: a tenth.
const EVALUATIONS_SHARE: u64 = 10;

/// The least that one evaluation may build, whatever the limit.
const EVALUATION_BYTES_MIN: u64 = 1024 * 1024;

/// What all evaluations together may build under this limit.
fn evaluations_bytes(limit: u64) -> u64 {
    limit / EVALUATIONS_SHARE
}

/// What one of `turns` evaluations may build under this limit, and no more than `asked`.
pub(crate) fn evaluation_bytes(limit: Option<u64>, turns: usize, asked: u64) -> u64 {
    let Some(limit) = limit else {
        return asked;
    };
    let turns = u64::try_from(turns.max(1)).unwrap_or(u64::MAX);
    asked.min((evaluations_bytes(limit) / turns).max(EVALUATION_BYTES_MIN))
}

/// A size in bytes: `268435456`, `256M` (of 1,000) or `256Mi` (of 1,024).
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "K" | "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        other => return Err(format!("`{other}` is no unit: use K, M, G, Ki, Mi or Gi")),
    };
    let count: u64 = digits
        .parse()
        .map_err(|_| format!("`{text}` is no size: use one as in 512Mi"))?;
    let bytes = count
        .checked_mul(unit)
        .ok_or_else(|| format!("`{text}` is too large"))?;
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
    fn sizes_have_units() {
        for (text, bytes) in [
            ("67108864", LIMIT_MIN),
            ("64Mi", LIMIT_MIN),
            ("1G", 1_000_000_000),
            ("1Gi", 1 << 30),
            ("100000K", 100_000_000),
            ("70000Ki", 70_000 << 10),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "Mi", "-1Gi", "1.5Gi", "1T", "63Mi", "99999999999999Gi"] {
            assert!(size(bad).is_err(), "{bad}");
        }
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
}
