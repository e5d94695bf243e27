//! `preconditions` and `deny.conditions`.

use anteroom_functions::operator::Operator;

use super::{
    expressions::RootNames,
    fields::{Field, KnownFields},
    templates::{message, parsed},
};
use crate::ir::{
    conditions::{Condition, Conditions},
    problem::Problems,
    template::ValueTemplate,
};

const CONDITION_BLOCK: KnownFields = KnownFields {
    evaluated: &["all", "any"],
    inert: &[],
    later: &[],
};

const CONDITION: KnownFields = KnownFields {
    evaluated: &["key", "message", "operator", "value"],
    inert: &[],
    later: &[],
};

/// `any` and `all`, or the older list, all of which must be met.
pub(super) fn compile(
    field: Option<Field<'_>>,
    names: &RootNames,
    problems: &mut Problems,
) -> Conditions {
    let none = Conditions {
        any: None,
        all: Vec::new(),
    };
    let Some(field) = field else {
        return none;
    };
    if field.value().is_array() {
        return Conditions {
            all: list(&field, names, problems),
            ..none
        };
    }
    let Some(block) = field.object(&CONDITION_BLOCK, problems) else {
        return none;
    };
    Conditions {
        any: block.get("any").map(|field| list(&field, names, problems)),
        all: block
            .get("all")
            .map(|field| list(&field, names, problems))
            .unwrap_or_default(),
    }
}

fn list(field: &Field<'_>, names: &RootNames, problems: &mut Problems) -> Vec<Condition> {
    field
        .list(problems)
        .iter()
        .filter_map(|field| condition(field, names, problems))
        .collect()
}

fn condition(field: &Field<'_>, names: &RootNames, problems: &mut Problems) -> Option<Condition> {
    let object = field.object(&CONDITION, problems)?;
    let key = object
        .required("key", problems)
        .and_then(|field| value(&field, names, problems));
    let operator = object
        .required("operator", problems)
        .and_then(|field| operator(&field, problems));
    // A value that is left out is null, which nothing is equal to.
    let value = match object.get("value") {
        Some(field) => value(&field, names, problems),
        None => ValueTemplate::parse(&serde_json::Value::Null).ok(),
    };
    let message = object
        .get("message")
        .and_then(|field| message(&field, names, problems));
    Some(Condition {
        key: key?,
        operator: operator?,
        value: value?,
        message,
    })
}

fn operator(field: &Field<'_>, problems: &mut Problems) -> Option<Operator> {
    let name = field.text(problems)?;
    let operator = Operator::parse(name);
    if operator.is_none() {
        let known: Vec<_> = Operator::names().collect();
        let message = format!("unknown operator `{name}`; known are {}", known.join(", "));
        problems.invalid(field.path(), message);
    }
    operator
}

/// Any value, with variables in its texts.
pub(super) fn value(
    field: &Field<'_>,
    names: &RootNames,
    problems: &mut Problems,
) -> Option<ValueTemplate> {
    let template = parsed(field.path(), ValueTemplate::parse(field.value()), problems)?;
    template.visit(&mut |prepared| names.check(field.path(), prepared, problems));
    Some(template)
}
