//! The objects that exist already under the patches of a rule.
//!
//! The trigger says which they are; they are read as facts are, part by part of a long list, of which one at
//! a time is held. One target that cannot be read, or one object that cannot be patched, keeps no other from being
//! changed.

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
    ChangedObject, FactTarget, VariableError, VariableErrorKind,
    mutate_existing::{MutateExisting, TargetSpec},
    template::Template,
};

/// The progress of a rule through its targets, part by part: each part is gone through once, and let go then.
#[derive(Default)]
pub(super) struct Progress {
    /// The target that is gone through.
    at: usize,
    /// The part of the target that is read; `None`: it has not begun.
    reading: Option<Reading>,
    /// Parts that were gone through.
    parts: usize,
    /// Objects in them.
    seen: usize,
    /// Objects that are changed.
    count: usize,
    /// Those that nobody has taken yet.
    pub(super) changed: Vec<ChangedObject>,
    /// The first.
    error: Option<RuleError>,
}

/// The objects that a target means.
struct Reading {
    /// The next part.
    wanted: ExistingObjects,
    uid: String,
}

/// Patches the objects of all targets. `None` while a fact is waited for.
pub(super) fn run(
    existing: &MutateExisting,
    progress: &mut Progress,
    scope: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    while let Some(spec) = existing.targets.get(progress.at) {
        let target = Target {
            at: progress.at,
            spec,
        };
        match target.run(progress, scope) {
            Ok(()) => {}
            Err(Stop::Pending) => return None,
            Err(Stop::Error(found)) => {
                progress.error.get_or_insert(*found);
            }
        }
        progress.at += 1;
        progress.reading = None;
    }
    Some(match (progress.error.take(), progress.count) {
        (Some(error), _) => RuleOutcome::Error(error),
        (None, 0) => RuleOutcome::Skipped {
            reason: "no object that exists is changed".to_owned(),
        },
        (None, _) => RuleOutcome::Pass,
    })
}

/// One target on its way.
struct Target<'t> {
    /// The index of the target.
    at: usize,
    spec: &'t TargetSpec,
}

/// The result of one part.
#[derive(Default)]
struct Made {
    changed: Vec<ChangedObject>,
    /// The first of an object.
    error: Option<RuleError>,
    /// Bytes that patches have gone through.
    gone_through: usize,
    is_pending: bool,
}

impl Target<'_> {
    fn run(&self, progress: &mut Progress, scope: &mut Scope<'_>) -> Result<(), Stop> {
        let mut reading = match progress.reading.take() {
            Some(reading) => reading,
            None => Reading {
                wanted: self.wanted(scope)?,
                uid: self.text("uid", self.spec.uid.as_ref(), scope)?,
            },
        };
        // Ends: of parts there is a most.
        loop {
            if progress.parts >= EXISTING_BATCHES_MAX {
                let (seen, target) = (progress.seen, reading.wanted.to_string());
                return Err(Stop::Error(Box::new(RuleError::TooManyObjects {
                    seen,
                    target,
                })));
            }
            let made = self
                .part(&reading.wanted, scope)
                .map(|part| (self.of_part(&part, &reading.uid, scope), part));
            let (made, part) = match made {
                Ok((made, part)) if !made.is_pending => (made, part),
                Ok(_) | Err(Stop::Pending) => {
                    progress.reading = Some(reading);
                    return Err(Stop::Pending);
                }
                Err(stop) => return Err(stop),
            };
            scope
                .facts
                .let_go(&FactTarget::Existing(reading.wanted.clone()));
            // What is let go is never evaluated again, so neither is its chance.
            scope.facts.keep_drawn();
            progress.parts += 1;
            progress.seen += part["items"].as_array().map_or(0, Vec::len);
            progress.count += made.changed.len();
            progress.changed.extend(made.changed);
            if let Some(error) = made.error {
                progress.error.get_or_insert(error);
            }
            match part["continue"].as_str() {
                Some(place) if !place.is_empty() => place.clone_into(&mut reading.wanted.continues),
                _ => return Ok(()),
            }
        }
    }

    /// Patches the objects of one part. One that fails keeps no other from being changed.
    fn of_part(&self, part: &Value, uid: &str, scope: &mut Scope<'_>) -> Made {
        let mut made = Made::default();
        for unread in part["unread"].as_array().into_iter().flatten() {
            made.error.get_or_insert(self.unread(unread));
        }
        for item in part["items"].as_array().into_iter().flatten() {
            if !uid.is_empty() && item["metadata"]["uid"] != *uid {
                continue;
            }
            match self.object(item, &mut made.gone_through, scope) {
                Ok(object) => made.changed.extend(object),
                Err(Stop::Pending) => made.is_pending = true,
                Err(Stop::Error(found)) => {
                    // Those after it would come to it too.
                    let is_last = matches!(*found, RuleError::TooMuchPatched);
                    made.error.get_or_insert(*found);
                    if is_last {
                        break;
                    }
                }
            }
        }
        made
    }

    /// Returns the error of an object that the watcher knows of and did not read.
    fn unread(&self, unread: &Value) -> RuleError {
        let text = |field: &str| unread[field].as_str().unwrap_or_default();
        let object = format!("{} {}/{}", self.spec.kind, text("namespace"), text("name"));
        RuleError::Fact {
            variable: format!("mutate.targets[{}]", self.at),
            source: FactError::LiveReadFailed {
                code: 413,
                message: format!("{object}: {}", text("message")),
            },
            entry: object,
        }
    }

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
            namespace,
            name: self.text("name", spec.name.as_ref(), scope)?,
            label_selector: self.selector(scope)?,
            continues: String::new(),
        })
    }

    /// Empty where nothing is written. What is written and comes to nothing is an error: it must not mean all.
    fn text(
        &self,
        field: &str,
        text: Option<&Template>,
        scope: &mut Scope<'_>,
    ) -> Result<String, Stop> {
        let Some(text) = text else {
            return Ok(String::new());
        };
        let place = || self.place(field);
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
        let place = || self.place("selector");
        let selector = selector.value(scope);
        let selector = selector.map_err(|interrupt| stopped(interrupt, place))?;
        label_selector(&selector).map_err(|message| wrong("selector", message, place()))
    }

    /// One part of the list.
    fn part(&self, wanted: &ExistingObjects, scope: &mut Scope<'_>) -> Result<Arc<Value>, Stop> {
        let variable = format!("mutate.targets[{}]", self.at);
        let target = FactTarget::Existing(wanted.clone());
        let question = Question {
            is_large: true,
            ..Question::new(target, "", BTreeMap::new())
        };
        scope.facts.need(&variable, question)
    }

    /// Patches one object; `None`: it stays as it is.
    fn object(
        &self,
        before: &Value,
        gone_through: &mut usize,
        scope: &mut Scope<'_>,
    ) -> Result<Option<ChangedObject>, Stop> {
        let (spec, target) = (self.spec, Arc::new(before.clone()));
        let context = (&*spec.context, spec.outer);
        let place = self.place("preconditions");
        let after = foreach::within(
            context,
            &target,
            0,
            scope,
            |scope| match conditions::evaluate(&spec.preconditions, &place, scope)? {
                Verdict { met: true, .. } => {
                    mutate::of_existing(&spec.work, before, gone_through, scope).map(Some)
                }
                _ => Ok(None),
            },
        )?;
        Ok(after
            .filter(|after| after != before)
            .map(|object| ChangedObject {
                target: self.at,
                object: resting_on(object, before),
            }))
    }

    fn place(&self, field: &str) -> String {
        format!("mutate.targets[{}].{field}", self.at)
    }
}

