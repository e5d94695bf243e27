//! One JSON document.

use serde_json::{Value, json};

use super::{Checked, Counts};

/// `{suites: [{name, path, rows: [{policy, rule, resource, result, reason, message, remark}], error}],
/// summary: {passed, failed, notRun, errors}}`, where `result` is `pass`, `fail` or `notRun`.
pub fn json(suites: &[Checked]) -> Value {
    json!({"suites": suites, "summary": Counts::of(suites)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::checked;

    #[test]
    fn json_rows_are_grouped_by_suite() {
        let json = json(&checked());
        assert_eq!(
            json["summary"],
            json!({"passed": 1, "failed": 1, "notRun": 1, "errors": 1})
        );
        assert_eq!(json["suites"][0]["rows"][2]["result"], "notRun");
        assert_eq!(json["suites"][1]["error"], "cannot read x");
        assert!(json["suites"][0].get("error").is_none());
    }
}
