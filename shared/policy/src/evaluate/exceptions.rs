//! Exceptions that a request may fall under.

use anteroom_cel::{Machine, Roots};
use anteroom_functions::pod_security::{Pod, PodSecurity, Violation};
use serde_json::Value;

use super::{
    cel, conditions, error::RuleError, interrupt::Stop, report::RuleOutcome, scope::Scope,
    surroundings,
};
use crate::ir::{
    PolicyException, Rule,
    cel::CelDialect,
    exception::CelException,
    matching::Surroundings,
    rule::{Check, Validation, Work},
};

/// Exceptions that hold for one state of the object.
#[derive(Clone, Debug, Default)]
pub(super) struct AppliedExceptions<'a>(Vec<&'a PolicyException>);

impl<'a> AppliedExceptions<'a> {
    /// Returns whether the exceptions exempt the object from the whole rule. A rule that judges by a standard is
    /// applied if each exception exempts only from some controls.
    pub(super) fn is_whole(&self, rule: &Rule) -> bool {
        let mut all = self.0.iter();
        all.any(|exception| match &exception.in_cel {
            Some(in_cel) => in_cel.is_whole(),
            None => !is_standard(rule) || exception.controls.is_empty(),
        })
    }

    /// The images and the values that the exceptions allow to expressions.
    pub(super) fn allowed(&self) -> (Vec<Value>, Vec<Value>) {
        let all = self.0.iter().filter_map(|each| each.in_cel.as_ref());
        let images = all.clone().flat_map(|each| &each.allowed_images);
        let values = all.flat_map(|each| &each.allowed_values);
        (images.cloned().collect(), values.cloned().collect())
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
        let in_cel = self.0.iter().filter_map(|each| each.in_cel.as_ref());
        let told = in_cel
            .filter(|each| each.is_whole())
            .max_by_key(|each| (each.priority, each.passes));
        if told.is_some_and(|each| each.passes) {
            return RuleOutcome::Pass;
        }
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

/// Returns the exceptions that hold for the request. `all` are the exceptions about the rule.
///
/// An exception whose conditions cannot be evaluated does not hold. A fact of the cluster that is unknown is an error
/// of the rule, since the exception may hold.
pub(super) fn holding<'a>(
    all: &[&'a PolicyException],
    rule: &Rule,
    scope: &mut Scope<'_>,
    known: &mut Surroundings,
) -> Result<AppliedExceptions<'a>, Stop> {
    let (mut found, mut stop) = (AppliedExceptions::default(), None);
    for exception in all {
        match holds(exception, rule, scope, known) {
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

/// An object that exists.
#[derive(Clone, Copy)]
pub(super) struct Existing<'o> {
    pub(super) object: &'o Value,
    /// The object's namespace; `None`: no condition reads a namespace, or the object has none.
    pub(super) namespace: Option<&'o Value>,
}

/// Returns the exceptions that hold for an existing object that a policy in CEL changes. Their conditions are
/// about that object, rather than about its trigger.
pub(super) fn holding_for<'a>(
    all: &[&'a PolicyException],
    rule: &Rule,
    existing: Existing<'_>,
    scope: &Scope<'_>,
) -> Result<AppliedExceptions<'a>, Stop> {
    let (mut found, mut stop) = (AppliedExceptions::default(), None);
    for exception in all {
        let Some(in_cel) = &exception.in_cel else {
            continue;
        };
        let roots = Roots {
            namespace: existing.namespace,
            object: Some(existing.object),
            old_object: None,
            ..scope.request.cel_roots()
        };
        match holds_in_cel(exception, in_cel, roots, scope) {
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
    rule: &Rule,
    scope: &mut Scope<'_>,
    known: &mut Surroundings,
) -> Result<bool, Stop> {
    if !surroundings::matches(&exception.matches, scope.request, scope.facts, known)? {
        return Ok(false);
    }
    if let Some(in_cel) = &exception.in_cel {
        return match holds_for_request(exception, in_cel, scope) {
            Err(Stop::Error(error)) if passes_over(rule, &error) => Ok(false),
            held => held,
        };
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

/// Returns whether an exception whose conditions fail with this error does not hold. For a `ValidatingPolicy` that
/// ignores failures no such exception holds, as in Kyverno: a broken exception admits nothing that the policy denies.
fn passes_over(rule: &Rule, error: &RuleError) -> bool {
    let ignores = rule.cel().map(|cel| cel.dialect)
        == Some(CelDialect::Policy {
            skips_failed_conditions: true,
        });
    ignores && matches!(rule.work, Work::Validate(_)) && matches!(error, RuleError::Cel { .. })
}

fn holds_for_request(
    exception: &PolicyException,
    in_cel: &CelException,
    scope: &mut Scope<'_>,
) -> Result<bool, Stop> {
    let request = scope.request;
    let namespace = request.object_namespace();
    let reads_namespace =
        in_cel.reads_namespace() && !namespace.is_empty() && !is_over(in_cel, scope);
    let namespace = reads_namespace.then(|| cel::namespace_of(namespace, scope.facts));
    let namespace = namespace.transpose()?;
    let roots = Roots {
        namespace: namespace.as_deref(),
        absent_is_empty: true,
        ..request.cel_roots()
    };
    holds_in_cel(exception, in_cel, roots, scope)
}

/// Returns whether it has expired. Where the time is not known, it may have.
fn is_over(in_cel: &CelException, scope: &Scope<'_>) -> bool {
    let now = scope.run.arrival.map(|arrival| arrival.now_ns);
    let expires = in_cel.expires_ns;
    expires.is_some_and(|expires| now.is_none_or(|now| now >= expires))
}

/// Returns whether the exception holds. A condition that fails is an error of the policy, unless another exception
/// exempts it.
fn holds_in_cel(
    exception: &PolicyException,
    in_cel: &CelException,
    roots: Roots<'_>,
    scope: &Scope<'_>,
) -> Result<bool, Stop> {
    if is_over(in_cel, scope) {
        return Ok(false);
    }
    let machine = Machine::new(roots, &[], cel::budget());
    let mut machine = match scope.run.arrival {
        Some(arrival) => machine.with_arrival(arrival),
        None => machine,
    };
    let mut failed = None;
    for condition in &in_cel.conditions {
        let truth = cel::spend(&mut machine, |machine| machine.truth(&condition.program));
        scope.run.note_arrival(&machine);
        match truth {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(source) => {
                let place = format!("PolicyException {} {}", exception.name, condition.path);
                failed = failed.or(Some(RuleError::Cel { place, source }));
            }
        }
    }
    failed.map_or(Ok(true), |error| Err(Stop::Error(Box::new(error))))
}
