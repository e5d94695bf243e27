//! The expressions of a `MutatingPolicy` on objects that exist: about its trigger first, and then about each object.

use std::sync::Arc;

use anteroom_cel::Machine;
use serde_json::Value;

use super::{Around, Conditions, Expressions, Failed, around, budget, evaluate, patches};
use crate::{
    evaluate::{interrupt::Stop, scope::Scope},
    ir::{cel::LocatedProgram, mutate_existing::CelTargets},
};

/// Returns whether the trigger meets the policy's conditions.
pub(in crate::evaluate) fn is_trigger(
    targets: &CelTargets,
    scope: &mut Scope<'_>,
) -> Result<bool, Stop> {
    let (cel, conditions) = (&targets.mutation.around, targets.of_trigger());
    if conditions.is_empty() {
        return Ok(true);
    }
    let around = around(cel, cel.read_before(), scope)?;
    let conditions = Conditions(conditions, cel.dialect);
    evaluate(&conditions, cel, scope, &around, &mut budget())
}

/// Returns the objects that an expression gives for the trigger.
pub(in crate::evaluate) fn given(
    targets: &CelTargets,
    expression: &LocatedProgram,
    scope: &mut Scope<'_>,
) -> Result<Value, Stop> {
    let cel = &targets.mutation.around;
    let around = around(cel, cel.reads(), scope)?;
    evaluate(&Giving(expression), cel, scope, &around, &mut budget())
}

/// Patches an object that exists, which is in this namespace; `None`: it does not meet the conditions.
/// `gone_through` counts the bytes that patches of the rule have gone through.
pub(in crate::evaluate) fn patched(
    targets: &CelTargets,
    before: &Value,
    namespace: Option<Arc<Value>>,
    gone_through: &mut usize,
    scope: &mut Scope<'_>,
) -> Result<Option<Value>, Stop> {
    let (mutation, cel) = (&targets.mutation, &targets.mutation.around);
    let around = Around {
        namespace,
        object: Some(before),
        is_of_existing: true,
        ..Around::default()
    };
    let mut budget = budget();
    let conditions = Conditions(targets.of_object(), cel.dialect);
    if !evaluate(&conditions, cel, scope, &around, &mut budget)? {
        return Ok(None);
    }
    let budget = &mut budget;
    patches::all_patched(mutation, before, &around, budget, gone_through, scope).map(Some)
}

/// The expression that gives objects.
struct Giving<'p>(&'p LocatedProgram);

impl Expressions for Giving<'_> {
    type Result = Value;

    fn evaluate<'v>(&'v self, machine: &mut Machine<'v>) -> Result<Value, Failed<'v>> {
        let LocatedProgram { place, program } = self.0;
        machine.json(program).map_err(|error| (&**place, error))
    }
}
