//! Values of expressions as JSON, for who evaluates them.

use anteroom_jmespath::json_memory::{list_bytes, object_bytes, text_bytes};
use serde_json::{Number, Value};

use super::Machine;
use crate::{Budget, EvalError, JsonError, Program, ast::Expr, value::Val};

/// Lists and maps within each other in a value. Deeper than an object of the API server is.
const DEPTH_MAX: usize = 256;

impl<'v> Machine<'v> {
    /// Evaluates an expression, and copies its value, if JSON has the same one.
    ///
    /// # Errors
    /// [`JsonError::Failed`] with the expression's error, [`JsonError::NoJson`] if the value is nothing that JSON
    /// has, or would come back as another one.
    pub fn exact_json(&mut self, program: &'v Program) -> Result<Value, JsonError> {
        self.exact_json_of(program.expr())
    }

    pub(super) fn exact_json_of(&mut self, expr: &'v Expr) -> Result<Value, JsonError> {
        let value = self.eval(expr).map_err(JsonError::Failed)?;
        json(&value, DEPTH_MAX, &mut self.tools.budget)
    }
}

fn json(value: &Val<'_>, depth: usize, budget: &mut Budget) -> Result<Value, JsonError> {
    let failed = JsonError::Failed;
    budget.step().map_err(failed)?;
    Ok(match value {
        Val::Null => Value::Null,
        Val::Bool(value) => Value::Bool(*value),
        Val::Int(value) => Value::Number((*value).into()),
        Val::Double(value) => match Number::from_f64(*value) {
            Some(number) => Value::Number(number),
            None => return Err(JsonError::NoJson("double")),
        },
        Val::Text(text) => {
            budget.json(text_bytes(text.len())).map_err(failed)?;
            Value::String(text.to_string())
        }
        Val::List(_) | Val::Map(_) if depth == 0 => return Err(failed(EvalError::TooDeep)),
        Val::List(list) => {
            budget.json(list_bytes(list.len())).map_err(failed)?;
            let mut elements = Vec::with_capacity(list.len());
            for element in list.iter() {
                elements.push(json(&element, depth - 1, budget)?);
            }
            Value::Array(elements)
        }
        Val::Map(map) => {
            budget.json(object_bytes(map.len())).map_err(failed)?;
            let mut entries = serde_json::Map::new();
            for (key, value) in map.entries() {
                let Val::Text(key) = key else {
                    return Err(JsonError::NoJson("map"));
                };
                budget.json(text_bytes(key.len())).map_err(failed)?;
                entries.insert(key.to_string(), json(&value, depth - 1, budget)?);
            }
            Value::Object(entries)
        }
        other => return Err(JsonError::NoJson(other.type_name())),
    })
}
