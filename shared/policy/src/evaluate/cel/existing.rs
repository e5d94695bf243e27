//! The expressions of a `MutatingPolicy` on objects that exist: about its trigger first, and then about each object.

use std::sync::Arc;

use anteroom_cel::Machine;
use serde_json::Value;

use super::{
    Conditions, Expressions, Failed, RootValues, ask_roots, budget, evaluate,
    patches::PatchedObject,
};
use crate::{
    evaluate::{interrupt::Stop, scope::Scope},
    ir::{cel::LocatedProgram, mutate_existing::CelTargets},
};

/// Returns whether the trigger meets the policy's conditions.
pub(in crate::evaluate) fn is_trigger(
    targets: &CelTargets,
    scope: &mut Scope<'_>,
) -> Result<bool, Stop> {
    let (cel, conditions) = (&targets.mutation.shared_cel, targets.of_trigger());
    if conditions.is_empty() {
        return Ok(true);
    }
    let root_values = ask_roots(cel, cel.read_before(), scope)?;
    let conditions = Conditions(conditions, cel.dialect);
    evaluate(&conditions, cel, scope, &root_values, &mut budget())
}

/// Returns the objects to change, as an expression computes them for the trigger.
pub(in crate::evaluate) fn given(
    targets: &CelTargets,
    expression: &LocatedProgram,
    scope: &mut Scope<'_>,
) -> Result<Value, Stop> {
    let cel = &targets.mutation.shared_cel;
    let root_values = ask_roots(cel, cel.reads(), scope)?;
    evaluate(
        &ObjectsExpression(expression),
        cel,
        scope,
        &root_values,
        &mut budget(),
    )
}

/// Patches an existing object, whose namespace is `namespace`; `None`: the object does not meet the conditions.
/// `gone_through` counts the bytes that patches of the rule have gone through.
pub(in crate::evaluate) fn patched(
    targets: &CelTargets,
    before: &Value,
    namespace: Option<Arc<Value>>,
    gone_through: &mut usize,
    scope: &mut Scope<'_>,
) -> Result<Option<Value>, Stop> {
    let (mutation, cel) = (&targets.mutation, &targets.mutation.shared_cel);
    let root_values = RootValues {
        namespace,
        object: Some(before),
        is_of_existing: true,
        ..RootValues::default()
    };
    let mut budget = budget();
    let mut patching = PatchedObject::of(Arc::new(before.clone()), cel.variables.len());
    let conditions = Conditions(targets.of_object(), cel.dialect);
    if !patching.evaluate(conditions, cel, scope, &root_values, &mut budget)? {
        return Ok(None);
    }
    patching.patch(mutation, &root_values, &mut budget, gone_through, scope)?;
    Ok(Some(patching.into_object()))
}

/// An expression that returns the objects to change.
struct ObjectsExpression<'p>(&'p LocatedProgram);

impl Expressions for ObjectsExpression<'_> {
    type Result = Value;

    fn evaluate<'v>(&'v self, machine: &mut Machine<'v>) -> Result<Value, Failed<'v>> {
        let LocatedProgram { path, program } = self.0;
        machine.json(program).map_err(|error| (&**path, error))
    }
}
