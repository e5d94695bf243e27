//! `PolicyException`: rules that do not apply to some requests.

use serde_json::Value;

use crate::{
    Driver, Policy, Problem, Reference, RequestParts, Rule, compile, matching::Match,
    pod_security::Exclusion, policy::Conditions, reads, wildcard,
};

/// A compiled `PolicyException` of kyverno.io.
#[derive(Debug)]
pub struct PolicyException {
    pub(crate) name: String,
    pub(crate) matches: Match,
    pub(crate) covers: Vec<Covered>,
    /// Evaluated in the context of the rule.
    pub(crate) conditions: Option<Conditions>,
    /// Of a rule of `podSecurity`, no more than this is let pass.
    pub(crate) controls: Vec<Exclusion>,
    pub(crate) background: bool,
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
    /// Every problem. What does not compile excepts nothing.
    pub fn compile(manifest: &Value, driver: Driver) -> Result<Self, Vec<Problem>> {
        compile::exception(manifest, driver)
    }

    /// Its name, with its namespace before it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The policies that it is about: `name`, or `namespace/name` of a `Policy`.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        self.covers.iter().map(|covered| &*covered.policy)
    }

    /// Whether it is about this rule, whatever the request.
    pub fn is_about(&self, policy: &Policy, rule: &Rule) -> bool {
        let is_policy = |name: &str| match policy.namespace() {
            None => name == policy.name(),
            Some(namespace) => name.split_once('/') == Some((namespace, policy.name())),
        };
        self.covers.iter().any(|covered| {
            let mut rules = covered.rules.iter();
            is_policy(&covered.policy) && rules.any(|own| wildcard::matches(own, rule.name()))
        })
    }

    /// Whether it also holds where what exists already is judged (`spec.background`).
    pub fn background(&self) -> bool {
        self.background
    }

    /// What has to be kept for it to be decided whether it holds.
    pub fn references(&self) -> impl Iterator<Item = Reference> {
        reads::surroundings(self.matches.asks_labels(), self.matches.asks_roles())
    }

    /// What it can read of a request.
    pub fn parts(&self) -> RequestParts {
        RequestParts::of_exception(self)
    }
}
