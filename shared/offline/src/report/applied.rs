//! The results of policies on resources, where nothing is expected.

use std::{collections::BTreeMap, fmt::Write as _};

use anteroom_policy::{NotRun, PolicyKind, Reporting};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Checked;
use crate::{
    check::{Row, RowResult},
    resource::Resource,
    scenario::{Response, Scenario, Status},
};

/// The number of rules by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StatusCounts {
    /// The resource complied.
    pub pass: usize,
    /// The resource violated the rule.
    pub fail: usize,
    /// The resource violated a rule that only warns.
    pub warn: usize,
    /// Not known.
    pub error: usize,
    /// Did not apply.
    pub skip: usize,
}

/// The results of policies, for reports.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The number of rules by result, policies that do not compile among the errors.
    pub counts: StatusCounts,
    results: Vec<ReportedResult>,
    /// Policies that do not compile, and why.
    broken: Vec<(String, String)>,
    /// Policies, and rules of them that are not run.
    not_run: Vec<(String, NotRun)>,
    /// Objects are given that rules with `mutate.targets` change.
    has_targets: bool,
    /// The objects that rules changed, as all of them left them, and targets as each rule left them.
    patched: Vec<Value>,
    /// The time of the requests, in seconds since 1970.
    now_s: Option<i64>,
}

#[derive(Clone, Debug, Serialize)]
struct ReportedResult {
    policy: String,
    rule: String,
    resource: String,
    status: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    /// The resource, as reports name it.
    #[serde(skip)]
    object: Value,
    /// The policy's part of reports.
    #[serde(skip)]
    reporting: Reporting,
    #[serde(skip)]
    kind: PolicyKind,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<String, String>,
}

impl ReportedResult {
    /// Returns it as a result of a report.
    fn result(&self, now_s: Option<i64>) -> Value {
        let mut result = json!({
            "source": source(self.kind), "policy": self.policy, "rule": self.rule, "result": self.status,
            "message": self.message, "scored": !self.reporting.unscored, "resources": [self.object],
        });
        let (category, severity) = (&self.reporting.category, self.reporting.severity);
        if let Some(seconds) = now_s {
            result["timestamp"] = json!({"seconds": seconds, "nanos": 0});
        }
        if !self.properties.is_empty() {
            result["properties"] = json!(self.properties);
        }
        for (name, value) in [("category", category.as_deref()), ("severity", severity)] {
            if let Some(value) = value {
                result[name] = value.into();
            }
        }
        result
    }
}

/// The source of results in a report, as Kyverno names it.
fn source(kind: PolicyKind) -> &'static str {
    match (kind.is_cel(), kind.is_mutating()) {
        (false, _) => "kyverno",
        (true, false) => "KyvernoValidatingPolicy",
        (true, true) => "KyvernoMutatingPolicy",
    }
}

/// Returns the results of a scenario. With `audit_warns` a violation of a rule that does not deny is a
/// warning.
pub fn applied(scenario: &Scenario, responses: &[Response], audit_warns: bool) -> Applied {
    let mut told = Applied {
        counts: StatusCounts::default(),
        results: Vec::new(),
        broken: Vec::new(),
        not_run: Vec::new(),
        has_targets: !scenario.world.targets.is_empty(),
        patched: patched(scenario, responses),
        now_s: scenario.arrival.and_then(|arrival| {
            let seconds = arrival.now_ns.div_euclid(1_000_000_000);
            i64::try_from(seconds).ok()
        }),
    };
    for response in responses {
        let changed = response.rules.iter().flat_map(|rule| &rule.changed);
        told.patched.extend(changed.cloned());
    }
    for policy in &scenario.policies {
        if let Some(problems) = policy.problems() {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            told.broken.push((policy.name.clone(), problems.join("; ")));
            told.counts.error += 1;
        }
        let not_run = policy.not_run.iter();
        told.not_run
            .extend(not_run.map(|rule| (policy.name.clone(), rule.clone())));
    }
    for response in responses {
        for rule in &response.rules {
            let status = match rule.status {
                Status::Fail if audit_warns && !rule.is_enforced => Status::Warn,
                status => status,
            };
            told.counts.count(status);
            told.results.push(ReportedResult {
                object: named(&scenario.resources[response.resource]),
                reporting: scenario.policies[response.policy].reporting(),
                policy: scenario.policies[response.policy].name.clone(),
                rule: rule.rule.clone(),
                resource: scenario.resources[response.resource].title(),
                status: status.as_str(),
                message: rule.message.clone(),
                kind: scenario.policies[response.policy].kind,
                properties: rule.properties.clone(),
            });
        }
    }
    told
}

