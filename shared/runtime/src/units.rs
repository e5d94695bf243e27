//! Sizes and durations as people write them, on command lines and in manifests.

use std::time::Duration;

/// A number of bytes, as Kubernetes writes quantities: `268435456`, `256M` (of 1,000), `256Mi` (of
/// 1,024), `1.5Gi`.
///
/// # Errors
/// The text is no such quantity; the message is for the user who wrote it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(unit_at.unwrap_or(text.len()));
    let factor: u64 = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        other => {
            return Err(format!(
                "`{other}` is no unit of bytes: use k, M, G, T, Ki, Mi, Gi or Ti"
            ));
        }
    };
    let counted = match number.parse::<u64>() {
        Ok(whole) => Some(whole.checked_mul(factor)),
        Err(_) => fraction(number, factor),
    };
    match counted {
        Some(Some(0)) => Err("0 bytes are too few for anything".to_owned()),
        Some(Some(bytes)) => Ok(bytes),
        Some(None) => Err(format!("`{text}` is too large")),
        None => Err(format!("`{text}` is no number of bytes, as in `64Mi`")),
    }
}

/// Beyond this a float counts no single bytes, and nobody has that much memory.
const FRACTION_BYTES_MAX: f64 = 9.0e15;

/// `None`: no number. `Some(None)`: too large a one.
fn fraction(number: &str, factor: u64) -> Option<Option<u64>> {
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let number: f64 = number.parse().ok().filter(|_| plain)?;
    let bytes = number * factor as f64;
    Some((bytes < FRACTION_BYTES_MAX).then_some(bytes as u64))
}

/// A duration with its unit, as in `500ms`, `60s`, `2m` or `1h`; without one, in seconds. Nothing is
/// shorter than a millisecond.
///
/// # Errors
/// The text is no such quantity; the message is for the user who wrote it.
pub fn duration(text: &str) -> Result<Duration, String> {
    duration_ms(text).map(Duration::from_millis)
}

/// Reads a duration as [`duration`] does, in milliseconds.
///
/// # Errors
/// The same.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        other => return Err(format!("`{other}` is no unit of time: use ms, s, m or h")),
    };
    let count: u64 = digits
        .parse()
        .map_err(|_| format!("`{text}` is no duration, as in `60s`"))?;
    match count.checked_mul(unit_ms) {
        Some(0) => Err("nothing takes no time at all".to_owned()),
        Some(ms) => Ok(ms),
        None => Err(format!("`{text}` is too long")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_kubernetes_reads_quantities() {
        for (text, size) in [
            ("1", 1),
            ("67108864", 67_108_864),
            (" 64Mi ", 64 << 20),
            ("2k", 2_000),
            ("2K", 2_000),
            ("3M", 3_000_000),
            ("1G", 1_000_000_000),
            ("1T", 1_000_000_000_000),
            ("70Ki", 70 << 10),
            ("1Gi", 1 << 30),
            ("1Ti", 1 << 40),
            ("1.5Mi", 3 << 19),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for (bad, why) in [
            ("", "no number"),
            ("Mi", "no number"),
            ("-1Gi", "no number"),
            ("1.5.5", "no number"),
            ("many", "no unit"),
            ("1Pi", "no unit"),
            ("1e3", "no unit"),
            ("0", "too few"),
            ("0Mi", "too few"),
            ("0.1", "too few"),
            ("18446744073709551616", "too large"),
            ("16777216Ti", "too large"),
            ("9000000.5G", "too large"),
        ] {
            let refused = bytes(bad).unwrap_err();
            assert!(refused.contains(why), "{bad}: {refused}");
        }
    }

    #[test]
    fn durations_have_units() {
        for (text, ms) in [
            ("60", 60_000),
            (" 60s ", 60_000),
            ("2m", 120_000),
            ("2h", 7_200_000),
            ("500ms", 500),
            ("1ms", 1),
        ] {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for (bad, why) in [
            ("", "no duration"),
            ("s", "no duration"),
            ("-1s", "no duration"),
            ("1.5s", "no duration"),
            ("1d", "no unit"),
            ("0s", "no time"),
            ("99999999999999999h", "too long"),
        ] {
            let refused = duration_ms(bad).unwrap_err();
            assert!(refused.contains(why), "{bad}: {refused}");
        }
    }
}
