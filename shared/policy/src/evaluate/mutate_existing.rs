//! The objects that exist already under the patches of a rule.
//!
//! The trigger says which they are; they are read as facts are, part by part of a long list, of which one at
//! a time is held. One target that cannot be read, or one object that cannot be patched, keeps no other from being
//! changed.

mod in_cel;
mod selector;

use std::{collections::BTreeMap, sync::Arc};

use anteroom_model::{ExistingObjects, FactError};
use serde_json::Value;

use super::{
    conditions::{self, Verdict},
    error::RuleError,
    facts::Question,
    foreach,
    interrupt::{Interrupt, Stop},
    limits::EXISTING_BATCHES_MAX,
    mutate,
    report::RuleOutcome,
    scope::Scope,
};
use crate::ir::{
    ChangedObject, FactSubject, PolicyException, Rule, VariableError, VariableErrorKind,
    mutate_existing::{ExistingWork, MutateExisting, TargetSpec},
    template::Template,
};
use selector::label_selector;

/// The progress of a rule through the objects that exist.
#[derive(Default)]
pub(super) struct Progress {
    walk: TargetWalk,
    pub(super) in_cel: in_cel::Progress,
}

impl Progress {
    /// Takes the changed objects that were not taken yet.
    pub(super) fn take_changed(&mut self) -> Vec<ChangedObject> {
        std::mem::take(&mut self.walk.changed)
    }
}

/// A way through targets, part by part: each part is gone through once, and let go then.
#[derive(Default)]
struct TargetWalk {
    /// The target that is gone through.
    at: usize,
    /// The part of the target that is read; `None`: it has not begun.
    reading: Option<ListProgress>,
    /// Parts that were gone through.
    parts: usize,
    /// Objects in them.
    seen: usize,
    /// Objects that are changed.
    count: usize,
    /// Changed objects that were not taken yet.
    changed: Vec<ChangedObject>,
    /// The first.
    error: Option<RuleError>,
}

/// The objects that a target means.
struct ListProgress {
    /// The next part.
    wanted: ExistingObjects,
    /// Only the object of this UID; empty: all.
    uid: String,
}

/// Some of the objects that a rule changes.
trait TargetObjects {
    /// Returns the part of the target's objects to read first.
    fn first(&self, scope: &mut Scope<'_>) -> Result<ListProgress, Stop>;

    /// The path of the field that names them.
    fn place(&self) -> String;

    /// Patches an object; `None`: the object stays unchanged.
    fn object(
        &mut self,
        before: &Value,
        gone_through: &mut usize,
        scope: &mut Scope<'_>,
    ) -> Result<Option<ChangedObject>, Stop>;
}

/// Patches the objects of all targets. `None` while a fact is waited for.
pub(super) fn run(
    rule: &Rule,
    exceptions: &[&PolicyException],
    existing: &MutateExisting,
    progress: &mut Progress,
    scope: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    let targets = match &existing.work {
        ExistingWork::InCel(targets) => {
            return in_cel::run(rule, exceptions, targets, progress, scope);
        }
        ExistingWork::Targets(targets) => targets,
    };
    let walk = &mut progress.walk;
    while let Some(spec) = targets.get(walk.at) {
        let mut target = RuleTarget { at: walk.at, spec };
        if !walk.go_through(&mut target, scope) {
            return None;
        }
    }
    Some(walk.outcome())
}

/// The result of patching one part of a target's objects.
#[derive(Default)]
struct PartResult {
    changed: Vec<ChangedObject>,
    /// The first error of an object.
    error: Option<RuleError>,
    /// Bytes that patches have gone through.
    gone_through: usize,
    is_pending: bool,
}

impl TargetWalk {
    /// Goes through a target, and on to the next one; `false` while a fact is waited for.
    fn go_through(&mut self, target: &mut impl TargetObjects, scope: &mut Scope<'_>) -> bool {
        match self.parts_of(target, scope) {
            Ok(()) => {}
            Err(Stop::Pending) => return false,
            Err(Stop::Error(found)) => {
                self.error.get_or_insert(*found);
            }
        }
        self.at += 1;
        self.reading = None;
        true
    }

