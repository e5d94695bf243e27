//! Evaluation of `webhookConfiguration.matchConditions`.

use anteroom_cel::{EvalError, Machine, Program};

use super::{cel, error::RuleError, report::RuleOutcome};
use crate::ir::{
    AdmissionRequest, FailurePolicy, Policy, Rule,
    matching::{Matched, Surroundings},
};

/// The answer of a policy's `matchConditions` to one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Conditions {
    /// All are true, or there are none.
    Met,
    /// A condition is false, or a namespaced policy is not about the request's namespace: no rule is evaluated.
    NotMet,
    /// No condition is false, and one failed with this error: the policy's `failurePolicy` decides.
    Failed(RuleError),
}

impl Policy {
    /// Returns whether it has `matchConditions`.
    pub fn has_conditions(&self) -> bool {
        !self.settings.match_conditions.is_empty()
    }

    /// Evaluates the policy's `matchConditions`, once for all its rules. As at an API server, a false condition
    /// decides, whatever errors the other conditions have.
    pub fn conditions(&self, request: &AdmissionRequest) -> Conditions {
        if !self.has_conditions() {
            return Conditions::Met;
        }
        let within = |namespace| request.object_namespace() == namespace;
        if !self.namespace().is_none_or(within) {
            return Conditions::NotMet;
        }
        let mut failed = None;
        for (index, program) in self.settings.match_conditions.iter().enumerate() {
            match is_met(program, request) {
                Ok(true) => {}
                Ok(false) => return Conditions::NotMet,
                Err(source) => failed = failed.or(Some((index, source))),
            }
        }
        failed.map_or(Conditions::Met, |(index, source)| {
            Conditions::Failed(RuleError::Cel {
                place: format!("spec.webhookConfiguration.matchConditions[{index}].expression"),
                source,
            })
        })
    }
}

/// The outcome of a rule whose policy's conditions decide already; `None`: the rule is to be evaluated. A rule that
/// certainly does not match the request has no error of its policy's conditions.
pub(super) fn outcome(
    policy: &Policy,
    rule: &Rule,
    request: &AdmissionRequest,
) -> Option<RuleOutcome> {
    match policy.conditions(request) {
        Conditions::Met => None,
        Conditions::NotMet => Some(RuleOutcome::NotMatched),
        Conditions::Failed(error) => {
            let matched = rule.matches.matches(request, &Surroundings::default());
            // Otherwise a large object would get past the policy.
            let is_ignored = policy.failure_policy() == FailurePolicy::Ignore
                && !error.is_caused_by_request(false, request.is_large());
            Some(match is_ignored || matched == Matched::No {
                true => RuleOutcome::NotMatched,
                false => RuleOutcome::Error(error),
            })
        }
    }
}

fn is_met(program: &Program, request: &AdmissionRequest) -> Result<bool, EvalError> {
    // As at an API server, nothing is known of the namespace.
    let mut machine = Machine::new(request.cel_roots(), &[], cel::budget());
    cel::spend(&mut machine, |machine| machine.truth(program))
}
