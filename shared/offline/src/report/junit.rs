//! JUnit's XML, which CI systems read.

use std::fmt::Write as _;

use super::{Checked, Counts};
use crate::check::RowResult;

/// A `testsuites` with one `testsuite` for each suite and one `testcase` for each row; what is not run is
/// `skipped`, and a suite that could not be run has an `error`.
pub fn junit(suites: &[Checked]) -> String {
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let _ = writeln!(xml, "<testsuites name=\"anteroom\" {}>", counts(suites));
    for suite in suites {
        write_suite(&mut xml, suite);
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn counts(suites: &[Checked]) -> String {
    let Counts {
        passed,
        failed,
        not_run,
        errors,
    } = Counts::of(suites);
    let tests = passed + failed + not_run + errors;
    format!("tests=\"{tests}\" failures=\"{failed}\" errors=\"{errors}\" skipped=\"{not_run}\"")
}

fn write_suite(xml: &mut String, suite: &Checked) {
    let name = escaped(&suite.name);
    let counts = counts(std::slice::from_ref(suite));
    let _ = writeln!(xml, "  <testsuite name=\"{name}\" {counts}>");
    if let Some(error) = &suite.error {
        let path = escaped(&suite.path.display().to_string());
        let error = escaped(error);
        let _ = writeln!(
            xml,
            "    <testcase name=\"{path}\" classname=\"{name}\"><error message=\"{error}\"/></testcase>"
        );
    }
    for row in &suite.rows {
        let title = escaped(&format!("{}/{} {}", row.policy, row.rule, row.resource));
        let (reason, message) = (escaped(&row.reason), escaped(&row.message));
        let inside = match row.result {
            RowResult::Pass => String::new(),
            RowResult::Fail => format!("<failure message=\"{reason}\">{message}</failure>"),
            RowResult::NotRun => format!("<skipped message=\"{message}\"/>"),
        };
        let _ = writeln!(
            xml,
            "    <testcase name=\"{title}\" classname=\"{name}\">{inside}</testcase>"
        );
    }
    xml.push_str("  </testsuite>\n");
}

/// For text and for attributes. What XML cannot hold at all is left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => {}
            c if c.is_control() => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::checked;

    #[test]
    fn every_row_is_a_test_case_and_hostile_text_stays_text() {
        let xml = junit(&checked());
        for line in [
            "<testsuites name=\"anteroom\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\">",
            "<testsuite name=\"first\" tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"1\">",
            "<testcase name=\"p/r Pod/default/a\" classname=\"first\"></testcase>",
            "<failure message=\"Want pass, got fail\">a &lt;b&gt; &amp; &quot;c&quot;&#10;next</failure>",
            "<skipped message=\"not made\"/>",
            "<error message=\"cannot read x\"/>",
        ] {
            assert!(xml.contains(line), "{line}: {xml}");
        }
        assert_eq!(escaped("a\u{0}\u{1b}b"), "ab");
    }
}
