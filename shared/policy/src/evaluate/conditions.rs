//! Conditions, one after the other and no further than needed.

use std::fmt::Display;

use super::{
    interrupt::{Interrupt, Stop},
    scope::Scope,
};
use crate::ir::{
    conditions::{Condition, Conditions},
    template::{Resolve, Template},
};

/// The number of further conditions that are evaluated while one condition waits for a fact. The facts that they ask
/// for may turn out not to be needed.
const LOOK_AHEAD_MAX: usize = 4;

/// The verdict of conditions, with the messages of the conditions that led to the verdict.
pub(super) struct Verdict<'r> {
    pub(super) met: bool,
    pub(super) messages: Vec<&'r Template>,
}

/// The first condition of `any` that is met, and the first of `all` that is not, end the search.
/// `place` is the field, for errors.
pub(super) fn evaluate<'r>(
    conditions: &'r Conditions,
    place: &dyn Display,
    scope: &mut Scope<'_>,
) -> Result<Verdict<'r>, Stop> {
    // The messages of met conditions, and of unmet conditions.
    let mut messages = (Vec::new(), Vec::new());
    let mut note = |condition: &'r Condition, met: bool| {
        let list = if met {
            &mut messages.0
        } else {
            &mut messages.1
        };
        list.extend(&condition.message);
    };
    let any = conditions.any.as_deref();
    let mut any_met = any.is_none();
    for (at, condition) in any.iter().copied().flatten().enumerate() {
        let met = holds(condition, scope, || format!("{place}.any[{at}]"));
        any_met = met.inspect_err(|stop| {
            let rest = any.iter().copied().flatten().skip(at + 1);
            look_ahead(stop, rest.chain(&conditions.all), scope);
        })?;
        note(condition, any_met);
        if any_met {
            break;
        }
    }
    let mut all_met = true;
    for (at, condition) in conditions.all.iter().enumerate() {
        let met = holds(condition, scope, || format!("{place}.all[{at}]"));
        all_met =
            met.inspect_err(|stop| look_ahead(stop, conditions.all[at + 1..].iter(), scope))?;
        note(condition, all_met);
        if !all_met {
            break;
        }
    }
    let met = any_met && all_met;
    Ok(Verdict {
        met,
        messages: if met { messages.0 } else { messages.1 },
    })
}

/// Evaluates further conditions while one waits, so that their questions travel with its own. They ask only for
/// subqueries: a whole fact travels only if it is certainly needed.
fn look_ahead<'c>(stop: &Stop, after: impl Iterator<Item = &'c Condition>, scope: &mut Scope<'_>) {
    if !matches!(stop, Stop::Pending) {
        return;
    }
    let before = std::mem::replace(&mut scope.facts.looks_ahead, true);
    for condition in after.take(LOOK_AHEAD_MAX) {
        let _ = holds(condition, scope, String::new);
    }
    scope.facts.looks_ahead = before;
}

/// Both sides are resolved before either may wait, so that their facts are asked for together. If both
/// fail, the key's error is reported, whichever is known first.
fn holds(
    condition: &Condition,
    scope: &mut Scope<'_>,
    place: impl Fn() -> String,
) -> Result<bool, Stop> {
    if let Some(met) = pushed_down_verdict(condition, scope)? {
        return Ok(met);
    }
    let key = condition.key.value(scope);
    if let Err(Interrupt::Pending) = key {
        let _ = condition.value.value(scope);
        return Err(Stop::Pending);
    }
    let stop = |interrupt: Interrupt, side: &str| {
        let error = interrupt.into_error(|| format!("{}.{side}", place()));
        error.map_or(Stop::Pending, |error| Stop::Error(Box::new(error)))
    };
    let key = key.map_err(|interrupt| stop(interrupt, "key"))?;
    let value = condition.value.value(scope);
    let value = value.map_err(|interrupt| stop(interrupt, "value"))?;
    Ok(condition.operator.holds(&key, &value))
}

/// Returns the verdict of a condition, if one operand is a fact in which a replica can look for the other operand.
fn pushed_down_verdict(condition: &Condition, scope: &mut Scope<'_>) -> Result<Option<bool>, Stop> {
    let sides = [
        (&condition.value, &condition.key),
        (&condition.key, &condition.value),
    ];
    for (side, other) in sides {
        let Some(variable) = side.lone_variable() else {
            continue;
        };
        let form = variable.form(scope.is_delete());
        match scope.asked_verdict(form, other) {
            Ok(None) => {}
            Ok(Some(met)) => return Ok(Some(met)),
            // Only for want of a fact: an error of either side is found where both are evaluated.
            Err(_) => return Err(Stop::Pending),
        }
    }
    Ok(None)
}
