//! Applies the patches of a rule to an object.

use std::{borrow::Cow, sync::Arc};

use anteroom_functions::{json::parsed_bytes_max, meter, operator, pattern, values};
use anteroom_jmespath::json_memory;
use anteroom_patch::{PatchError, Schema, anchors, json, merge};
use serde_json::{Map, Value};

use super::{
    conditions::{self, Verdict},
    error::RuleError,
    foreach,
    interrupt::{Interrupt, Stop},
    limits::{MUTATED_BYTES_MAX, VALUES_BYTES_MAX},
    report::RuleOutcome,
    scope::Scope,
};
use crate::ir::{
    Operation, VariableError, VariableErrorKind,
    mutation::{MutateEach, Mutation, Patch, PatchOperation},
    template::{Resolve, ValueTemplate},
};

/// Patches the object. `None` while a fact is waited for.
pub(super) fn run(mutation: &Mutation, scope: &mut Scope<'_>) -> Option<RuleOutcome> {
    if scope.request.operation() == Operation::Delete {
        let reason = "what is deleted is not changed".to_owned();
        return Some(RuleOutcome::Skipped { reason });
    }
    let before = scope.request.shared_object();
    let mut object = MutatedObject::new(Arc::clone(&before), 0, true);
    if let Err(stop) = patched(mutation, &mut object, scope) {
        return stop.outcome();
    }
    Some(match object.value == before {
        true => RuleOutcome::Skipped {
            reason: "no patches applied".to_owned(),
        },
        false => RuleOutcome::Mutated {
            object: Arc::unwrap_or_clone(object.value),
        },
    })
}

/// Patches an object that exists already. `gone_through` counts the bytes that patches of the rule have gone
/// through.
pub(super) fn of_existing(
    mutation: &Mutation,
    before: &Value,
    gone_through: &mut usize,
    scope: &mut Scope<'_>,
) -> Result<Value, Stop> {
    meter::charge(operator::length(before));
    let mut object = MutatedObject::new(Arc::new(before.clone()), *gone_through, false);
    let made = patched(mutation, &mut object, scope);
    *gone_through = object.gone_through;
    made.map(|()| Arc::unwrap_or_clone(object.value))
}

fn patched(
    mutation: &Mutation,
    object: &mut MutatedObject,
    scope: &mut Scope<'_>,
) -> Result<(), Stop> {
    work(mutation, "mutate", object, scope)?;
    object.check_memory()?;
    // What is no object could not be stored, and would be taken for one that is deleted.
    let kind = object.value.get("kind").and_then(Value::as_str);
    if kind.unwrap_or_default().is_empty() {
        let source = PatchError::DoesNotApply {
            operation: "mutate",
            path: String::new(),
            problem: "what the rule makes is no object with a `kind`".to_owned(),
        };
        return Err(failed(source, "mutate".to_owned()));
    }
    Ok(())
}

/// The object on its way.
struct MutatedObject {
    /// The value so far, which the requests of later lists share.
    value: Arc<Value>,
    schema: Schema,
    /// Bytes that patches went through.
    gone_through: usize,
    /// The object is the request's.
    is_requested: bool,
    /// The most memory that the value may take: each patch may add to it.
    bytes_max: u64,
}

impl MutatedObject {
    fn new(value: Arc<Value>, gone_through: usize, is_requested: bool) -> Self {
        let bytes = json_memory::copied_bytes(&value, u64::MAX);
        Self {
            schema: schema(&value),
            value,
            gone_through,
            is_requested,
            bytes_max: bytes.unwrap_or(u64::MAX).saturating_add(VALUES_BYTES_MAX),
        }
    }

    /// Checks that patches have not added too much.
    fn check_memory(&self) -> Result<(), Stop> {
        match json_memory::copied_bytes(&self.value, self.bytes_max) {
            Some(_) => Ok(()),
            None => Err(failed(PatchError::TooLarge, "mutate".to_owned())),
        }
    }

    /// Counts one more pass over the whole object. A patch makes such a pass, and so does comparing or copying the
    /// object for the next list.
    fn go_through(&mut self) -> Result<(), Stop> {
        self.check_memory()?;
        let weight = anteroom_patch::weight(&self.value);
        self.gone_through = self.gone_through.saturating_add(weight);
        meter::charge_bytes(weight);
        match self.gone_through > MUTATED_BYTES_MAX {
            true => Err(Stop::Error(Box::new(RuleError::TooMuchPatched))),
            false => Ok(()),
        }
    }
}

fn schema(object: &Value) -> Schema {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    Schema::of(text("apiVersion"), text("kind"))
}

fn work(
    mutation: &Mutation,
    place: &str,
    object: &mut MutatedObject,
    scope: &mut Scope<'_>,
) -> Result<(), Stop> {
    match mutation {
        Mutation::Once(patch) => apply(patch, place, object, scope),
        Mutation::ForEach(all) => each_list(all, place, object, scope),
    }
}

