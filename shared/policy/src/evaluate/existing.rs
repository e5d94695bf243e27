//! The objects that exist already under the patches of a rule.
//!
//! Which they are is said by the trigger; they are read as facts are, part by part of a long list. One target
//! that cannot be read, or one object that cannot be patched, keeps no other from being changed.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_model::ExistingObjects;
use serde_json::Value;

use super::{
    RuleError, RuleOutcome,
    conditions::{self, Stop, Verdict},
    facts::{Lookup, Question},
    foreach, mutate,
    scope::{Interrupt, Scope},
};
use crate::{
    ChangedObject, FactTarget, VariableError, VariableErrorKind,
    existing::{Existing, TargetSpec},
    template::Template,
};

/// What the rule makes of its targets. `None` while a fact is waited for.
pub(super) fn run(
    existing: &Existing,
    changed: &mut Vec<ChangedObject>,
    scope: &mut Scope<'_>,
) -> Option<RuleOutcome> {
    changed.clear();
    let (mut is_pending, mut error, mut gone_through) = (false, None, 0);
    for (at, spec) in existing.targets.iter().enumerate() {
        let mut target = Target {
            at,
            spec,
            gone_through: &mut gone_through,
            error: &mut error,
        };
        match target.run(changed, scope) {
            Ok(()) => {}
            Err(Stop::Pending) => is_pending = true,
            Err(Stop::Error(found)) => {
                error.get_or_insert(*found);
            }
        }
    }
    if is_pending {
        return None;
    }
    Some(match (error, changed.is_empty()) {
        (Some(error), _) => RuleOutcome::Error(error),
        (None, true) => RuleOutcome::Skipped {
            reason: "no object that exists is changed".to_owned(),
        },
        (None, false) => RuleOutcome::Pass,
    })
}

/// One target on its way.
struct Target<'t> {
    /// Which.
    at: usize,
    spec: &'t TargetSpec,
    /// Bytes that patches of the rule have gone through.
    gone_through: &'t mut usize,
    /// The first of an object.
    error: &'t mut Option<RuleError>,
}

impl Target<'_> {
    fn run(&mut self, changed: &mut Vec<ChangedObject>, scope: &mut Scope<'_>) -> Result<(), Stop> {
        let mut wanted = self.wanted(scope)?;
        let uid = self.text("uid", self.spec.uid.as_ref(), scope)?;
        let mut is_pending = false;
        // Ends: each part is a fact, and of facts there is a most.
        loop {
            let part = self.part(&wanted, scope)?;
            let items = part["items"].as_array().map_or(&[][..], Vec::as_slice);
            for item in items {
                if !uid.is_empty() && item["metadata"]["uid"] != *uid {
                    continue;
                }
                match self.object(item, scope) {
                    Ok(object) => changed.extend(object),
                    Err(Stop::Pending) => is_pending = true,
                    // Those after it would come to it too.
                    Err(Stop::Error(found)) if matches!(*found, RuleError::TooMuchPatched) => {
                        return Err(Stop::Error(found));
                    }
                    Err(Stop::Error(found)) => {
                        self.error.get_or_insert(*found);
                    }
                }
            }
            match part["continue"].as_str() {
                Some(place) if !place.is_empty() => place.clone_into(&mut wanted.continues),
                _ => break,
            }
        }
        match is_pending {
            true => Err(Stop::Pending),
            false => Ok(()),
        }
    }

    /// What is read.
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
        let entry = target.to_string();
        let question = Question {
            target,
            expression: String::new(),
            parameters: BTreeMap::new(),
            missing_key_is_error: false,
            age_max_ms: None,
            is_part: false,
            is_large: true,
        };
        let error = match scope.facts.look_up(&variable, question) {
            Lookup::Answer(Ok(part)) => return Ok(part),
            Lookup::Pending | Lookup::Declined => return Err(Stop::Pending),
            Lookup::TooMany => RuleError::TooManyFacts,
            Lookup::LeftOut => RuleError::Fact {
                variable,
                entry,
                source: super::facts::left_out(),
            },
            Lookup::Answer(Err(source)) => RuleError::Fact {
                variable,
                entry,
                source,
            },
        };
        Err(Stop::Error(Box::new(error)))
    }

    /// What becomes of one object; `None`: nothing.
    fn object(
        &mut self,
        before: &Value,
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
                    mutate::of_existing(&spec.work, before, self.gone_through, scope).map(Some)
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
    fn what_is_no_selector_never_means_all() {
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
