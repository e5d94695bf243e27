//! `webhookConfiguration.matchConditions`, where no API server has asked them before.

use anteroom_cel::{Budget, EvalError, Machine, Roots};

use super::{RuleError, RuleOutcome};
use crate::{AdmissionRequest, FailurePolicy, MatchCondition, Policy};

/// What becomes of each rule of the policy; `None`: all conditions are met. As with an API server one that is
/// false decides, whatever error another comes to; an error is for the failure policy.
pub(super) fn outcome(policy: &Policy, request: &AdmissionRequest) -> Option<RuleOutcome> {
    let mut failed = None;
    for (at, condition) in policy.match_conditions.iter().enumerate() {
        match is_met(condition, request) {
            Ok(true) => {}
            Ok(false) => return Some(RuleOutcome::NotMatched),
            Err(source) => failed = failed.or(Some((at, source))),
        }
    }
    let (at, source) = failed?;
    Some(match policy.failure_policy {
        FailurePolicy::Ignore => RuleOutcome::NotMatched,
        FailurePolicy::Fail => RuleOutcome::Error(RuleError::Cel {
            place: format!("spec.webhookConfiguration.matchConditions[{at}].expression"),
            source,
        }),
    })
}

fn is_met(condition: &MatchCondition, request: &AdmissionRequest) -> Result<bool, EvalError> {
    let Some(program) = &condition.program else {
        let message = "only an API server can evaluate it".to_owned();
        return Err(EvalError::Refused(message));
    };
    // As at an API server, nothing is known of the namespace.
    let roots = Roots {
        object: request.object(),
        old_object: request.old_object(),
        request: Some(request.value()),
        ..Roots::default()
    };
    Machine::new(roots, &[], Budget::default()).truth(program)
}
