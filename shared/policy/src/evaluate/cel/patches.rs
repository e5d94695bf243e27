//! The patches of a `MutatingPolicy`.

use std::sync::Arc;

use anteroom_cel::{Budget, EvalError, Machine};
use anteroom_functions::{meter, operator};
use anteroom_jmespath::json_memory;
use anteroom_patch::{
    PatchError,
    apply::{self, Atomics, ObjectSchema},
    json,
};
use serde_json::{Map, Value};

use super::{
    Conditions, Expressions, Failed, RootValues, annotations_of, ask_roots, budget, definitions,
    evaluate, skipped,
};
use crate::{
    evaluate::{
        error::RuleError,
        interrupt::Stop,
        limits::{MUTATED_BYTES_MAX, VALUES_BYTES_MAX},
        report::RuleOutcome,
        scope::Scope,
    },
    ir::{
        Operation,
        cel::Cel,
        cel_mutation::{CelMutation, CelPatch, CelPatchKind},
    },
};

/// The fields of a Pod's metadata that a template has too.
const TEMPLATE_METADATA: [&str; 2] = ["labels", "annotations"];

/// Patches the object. `None` while a fact is waited for.
pub(in crate::evaluate) fn run(
    mutation: &CelMutation,
    scope: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    match patched(mutation, scope) {
        Ok(outcome) => Some(outcome),
        Err(stop) => stop.outcome(),
    }
}

fn patched(mutation: &CelMutation, scope: &mut Scope<'_>) -> Result<RuleOutcome, Stop> {
    if scope.request.operation() == Operation::Delete {
        return Ok(skipped("what is deleted is not changed"));
    }
    let cel = &mutation.shared_cel;
    let root_values = ask_roots(cel, cel.reads(), scope)?;
    let mut budget = budget();
    let request = scope.request;
    let before = request.shared_object();
    let mut patching = PatchedObject::of(Arc::clone(&before), cel.variables.len());
    let conditions = Conditions::of(cel);
    if !patching.evaluate(conditions, cel, scope, &root_values, &mut budget)? {
        return Ok(skipped("preconditions not met"));
    }
    patching.patch(mutation, &root_values, &mut budget, &mut 0, scope)?;
    let annotating = Annotating(mutation);
    scope.run.properties = patching.evaluate(annotating, cel, scope, &root_values, &mut budget)?;
    Ok(match patching.object == before {
        // As in Kyverno, where a patch that changes nothing was applied.
        true => RuleOutcome::Pass,
        false => RuleOutcome::Mutated {
            object: patching.into_object(),
        },
    })
}

/// Expressions, with the variables that they evaluate.
struct Noting<W>(W);

impl<W: Expressions> Expressions for Noting<W> {
    type Result = (W::Result, Vec<usize>);

    fn evaluate<'v>(&'v self, machine: &mut Machine<'v>) -> Result<Self::Result, Failed<'v>> {
        let result = self.0.evaluate(machine)?;
        Ok((result, machine.evaluated().collect()))
    }
}

/// An object on its way through the patches of a rule.
pub(super) struct PatchedObject {
    object: Arc<Value>,
    /// The object that each variable was first evaluated on: the variable keeps that value, as in Kyverno.
    pinned: Vec<Option<Arc<Value>>>,
}

impl PatchedObject {
    /// An object before its first patch.
    pub(super) fn of(object: Arc<Value>, variables: usize) -> Self {
        let pinned = vec![None; variables];
        Self { object, pinned }
    }

    /// The object as it is now.
    pub(super) fn into_object(self) -> Value {
        drop(self.pinned);
        Arc::unwrap_or_clone(self.object)
    }

    /// Evaluates expressions on the object as it is now, and pins the variables that were not evaluated before. `others`
    /// are the values of the other roots.
    pub(super) fn evaluate<W: Expressions>(
        &mut self,
        expressions: W,
        cel: &Cel,
        scope: &mut Scope<'_>,
        others: &RootValues<'_>,
        budget: &mut Budget,
    ) -> Result<W::Result, Stop> {
        let values = RootValues {
            object: Some(&*self.object).filter(|object| !object.is_null()),
            pinned: &self.pinned,
            ..others.clone()
        };
        let (found, evaluated) = evaluate(&Noting(expressions), cel, scope, &values, budget)?;
        for at in evaluated {
            if let Some(pin @ None) = self.pinned.get_mut(at) {
                *pin = Some(Arc::clone(&self.object));
            }
        }
        Ok(found)
    }

    /// Patches the object. `gone_through` counts the bytes that patches of the rule have gone through.
    pub(super) fn patch(
        &mut self,
        mutation: &CelMutation,
        root_values: &RootValues<'_>,
        budget: &mut Budget,
        gone_through: &mut usize,
        scope: &mut Scope<'_>,
    ) -> Result<(), Stop> {
        let cel = &mutation.shared_cel;
        meter::charge(operator::length(&self.object));
        let bytes = json_memory::copied_bytes(&self.object, u64::MAX).unwrap_or(u64::MAX);
        let bytes_max = bytes.saturating_add(VALUES_BYTES_MAX);
        for patch in &mutation.patches {
            let weight = anteroom_patch::weight(&self.object);
            *gone_through = gone_through.saturating_add(weight);
            meter::charge_bytes(weight);
            if *gone_through > MUTATED_BYTES_MAX {
                return Err(Stop::Error(Box::new(RuleError::TooMuchPatched)));
            }
            let made = self.evaluate(Patching(patch), cel, scope, root_values, budget)?;
            if let Some(made) = applied(mutation, patch, made, &self.object, scope)? {
                if json_memory::copied_bytes(&made, bytes_max).is_none() {
                    return Err(too_large(patch));
                }
                self.object = Arc::new(made);
            }
        }
        Ok(())
    }
}

