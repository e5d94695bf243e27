//! A table in Markdown, for comments on changes.

use std::fmt::Write as _;

use crate::check::Row;

/// The rows, numbered from 1. `detailed` adds what the rules say.
pub fn markdown<'r>(rows: impl IntoIterator<Item = &'r Row>, detailed: bool) -> String {
    let mut text = "| ID | POLICY | RULE | RESOURCE | RESULT | REASON |".to_owned();
    text.push_str(if detailed { " MESSAGE |\n" } else { "\n" });
    text.push_str(&"|---".repeat(if detailed { 7 } else { 6 }));
    text.push_str("|\n");
    for (at, row) in rows.into_iter().enumerate() {
        let message = format!("{} {}", row.message, row.remark);
        let cells = [
            &row.policy,
            &row.rule,
            &row.resource,
            row.result.as_str(),
            &row.reason,
            &message,
        ];
        let _ = write!(text, "| {} |", at + 1);
        for cell in &cells[..if detailed { 6 } else { 5 }] {
            let _ = write!(text, " {} |", cell_of(cell));
        }
        text.push('\n');
    }
    text
}

/// On one line, and with no end of a cell in it.
fn cell_of(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::checked;

    #[test]
    fn rows_are_lines_and_cells_end_where_they_should() {
        let mut checked = checked();
        checked[0].rows[0].rule = "a|b".to_owned();
        let text = markdown(&checked[0].rows[..2], true);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "|---|---|---|---|---|---|---|");
        assert_eq!(lines[2], "| 1 | p | a\\|b | Pod/default/a | Pass | Ok |  |");
        assert!(lines[3].ends_with("| a <b> & \"c\" next |"), "{text}");
        assert_eq!(lines.len(), 4);
    }
}