    fn outcome(&mut self) -> RuleOutcome {
        match (self.error.take(), self.count) {
            (Some(error), _) => RuleOutcome::Error(error),
            (None, 0) => RuleOutcome::Skipped {
                reason: "no object that exists is changed".to_owned(),
            },
            (None, _) => RuleOutcome::Pass,
        }
    }

    fn parts_of(
        &mut self,
        target: &mut impl TargetObjects,
        scope: &mut Scope<'_>,
    ) -> Result<(), Stop> {
        let mut reading = match self.reading.take() {
            Some(reading) => reading,
            None => target.first(scope)?,
        };
        // Ends: of parts there is a most.
        loop {
            if self.parts >= EXISTING_BATCHES_MAX {
                let (seen, target) = (self.seen, reading.wanted.to_string());
                return Err(Stop::Error(Box::new(RuleError::TooManyObjects {
                    seen,
                    target,
                })));
            }
            let result = part(target, &reading.wanted, scope)
                .map(|part| (of_part(target, &part, &reading, scope), part));
            let (result, part) = match result {
                Ok((result, part)) if !result.is_pending => (result, part),
                Ok(_) | Err(Stop::Pending) => {
                    self.reading = Some(reading);
                    return Err(Stop::Pending);
                }
                Err(stop) => return Err(stop),
            };
            scope
                .facts
                .release(&FactSubject::Existing(reading.wanted.clone()));
            // A released part is never evaluated again, so its random values are drawn for good.
            scope.run.keep_drawn();
            self.parts += 1;
            self.seen += part["items"].as_array().map_or(0, Vec::len);
            self.count += result.changed.len();
            self.changed.extend(result.changed);
            if let Some(error) = result.error {
                self.error.get_or_insert(error);
            }
            match part["continue"].as_str() {
                Some(place) if !place.is_empty() => place.clone_into(&mut reading.wanted.continues),
                _ => return Ok(()),
            }
        }
    }
}

/// Patches one part of the list.
fn part(
    target: &impl TargetObjects,
    wanted: &ExistingObjects,
    scope: &mut Scope<'_>,
) -> Result<Arc<Value>, Stop> {
    let question = Question {
        is_large: true,
        ..Question::new(FactSubject::Existing(wanted.clone()), "", BTreeMap::new())
    };
    scope.facts.need(&target.place(), question)
}

/// Patches the objects of one part. A failure on one object does not stop the remaining objects.
fn of_part(
    target: &mut impl TargetObjects,
    part: &Value,
    reading: &ListProgress,
    scope: &mut Scope<'_>,
) -> PartResult {
    let mut result = PartResult::default();
    for told in part["unread"].as_array().into_iter().flatten() {
        result
            .error
            .get_or_insert_with(|| error_of_unread(target, &reading.wanted, told));
    }
    let uid = &reading.uid;
    for item in part["items"].as_array().into_iter().flatten() {
        if !uid.is_empty() && item["metadata"]["uid"] != **uid {
            continue;
        }
        match target.object(item, &mut result.gone_through, scope) {
            Ok(object) => result.changed.extend(object),
            Err(Stop::Pending) => result.is_pending = true,
            Err(Stop::Error(found)) => {
                // The remaining objects would fail with the same error.
                let is_last = matches!(*found, RuleError::TooMuchPatched);
                result.error.get_or_insert(*found);
                if is_last {
                    break;
                }
            }
        }
    }
    result
}

/// Returns the error of an object that the watcher knows of and did not read.
fn error_of_unread(
    target: &impl TargetObjects,
    wanted: &ExistingObjects,
    unread: &Value,
) -> RuleError {
    let text = |field: &str| unread[field].as_str().unwrap_or_default();
    let kind = match &*wanted.kind {
        "" => &wanted.resource,
        kind => kind,
    };
    let object = format!("{kind} {}/{}", text("namespace"), text("name"));
    RuleError::Fact {
        variable: target.place(),
        source: FactError::LiveReadFailed {
            code: 413,
            message: format!("{object}: {}", text("message")),
        },
        entry: object,
    }
}

/// The progress of one of `mutate.targets`.
struct RuleTarget<'t> {
    /// The index of the target.
    at: usize,
    spec: &'t TargetSpec,
}

