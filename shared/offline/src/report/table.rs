//! A table, for people.

use std::fmt::Write as _;

use crate::check::Row;

/// The rows, numbered from 1, with a line between any two columns. `detailed` adds what the rules say.
pub fn table<'r>(rows: impl IntoIterator<Item = &'r Row>, detailed: bool) -> String {
    let mut lines = vec![
        [
            "ID", "POLICY", "RULE", "RESOURCE", "RESULT", "REASON", "MESSAGE",
        ]
        .map(str::to_owned),
    ];
    for (at, row) in rows.into_iter().enumerate() {
        lines.push([
            (at + 1).to_string(),
            row.policy.clone(),
            row.rule.clone(),
            row.resource.clone(),
            row.result.as_str().to_owned(),
            row.reason.clone(),
            one_line(&match row.remark.is_empty() {
                true => row.message.clone(),
                false => format!("{} ({})", row.message, row.remark),
            }),
        ]);
    }
    let columns = if detailed { 7 } else { 6 };
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let rule: Vec<_> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
    let rule = format!("│{}│\n", rule.join("│"));
    let mut table = rule.clone();
    for (at, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(table, "│ {cell:<width$} ");
        }
        table.push_str("│\n");
        if at == 0 {
            table.push_str(&rule);
        }
    }
    table.push_str(&rule);
    table
}

fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::checked;

    #[test]
    fn table_columns_are_as_wide_as_their_longest_cell() {
        let checked = checked();
        let short = table(&checked[0].rows[..1], false);
        assert_eq!(
            short,
            "│────│────────│──────│───────────────│────────│────────│\n\
             │ ID │ POLICY │ RULE │ RESOURCE      │ RESULT │ REASON │\n\
             │────│────────│──────│───────────────│────────│────────│\n\
             │ 1  │ p      │ r    │ Pod/default/a │ Pass   │ Ok     │\n\
             │────│────────│──────│───────────────│────────│────────│\n"
        );
        let long = table(&checked[0].rows, true);
        assert!(long.contains("│ a <b> & \"c\" next │"), "{long}");
    }
}