/// The error of a patch that adds too much to the object.
fn too_large(patch: &CelPatch) -> Stop {
    Stop::Error(Box::new(RuleError::Patch {
        place: patch.path.clone(),
        source: PatchError::TooLarge,
    }))
}

/// Evaluates the expression of one patch.
struct Patching<'m>(&'m CelPatch);

impl Expressions for Patching<'_> {
    type Result = Value;

    fn evaluate<'v>(&'v self, machine: &mut Machine<'v>) -> Result<Value, Failed<'v>> {
        let CelPatch {
            path,
            program,
            kind,
        } = self.0;
        let made = match kind {
            CelPatchKind::Apply => machine
                .object(program)
                .map(|object| object.unwrap_or(Value::Null)),
            CelPatchKind::Json => machine.patches(program).map(|patches| {
                let operations = patches
                    .iter()
                    .map(anteroom_cel::JsonPatchOperation::to_json);
                operations.collect()
            }),
        };
        made.map_err(|error| (&**path, error))
    }
}

/// The audit annotations.
struct Annotating<'m>(&'m CelMutation);

impl Expressions for Annotating<'_> {
    type Result = Vec<(String, String)>;

    fn evaluate<'v>(&'v self, machine: &mut Machine<'v>) -> Result<Self::Result, Failed<'v>> {
        annotations_of(&self.0.shared_cel, machine)
    }
}

/// Returns the patched object; `None`: the patch changes nothing.
fn applied(
    mutation: &CelMutation,
    patch: &CelPatch,
    made: Value,
    object: &Value,
    scope: &mut Scope<'_>,
) -> Result<Option<Value>, Stop> {
    let result = match patch.kind {
        CelPatchKind::Apply if made.is_null() => return Ok(None),
        CelPatchKind::Apply => {
            let made = in_template(made, &mutation.template);
            let schema = definitions::schema_of(object, mutation, scope)?;
            schema.and_then(|schema| merge(mutation, &made, object, &schema))
        }
        CelPatchKind::Json => {
            let made = rebased(made, &mutation.template);
            let operated = json::Patch::parse(&made).and_then(|patch| {
                patch.apply_charged(object, json::Leniency::API_SERVER, &meter::charge_bytes)
            });
            match operated {
                // As in Kubernetes: a test that fails keeps the whole patch from being applied.
                Err(PatchError::TestFailed { .. }) => return Ok(None),
                Err(PatchError::TooLarge) => return Err(too_large(patch)),
                operated => operated.map_err(|error| error.to_string()),
            }
        }
    };
    let result = result.and_then(|made| match is_same_object(&made, object) {
        true => Ok(Some(made)),
        false => Err("the patch changes the object's apiVersion, kind or name".to_owned()),
    });
    result.map_err(|message| {
        Stop::Error(Box::new(RuleError::Cel {
            place: patch.path.clone(),
            source: EvalError::Refused(message),
        }))
    })
}

fn merge(
    mutation: &CelMutation,
    patch: &Value,
    object: &Value,
    schema: &ObjectSchema,
) -> Result<Value, String> {
    let atomics = match mutation.replaces_atomics {
        true => Atomics::Replaced,
        false => Atomics::Refused,
    };
    let charge = &meter::charge_bytes;
    apply::apply_charged(object, patch, schema, atomics, charge).map_err(|error| error.to_string())
}

/// Returns whether both are the same object. A changed name or kind makes a different object.
fn is_same_object(made: &Value, object: &Value) -> bool {
    let name = |of: &Value| of["metadata"]["name"].clone();
    let namespace = |of: &Value| of["metadata"]["namespace"].clone();
    made["apiVersion"] == object["apiVersion"]
        && made["kind"] == object["kind"]
        && name(made) == name(object)
        && namespace(made) == namespace(object)
}

/// A partial Pod as a part of the template.
fn in_template(patch: Value, template: &[String]) -> Value {
    let wrap = |inner, step: &String| Value::Object(Map::from_iter([(step.clone(), inner)]));
    template.iter().rev().fold(patch, wrap)
}

/// Translates operations on a Pod to operations on the template. Fields that a template does not have are changed in
/// the object itself.
fn rebased(mut operations: Value, template: &[String]) -> Value {
    if template.is_empty() {
        return operations;
    }
    let prefix: String = template.iter().map(|step| format!("/{step}")).collect();
    for operation in operations.as_array_mut().into_iter().flatten() {
        for field in ["path", "from"] {
            let path = operation.get(field).and_then(Value::as_str);
            if let Some(path) = path.filter(|path| is_of_template(path)) {
                operation[field] = format!("{prefix}{path}").into();
            }
        }
    }
    operations
}

fn is_of_template(path: &str) -> bool {
    let mut steps = path.split('/').skip(1);
    match (steps.next(), steps.next()) {
        (Some("spec"), _) => true,
        (Some("metadata"), Some(field)) => TEMPLATE_METADATA.contains(&field),
        _ => false,
    }
}
