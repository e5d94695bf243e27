//! A suite's expected results, held against what the rules come to.

pub(crate) mod load;
mod patched;
mod row_results;
mod run;

use anteroom_policy::Operation;
use serde::Serialize;

use crate::{
    scenario::apply,
    suite::{Suite, SuiteError},
};
use run::Run;

/// The result of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RowResult {
    /// The rule did as expected.
    Pass,
    /// Not as expected, or nothing to compare.
    Fail,
    /// The row is about something that this program does not run.
    NotRun,
}

impl RowResult {
    /// For a table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "Pass",
            Self::Fail => "Fail",
            Self::NotRun => "Not run",
        }
    }
}

/// One row: a rule and a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The policy's name, as it is expected.
    pub policy: String,
    /// The rule's name, as it is expected.
    pub rule: String,
    /// The resource, as in `Pod/default/web`.
    pub resource: String,
    /// The result.
    pub result: RowResult,
    /// The reason, in a few words.
    pub reason: String,
    /// The message of the rule.
    pub message: String,
    /// Notes for whoever reads the result: what was taken for granted, and what was not compared.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remark: String,
}

/// Runs a suite: one row for each rule's response to each expected resource, and one for each expected
/// resource that no rule responds to, which fails.
///
/// # Errors
/// One of its files cannot be used. A policy that does not compile fails its own rows only.
pub fn check(suite: &Suite) -> Result<Vec<Row>, SuiteError> {
    let mut loaded = load::load(suite)?;
    let mut runs = Vec::new();
    for operation in operations(suite) {
        loaded.scenario.operation = operation;
        runs.push((operation, apply(&loaded.scenario)));
    }
    let mut rows = Vec::new();
    for expected in suite.expected() {
        let wanted = operation(expected.operation.as_deref());
        let run = runs.iter().find(|(of, _)| Ok(*of) == wanted);
        let run = Run {
            suite,
            loaded: &loaded,
            responses: run.map_or(&[], |(_, responses)| responses),
            problem: wanted.err(),
        };
        rows.extend(run.rows(expected));
    }
    if !suite.file.checks.is_empty() {
        rows.push(Row {
            policy: String::new(),
            rule: String::new(),
            resource: String::new(),
            result: RowResult::Fail,
            reason: "Not supported".to_owned(),
            message: "`checks` are not evaluated: write what is expected as `results`".to_owned(),
            remark: String::new(),
        });
    }
    Ok(rows)
}

/// Returns the operation of a row's requests; `None` where that is left to values.
fn operation(text: Option<&str>) -> Result<Option<Operation>, String> {
    match text.unwrap_or_default() {
        "" => Ok(None),
        "CREATE" => Ok(Some(Operation::Create)),
        "UPDATE" => Ok(Some(Operation::Update)),
        "DELETE" => Ok(Some(Operation::Delete)),
        "CONNECT" => Ok(Some(Operation::Connect)),
        other => Err(format!(
            "`operation: {other}` is none: write CREATE, UPDATE, DELETE or CONNECT"
        )),
    }
}

/// The operations that rows are about, each once.
fn operations(suite: &Suite) -> Vec<Option<Operation>> {
    let mut found = Vec::new();
    for expected in suite.expected() {
        if let Ok(operation) = operation(expected.operation.as_deref())
            && !found.contains(&operation)
        {
            found.push(operation);
        }
    }
    found
}

#[cfg(test)]
mod tests;
