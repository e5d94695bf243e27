//! What policies say of resources, where nothing is expected.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use super::Checked;
use crate::{
    bench::{Bench, Response, Status},
    check::{Row, RowResult},
};

/// How many rules came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusCounts {
    /// Complied.
    pub pass: usize,
    /// Violated.
    pub fail: usize,
    /// Violated, and not counted.
    pub warn: usize,
    /// Not known.
    pub error: usize,
    /// Did not apply.
    pub skip: usize,
}

/// What policies said, to be told.
#[derive(Clone, Debug)]
pub struct Applied {
    /// How many rules came to what, policies that do not compile among the errors.
    pub counts: StatusCounts,
    results: Vec<Told>,
    /// Policies that do not compile, and why.
    broken: Vec<(String, String)>,
}

#[derive(Clone, Debug, Serialize)]
struct Told {
    policy: String,
    rule: String,
    resource: String,
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

/// What the policies of a bench said. With `audit_warns` a violation of a rule that does not deny is a
/// warning.
pub fn applied(bench: &Bench, responses: &[Response], audit_warns: bool) -> Applied {
    let mut told = Applied {
        counts: StatusCounts::default(),
        results: Vec::new(),
        broken: Vec::new(),
    };
    for policy in &bench.policies {
        if let Err(problems) = &policy.outcome {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            told.broken.push((policy.name.clone(), problems.join("; ")));
            told.counts.error += 1;
        }
    }
    for response in responses {
        for rule in &response.rules {
            let status = match rule.status {
                Status::Fail if audit_warns && !rule.is_enforced => Status::Warn,
                status => status,
            };
            told.count(status);
            told.results.push(Told {
                policy: bench.policies[response.policy].name.clone(),
                rule: rule.rule.clone(),
                resource: bench.resources[response.resource].title(),
                status: status.as_str(),
                message: rule.message.clone(),
            });
        }
    }
    told
}

impl Applied {
    fn count(&mut self, status: Status) {
        let counts = &mut self.counts;
        *match status {
            Status::Pass => &mut counts.pass,
            Status::Fail => &mut counts.fail,
            Status::Warn => &mut counts.warn,
            Status::Error => &mut counts.error,
            Status::Skip => &mut counts.skip,
        } += 1;
    }

    /// For people: what is not as it should be, and the counts.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (policy, problems) in &self.broken {
            let _ = writeln!(text, "policy {policy} cannot be compiled: {problems}");
        }
        let wrong = |told: &&Told| !["pass", "skip"].contains(&told.status);
        for told in self.results.iter().filter(wrong) {
            let Told {
                policy,
                rule,
                resource,
                status,
                message,
            } = told;
            let _ = writeln!(
                text,
                "{status}: policy {policy}, rule {rule}, {resource}: {message}"
            );
        }
        let StatusCounts {
            pass,
            fail,
            warn,
            error,
            skip,
        } = self.counts;
        let _ = write!(
            text,
            "\npass: {pass}, fail: {fail}, warn: {warn}, error: {error}, skip: {skip}"
        );
        text.trim_start().to_owned()
    }

    /// `{results: [{policy, rule, resource, status, message}], errors: [{policy, message}], summary: {pass,
    /// fail, warn, error, skip}}`.
    pub fn json(&self) -> Value {
        let errors = self.broken.iter();
        let errors: Vec<_> = errors
            .map(|(policy, message)| json!({"policy": policy, "message": message}))
            .collect();
        json!({"results": self.results, "errors": errors, "summary": self.counts})
    }

    /// As suites, one for each policy, for [`junit`](super::junit()): what was skipped is not run.
    pub fn suites(&self) -> Vec<Checked> {
        let mut suites: Vec<Checked> = Vec::new();
        for (policy, problems) in &self.broken {
            suites.push(Checked {
                name: policy.clone(),
                path: policy.into(),
                rows: Vec::new(),
                error: Some(problems.clone()),
            });
        }
        for told in &self.results {
            let row = Row {
                policy: told.policy.clone(),
                rule: told.rule.clone(),
                resource: told.resource.clone(),
                result: match told.status {
                    "fail" | "error" => RowResult::Fail,
                    "skip" => RowResult::NotRun,
                    _ => RowResult::Pass,
                },
                reason: told.status.to_owned(),
                message: told.message.clone(),
            };
            match suites.iter_mut().find(|suite| suite.name == told.policy) {
                Some(suite) => suite.rows.push(row),
                None => suites.push(Checked {
                    name: told.policy.clone(),
                    path: told.policy.clone().into(),
                    rows: vec![row],
                    error: None,
                }),
            }
        }
        suites
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadedPolicy, Resource, apply, junit};

    #[test]
    fn what_policies_say_is_told_and_counted() {
        let policy = |action: &str, name: &str| {
            LoadedPolicy::new(&json!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": name},
                "spec": {"validationFailureAction": action, "rules": [{
                    "name": "label", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                    "validate": {"message": "label it", "pattern": {"metadata": {"labels": {"a": "b"}}}},
                }]},
            }))
            .unwrap()
        };
        let pod = |name: &str, label: &str| {
            Resource::new(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"a": label}},
            }))
            .unwrap()
        };
        let broken = LoadedPolicy::new(&json!({
            "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "broken"},
        }));
        let bench = Bench::new(
            vec![
                policy("Enforce", "e"),
                policy("Audit", "a"),
                broken.unwrap(),
            ],
            vec![pod("good", "b"), pod("bad", "c")],
        );
        let responses = apply(&bench);
        let counts = |audit_warns| applied(&bench, &responses, audit_warns).counts;
        let all = StatusCounts {
            pass: 2,
            fail: 2,
            error: 1,
            ..StatusCounts::default()
        };
        assert_eq!(counts(false), all);
        assert_eq!(
            counts(true),
            StatusCounts {
                fail: 1,
                warn: 1,
                ..all
            }
        );
        let told = applied(&bench, &responses, true);
        let text = told.text();
        for line in [
            "policy broken cannot be compiled: AR302",
            "fail: policy e, rule label, Pod/default/bad: validation error: label it",
            "warn: policy a, rule label, Pod/default/bad:",
            "pass: 2, fail: 1, warn: 1, error: 1, skip: 0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(told.json()["summary"]["warn"], 1);
        let xml = junit(&told.suites());
        assert!(
            xml.contains("tests=\"5\" failures=\"1\" errors=\"1\""),
            "{xml}"
        );
    }
}
