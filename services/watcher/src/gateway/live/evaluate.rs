//! Evaluation next to the data, so that only the result travels.

use anteroom_jmespath::{Budget, Environment, EvalError, Expression, MissingKey};
use anteroom_model::FactError;
use anteroom_wire::{WireError, body, query::Query};
use bytes::Bytes;
use serde_json::Value;

/// The budget where the evaluation holds up other tasks: about a millisecond.
pub(super) const SHORT_BUDGET: Budget = Budget {
    steps: 20_000,
    depth: anteroom_jmespath::DEPTH_MAX,
    built_bytes: 1024 * 1024,
};

/// The result of a query over an answer, as a body.
///
/// # Errors
/// [`FactError::ExpressionInvalid`], [`FactError::EvaluationFailed`] or
/// [`FactError::BudgetExceeded`].
pub(super) fn evaluate(query: &Query, answer: &Value, budget: Budget) -> Result<Bytes, FactError> {
    let text = match query.expression.as_str() {
        "" => "@",
        text => text,
    };
    let functions = anteroom_functions::query_functions();
    let invalid = |message| FactError::ExpressionInvalid { message };
    let expression = Expression::parse(text).map_err(|error| invalid(format!("{error:#}")))?;
    let checked = expression.check(functions);
    checked.map_err(|error| invalid(error.to_string()))?;
    let environment = Environment {
        functions,
        parameters: &query.parameters,
        missing_key: if query.missing_key_is_error {
            MissingKey::Error
        } else {
            MissingKey::Null
        },
        budget,
        seed: None,
    };
    let result = expression.evaluate(answer, &environment);
    let result = result.map_err(|error| {
        let message = error.to_string();
        match error {
            EvalError::Budget { .. } => FactError::BudgetExceeded { message },
            _ => FactError::EvaluationFailed { message },
        }
    })?;
    body::encode_value(&result).map_err(|error| match error {
        WireError::Limit { .. } => FactError::BudgetExceeded {
            message: format!("its result: {error}"),
        },
        other => FactError::EvaluationFailed {
            message: other.to_string(),
        },
    })
}