/// Returns the resources that rules changed, as they are in the end.
fn patched(scenario: &Scenario, responses: &[Response]) -> Vec<Value> {
    let of = |at: usize| {
        let mut all = responses.iter().filter(|response| response.resource == at);
        all.rfind(|response| response.patched.is_some())?
            .patched
            .clone()
    };
    (0..scenario.resources.len()).filter_map(of).collect()
}

fn named(resource: &Resource) -> Value {
    let mut named = json!({
        "apiVersion": resource.value["apiVersion"], "kind": resource.kind, "name": resource.name,
    });
    if !resource.namespace.is_empty() {
        named["namespace"] = resource.namespace.as_str().into();
    }
    named
}

impl StatusCounts {
    fn count(&mut self, status: Status) {
        *match status {
            Status::Pass => &mut self.pass,
            Status::Fail => &mut self.fail,
            Status::Warn => &mut self.warn,
            Status::Error => &mut self.error,
            Status::Skip => &mut self.skip,
        } += 1;
    }
}

impl Applied {
    /// Returns whether nothing was judged or refused: no rule that is run matches any of the resources.
    pub fn is_about_nothing(&self) -> bool {
        self.results.is_empty() && self.broken.is_empty()
    }

    /// Returns a line for each policy that does not compile, and for each rule that is not run.
    pub fn left_out(&self) -> Vec<String> {
        let broken = self.broken.iter();
        let broken = broken
            .map(|(policy, problems)| format!("policy {policy} cannot be compiled: {problems}"));
        let not_run = self.not_run.iter();
        let not_run = not_run.map(|(policy, NotRun { rule, kind, path })| {
            let reason = match *kind {
                "mutate.targets" if self.has_targets => "Secrets are not changed",
                "mutate.targets" => "give what it changes with --target-resource",
                _ => "this is not supported",
            };
            format!("not run: policy {policy}, rule {rule}, {path}: {reason}")
        });
        broken.chain(not_run).collect()
    }

    /// The objects that rules changed, as all of them left them, in the order of the resources; then the targets
    /// of `mutate.targets`, once for each rule that changed them.
    pub fn patched(&self) -> &[Value] {
        &self.patched
    }

    /// Returns the report for people: failures and counts, with `all` also the results that passed.
    pub fn text(&self, all: bool) -> String {
        let mut text = String::new();
        for line in self.left_out() {
            let _ = writeln!(text, "{line}");
        }
        let wrong = |told: &&ReportedResult| all || !["pass", "skip"].contains(&told.status);
        for told in self.results.iter().filter(wrong) {
            let ReportedResult {
                policy,
                rule,
                resource,
                status,
                message,
                ..
            } = told;
            let end = if message.is_empty() { "" } else { ": " };
            let rule = match rule.is_empty() {
                true => String::new(),
                false => format!("rule {rule}, "),
            };
            let _ = writeln!(
                text,
                "{status}: policy {policy}, {rule}{resource}{end}{message}"
            );
        }
        text.push_str(&self.summary());
        text.trim_start().to_owned()
    }

    /// The counts, on one line.
    pub fn summary(&self) -> String {
        let StatusCounts {
            pass,
            fail,
            warn,
            error,
            skip,
        } = self.counts;
        format!("\npass: {pass}, fail: {fail}, warn: {warn}, error: {error}, skip: {skip}")
    }

    /// `{results: [{policy, rule, resource, status, message}], errors: [{policy, message}], notRun: [{policy,
    /// rule, kind}], summary: {pass, fail, warn, error, skip}, patched: [object]}`.
    pub fn json(&self) -> Value {
        let errors = self.broken.iter();
        let errors: Vec<_> = errors
            .map(|(policy, message)| json!({"policy": policy, "message": message}))
            .collect();
        let not_run = self.not_run.iter();
        let not_run: Vec<_> = not_run
            .map(|(policy, of)| json!({"policy": policy, "rule": of.rule, "kind": of.kind}))
            .collect();
        json!({
            "results": self.results, "errors": errors, "notRun": not_run, "summary": self.counts,
            "patched": self.patched,
        })
    }

    /// A `PolicyReport` for each namespace, and a `ClusterPolicyReport` for what is in none.
    pub fn policy_reports(&self) -> Vec<Value> {
        let mut by_namespace: BTreeMap<Option<&str>, Vec<&ReportedResult>> = BTreeMap::new();
        for told in &self.results {
            let namespace = told.object["namespace"].as_str();
            by_namespace.entry(namespace).or_default().push(told);
        }
        let report = |(namespace, all): (Option<&str>, Vec<&ReportedResult>)| {
            let mut metadata = json!({"name": "anteroom-apply"});
            let kind = match namespace {
                Some(namespace) => {
                    metadata["namespace"] = namespace.into();
                    "PolicyReport"
                }
                None => "ClusterPolicyReport",
            };
            let count = |status| all.iter().filter(|told| told.status == status).count();
            let statuses = ["pass", "fail", "warn", "error", "skip"];
            let summary: Map<_, _> = statuses
                .iter()
                .map(|status| ((*status).to_owned(), count(*status).into()))
                .collect();
            json!({
                "apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": kind, "metadata": metadata,
                "results": all.iter().map(|told| told.result(self.now_s)).collect::<Vec<_>>(), "summary": summary,
            })
        };
        by_namespace.into_iter().map(report).collect()
    }

