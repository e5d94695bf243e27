//! Makes the report of an object from its results, as Kyverno writes it. Pure.
//!
//! A report has the name of its object's UID, stands in the object's namespace, and is owned by the
//! object, so that it goes with it.

use anteroom_model::ObjectKey;
use anteroom_policy::{PolicyKind, Reporting};
use serde::Serialize;
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    findings::{Finding, ObjectFindings},
    result::{ReportOutcome, ReportSubject, ReportedSince, named},
};

/// The most results of one report. The worst are kept, and the rest are counted in an annotation and in the summary.
pub(crate) const RESULTS_MAX: usize = 1_000;

/// Bytes of all results of one report: the API server takes objects of less than 1.5 MB.
pub(crate) const RESULTS_BYTES_MAX: usize = 1_000_000;

/// The bytes beside each result, of its time.
const TIME_BYTES: usize = 64;

/// The group and version of reports.
pub(crate) const API_VERSION: &str = "wgpolicyk8s.io/v1alpha2";

/// The label of reports that are ours: no others are touched.
pub(crate) const OWN_LABEL: &str = "anteroom.dev/reporter";

/// The value of [`OWN_LABEL`].
pub(crate) const OWN_VALUE: &str = "background-scan";

/// The annotation with the hash of the report's content, without its times.
pub(crate) const CONTENT: &str = "anteroom.dev/content";

/// The annotation with the number of results that were left out.
const LEFT_OUT: &str = "anteroom.dev/results-left-out";

/// A report, ready to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    /// The hash of the report's content without times, so that only changed reports are written.
    pub(crate) content: String,
    /// The manifest.
    pub(crate) manifest: Value,
}

/// The number of results of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    error: usize,
    fail: usize,
    pass: usize,
    skip: usize,
    warn: usize,
}

impl Summary {
    fn add(&mut self, outcome: ReportOutcome) {
        let count = match outcome {
            ReportOutcome::Pass => &mut self.pass,
            ReportOutcome::Fail => &mut self.fail,
            ReportOutcome::Warn => &mut self.warn,
            ReportOutcome::Error => &mut self.error,
            ReportOutcome::Skip => &mut self.skip,
        };
        *count += 1;
    }
}

/// Returns the report on an object. `reporting` returns how a policy is reported; results of an unknown policy are
/// left out.
pub(crate) fn report<'p>(
    of_object: &ObjectFindings,
    reporting: impl Fn(&ObjectKey) -> Option<&'p Reporting>,
) -> Report {
    let mut summary = Summary::default();
    let mut results: Vec<(&ObjectKey, &Finding)> = Vec::new();
    for finding in &of_object.findings {
        summary.add(finding.result.outcome);
        results.push((&finding.scan.policy, finding));
    }
    let count = results.len();
    // What is bad is kept first; then by the policy's name in the report, as Kyverno sorts them.
    results.sort_by_cached_key(|(policy, finding)| {
        let is_bad = finding.result.outcome.is_bad();
        (!is_bad, policy.to_string(), finding.result.rule.clone())
    });
    let mut bytes = 0;
    let mut kept: Vec<(&Finding, Value)> = results
        .into_iter()
        .take(RESULTS_MAX)
        .map(|(policy, finding)| {
            let reporting = reporting(policy).cloned().unwrap_or_default();
            (finding, result(policy, finding, reporting))
        })
        .take_while(|(_, result)| {
            bytes += result.to_string().len() + TIME_BYTES;
            bytes <= RESULTS_BYTES_MAX
        })
        .collect();
    let left_out = count - kept.len();
    let by_name = |(_, result): &(&Finding, Value)| {
        let text = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
        (text("policy"), text("rule"))
    };
    kept.sort_by_cached_key(by_name);
    let (kept, timeless): (Vec<&Finding>, Vec<Value>) = kept.into_iter().unzip();
    let subject = &of_object.subject;
    let content = json!([timeless, summary, left_out, *subject.name, *subject.kind]);
    let content = format!("{:016x}", xxh3_64(content.to_string().as_bytes()));
    let timed = timeless.into_iter().zip(kept);
    let timed = timed.map(|(mut result, finding)| {
        result["timestamp"] = json!({"seconds": finding.since_s, "nanos": 0});
        result
    });
    let mut manifest = head(subject, &content, left_out);
    manifest["results"] = timed.collect();
    manifest["summary"] = json!(summary);
    Report { content, manifest }
}

