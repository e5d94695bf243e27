//! `PolicyException`: rules that do not apply to some requests.

use serde_json::Value;

use crate::{
    AdmissionRequest, Driver, Policy, Problem, Rule, compile,
    matching::{Match, Matched, Surroundings},
    wildcard,
};

/// A compiled `PolicyException` of kyverno.io.
#[derive(Debug)]
pub struct PolicyException {
    pub(crate) name: String,
    pub(crate) matches: Match,
    pub(crate) covers: Vec<Covered>,
}

/// Rules of one policy.
#[derive(Debug)]
pub(crate) struct Covered {
    /// `name`, or `namespace/name` of a `Policy`.
    pub(crate) policy: String,
    /// Names with wildcards; those of derived rules are not meant by the name of what they come from.
    pub(crate) rules: Vec<String>,
}

impl PolicyException {
    /// Compiles an exception of `v2` or an earlier version, for evaluations that are driven by `driver`.
    ///
    /// # Errors
    /// Every problem: an exception with conditions, or one that is about controls of `podSecurity`, is not
    /// evaluated (`POLICY_UNSUPPORTED`), and excepts nothing.
    pub fn compile(manifest: &Value, driver: Driver) -> Result<Self, Vec<Problem>> {
        compile::exception(manifest, driver)
    }

    /// Its name, with its namespace before it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether `rule` of `policy` speaks of the request, and is not to be applied to it.
    pub fn covers(&self, policy: &Policy, rule: &Rule, request: &AdmissionRequest) -> bool {
        let name = match policy.namespace() {
            Some(namespace) => format!("{namespace}/{}", policy.name()),
            None => policy.name().to_owned(),
        };
        let is_meant = |covered: &Covered| {
            let mut rules = covered.rules.iter();
            covered.policy == name && rules.any(|own| wildcard::matches(own, rule.name()))
        };
        self.covers.iter().any(is_meant)
            && self.matches.matches(request, &Surroundings::default()) == Matched::Yes
            && rule.matches.matches(request, &Surroundings::default()) == Matched::Yes
    }
}
