//! Exceptions that a request may fall under.

use anteroom_functions::pod_security::{Pod, PodSecurity, Violation};

use super::{
    conditions, error::RuleError, interrupt::Stop, report::RuleOutcome, scope::Scope, surroundings,
};
use crate::ir::{
    PolicyException, Rule,
    matching::Surroundings,
    rule::{Check, Validation, Work},
};

/// Those that hold for one state of the object.
#[derive(Clone, Debug, Default)]
pub(super) struct AppliedExceptions<'a>(Vec<&'a PolicyException>);

impl<'a> AppliedExceptions<'a> {
    /// The rule is not applied at all. One that judges by a standard is, but for some controls, where these
    /// are about nothing else.
    pub(super) fn is_whole(&self, rule: &Rule) -> bool {
        let mut all = self.0.iter();
        all.any(|exception| !is_standard(rule) || exception.controls.is_empty())
    }

    /// Removes the violations of a standard that the exceptions allow.
    pub(super) fn remaining_violations(
        &self,
        security: &PodSecurity,
        pod: &Pod<'_>,
        violations: &mut Vec<Violation>,
    ) {
        let controls = self.0.iter().flat_map(|exception| &exception.controls);
        security.exclude(controls, pod, violations);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|each| each.name().to_owned()).collect()
    }

    /// Returns the outcome of a rule that the exceptions skip.
    pub(super) fn outcome(&self) -> RuleOutcome {
        let names = self.names().join(", ");
        RuleOutcome::Skipped {
            reason: format!("it is excepted by PolicyException {names}"),
        }
    }
}

/// Returns whether the rule judges by a Pod Security Standard.
pub(super) fn is_standard(rule: &Rule) -> bool {
    matches!(
        &rule.work,
        Work::Validate(Validation::Whole(Check::PodSecurity(_)))
    )
}

/// Those of `all`, which are about the rule, that hold for the request.
///
/// One whose conditions cannot be evaluated does not hold. What is not known of the cluster is an error of
/// the rule, since the exception may hold.
pub(super) fn holding<'a>(
    all: &[&'a PolicyException],
    rule: &Rule,
    scope: &mut Scope<'_>,
    known: &mut Surroundings,
) -> Result<AppliedExceptions<'a>, Stop> {
    let (mut found, mut stop) = (AppliedExceptions::default(), None);
    for exception in all {
        match holds(exception, scope, known) {
            Ok(true) => found.0.push(exception),
            Ok(false) => {}
            Err(error) => stop = stop.or(Some(error)),
        }
    }
    match stop {
        Some(stop) if !found.is_whole(rule) => Err(stop),
        _ => Ok(found),
    }
}

fn holds(
    exception: &PolicyException,
    scope: &mut Scope<'_>,
    known: &mut Surroundings,
) -> Result<bool, Stop> {
    if !surroundings::matches(&exception.matches, scope.request, scope.facts, known)? {
        return Ok(false);
    }
    let Some(conditions) = &exception.conditions else {
        return Ok(true);
    };
    let place = format_args!("PolicyException {} conditions", exception.name);
    match conditions::evaluate(conditions, &place, scope) {
        Ok(verdict) => Ok(verdict.met),
        Err(Stop::Error(error)) if matches!(*error, RuleError::Variable { .. }) => Ok(false),
        Err(stop) => Err(stop),
    }
}
