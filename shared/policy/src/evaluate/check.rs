//! Checks an object or an element by a rule's pattern, conditions or Pod security levels.

use std::{fmt::Display, sync::Arc};

use anteroom_functions::{
    pattern::{self, Difference, Mismatch},
    pod_security::{Pod, PodSecurity},
};
use serde_json::Value;

use super::{
    cel,
    conditions::{self, Verdict},
    exceptions::AppliedExceptions,
    interrupt::Stop,
    message,
    report::RuleOutcome,
    scope::Scope,
};
use crate::ir::{Operation, Rule, conditions::Conditions, rule::Check, template::ValueTemplate};

/// Judges an object. `element` is the value that patterns are about, if it is not the object itself; `place` is the
/// path of the check, for errors. `None` while a fact is missing.
pub(super) fn judge(
    rule: &Rule,
    check: &Check,
    element: Option<&Value>,
    place: &dyn Display,
    scope: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    let patterns = match check {
        Check::Deny(deny) => {
            return judge_deny(rule, deny, &format_args!("{place}.deny.conditions"), scope);
        }
        Check::Cel(rule) => return cel::judge(rule, scope),
        Check::PodSecurity(security) => {
            return Some(judge_security(
                rule,
                security,
                &AppliedExceptions::default(),
                scope,
            ));
        }
        Check::Pattern(pattern) => std::slice::from_ref(pattern),
        Check::AnyPattern(patterns) => patterns,
    };
    let object = match element {
        Some(element) => element,
        None if scope.request.operation() == Operation::Delete => {
            let reason = "a pattern says nothing of a deletion".to_owned();
            return Some(RuleOutcome::Skipped { reason });
        }
        None => scope.request.matched_object(),
    };
    let is_any = matches!(check, Check::AnyPattern(_));
    let patterns = match resolved(patterns, is_any, place, scope) {
        Ok(patterns) => patterns,
        Err(stop) => return stop.outcome(),
    };
    match (is_any, &*patterns) {
        (false, [pattern]) => judge_pattern(rule, pattern, object, scope),
        _ => judge_any(rule, &patterns, object, scope),
    }
}

/// Judges a Pod by a standard, without the controls that exceptions leave out.
pub(super) fn judge_security(
    rule: &Rule,
    security: &PodSecurity,
    excepted: &AppliedExceptions<'_>,
    scope: &Scope<'_>,
) -> RuleOutcome {
    let skipped = |reason: &str| RuleOutcome::Skipped {
        reason: reason.to_owned(),
    };
    if scope.request.operation() == Operation::Delete {
        return skipped("a standard says nothing of a deletion");
    }
    let Some(pod) = Pod::of(scope.request.matched_object()) else {
        return skipped("the object makes no Pods");
    };
    let mut violations = security.violations(&pod);
    if violations.is_empty() {
        return RuleOutcome::Pass;
    }
    excepted.remaining_violations(security, &pod, &mut violations);
    match &*violations {
        [] => excepted.outcome(),
        violations => RuleOutcome::Fail {
            message: security.message(&rule.name, violations),
        },
    }
}

/// Judges by the conditions of `deny`.
fn judge_deny(
    rule: &Rule,
    deny: &Conditions,
    place: &dyn Display,
    scope: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    match conditions::evaluate(deny, place, scope) {
        Ok(Verdict { met: false, .. }) => Some(RuleOutcome::Pass),
        Ok(Verdict { messages, .. }) => Some(RuleOutcome::Fail {
            message: message::denial(rule, &messages, scope)?,
        }),
        Err(stop) => stop.outcome(),
    }
}

fn judge_pattern(
    rule: &Rule,
    pattern: &Value,
    object: &Value,
    scope: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    Some(match pattern::matches(pattern, object) {
        Ok(()) => RuleOutcome::Pass,
        Err(Mismatch::Skip { reason, .. }) => RuleOutcome::Skipped { reason },
        Err(Mismatch::Differs(difference)) => RuleOutcome::Fail {
            message: message::difference(rule, &difference, scope)?,
        },
    })
}

/// Judges by several patterns. The first one that matches decides; if none is about the object, none is violated.
fn judge_any(
    rule: &Rule,
    patterns: &[Arc<Value>],
    object: &Value,
    scope: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    let (mut differences, mut skipped): (Vec<(usize, Difference)>, _) = (Vec::new(), None);
    for (at, pattern) in patterns.iter().enumerate() {
        match pattern::matches(pattern, object) {
            Ok(()) => return Some(RuleOutcome::Pass),
            Err(Mismatch::Skip { reason, .. }) => skipped = Some(reason),
            Err(Mismatch::Differs(difference)) => differences.push((at, difference)),
        }
    }
    Some(match (skipped, &*differences) {
        (Some(reason), []) => RuleOutcome::Skipped { reason },
        _ => RuleOutcome::Fail {
            message: message::differences(rule, &differences, scope)?,
        },
    })
}

/// The patterns with their variables in place.
fn resolved(
    patterns: &[ValueTemplate],
    is_any: bool,
    place: &dyn Display,
    scope: &mut Scope<'_>,
) -> Result<Vec<Arc<Value>>, Stop> {
    let one = |(at, pattern): (usize, &ValueTemplate)| {
        pattern.value(scope).map_err(|interrupt| {
            let place = match is_any {
                true => format!("{place}.anyPattern[{at}]"),
                false => format!("{place}.pattern"),
            };
            let error = interrupt.into_error(|| place);
            error.map_or(Stop::Pending, |error| Stop::Error(Box::new(error)))
        })
    };
    patterns.iter().enumerate().map(one).collect()
}
