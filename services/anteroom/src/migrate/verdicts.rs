//! The verdict on each policy: if it runs, and how its reads are answered. Pure.

use std::collections::BTreeMap;

use anteroom_model::ErrorCode;
use anteroom_policy::{Driver, Policy, PolicyException, Problem};
use serde::Serialize;
use serde_json::Value;

use super::{
    differences::{self, Difference},
    installation::{Installation, full_name, text, title},
};
use crate::explain::{self, Plan, RulePlan};

/// The part of an object that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Runs {
    /// All of it.
    #[serde(rename = "runs")]
    Fully,
    /// Some of its rules do.
    Partly,
    /// Nothing of it.
    Not,
}

impl Runs {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Fully => "runs",
            Self::Partly => "partly",
            Self::Not => "not",
        }
    }
}

/// Why something does not run.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Reason {
    /// The code, as in `AR301`.
    pub(super) code: &'static str,
    /// The field.
    pub(super) path: String,
    pub(super) message: String,
}

impl Reason {
    fn of(problem: &Problem) -> Self {
        Self {
            code: problem.code.as_str(),
            path: problem.path.clone(),
            message: problem.message.clone(),
        }
    }
}

/// A policy, judged.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Verdict {
    pub(super) kind: String,
    /// The manifest's name, as `namespace/name` for a namespaced object.
    pub(super) name: String,
    pub(super) runs: Runs,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) reasons: Vec<Reason>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) differences: Vec<Difference>,
    pub(super) rules: Vec<RulePlan>,
}

impl Verdict {
    /// Returns the reads of all rules.
    pub(super) fn reads(&self) -> impl Iterator<Item = &explain::ReadPlan> {
        self.rules.iter().flat_map(|rule| &rule.reads)
    }
}

/// The verdicts on everything.
#[derive(Debug)]
pub(super) struct Verdicts {
    pub(super) policies: Vec<Verdict>,
    pub(super) exceptions: Vec<Verdict>,
    /// Policies of kinds that are not run, as in `CleanupPolicy a`.
    pub(super) not_run: Vec<String>,
}

impl Verdicts {
    /// Judges everything, and returns the policies that compile, each with its kind and name for people.
    pub(super) fn of(installation: &Installation) -> (Self, Vec<(String, Policy)>) {
        let mut compiled = Vec::new();
        let policies = installation.manifests.policies.iter();
        let judged = Self {
            policies: policies
                .map(|manifest| judge(manifest, installation, &mut compiled))
                .collect(),
            exceptions: installation.exceptions.iter().map(exception).collect(),
            not_run: installation.not_run.iter().map(title).collect(),
        };
        (judged, compiled)
    }

    /// Returns whether nothing has to be given up.
    pub(super) fn all_run(&self) -> bool {
        let mut judged = self.policies.iter().chain(&self.exceptions);
        self.not_run.is_empty() && judged.all(|one| one.runs == Runs::Fully)
    }

    /// Returns the numbers of the summary, by their names in JSON.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, usize> {
        let of = |runs| self.policies.iter().filter(|one| one.runs == runs).count();
        let reads = || self.policies.iter().flat_map(Verdict::reads);
        let exceptions = self.exceptions.iter();
        [
            ("policies", self.policies.len()),
            ("runs", of(Runs::Fully)),
            ("partly", of(Runs::Partly)),
            ("not", of(Runs::Not)),
            ("exceptions", self.exceptions.len()),
            (
                "exceptionsNot",
                exceptions.filter(|one| one.runs == Runs::Not).count(),
            ),
            ("kindsNotRun", self.not_run.len()),
            ("reads", reads().count()),
            (
                "byIndex",
                reads()
                    .filter(|read| matches!(read.plan, Plan::Index { .. }))
                    .count(),
            ),
            ("scans", reads().filter(|read| read.is_scan()).count()),
        ]
        .into()
    }
}

fn judge(
    manifest: &Value,
    installation: &Installation,
    compiled: &mut Vec<(String, Policy)>,
) -> Verdict {
    let (runs, reasons, rules) = match anteroom_policy::compile(manifest) {
        Ok(policy) => {
            let reasons: Vec<_> = policy
                .not_run()
                .iter()
                .map(|rule| Reason {
                    code: ErrorCode::POLICY_UNSUPPORTED.as_str(),
                    path: rule.path.clone(),
                    message: format!("the rule {} is not run: {} is not", rule.rule, rule.kind),
                })
                .collect();
            let runs = match reasons.is_empty() {
                true => Runs::Fully,
                false => Runs::Partly,
            };
            let mut rules = explain::rules(&policy, &installation.manifests);
            // The rules derived for Pod controllers read the same facts.
            rules.retain(|rule| match policy.kind().is_cel() {
                true => rule.rule.is_empty(),
                false => !rule.rule.starts_with("autogen-"),
            });
            compiled.push((title(manifest), policy));
            (runs, reasons, rules)
        }
        Err(problems) => (
            Runs::Not,
            problems.iter().map(Reason::of).collect(),
            Vec::new(),
        ),
    };
    let differences = match runs {
        Runs::Not => Vec::new(),
        _ => differences::of_policy(manifest),
    };
    Verdict {
        kind: text(manifest, "/kind"),
        name: full_name(manifest),
        runs,
        reasons,
        differences,
        rules,
    }
}

fn exception(manifest: &Value) -> Verdict {
    let problems = PolicyException::compile(manifest, Driver::IN_CLUSTER).err();
    let reasons: Vec<_> = problems.iter().flatten().map(Reason::of).collect();
    Verdict {
        kind: text(manifest, "/kind"),
        name: full_name(manifest),
        runs: match problems {
            None => Runs::Fully,
            Some(_) => Runs::Not,
        },
        reasons,
        differences: Vec::new(),
        rules: Vec::new(),
    }
}