/// Applies the lists in order. Each list is evaluated on the object that the lists before left.
fn each_list(
    all: &[MutateEach],
    place: &str,
    object: &mut MutatedObject,
    scope: &mut Scope<'_>,
) -> Result<(), Stop> {
    let mut changed = None;
    for (at, each) in all.iter().enumerate() {
        let place = format!("{place}.foreach[{at}]");
        let mut scope = Scope {
            request: changed.as_ref().unwrap_or(scope.request),
            namespace: scope.namespace,
            entries: scope.entries,
            states: scope.states,
            facts: scope.facts,
            run: scope.run,
            pushdown: scope.pushdown,
            visible: scope.visible,
        };
        let held = scope.run.list_bytes;
        let list = foreach::elements(&each.list, &place, &mut scope)?;
        let patched = each_element(each, &list.elements, &place, object, &mut scope);
        scope.run.list_bytes = held;
        patched?;
        if at + 1 < all.len() {
            object.go_through()?;
        }
        if at + 1 < all.len()
            && object.is_requested
            && object.value != scope.request.shared_object()
        {
            changed = Some(scope.request.with_object(Arc::clone(&object.value)));
        }
    }
    Ok(())
}

/// Patches element by element. While an element waits for a fact, later elements already ask, so that all facts come
/// together.
fn each_element(
    each: &MutateEach,
    elements: &[Arc<Value>],
    place: &str,
    object: &mut MutatedObject,
    scope: &mut Scope<'_>,
) -> Result<(), Stop> {
    let mut order: Vec<_> = elements.iter().enumerate().collect();
    if each.is_descending {
        order.reverse();
    }
    let mut is_pending = false;
    for (index, element) in order {
        // Kyverno passes over these.
        if element.is_null() {
            continue;
        }
        match one_element(each, element, index, place, object, scope) {
            Ok(()) => {}
            Err(Stop::Pending) => is_pending = true,
            // A list before still waits for facts, so this error may be about an object that never exists.
            Err(Stop::Error(_)) if is_pending && meter::left() > 0 => {}
            Err(stop) => return Err(stop),
        }
    }
    match is_pending {
        true => Err(Stop::Pending),
        false => Ok(()),
    }
}

fn one_element(
    each: &MutateEach,
    element: &Arc<Value>,
    index: usize,
    place: &str,
    object: &mut MutatedObject,
    outer: &mut Scope<'_>,
) -> Result<(), Stop> {
    foreach::within(&each.context, each.outer, element, index, outer, |scope| {
        let preconditions = format_args!("{place}.preconditions");
        match conditions::evaluate(&each.preconditions, &preconditions, scope)? {
            Verdict { met: true, .. } => work(&each.work, place, object, scope),
            _ => Ok(()),
        }
    })
}

fn apply(
    patch: &Patch,
    place: &str,
    object: &mut MutatedObject,
    scope: &mut Scope<'_>,
) -> Result<(), Stop> {
    object.go_through()?;
    let patched = match patch {
        Patch::Merge(patch) => {
            let place = format!("{place}.patchStrategicMerge");
            let patch = rendered(patch, scope).map_err(|stop| stopped(stop, &place))?;
            let merged = merged(object, &patch).map_err(|error| failed(error, place))?;
            let Some(merged) = merged else {
                return Ok(());
            };
            merged
        }
        Patch::Json(operations) => {
            let place = format!("{place}.patchesJson6902");
            let patch = operations
                .iter()
                .map(|operation| rendered_operation(operation, scope))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|stop| stopped(stop, &place))?;
            operated(object, &Value::Array(patch), place)?
        }
        Patch::Computed(operations) => {
            let place = format!("{place}.patchesJson6902");
            let patch = operations.value(scope);
            let patch = patch.map_err(|stop| stopped(stop, &place))?;
            let patch = listed(&patch, scope).map_err(|stop| stopped(stop, &place))?;
            operated(object, &patch, place)?
        }
    };
    object.value = Arc::new(patched);
    Ok(())
}

fn operated(object: &MutatedObject, patch: &Value, place: String) -> Result<Value, Stop> {
    // Its operations are read into a copy.
    if !meter::charge(operator::length(patch)) {
        return Err(failed(PatchError::TooCostly, place));
    }
    json::Patch::parse(patch)
        .and_then(|patch| {
            let leniency = json::Leniency::KYVERNO;
            patch.apply_charged(&object.value, leniency, &meter::charge_bytes)
        })
        .map_err(|error| failed(error, place))
}

/// The operations that an expression gives: as a list, or as JSON in a text. Anything else
/// passes unchanged, and is an error where the operations are read.
fn listed<'p>(patch: &'p Value, scope: &Scope<'_>) -> Result<Cow<'p, Value>, Interrupt> {
    let Some(text) = patch.as_str() else {
        return Ok(Cow::Borrowed(patch));
    };
    scope.charge_copy(parsed_bytes_max(text.as_bytes()))?;
    Ok(match serde_json::from_str(text) {
        Ok(list) => Cow::Owned(list),
        Err(_) => Cow::Borrowed(patch),
    })
}