fn result(policy: &ObjectKey, finding: &Finding, reporting: Reporting) -> Value {
    let mut result = Map::new();
    let mut put = |name: &str, value: Value| result.insert(name.to_owned(), value);
    let (named, rule) = named(policy, &finding.result.rule);
    put("source", source(policy).into());
    put("policy", named.into());
    if !rule.is_empty() {
        put("rule", rule.into());
    }
    put("result", finding.result.outcome.as_str().into());
    put("message", (*finding.result.message).into());
    put("scored", (!reporting.unscored).into());
    let mut properties = Map::new();
    for (name, value) in finding.result.properties.iter().flat_map(|all| all.iter()) {
        properties.insert(name.clone(), value.as_str().into());
    }
    properties.insert("process".to_owned(), "background scan".into());
    put("properties", properties.into());
    if let Some(category) = reporting.category {
        put("category", category.into());
    }
    if let Some(severity) = reporting.severity {
        put("severity", severity.into());
    }
    Value::Object(result)
}

/// The engine that a result is from, in Kyverno's words.
fn source(policy: &ObjectKey) -> &'static str {
    match PolicyKind::of_key(policy).0 {
        PolicyKind::Cluster | PolicyKind::Namespaced => "kyverno",
        PolicyKind::Validating | PolicyKind::NamespacedValidating => "KyvernoValidatingPolicy",
        PolicyKind::Mutating | PolicyKind::NamespacedMutating => "KyvernoMutatingPolicy",
    }
}

/// Returns the content of a report that an earlier run or a different reporter wrote.
pub(crate) fn reported_since(report: &Value) -> ReportedSince {
    let results = report["results"].as_array().into_iter().flatten();
    let said = |result: &Value| {
        let text = |field: &str| result[field].as_str().map(str::to_owned);
        let since_s = result["timestamp"]["seconds"].as_i64()?;
        let rule = text("rule").unwrap_or_default();
        Some(((text("policy")?, rule, text("result")?), since_s))
    };
    results.filter_map(said).collect()
}

/// The kind of the report on an object.
pub(crate) fn kind(subject: &ReportSubject) -> &'static str {
    match subject.namespace.is_empty() {
        true => "ClusterPolicyReport",
        false => "PolicyReport",
    }
}

