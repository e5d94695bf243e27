//! The fields of a policy that hold for all its rules, compiled. Pure.

use anteroom_cel::Program;

use super::Policy;

/// The fields of a policy that hold for all its rules.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) failure_policy: FailurePolicy,
    pub(crate) timeout_seconds: Option<u32>,
    pub(crate) admission: bool,
    pub(crate) emit_warning: bool,
    pub(crate) background: bool,
    pub(crate) applies_one: bool,
    /// `webhookConfiguration.matchConditions`: if one is false, the policy does not judge a request.
    pub(crate) match_conditions: Vec<Program>,
    pub(crate) reporting: Reporting,
}

impl Policy {
    /// Returns the API server's decision when the webhook does not answer.
    pub fn failure_policy(&self) -> FailurePolicy {
        self.settings.failure_policy
    }

    /// Returns how many seconds the API server waits, 1 to 30; `None` where the manifest leaves it open.
    pub fn timeout_seconds(&self) -> Option<u32> {
        self.settings.timeout_seconds
    }

    /// Returns whether the policy is evaluated at admission (`spec.admission`).
    pub fn admission(&self) -> bool {
        self.settings.admission
    }

    /// Returns whether the user is warned of a violation in Audit (`spec.emitWarning`).
    pub fn emit_warning(&self) -> bool {
        self.settings.emit_warning
    }

    /// Returns whether the first rule of a kind that the object passes or violates decides alone
    /// (`applyRules: One`). The results of later rules do not count.
    pub fn applies_one(&self) -> bool {
        self.settings.applies_one
    }

    /// Returns whether `spec.background` is true, whether the policy is scanned or not.
    pub fn is_for_background(&self) -> bool {
        self.settings.background
    }

    /// Returns the fields of reports about its results.
    pub fn reporting(&self) -> &Reporting {
        &self.settings.reporting
    }
}

/// The API server's answer when the webhook does not answer, or when a rule cannot be evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// A failure refuses the request.
    Fail,
    /// A failure admits the request.
    Ignore,
}

/// The fields of reports that a policy's annotations give.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reporting {
    /// `policies.kyverno.io/category`: a group of policies.
    pub category: Option<String>,
    /// `policies.kyverno.io/severity`: one of `critical`, `high`, `medium`, `low`, `info`.
    pub severity: Option<&'static str>,
    /// `policies.kyverno.io/scored: "false"`: a violation is a warning.
    pub unscored: bool,
}

impl Reporting {
    /// Reads the severity from an annotation's value.
    pub(crate) fn severity_of(text: &str) -> Option<&'static str> {
        let known = ["critical", "high", "medium", "low", "info"];
        known.into_iter().find(|severity| *severity == text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::compile;

    #[test]
    fn each_switch_of_a_policy_is_as_its_manifest_has_it() {
        for at in 0..3 {
            let switches = [0, 1, 2].map(|other| at == other);
            let [admission, warns, background] = switches;
            let policy = compile(&json!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
                "spec": {
                    "admission": admission, "emitWarning": warns, "background": background,
                    "rules": [{
                        "name": "r", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
                        "validate": {"deny": {}},
                    }],
                },
            }))
            .unwrap();
            let found = [
                policy.admission(),
                policy.emit_warning(),
                policy.is_for_background(),
            ];
            assert_eq!(found, switches);
        }
    }
}
