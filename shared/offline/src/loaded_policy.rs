//! A policy as it was loaded from a file.

use std::borrow::Cow;

use anteroom_model::ErrorCode;
use anteroom_policy::{
    Driver, NotRun, Policy, PolicyKind, Problem, Reporting, compile_for, none_run,
};
use serde_json::Value;

/// A policy as it was loaded.
#[derive(Debug)]
pub struct LoadedPolicy {
    /// The kind, as in `ClusterPolicy`.
    pub kind: PolicyKind,
    /// The policy's name, as `namespace/name` for a namespaced policy.
    pub name: String,
    /// The manifest's own name.
    pub(crate) bare_name: String,
    /// The policy is asked at admission too. One that is not is looked at all the same, as by Kyverno's command line.
    pub(crate) is_asked_at_admission: bool,
    /// The compiled policy, or why it did not compile.
    pub outcome: Result<Policy, Vec<Problem>>,
    /// The rules of a compiled policy that are not run, or all rules of a policy without any that are.
    pub not_run: Vec<NotRun>,
}

impl LoadedPolicy {
    /// From a manifest; `None` where it is no policy of a kind that is run. Rules that change what exists already are
    /// not run.
    pub fn new(manifest: &Value) -> Option<Self> {
        Self::compiled_for(manifest, Driver::ALL)
    }

    /// Compiles a policy with the rules that change existing objects: for a scenario [with
    /// targets](crate::Scenario::with_targets).
    pub fn with_targets(manifest: &Value) -> Option<Self> {
        let driver = Driver {
            targets: true,
            ..Driver::ALL
        };
        Self::compiled_for(manifest, driver)
    }

    fn compiled_for(manifest: &Value, driver: Driver) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &manifest["metadata"];
        let version = manifest["apiVersion"].as_str()?;
        let kind = PolicyKind::of_manifest(version, manifest["kind"].as_str()?)?;
        let bare_name = text(&metadata["name"]);
        let namespace = match (kind.is_namespaced(), text(&metadata["namespace"])) {
            (true, namespace) if namespace.is_empty() => "default".to_owned(),
            (true, namespace) => namespace,
            (false, _) => String::new(),
        };
        let mut manifest = Cow::Borrowed(manifest);
        let mut is_asked_at_admission = true;
        if kind.is_cel() && manifest["spec"]["evaluation"]["admission"]["enabled"] == false {
            is_asked_at_admission = false;
            manifest.to_mut()["spec"]["evaluation"]["admission"]["enabled"] = true.into();
        }
        let manifest = &*manifest;
        let outcome = compile_for(manifest, driver);
        Some(Self {
            name: match namespace.is_empty() {
                true => bare_name.clone(),
                false => format!("{namespace}/{bare_name}"),
            },
            bare_name,
            kind,
            is_asked_at_admission,
            not_run: match &outcome {
                Ok(policy) => policy.not_run().to_vec(),
                Err(problems) => none_run_but(problems, manifest, driver),
            },
            outcome,
        })
    }

    /// Returns the problems that keep it from being run at all; `None` where it compiles, or has only rules that are not run.
    pub fn problems(&self) -> Option<&[Problem]> {
        let problems = self.outcome.as_ref().err();
        problems
            .filter(|_| self.not_run.is_empty())
            .map(Vec::as_slice)
    }

    /// Returns why nothing of a policy of policies.kyverno.io is run, if that is only since it judges other things than
    /// requests, or changes what exists already.
    pub(crate) fn is_of_another_payload(&self) -> Option<String> {
        let problems = self.outcome.as_ref().err().filter(|_| self.kind.is_cel())?;
        let is_other = |problem: &Problem| {
            problem.code == ErrorCode::POLICY_UNSUPPORTED
                && OTHER_WORK.iter().any(|path| problem.path == *path)
        };
        let problems = problems.iter().all(is_other).then_some(problems)?;
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        Some(problems.join("; "))
    }

    /// The policy's settings for reports; empty for a policy that does not compile.
    pub(crate) fn reporting(&self) -> Reporting {
        let policy = self.outcome.as_ref().ok();
        policy
            .map(|policy| policy.reporting().clone())
            .unwrap_or_default()
    }

    /// Returns whether it is meant by a name, with its namespace or without.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.bare_name == name
    }

    /// Returns whether the policy has this name, in any namespace.
    pub(crate) fn is_nearly_named(&self, name: &str) -> bool {
        name.rsplit('/').next() == Some(&*self.bare_name)
    }
}

/// Fields of a policy of policies.kyverno.io by which it is about something else than the object of a request.
const OTHER_WORK: &[&str] = &[
    "spec.evaluation.mode",
    "spec.evaluation.mutateExisting",
    "spec.targetMatchConditions",
    "spec.targetMatchConstraints",
];

/// The rules of a policy that has none that are run, unless something else is wrong with it.
fn none_run_but(problems: &[Problem], manifest: &Value, driver: Driver) -> Vec<NotRun> {
    let mut codes = problems.iter().map(|problem| problem.code);
    match codes.all(|code| code == ErrorCode::POLICY_UNSUPPORTED) {
        true => none_run(manifest, driver),
        false => Vec::new(),
    }
}
