//! A suite's expected results, held against what the rules come to.

use std::path::Path;

use anteroom_policy::{Driver, PolicyException};
use serde::Serialize;
use serde_json::Value;

use crate::{
    bench::{Bench, LoadedPolicy, Response, RuleResponse, Status, apply},
    documents::{documents, manifests},
    facts::World,
    request::User,
    resource::Resource,
    suite::{Expected, Suite, SuiteError},
    values::is_rule,
};

/// What a row comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RowResult {
    /// As expected.
    Pass,
    /// Not as expected, or nothing to compare.
    Fail,
    /// It is about what this does not run.
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
    /// As in `Pod/default/web`.
    pub resource: String,
    /// What it comes to.
    pub result: RowResult,
    /// Why, in a few words.
    pub reason: String,
    /// What the rule says.
    pub message: String,
}

/// Runs a suite: one row for each rule's response to each expected resource, and one for each expected
/// resource that no rule responds to, which fails.
///
/// # Errors
/// That one of its files cannot be used. A policy that does not compile fails its own rows only.
pub fn check(suite: &Suite) -> Result<Vec<Row>, SuiteError> {
    let loaded = load(suite)?;
    let responses = apply(&loaded.bench);
    let run = Run {
        suite,
        bench: &loaded.bench,
        responses: &responses,
        others: &loaded.others,
    };
    let mut rows = Vec::new();
    for expected in suite.expected() {
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
        });
    }
    Ok(rows)
}

struct Loaded {
    bench: Bench,
    /// Kind and name of manifests that are policies of another language.
    others: Vec<(String, String)>,
}

fn load(suite: &Suite) -> Result<Loaded, SuiteError> {
    let (mut policies, mut others) = (Vec::new(), Vec::new());
    for path in &suite.file.policies {
        for manifest in manifests(&suite.at(path))? {
            match LoadedPolicy::new(&manifest) {
                Some(policy) => policies.push(policy),
                None => {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let name = text(&manifest["metadata"]["name"]);
                    others.push((text(&manifest["kind"]), name));
                }
            }
        }
    }
    let mut resources = Vec::new();
    for path in &suite.file.resources {
        let manifests = manifests(&suite.at(path))?;
        resources.extend(manifests.into_iter().filter_map(Resource::new));
    }
    let mut bench = Bench::new(policies, resources);
    for path in &suite.file.exceptions {
        for manifest in manifests(&suite.at(path))? {
            let exception = PolicyException::compile(&manifest, Driver::ALL);
            let exception = exception.map_err(|problems| SuiteError::Malformed {
                path: suite.at(path),
                message: problems
                    .iter()
                    .map(|problem| format!("{problem}; "))
                    .collect(),
            })?;
            bench.exceptions.push(exception);
        }
    }
    for path in &suite.file.cluster_resources {
        let manifests = manifests(&suite.at(path))?;
        let others = manifests.into_iter().filter_map(Resource::new);
        bench.world.resources.extend(others);
    }
    bench.variables = suite.variables()?;
    bench.arrival = suite.arrival;
    if let Some(path) = &suite.file.userinfo {
        bench.user = User::read(&suite.at(path))?;
    }
    bench.world = World {
        entries: suite.file.global_context_entries.clone(),
        responses: suite.file.api_call_responses.clone(),
        ..bench.world
    };
    for entry in &mut bench.world.entries {
        for path in &entry.resource_files {
            let documents = documents(&suite.at(path))?;
            entry.resources.get_or_insert_default().extend(documents);
        }
    }
    Ok(Loaded { bench, others })
}

struct Run<'a> {
    suite: &'a Suite,
    bench: &'a Bench,
    responses: &'a [Response],
    others: &'a [(String, String)],
}