    /// Returns suites, one for each policy, for [`junit`](super::junit()): what was skipped is not run.
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
                remark: String::new(),
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
    use crate::{LoadedPolicy, apply, junit};

    #[test]
    fn verdicts_of_applied_policies_are_listed_and_counted() {
        let policy = |action: &str, name: &str| {
            LoadedPolicy::new(&json!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy",
                "metadata": {"name": name, "annotations": {
                    "policies.kyverno.io/severity": "high", "policies.kyverno.io/category": "Labels",
                }},
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
        let mut scenario = Scenario::new(
            vec![
                policy("Enforce", "e"),
                policy("Audit", "a"),
                broken.unwrap(),
            ],
            vec![pod("good", "b"), pod("bad", "c")],
        );
        scenario.arrival = Some(anteroom_policy::Arrival {
            now_ns: 7_900_000_000,
            seed: 0,
        });
        let responses = apply(&scenario);
        let counts = |audit_warns| applied(&scenario, &responses, audit_warns).counts;
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
        let told = applied(&scenario, &responses, true);
        let text = told.text(false);
        for line in [
            "policy broken cannot be compiled: AR302",
            "fail: policy e, rule label, Pod/default/bad: validation error: label it",
            "warn: policy a, rule label, Pod/default/bad:",
            "pass: 2, fail: 1, warn: 1, error: 1, skip: 0",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(
            told.text(true)
                .contains("pass: policy e, rule label, Pod/default/good\n")
        );
        let reports = told.policy_reports();
        assert_eq!(reports.len(), 1);
        assert_eq!(reports[0]["metadata"]["namespace"], "default");
        assert_eq!(
            reports[0]["summary"],
            json!({"pass": 2, "fail": 1, "warn": 1, "error": 0, "skip": 0})
        );
        let result = &reports[0]["results"][2];
        assert_eq!(
            (&result["result"], &result["resources"][0]["name"]),
            (&json!("fail"), &json!("bad"))
        );
        // A warning of --audit-warn is one of a policy that counts.
        let results = reports[0]["results"].as_array().unwrap();
        let warning = results.iter().find(|one| one["result"] == "warn").unwrap();
        assert_eq!(warning["scored"], true);
        assert_eq!(warning["timestamp"], json!({"seconds": 7, "nanos": 0}));
        assert_eq!(
            (&warning["severity"], &warning["category"]),
            (&json!("high"), &json!("Labels"))
        );
        assert_eq!(told.json()["summary"]["warn"], 1);
        let xml = junit(&told.suites());
        assert!(
            xml.contains("tests=\"5\" failures=\"1\" errors=\"1\""),
            "{xml}"
        );
    }

    #[test]
    fn rules_that_are_not_run_are_listed_and_are_no_errors() {
        let pods = json!({"any": [{"resources": {"kinds": ["Pod"]}}]});
        let targets = json!({"name": "t", "match": pods, "mutate": {
            "targets": [{"apiVersion": "v1", "kind": "ConfigMap"}], "patchStrategicMerge": {}}});
        let judges = json!({"name": "j", "match": pods, "validate": {"deny": {}}});
        let policy = |name: &str, rules: Value| {
            LoadedPolicy::new(&json!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": name},
                "spec": {"rules": rules},
            }))
            .unwrap()
        };
        let mut wrong = targets.clone();
        wrong["nope"] = 1.into();
        let scenario = Scenario::new(
            vec![
                policy("some", json!([judges, targets])),
                policy("none", json!([targets])),
                policy("wrong", json!([wrong])),
            ],
            Vec::new(),
        );
        let told = applied(&scenario, &[], false);
        assert_eq!(told.counts.error, 1);
        let text = told.text(false);
        for line in [
            "not run: policy some, rule t, spec.rules[1].mutate.targets: give what it changes with --target-resource\n",
            "not run: policy none, rule t, spec.rules[0].mutate.targets: give what it changes with --target-resource\n",
            "policy wrong cannot be compiled: ",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        let scenario = scenario.with_targets(vec![Resource::new(secret).unwrap()]);
        let text = applied(&scenario, &[], false).text(false);
        assert!(text.contains("targets: Secrets are not changed"), "{text}");
        let not_run = &told.json()["notRun"];
        assert_eq!(not_run.as_array().map(Vec::len), Some(2));
        assert_eq!(
            not_run[0],
            json!({"policy": "some", "rule": "t", "kind": "mutate.targets"})
        );
    }
}