fn head(subject: &ReportSubject, content: &str, left_out: usize) -> Value {
    let mut scope = json!({
        "apiVersion": *subject.api_version, "kind": *subject.kind,
        "name": *subject.name, "uid": *subject.uid,
    });
    let owner = scope.clone();
    let mut metadata = json!({
        "name": *subject.uid,
        "labels": {"app.kubernetes.io/managed-by": "kyverno", OWN_LABEL: OWN_VALUE},
        "annotations": {CONTENT: content},
        "ownerReferences": [owner],
    });
    if !subject.namespace.is_empty() {
        metadata["namespace"] = (*subject.namespace).into();
        scope["namespace"] = (*subject.namespace).into();
    }
    if left_out > 0 {
        metadata["annotations"][LEFT_OUT] = left_out.to_string().into();
    }
    json!({
        "apiVersion": API_VERSION, "kind": kind(subject), "metadata": metadata, "scope": scope,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::findings::{
        Findings,
        tests::{result, scan, subject},
    };

    fn of_object(given: &[(&str, &str, ReportOutcome)]) -> ObjectFindings {
        let mut findings = Findings::default();
        let mut by_policy: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (policy, rule, outcome) in given {
            let results = by_policy.entry(policy).or_default();
            results.push(result(rule, *outcome));
        }
        for (policy, results) in by_policy {
            findings.put(&subject("u"), &scan(policy), results, 7);
        }
        findings.of_object("u").unwrap().clone()
    }

    fn made(of_object: &ObjectFindings) -> Report {
        let reporting = Reporting {
            category: Some("C".into()),
            severity: Some("high"),
            unscored: false,
        };
        report(of_object, |policy| {
            (&*policy.name == "p").then_some(&reporting)
        })
    }

    #[test]
    fn a_report_is_what_kyverno_writes() {
        let report = made(&of_object(&[
            ("q", "a", ReportOutcome::Pass),
            ("p", "b", ReportOutcome::Fail),
            ("p", "a", ReportOutcome::Skip),
        ]));
        let mut expected = json!({
            "apiVersion": "wgpolicyk8s.io/v1alpha2", "kind": "PolicyReport",
            "metadata": {
                "name": "u", "namespace": "n",
                "labels": {"app.kubernetes.io/managed-by": "kyverno",
                    "anteroom.dev/reporter": "background-scan"},
                "annotations": {"anteroom.dev/content": report.content},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "u", "uid": "u"}],
            },
            "scope": {"apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "u", "uid": "u"},
            "results": [
                {"policy": "p", "rule": "a", "result": "skip", "category": "C", "severity": "high"},
                {"policy": "p", "rule": "b", "result": "fail", "category": "C", "severity": "high"},
                {"policy": "q", "rule": "a", "result": "pass"},
            ],
            "summary": {"error": 0, "fail": 1, "pass": 1, "skip": 1, "warn": 0},
        });
        for result in expected["results"].as_array_mut().unwrap() {
            result["message"] = "m".into();
            result["scored"] = true.into();
            result["source"] = "kyverno".into();
            result["properties"] = json!({"process": "background scan"});
            result["timestamp"] = json!({"seconds": 7, "nanos": 0});
        }
        assert_eq!(report.manifest, expected);
    }

    #[test]
    fn a_policy_in_cel_has_its_own_source_and_no_rule() {
        for (kind, expected) in [
            (PolicyKind::Validating, ["KyvernoValidatingPolicy", "p"]),
            (
                PolicyKind::NamespacedValidating,
                ["KyvernoValidatingPolicy", "n/p"],
            ),
            (PolicyKind::Mutating, ["KyvernoMutatingPolicy", "p"]),
        ] {
            let mut findings = Findings::default();
            let mut of_policy = scan("p");
            of_policy.policy = kind.key("n", "p");
            let results = || {
                let mut result = result("defaults", ReportOutcome::Fail);
                result.set_properties(std::collections::BTreeMap::from([(
                    "team".into(),
                    "a".into(),
                )]));
                vec![result]
            };
            findings.put(&subject("u"), &of_policy, results(), 7);
            let report = made(findings.of_object("u").unwrap()).manifest;
            let told = &report["results"][0];
            assert_eq!(["source", "policy"].map(|field| &told[field]), expected);
            assert_eq!(told.get("rule"), None);
            assert_eq!(
                told["properties"],
                json!({"process": "background scan", "team": "a"})
            );
            // Another reporter finds it there.
            let mut later = Findings::default();
            later.put(&subject("u"), &of_policy, results(), 9);
            later.remember("u", &reported_since(&report));
            let found = later.of_object("u").unwrap().by_scan(&of_policy);
            let found: Vec<_> = found.iter().map(|f| (f.since_s, f.is_new)).collect();
            assert_eq!(found, [(7, false)]);
        }
    }

    #[test]
    fn results_that_a_report_already_has_are_not_new() {
        let before = made(&of_object(&[
            ("p", "r", ReportOutcome::Fail),
            ("p", "s", ReportOutcome::Pass),
        ]));
        let mut findings = Findings::default();
        let now = vec![
            result("r", ReportOutcome::Fail),
            result("s", ReportOutcome::Fail),
        ];
        findings.put(&subject("u"), &scan("p"), now, 9);
        findings.remember("u", &reported_since(&before.manifest));
        let found = findings.of_object("u").unwrap().by_scan(&scan("p"));
        let found: Vec<_> = found.iter().map(|f| (f.since_s, f.is_new)).collect();
        assert_eq!(found, [(7, false), (9, true)]);
        assert!(reported_since(&json!({"results": [{"policy": "p"}, 1]})).is_empty());
        assert!(reported_since(&Value::Null).is_empty());
    }

    #[test]
    fn a_cluster_scoped_object_has_a_cluster_policy_report() {
        let mut of_object = of_object(&[("p", "r", ReportOutcome::Pass)]);
        of_object.subject.namespace = "".into();
        let manifest = made(&of_object).manifest;
        assert_eq!(manifest["kind"], "ClusterPolicyReport");
        assert_eq!(manifest["metadata"].get("namespace"), None);
        assert_eq!(manifest["scope"].get("namespace"), None);
    }

    #[test]
    fn the_content_is_another_one_only_where_more_than_times_differ() {
        let one = of_object(&[("p", "r", ReportOutcome::Pass)]);
        let mut later = one.clone();
        let findings = later.findings.iter_mut();
        findings.for_each(|finding| finding.since_s = 9);
        assert_eq!(made(&one).content, made(&later).content);
        assert_ne!(made(&one).manifest, made(&later).manifest);
        let other = of_object(&[("p", "r", ReportOutcome::Fail)]);
        assert_ne!(made(&one).content, made(&other).content);
    }

    #[test]
    fn beyond_the_limit_bad_results_are_kept_and_the_rest_counted() {
        let rules: Vec<_> = (0..=RESULTS_MAX).map(|n| format!("r{n:05}")).collect();
        let some = |count: usize| -> ObjectFindings {
            let of = |rule| ("p", rule, ReportOutcome::Pass);
            let mut all: Vec<_> = rules[..count]
                .iter()
                .map(|rule| of(rule.as_str()))
                .collect();
            all[count - 1].2 = ReportOutcome::Fail;
            of_object(&all)
        };
        let full = made(&some(RESULTS_MAX)).manifest;
        assert_eq!(full["metadata"]["annotations"].get(LEFT_OUT), None);
        let over = made(&some(RESULTS_MAX + 1)).manifest;
        assert_eq!(over["metadata"]["annotations"][LEFT_OUT], "1");
        let results = over["results"].as_array().unwrap();
        assert_eq!(results.len(), RESULTS_MAX);
        assert_eq!(results[RESULTS_MAX - 1]["result"], "fail");
        assert_eq!(over["summary"]["pass"], RESULTS_MAX);
    }

    #[test]
    fn a_report_is_not_larger_than_the_api_server_takes() {
        let mut findings = Findings::default();
        let long = |number: usize, outcome| {
            let mut long = result(&format!("r{number:05}"), outcome);
            long.message = "m".repeat(crate::result::MESSAGE_BYTES_MAX).into();
            long
        };
        let mut results: Vec<_> = (0..RESULTS_MAX - 1)
            .map(|number| long(number, ReportOutcome::Pass))
            .collect();
        results.push(long(RESULTS_MAX, ReportOutcome::Fail));
        findings.put(&subject("u"), &scan("p"), results, 7);
        let manifest = made(findings.of_object("u").unwrap()).manifest;
        let kept = manifest["results"].as_array().unwrap();
        assert_eq!(kept.last().unwrap()["result"], "fail");
        let bytes = manifest["results"].to_string().len();
        assert!(bytes <= RESULTS_BYTES_MAX && bytes > RESULTS_BYTES_MAX / 2);
        let left_out = RESULTS_MAX - kept.len();
        assert_eq!(
            manifest["metadata"]["annotations"][LEFT_OUT],
            left_out.to_string()
        );
    }
}
