//! `PolicyException`: rules that do not apply to some requests.

use anteroom_functions::{pod_security::Exclusion, wildcard};

use serde_json::Value;

use super::{Policy, Rule, cel::LocatedProgram, conditions::Conditions, matching::Matches};

/// A compiled `PolicyException`, of kyverno.io or policies.kyverno.io.
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
    /// The part that only exceptions of policies.kyverno.io have.
    pub(crate) in_cel: Option<CelException>,
}

/// The part of a `PolicyException` of policies.kyverno.io.
#[derive(Debug, Default)]
pub(crate) struct CelException {
    /// The conditions, which must all be true.
    pub(crate) conditions: Vec<LocatedProgram>,
    /// `images`: seen by expressions as `exceptions.allowedImages`. Where these or the values are given, the policy
    /// is evaluated all the same.
    pub(crate) allowed_images: Vec<Value>,
    /// `allowedValues`: seen by expressions as `exceptions.allowedValues`.
    pub(crate) allowed_values: Vec<Value>,
    /// Rules that the exception exempts are reported as passed, not as skipped (`reportResult: pass`).
    pub(crate) passes: bool,
    /// The priority: of several exceptions that exempt a policy, the report names the one with the highest priority.
    pub(crate) priority: i64,
    /// The time of its expiry, in nanoseconds since 1970.
    pub(crate) expires_ns: Option<i128>,
}

impl CelException {
    /// Returns whether it exempts the whole policy.
    pub(crate) fn is_whole(&self) -> bool {
        self.allowed_images.is_empty() && self.allowed_values.is_empty()
    }

    /// Returns whether a condition reads the namespace of the object.
    pub(crate) fn reads_namespace(&self) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|condition| condition.program.reads_namespace())
    }
}

/// The rules of one policy that an exception covers.
#[derive(Debug)]
pub(crate) struct Covered {
    /// Its [full name](Policy::full_name).
    pub(crate) policy: String,
    /// Names of rules, with wildcards. The name of a rule does not include rules that are derived from it.
    pub(crate) rules: Vec<String>,
}

impl PolicyException {
    /// The name of the exception, as `NAMESPACE/NAME`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The policies that it is about, by their [full names](Policy::full_name).
    pub fn policies(&self) -> impl Iterator<Item = &str> {
        self.covers.iter().map(|covered| &*covered.policy)
    }

    /// Returns whether the exception names this rule. The request does not matter here.
    pub fn is_about(&self, policy: &Policy, rule: &Rule) -> bool {
        let own = policy.full_name();
        let is_policy = |name: &str| name == own;
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
