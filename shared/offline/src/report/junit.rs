//! JUnit's XML, which CI systems read.

use std::fmt::Write as _;

use super::{Checked, Counts};
use crate::check::RowResult;

/// A `testsuites` with one `testsuite` for each suite and one `testcase` for each row. A row that is not run is
/// `skipped`, and a suite that could not be run has an `error`. No more attributes than the schemas of common
/// readers know; nothing is timed, and those that ask for a time get 0.
pub fn junit(suites: &[Checked]) -> String {
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let (counts, _) = counts(suites);
    let _ = writeln!(xml, "<testsuites name=\"anteroom\" {counts}>");
    for suite in suites {
        write_suite(&mut xml, suite);
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// And how many are skipped, which only a `testsuite` tells.
fn counts(suites: &[Checked]) -> (String, usize) {
    let Counts {
        passed,
        failed,
        not_run,
        errors,
    } = Counts::of(suites);
    let tests = passed + failed + not_run + errors;
    let counts = format!("tests=\"{tests}\" failures=\"{failed}\" errors=\"{errors}\" time=\"0\"");
    (counts, not_run)
}

fn write_suite(xml: &mut String, suite: &Checked) {
    let name = escaped(&suite.name);
    let (counts, skipped) = counts(std::slice::from_ref(suite));
    let _ = writeln!(
        xml,
        "  <testsuite name=\"{name}\" {counts} skipped=\"{skipped}\">"
    );
    if let Some(error) = &suite.error {
        let path = escaped(&suite.path.display().to_string());
        let error = escaped(error);
        let _ = writeln!(
            xml,
            "    <testcase name=\"{path}\" classname=\"{name}\" time=\"0\"><error type=\"error\" \
             message=\"{error}\"/></testcase>"
        );
    }
    for row in &suite.rows {
        let title = match row.rule.is_empty() {
            true => format!("{} {}", row.policy, row.resource),
            false => format!("{}/{} {}", row.policy, row.rule, row.resource),
        };
        let title = escaped(&title);
        let (reason, message) = (escaped(&row.reason), escaped(&row.message));
        let inside = match row.result {
            RowResult::Pass => String::new(),
            RowResult::Fail => {
                format!("<failure type=\"failure\" message=\"{reason}\">{message}</failure>")
            }
            RowResult::NotRun => format!("<skipped message=\"{message}\"/>"),
        };
        let _ = writeln!(
            xml,
            "    <testcase name=\"{title}\" classname=\"{name}\" time=\"0\">{inside}</testcase>"
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

    /// The elements of Jenkins' schema, the strictest in use: the attributes of each, and the elements in it.
    const KNOWN: &[(&str, &[&str], &[&str])] = &[
        (
            "testsuites",
            &["name", "time", "tests", "failures", "disabled", "errors"],
            &["testsuite"],
        ),
        (
            "testsuite",
            &[
                "name",
                "tests",
                "failures",
                "errors",
                "group",
                "time",
                "skipped",
                "timestamp",
                "hostname",
                "id",
                "package",
                "file",
                "log",
                "url",
                "version",
            ],
            &["testcase"],
        ),
        (
            "testcase",
            &[
                "name",
                "assertions",
                "time",
                "classname",
                "status",
                "class",
                "file",
                "line",
            ],
            &["skipped", "error", "failure"],
        ),
        ("failure", &["type", "message"], &[]),
        ("error", &["type", "message"], &[]),
        ("skipped", &["type", "message"], &[]),
    ];

    fn is_known(node: roxmltree::Node<'_, '_>) {
        let name = node.tag_name().name();
        let known = KNOWN.iter().find(|(known, ..)| *known == name);
        let (_, attributes, children) = known.unwrap();
        for attribute in node.attributes() {
            assert!(
                attributes.contains(&attribute.name()),
                "{name} {}",
                attribute.name()
            );
        }
        for child in node.children().filter(roxmltree::Node::is_element) {
            assert!(children.contains(&child.tag_name().name()), "{name}");
            is_known(child);
        }
    }

    /// The attribute `tests` and its kin, against the elements that there are below.
    fn counts_are_those_of(node: roxmltree::Node<'_, '_>) {
        let below = |name: &str| {
            let all = node.descendants();
            all.filter(|node| node.has_tag_name(name))
                .count()
                .to_string()
        };
        for (attribute, element) in [
            ("tests", "testcase"),
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ] {
            if attribute != "skipped" || node.has_tag_name("testsuite") {
                assert_eq!(
                    node.attribute(attribute),
                    Some(&*below(element)),
                    "{attribute}"
                );
            }
        }
    }

    #[test]
    fn every_row_is_a_test_case_and_hostile_text_stays_text() {
        const HOSTILE: &str = "a <b> & \"c\" 'd' ]]> <!-- {{ x }} é \u{1f980}\tt\nnext";
        let mut suites = checked();
        suites[0].rows[1].message = HOSTILE.to_owned();
        suites[0].rows[2].message = HOSTILE.to_owned();
        suites[0].rows[1].resource = format!("{HOSTILE}\u{0}\u{1b}\u{ffff}\u{85}");
        suites[1].error = Some(HOSTILE.to_owned());
        let xml = junit(&suites);
        let document = roxmltree::Document::parse(&xml).unwrap();
        let root = document.root_element();
        is_known(root);
        assert_eq!(root.tag_name().name(), "testsuites");
        let all = root.descendants();
        for node in all.filter(|node| node.has_tag_name("testsuite") || *node == root) {
            counts_are_those_of(node);
        }
        let find = |name: &str| root.descendants().find(|node| node.has_tag_name(name));
        let failure = find("failure").unwrap();
        assert_eq!(failure.text(), Some(HOSTILE));
        assert_eq!(failure.attribute("message"), Some("Want pass, got fail"));
        assert_eq!(find("skipped").unwrap().attribute("message"), Some(HOSTILE));
        assert_eq!(find("error").unwrap().attribute("message"), Some(HOSTILE));
        let case = failure.parent().unwrap();
        assert_eq!(case.attribute("name"), Some(&*format!("p/r {HOSTILE}")));
        assert_eq!(case.attribute("classname"), Some("first"));
        assert_eq!(root.attribute("tests"), Some("4"));
    }
}
