//! Values as JSON.

use serde_json::{Map as Object, Number, Value};

use super::Val;
use crate::{budget::Budget, error::EvalError};

/// Lists and maps within each other in a value that becomes JSON.
const DEPTH_MAX: usize = 512;

impl Val<'_> {
    /// Returns the value as JSON. An int stays a whole number.
    ///
    /// # Errors
    /// It holds something that JSON does not have: a timestamp, an optional, a type, NaN.
    pub(crate) fn to_json(&self, budget: &mut Budget) -> Result<Value, EvalError> {
        self.json_within(DEPTH_MAX, budget)
    }

    fn json_within(&self, depth: usize, budget: &mut Budget) -> Result<Value, EvalError> {
        budget.step()?;
        let Some(depth) = depth.checked_sub(1) else {
            return Err(EvalError::TooDeep);
        };
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => (*value).into(),
            Self::Uint(value) => (*value).into(),
            Self::Double(value) => match Number::from_f64(*value) {
                Some(number) => Value::Number(number),
                None => return Err(EvalError::Refused(format!("{value} is no JSON"))),
            },
            Self::Text(text) => {
                budget.build(text.len())?;
                Value::String(text.to_string())
            }
            Self::List(list) => {
                budget.elements(list.len())?;
                let elements = list.iter().map(|one| one.json_within(depth, budget));
                Value::Array(elements.collect::<Result<_, _>>()?)
            }
            Self::Map(map) => {
                budget.elements(2 * map.len())?;
                let mut object = Object::new();
                for (key, value) in map.entries() {
                    let Val::Text(key) = key else {
                        let message = format!("a key that is a {} is no JSON", key.type_name());
                        return Err(EvalError::Refused(message));
                    };
                    budget.build(key.len())?;
                    object.insert(key.to_string(), value.json_within(depth, budget)?);
                }
                Value::Object(object)
            }
            other => {
                let message = format!("a {} is no JSON", other.type_name());
                return Err(EvalError::Refused(message));
            }
        })
    }
}
