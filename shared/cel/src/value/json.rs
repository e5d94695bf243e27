//! Values as JSON, and JSON as values.

use anteroom_functions::pure::base64_text;
use anteroom_jmespath::json_memory::{list_bytes, object_bytes, text_bytes};
use serde_json::{Number, Value};

use super::{Map, Val, is_object_type, misplaced};
use crate::{budget::Budget, error::EvalError, limits::JSON_DEPTH_MAX};

/// Returns a value as JSON. An int stays one, and bytes become base64. An optional, a type, a time and a number that
/// JSON has not are errors. With a `place`, the objects in it have to be of the types that belong there.
pub(crate) fn to_json(
    value: &Val<'_>,
    place: Option<&str>,
    budget: &mut Budget,
) -> Result<Value, EvalError> {
    let mut writer = JsonWriter {
        budget,
        place: place.map(str::to_owned),
        depth: 0,
    };
    writer.value(value)
}

/// Returns a double as a number of JSON. A whole one has no fraction, as Go writes it: a field for integers takes it.
fn number(value: f64) -> Option<Number> {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    match value.fract() == 0.0 && value.abs() <= WHOLE_MAX {
        true => Some((value as i64).into()),
        false => Number::from_f64(value),
    }
}

struct JsonWriter<'b> {
    budget: &'b mut Budget,
    /// The type that an object has here.
    place: Option<String>,
    depth: usize,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Val<'_>) -> Result<Value, EvalError> {
        self.budget.step()?;
        Ok(match value {
            Val::Null => Value::Null,
            Val::Bool(value) => Value::Bool(*value),
            Val::Int(value) => Value::Number((*value).into()),
            Val::Uint(value) => match i64::try_from(*value) {
                Ok(value) => Value::Number(value.into()),
                Err(_) => return Err(EvalError::Overflow("integer")),
            },
            Val::Double(value) => match number(*value) {
                Some(number) => Value::Number(number),
                None => return Err(EvalError::refused("JSON has neither NaN nor infinities")),
            },
            Val::Text(text) => {
                self.budget.json(text_bytes(text.len()))?;
                Value::String(text.to_string())
            }
            Val::Bytes(bytes) => {
                let length = bytes.len().div_ceil(3) * 4;
                self.budget.json(text_bytes(length))?;
                Value::String(base64_text(bytes))
            }
            Val::List(_) | Val::Map(_) | Val::Struct(_) => return self.inside(value),
            other => {
                let message = format!("a {} is nothing that JSON has", other.type_name());
                return Err(EvalError::Refused(message));
            }
        })
    }

    /// A value with parts, one level deeper.
    fn inside(&mut self, value: &Val<'_>) -> Result<Value, EvalError> {
        if self.depth == JSON_DEPTH_MAX {
            let message = format!("more than {JSON_DEPTH_MAX} levels do not become JSON");
            return Err(EvalError::Refused(message));
        }
        self.depth += 1;
        let json = self.parts(value);
        self.depth -= 1;
        json
    }

    fn parts(&mut self, value: &Val<'_>) -> Result<Value, EvalError> {
        match value {
            Val::List(list) => {
                self.budget.json(list_bytes(list.len()))?;
                let mut elements = Vec::with_capacity(list.len());
                for element in list.iter() {
                    elements.push(self.value(&element)?);
                }
                Ok(Value::Array(elements))
            }
            Val::Map(map) => {
                self.budget.json(object_bytes(map.len()))?;
                let mut entries = serde_json::Map::new();
                for (key, value) in map.entries() {
                    let Val::Text(key) = key else {
                        let message = format!("a {} is no key in JSON", key.type_name());
                        return Err(EvalError::Refused(message));
                    };
                    self.budget.json(text_bytes(key.len()))?;
                    entries.insert(key.to_string(), self.value(&value)?);
                }
                Ok(Value::Object(entries))
            }
            Val::Struct(made) => {
                self.check(made.type_name)?;
                self.budget.json(object_bytes(made.fields.len()))?;
                let mut entries = serde_json::Map::new();
                for (name, value) in &made.fields {
                    self.budget.json(text_bytes(name.len()))?;
                    let length = self.place.as_ref().map(String::len);
                    if let Some(place) = &mut self.place {
                        place.push('.');
                        place.push_str(name);
                    }
                    let value = self.value(value)?;
                    if let (Some(place), Some(length)) = (&mut self.place, length) {
                        place.truncate(length);
                    }
                    entries.insert((*name).to_owned(), value);
                }
                Ok(Value::Object(entries))
            }
            other => self.value(other),
        }
    }

    fn check(&self, type_name: &str) -> Result<(), EvalError> {
        match &self.place {
            Some(place) if place != type_name || !is_object_type(type_name) => {
                Err(EvalError::Refused(misplaced(type_name, place)))
            }
            _ => Ok(()),
        }
    }
}

/// Returns JSON as a value that is nobody else's.
pub(crate) fn of_json<'v>(json: &Value, budget: &mut Budget) -> Result<Val<'v>, EvalError> {
    owned(json, 0, budget)
}

fn owned<'v>(json: &Value, depth: usize, budget: &mut Budget) -> Result<Val<'v>, EvalError> {
    budget.step()?;
    if depth > JSON_DEPTH_MAX {
        let message = format!("JSON of more than {JSON_DEPTH_MAX} levels does not become a value");
        return Err(EvalError::Refused(message));
    }
    Ok(match json {
        Value::String(text) => {
            budget.build(text.len())?;
            Val::text(&**text)
        }
        Value::Array(elements) => {
            budget.elements(elements.len())?;
            let elements = elements
                .iter()
                .map(|element| owned(element, depth + 1, budget));
            Val::list(elements.collect::<Result<_, _>>()?)
        }
        Value::Object(entries) => {
            budget.elements(2 * entries.len())?;
            let mut made = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                budget.build(key.len())?;
                made.push((Val::text(&**key), owned(value, depth + 1, budget)?));
            }
            Val::Map(Map::Own(made.into()))
        }
        Value::Null => Val::Null,
        Value::Bool(value) => Val::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Val::Int(whole),
            None => Val::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
    })
}
