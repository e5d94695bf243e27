//! Evaluation next to the data, so that only the result travels.

use std::sync::Arc;

use anteroom_jmespath::{Budget, Environment, EvalError, Expression, MissingKey};
use anteroom_model::FactError;
use anteroom_wire::{WireError, body, query::Query};
use bytes::Bytes;
use serde_json::Value;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    limits::busy,
    reader::{INLINE_BYTES_MAX, ended},
};

/// The evaluations that have a thread at once.
const EVALUATIONS_MAX: usize = 2;

/// The budget where the evaluation holds up other tasks: about a millisecond.
const SHORT_BUDGET: Budget = Budget {
    steps: 20_000,
    depth: anteroom_jmespath::DEPTH_MAX,
    built_bytes: 1024 * 1024,
};

/// The threads of long evaluations, for which these wait in turn.
pub(super) struct Evaluations(Arc<Semaphore>);

impl Default for Evaluations {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(EVALUATIONS_MAX)))
    }
}

impl Evaluations {
    /// The result of a query over an answer of so many bytes, as a body. A short query is evaluated where the call arrived.
    ///
    /// # Errors
    /// Those of the query, or there was no thread before the deadline.
    pub(super) async fn evaluate(
        &self,
        query: &Query,
        answer: Arc<Value>,
        bytes: usize,
        deadline: Instant,
    ) -> Result<Bytes, FactError> {
        if bytes <= INLINE_BYTES_MAX {
            let result = evaluate(query, &answer, SHORT_BUDGET);
            if !matches!(result, Err(FactError::BudgetExceeded { .. })) {
                return result;
            }
        }
        let place = Arc::clone(&self.0).acquire_owned();
        let Ok(Ok(place)) = tokio::time::timeout_at(deadline, place).await else {
            return Err(busy("other live reads are being evaluated"));
        };
        let query = query.clone();
        let evaluated = tokio::task::spawn_blocking(move || {
            let _place = place;
            evaluate(&query, &answer, Budget::default())
        });
        evaluated.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// The result of a query over an answer, as a body.
///
/// # Errors
/// [`FactError::ExpressionInvalid`], [`FactError::EvaluationFailed`] or
/// [`FactError::BudgetExceeded`].
fn evaluate(query: &Query, answer: &Value, budget: Budget) -> Result<Bytes, FactError> {
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