/// The object with what says which state of which object it rests on: no patch changes that.
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

/// In the API server's syntax. Nothing that stands in it is more than a key or a value.
/// What is none is an error: it never means all.
fn label_selector(selector: &Value) -> Result<String, String> {
    let mut all = Vec::new();
    for (field, said) in selector.as_object().into_iter().flatten() {
        match (field.as_str(), said) {
            ("matchLabels", Value::Object(labels)) => {
                for (key, value) in labels {
                    all.push(format!("{}={}", plain(key)?, plain_value(value)?));
                }
            }
            ("matchExpressions", Value::Array(expressions)) => {
                for one in expressions {
                    all.push(requirement(one)?);
                }
            }
            _ => return Err(format!("`{field}: {said}` is no part of a selector")),
        }
    }
    Ok(all.join(","))
}

fn requirement(one: &Value) -> Result<String, String> {
    let key = plain_value(&one["key"])?;
    let values = match &one["values"] {
        Value::Null => Vec::new(),
        Value::Array(values) => values
            .iter()
            .map(plain_value)
            .collect::<Result<Vec<_>, _>>()?,
        other => return Err(format!("`values: {other}` is no list")),
    };
    let operator = one["operator"].as_str().unwrap_or_default();
    let takes_values = matches!(operator, "In" | "NotIn");
    if takes_values == values.is_empty() {
        return Err(format!("{operator} with {} values", values.len()));
    }
    let values = values.join(",");
    Ok(match operator {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "Exists" => key.to_owned(),
        "DoesNotExist" => format!("!{key}"),
        _ => return Err(format!("there is no operator {}", one["operator"])),
    })
}

fn plain_value(value: &Value) -> Result<&str, String> {
    match value.as_str() {
        Some(text) => plain(text),
        None => Err(format!("{value} is no label")),
    }
}

fn plain(text: &str) -> Result<&str, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    match text.chars().all(is_plain) {
        true => Ok(text),
        false => Err(format!("`{text}` is no label")),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_malformed_selector_never_selects_all_objects() {
        for (selector, expected) in [
            (json!({}), Some("")),
            (json!({"matchLabels": {"a": "b"}}), Some("a=b")),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}),
                Some("a in (b,c)"),
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
                Some("a"),
            ),
            (json!({"matchLabels": null}), None),
            (json!({"matchLabels": "a=b"}), None),
            (json!({"matchLabels": {"a": 1}}), None),
            (json!({"matchLabels": {"a": "b,c"}}), None),
            (json!({"matchLabel": {"a": "b"}}), None),
            (json!({"matchExpressions": {"key": "a"}}), None),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}),
                None,
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": "b"}]}),
                None,
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
                None,
            ),
        ] {
            let found = label_selector(&selector);
            assert_eq!(found.as_deref().ok(), expected, "{selector}");
        }
    }
}