impl RuleTarget<'_> {
    /// Returns the first part that is read.
    fn wanted(&self, scope: &mut Scope<'_>) -> Result<ExistingObjects, Stop> {
        let spec = self.spec;
        let namespace = match scope.namespace {
            Some(home) => home.to_owned(),
            None => self.text("namespace", spec.namespace.as_ref(), scope)?,
        };
        Ok(ExistingObjects {
            target: Some(self.at),
            group: spec.group.clone(),
            version: spec.version.clone(),
            kind: spec.kind.clone(),
            resource: String::new(),
            namespace,
            name: self.text("name", spec.name.as_ref(), scope)?,
            label_selector: self.selector(scope)?,
            continues: String::new(),
        })
    }

    /// Returns the text of a field; empty if the manifest has no such field. A written field without text as its
    /// value is an error, since an empty text would select every object.
    fn text(
        &self,
        field: &str,
        text: Option<&Template>,
        scope: &mut Scope<'_>,
    ) -> Result<String, Stop> {
        let Some(text) = text else {
            return Ok(String::new());
        };
        let place = || self.of_field(field);
        match text.value(scope) {
            Ok(value) => match value.as_str() {
                Some(found) if !found.is_empty() => Ok(found.to_owned()),
                _ => {
                    let message = format!("it came to {value}, where a name is expected");
                    Err(wrong(text.source(), message, place()))
                }
            },
            Err(interrupt) => Err(stopped(interrupt, place)),
        }
    }

    fn selector(&self, scope: &mut Scope<'_>) -> Result<String, Stop> {
        let Some(selector) = &self.spec.selector else {
            return Ok(String::new());
        };
        let place = || self.of_field("selector");
        let selector = selector.value(scope);
        let selector = selector.map_err(|interrupt| stopped(interrupt, place))?;
        label_selector(&selector).map_err(|message| wrong("selector", message, place()))
    }

    fn of_field(&self, field: &str) -> String {
        format!("mutate.targets[{}].{field}", self.at)
    }
}

impl TargetObjects for RuleTarget<'_> {
    fn first(&self, scope: &mut Scope<'_>) -> Result<ListProgress, Stop> {
        Ok(ListProgress {
            wanted: self.wanted(scope)?,
            uid: self.text("uid", self.spec.uid.as_ref(), scope)?,
        })
    }

    fn place(&self) -> String {
        format!("mutate.targets[{}]", self.at)
    }

    fn object(
        &mut self,
        before: &Value,
        gone_through: &mut usize,
        scope: &mut Scope<'_>,
    ) -> Result<Option<ChangedObject>, Stop> {
        let (spec, target) = (self.spec, Arc::new(before.clone()));
        let place = self.of_field("preconditions");
        let after = foreach::within(&spec.context, spec.outer, &target, 0, scope, |scope| {
            match conditions::evaluate(&spec.preconditions, &place, scope)? {
                Verdict { met: true, .. } => {
                    mutate::of_existing(&spec.work, before, gone_through, scope).map(Some)
                }
                _ => Ok(None),
            }
        })?;
        Ok(after
            .filter(|after| after != before)
            .map(|object| ChangedObject {
                target: self.at,
                object: resting_on(object, before),
            }))
    }
}

/// Restores the fields of identity and version of the object as read: no patch may change these fields.
fn resting_on(mut object: Value, before: &Value) -> Value {
    for field in ["apiVersion", "kind"] {
        object[field] = before[field].clone();
    }
    if !object["metadata"].is_object() {
        object["metadata"] = before["metadata"].clone();
    }
    for field in ["name", "namespace", "resourceVersion", "uid"] {
        match &before["metadata"][field] {
            Value::Null => {}
            value => object["metadata"][field] = value.clone(),
        }
    }
    object
}

fn wrong(source: &str, message: String, place: String) -> Stop {
    let source = VariableError {
        expression: source.to_owned(),
        message,
        kind: VariableErrorKind::Failed,
    };
    Stop::Error(Box::new(RuleError::Variable { place, source }))
}

fn stopped(interrupt: Interrupt, place: impl FnOnce() -> String) -> Stop {
    let error = interrupt.into_error(place);
    error.map_or(Stop::Pending, |error| Stop::Error(Box::new(error)))
}