impl Run<'_> {
    fn rows(&self, expected: &Expected) -> Vec<Row> {
        let names = match (&*expected.resources, &expected.resource) {
            ([], Some(name)) => std::slice::from_ref(name),
            (names, _) => names,
        };
        if !names.is_empty() {
            let rows = |name| self.rows_of(expected, Some(name));
            return names.iter().flat_map(rows).collect();
        }
        self.rows_of(expected, None)
    }

    /// Of the resources that `name` means, or of all of the kind.
    fn rows_of(&self, expected: &Expected, name: Option<&String>) -> Vec<Row> {
        let parts = [Some(&expected.kind), expected.namespace.as_ref(), name];
        let parts: Vec<_> = parts.into_iter().flatten().map(String::as_str).collect();
        let row = |result, reason: &str, message: String| Row {
            policy: expected.policy.clone(),
            rule: expected.rule.clone(),
            resource: parts.join("/"),
            result,
            reason: reason.to_owned(),
            message,
        };
        if let Some(reason) = self.not_run(expected) {
            return vec![row(RowResult::NotRun, "Not run", reason)];
        }
        if let Some(message) = self.not_compiled(expected) {
            return vec![row(RowResult::Fail, "Policy error", message)];
        }
        let is_meant = |response: &&Response| self.is_meant(response, expected, name);
        let mut rows = Vec::new();
        for response in self.responses.iter().filter(is_meant) {
            let rules = response.rules.iter();
            for rule in rules.filter(|rule| is_rule(&rule.rule, &expected.rule)) {
                let (result, reason) = self.verdict(expected, response, rule);
                rows.push(Row {
                    resource: self.bench.resources[response.resource].title(),
                    ..row(result, &reason, rule.message.clone())
                });
            }
        }
        if rows.is_empty() {
            let message = "no rule of this name says anything of such a resource".to_owned();
            rows.push(row(RowResult::Fail, "Not found", message));
        }
        rows
    }

    fn is_meant(&self, response: &Response, expected: &Expected, name: Option<&String>) -> bool {
        let resource = &self.bench.resources[response.resource];
        let within = expected.namespace.as_ref();
        self.bench.policies[response.policy].is_named(&expected.policy)
            && (expected.kind.is_empty() || resource.kind == expected.kind)
            && within.is_none_or(|namespace| resource.namespace == *namespace)
            && name.is_none_or(|name| resource.is_selected_by(name))
    }

    /// Why nothing of it is run.
    fn not_run(&self, expected: &Expected) -> Option<String> {
        if let Some(kind) = expected.other_language() {
            return Some(format!("a {kind} is not run"));
        }
        let mut others = self.others.iter();
        if let Some((kind, _)) = others.find(|(_, name)| *name == expected.policy) {
            return Some(format!("a {kind} is not run"));
        }
        let mut policies = self.bench.policies.iter();
        let policy = policies.find(|policy| policy.is_named(&expected.policy));
        let mut not_run = policy
            .and_then(|policy| policy.outcome.as_ref().ok())
            .into_iter()
            .flat_map(|policy| policy.not_run());
        if let Some(rule) = not_run.find(|not_run| is_rule(&expected.rule, &not_run.rule)) {
            return Some(format!("a rule with `{}` is not run", rule.kind));
        }
        expected
            .generated_resource
            .is_some()
            .then(|| "what is generated is not made".to_owned())
    }

    fn not_compiled(&self, expected: &Expected) -> Option<String> {
        let mut policies = self.bench.policies.iter();
        let policy = policies.find(|policy| policy.is_named(&expected.policy))?;
        let problems = policy.outcome.as_ref().err()?;
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        Some(problems.join("; "))
    }

    fn verdict(
        &self,
        expected: &Expected,
        response: &Response,
        rule: &RuleResponse,
    ) -> (RowResult, String) {
        if let Some(path) = &expected.patched_resources {
            let resource = &self.bench.resources[response.resource];
            let patched = response.patched.as_ref().unwrap_or(&resource.value);
            match self.is_patched(path, resource, patched) {
                Ok(true) => {}
                // That it became something else is what a `fail` expects.
                Ok(false) if expected.result == Status::Fail.as_str() => {
                    return (RowResult::Pass, "Ok".to_owned());
                }
                Ok(false) => return (RowResult::Fail, "Resource diff".to_owned()),
                Err(reason) => return (RowResult::Fail, reason),
            }
        }
        if rule.status.as_str() == expected.result {
            return (RowResult::Pass, "Ok".to_owned());
        }
        let reason = format!("Want {}, got {}", expected.result, rule.status);
        (RowResult::Fail, reason)
    }

    /// Whether the resource became what stands in the file.
    fn is_patched(
        &self,
        path: &Path,
        resource: &Resource,
        patched: &Value,
    ) -> Result<bool, String> {
        let wanted = manifests(&self.suite.at(path)).map_err(|error| error.to_string())?;
        let wanted: Vec<_> = wanted.into_iter().filter_map(Resource::new).collect();
        let same = wanted.iter().find(|wanted| wanted.is(resource));
        match (same, &*wanted) {
            (Some(wanted), _) | (None, [wanted]) => Ok(tidied(&wanted.value) == tidied(patched)),
            _ => Err("Resource error".to_owned()),
        }
    }
}

/// Without what says nothing: empty objects and lists, nulls. Numbers are compared by value.
fn tidied(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let kept = fields.iter();
            let kept = kept.filter_map(|(name, value)| Some((name.clone(), tidied(value)?)));
            let kept: serde_json::Map<_, _> = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(elements) => {
            let kept: Vec<_> = elements.iter().filter_map(tidied).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::Number(number) => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && number.as_i64().is_none() => {
                Some(Value::from(float as i64))
            }
            _ => Some(value.clone()),
        },
        other => Some(other.clone()),
    }
}

#[cfg(test)]
mod tests;
