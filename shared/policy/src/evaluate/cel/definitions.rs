//! Schemas of custom kinds, by their CustomResourceDefinitions.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_patch::apply::ObjectSchema;
use serde_json::Value;

use super::subject::subject;
use crate::{
    evaluate::{
        facts::{AnswerShape, Question},
        interrupt::Stop,
        scope::Scope,
    },
    ir::cel_mutation::CelMutation,
};

/// Returns the schema by which a partial object is merged into this one, or why there is none.
///
/// # Errors
/// A definition is waited for, or cannot be read.
pub(super) fn schema_of(
    object: &Value,
    mutation: &CelMutation,
    scope: &mut Scope<'_>,
) -> Result<Result<ObjectSchema, String>, Stop> {
    let own = scope.request.schema_of(object).cloned();
    let error = match own.map_or_else(|| ObjectSchema::of(object), Ok) {
        Ok(schema) => return Ok(Ok(schema)),
        Err(error) => error,
    };
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let kind = (text("apiVersion"), text("kind"));
    if let Some(known) = scope.run.schemas.get(&kind) {
        return Ok(Ok(known.clone()));
    }
    let (group, version) = kind.0.split_once('/').unwrap_or_default();
    let definitions = mutation.definitions.iter();
    for definition in definitions.filter(|definition| definition.group == group) {
        let found = read(&definition.call, mutation, scope)?;
        if found["spec"]["names"]["kind"] != *kind.1 {
            continue;
        }
        let versions = found["spec"]["versions"].as_array().into_iter().flatten();
        let schema = versions
            .filter(|one| one["name"] == version)
            .map(|one| &one["schema"]["openAPIV3Schema"])
            .next()
            .unwrap_or(&Value::Null);
        let schema = match ObjectSchema::from_crd(schema) {
            Ok(schema) => schema,
            Err(error) => return Ok(Err(format!("the definition of its kind: {error}"))),
        };
        scope.run.schemas.insert(kind, schema.clone());
        return Ok(Ok(schema));
    }
    Ok(Err(format!(
        "{error}, so no partial object is merged into it: name its group and plural in `resourceRules`, or use a JSONPatch"
    )))
}

/// Reads a definition; null: there is none.
fn read(call: &str, mutation: &CelMutation, scope: &mut Scope<'_>) -> Result<Arc<Value>, Stop> {
    let mut facts = mutation.shared_cel.facts.iter();
    let fact = facts.find(|fact| fact.site.name() == call);
    let named = fact.and_then(|fact| subject(fact, Vec::new(), None).ok());
    // Compilation made the fact of the definition.
    let Some(named) = named else {
        return Ok(Arc::default());
    };
    let question = Question {
        is_large: true,
        reading: AnswerShape::ObjectOrNull,
        ..Question::new(named.subject, "", BTreeMap::new())
    };
    scope.facts.need(&named.name, question)
}
