//! `PolicyException`: rules that do not apply to some requests.

use anteroom_functions::{pod_security::Exclusion, wildcard};

use super::{Policy, Rule, conditions::Conditions, matching::Matches};

/// A compiled `PolicyException` of kyverno.io.
#[derive(Debug)]
pub struct PolicyException {
    pub(crate) name: String,
    pub(crate) matches: Matches,
    pub(crate) covers: Vec<Covered>,
    /// Evaluated in the context of the rule.
    pub(crate) conditions: Option<Conditions>,
    /// The controls that a `podSecurity` rule leaves out; empty: all of the rule.
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
    /// Its name, with its namespace before it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The policies that it is about: `name`, or `namespace/name` of a `Policy`.
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        self.covers.iter().map(|covered| &*covered.policy)
    }

    /// Returns whether it names this rule, whatever the request.
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

    /// Returns whether it also holds for scans of objects that exist (`spec.background`).
    pub fn background(&self) -> bool {
        self.background
    }
}