/// Returns the object with the patch merged into it; `None`: the patch is not about this object.
fn merged(object: &MutatedObject, patch: &Value) -> Result<Option<Value>, PatchError> {
    let MutatedObject { value, schema, .. } = object;
    let charge = &meter::charge_bytes;
    let patch = anchors::resolve_charged(patch, value, *schema, &matches, charge)?;
    let merged = patch.map(|patch| merge::merge_charged(value, &patch, *schema, charge));
    merged.transpose()
}

/// Compares as a pattern does. Where the pattern is a single value, both are compared as texts: null is `null`.
fn matches(pattern: &Value, found: &Value) -> bool {
    match pattern {
        Value::Object(_) | Value::Array(_) => pattern::matches(pattern, found).is_ok(),
        single => pattern::matches(&as_text(single), &as_text(found)).is_ok(),
    }
}

/// Returns a single value as a text, and anything else unchanged.
fn as_text(value: &Value) -> Cow<'_, Value> {
    match value {
        Value::Object(_) | Value::Array(_) | Value::String(_) => Cow::Borrowed(value),
        other => Cow::Owned(Value::String(values::text(other).into_owned())),
    }
}

fn rendered_operation(
    operation: &PatchOperation,
    scope: &mut Scope<'_>,
) -> Result<Value, Interrupt> {
    let mut made = Map::from_iter([("op".to_owned(), operation.name.as_str().into())]);
    for (name, path) in operation.paths() {
        made.insert(name.to_owned(), path.pointer(scope)?.into());
    }
    if let Some(template) = &operation.value {
        let value = template.value(scope)?;
        // A value with variables in it is charged by its parts.
        if matches!(template, ValueTemplate::Text(_)) {
            scope.copy(&value)?;
        }
        made.insert("value".to_owned(), Arc::unwrap_or_clone(value));
    }
    charged(Value::Object(made))
}

/// Charges a value that was copied for a patch: each element of a `foreach` copies it anew.
fn charged(made: Value) -> Result<Value, Interrupt> {
    match meter::charge(1 + operator::length(&made)) {
        true => Ok(made),
        false => Err(too_costly()),
    }
}

fn too_costly() -> Interrupt {
    Interrupt::Rule(Box::new(RuleError::Patch {
        place: "mutate".to_owned(),
        source: PatchError::TooCostly,
    }))
}

/// Returns a patch with its variables resolved. A key that comes from a variable is a plain field, never an anchor or
/// a directive. Values of variables are not searched for anchors or directives.
fn rendered(patch: &ValueTemplate, scope: &mut Scope<'_>) -> Result<Value, Interrupt> {
    match patch {
        ValueTemplate::Map(entries) => {
            let mut made = Map::new();
            for (key, value) in entries {
                let text = key.key(scope)?;
                if !meter::charge(1) || !meter::charge_bytes(text.len()) {
                    return Err(too_costly());
                }
                if key.fixed().is_none() && special(&text) != special(key.source()) {
                    return Err(hostile(key.source(), &text).into());
                }
                made.insert(text, rendered(value, scope)?);
            }
            Ok(Value::Object(made))
        }
        ValueTemplate::List(elements) => elements
            .iter()
            .map(|element| rendered(element, scope))
            .collect(),
        ValueTemplate::Fixed(value) => charged(Value::clone(value)),
        ValueTemplate::Text(template) => {
            let value = template.value(scope)?;
            scope.copy(&value)?;
            match special_key(&value) {
                Some(key) => Err(hostile(template.source(), key).into()),
                None => charged(Arc::unwrap_or_clone(value)),
            }
        }
    }
}

/// Returns the anchor of a key. Within a condition, the anchors of patterns count.
fn special(key: &str) -> Option<Result<anchors::Anchor, ()>> {
    match anchors::Anchor::of(key) {
        Some((anchor, _)) => Some(Ok(anchor)),
        None => {
            (merge::is_directive(key) || anchors::Anchor::is_of_patterns(key)).then_some(Err(()))
        }
    }
}

/// A key in a value that would be more than a name.
fn special_key(value: &Value) -> Option<&str> {
    match value {
        Value::Object(entries) => entries.iter().find_map(|(key, value)| {
            let own = special(key).is_some().then_some(key.as_str());
            own.or_else(|| special_key(value))
        }),
        Value::Array(elements) => elements.iter().find_map(special_key),
        _ => None,
    }
}

fn hostile(source: &str, key: &str) -> VariableError {
    let shown: String = key.chars().take(64).collect();
    VariableError {
        expression: source.to_owned(),
        message: format!(
            "its value makes the key `{shown}`, which a patch reads as more than a name"
        ),
        kind: VariableErrorKind::Failed,
    }
}

fn stopped(interrupt: Interrupt, place: &str) -> Stop {
    let error = interrupt.into_error(|| place.to_owned());
    error.map_or(Stop::Pending, |error| Stop::Error(Box::new(error)))
}

fn failed(source: PatchError, place: String) -> Stop {
    Stop::Error(Box::new(RuleError::Patch { place, source }))
}
