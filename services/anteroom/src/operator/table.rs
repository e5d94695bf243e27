//! Text tables, and numbers as people read them. Pure.

/// A column: its heading, and whether its cells stand at the right.
pub(super) type Column = (&'static str, bool);

/// Columns are as wide as their widest cell, two spaces apart. The last is never padded.
pub(super) fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let width = |at: usize, heading: &str| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.max().unwrap_or_default().max(heading.len())
    };
    let widths: Vec<_> = columns
        .iter()
        .enumerate()
        .map(|(at, (heading, _))| width(at, heading))
        .collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(columns).zip(&widths);
        let padded = padded.map(|((cell, (_, is_right)), width)| match is_right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        let line = padded.collect::<Vec<_>>().join("  ");
        line.trim_end().to_owned()
    };
    let headings = columns.iter().map(|(heading, _)| *heading).collect();
    let rows = rows
        .iter()
        .map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(headings))
        .chain(rows)
        .collect::<Vec<_>>()
        .join("\n")
}

/// With commas between thousands, as in `3,010`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a size, as in `3.9 MB`.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", tenths(bytes, 1_000)),
        1_000_000..1_000_000_000 => format!("{} MB", tenths(bytes, 1_000_000)),
        _ => format!("{} GB", tenths(bytes, 1_000_000_000)),
    }
}

/// Formats a duration, as in `0.3 ms` or `2.1 s`.
pub(crate) fn micros(us: u64) -> String {
    match us {
        0..10_000 => format!("{} ms", tenths(us, 1_000)),
        10_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{} s", tenths(us, 1_000_000)),
    }
}

/// Formats a duration, as in `0.3 s`, `5 min` or `3 h`.
pub(crate) fn millis(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{} s", tenths(ms, 1_000)),
        60_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

fn tenths(number: u64, unit: u64) -> String {
    let tenths = (u128::from(number) * 10 + u128::from(unit) / 2) / u128::from(unit);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Names and messages come from the cluster: none of them may end a line, or move the cursor.
pub(super) fn one_line(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            vec!["a".to_owned(), "1,000".to_owned(), "x".to_owned()],
            vec!["longer".to_owned(), "2".to_owned(), String::new()],
        ];
        let text = table(&[("NAME", false), ("N", true), ("NOTE", false)], &rows);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            ["NAME        N  NOTE", "a       1,000  x", "longer      2"]
        );
    }

    #[test]
    fn numbers_are_short() {
        let counts = [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ];
        for (number, text) in counts {
            assert_eq!(count(number), text);
        }
        for (number, text) in [
            (0, "0 B"),
            (3_900_000, "3.9 MB"),
            (1_500, "1.5 kB"),
            (2_000_000_000, "2.0 GB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        for (number, text) in [
            (0, "0.0 ms"),
            (312, "0.3 ms"),
            (48_000, "48 ms"),
            (2_100_000, "2.1 s"),
        ] {
            assert_eq!(micros(number), text);
        }
        for (number, text) in [(200, "0.2 s"), (90_000, "1 min"), (8_000_000, "2 h")] {
            assert_eq!(millis(number), text);
        }
    }
}
