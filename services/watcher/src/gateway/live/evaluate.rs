//! Evaluation next to the data, so that only the result travels.

use std::sync::Arc;

use anteroom_jmespath::{Budget, Environment, EvalError, Expression, MissingKey};
use anteroom_model::FactError;
use anteroom_runtime::fair_quota::{FairPermit, FairQuota, QuotaFull};
use anteroom_wire::{WireError, beneficiary::Beneficiary, body, query::Query};
use bytes::Bytes;
use serde_json::Value;

use super::{
    faults::ended,
    large_requests::HeldRequest,
    limits::{ReadClaim, busy},
    reader::INLINE_BYTES_MAX,
};

/// The evaluations that have a thread at once.
const EVALUATIONS_MAX: u64 = 2;

/// The budget where the evaluation holds up other tasks: about a millisecond.
const SHORT_BUDGET: Budget = Budget {
    steps: 20_000,
    depth: anteroom_jmespath::DEPTH_MAX,
    built_bytes: 1024 * 1024,
    json_bytes: 2 * 1024 * 1024,
};

/// The threads of long evaluations, which the beneficiaries of reads get in turns. Each beneficiary has all threads but
/// one. So no large answer keeps its memory while many evaluations of another beneficiary go first.
pub(super) struct Evaluations {
    all: Arc<FairQuota<Beneficiary>>,
    /// Policies of namespaces leave a thread to the requests that policies of the cluster judge.
    of_namespaces: Arc<FairQuota<Beneficiary>>,
}

impl Default for Evaluations {
    fn default() -> Self {
        let but_one = EVALUATIONS_MAX - 1;
        Self {
            all: FairQuota::new(EVALUATIONS_MAX, but_one),
            of_namespaces: FairQuota::new(but_one, but_one),
        }
    }
}

impl Evaluations {
    /// The result of a request's query over an answer of so many bytes, as a body. A short query is evaluated where the call
    /// arrived.
    ///
    /// # Errors
    /// Those of the query, or [`FactError::LiveReadBusy`] where there was no thread before the claim's deadline.
    pub(super) async fn evaluate(
        &self,
        held: &Arc<HeldRequest>,
        answer: Arc<Value>,
        bytes: usize,
        claim: &ReadClaim,
    ) -> Result<Bytes, FactError> {
        if bytes <= INLINE_BYTES_MAX {
            let result = evaluate(held.query(), &answer, SHORT_BUDGET);
            if !matches!(result, Err(FactError::BudgetExceeded { .. })) {
                return result;
            }
        }
        let permit = self.permit(claim).await;
        let permit = permit.map_err(|full| {
            let message = "other live reads are being evaluated";
            busy(message, claim.is_over_part(full))
        })?;
        let held = Arc::clone(held);
        let evaluated = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            evaluate(held.query(), &answer, Budget::default())
        });
        evaluated.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Waits for a thread until the claim's deadline.
    async fn permit(&self, claim: &ReadClaim) -> Result<EvaluationPermit, QuotaFull> {
        let take = |quota: &Arc<FairQuota<Beneficiary>>| {
            let (quota, beneficiary) = (Arc::clone(quota), claim.beneficiary.clone());
            async move { quota.take(beneficiary, 1, claim.deadline).await }
        };
        let of_namespaces = match claim.beneficiary {
            Beneficiary::Policies(_) => Some(take(&self.of_namespaces).await?),
            Beneficiary::Requests(_) | Beneficiary::Scans => None,
        };
        Ok((take(&self.all).await?, of_namespaces))
    }
}

/// The permit to take a thread for an evaluation.
type EvaluationPermit = (FairPermit<Beneficiary>, Option<FairPermit<Beneficiary>>);

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
    let mut remaining = budget;
    let result = expression.evaluate_out_of(answer, &environment, &mut remaining);
    let result = result.map_err(|error| {
        let message = error.to_string();
        match error {
            EvalError::Budget { .. } => FactError::BudgetExceeded { message },
            _ => FactError::EvaluationFailed { message },
        }
    })?;
    body::encode_result(&result, &mut remaining).map_err(|error| match error {
        WireError::Limit { .. } => FactError::BudgetExceeded {
            message: format!("its result: {error}"),
        },
        other => FactError::EvaluationFailed {
            message: other.to_string(),
        },
    })
}

#[cfg(test)]
mod tests {
    use anteroom_model::ObjectKey;
    use anteroom_wire::live::{LiveCall, LiveRequest};
    use tokio::time::Instant;

    use super::*;

    fn query(expression: String) -> Query {
        Query {
            expression,
            parameters: Arc::default(),
            missing_key_is_error: true,
            selection: None,
            cel: None,
        }
    }

    fn held_request(query: Query) -> Arc<HeldRequest> {
        let request = LiveRequest {
            policy: ObjectKey::new("", "p"),
            rule: "r".to_owned(),
            variable: "v".to_owned(),
            call: LiveCall::Image {
                reference: "i".to_owned(),
            },
            query,
            review_namespace: String::new(),
            review: 0,
            of_scan: false,
        };
        Arc::new(HeldRequest::new(request, None))
    }

    /// Parts are shared until they are written or converted.
    #[test]
    fn results_that_share_their_parts_are_over_every_budget() {
        let list = format!("[{}]", vec!["@"; 1_200].join(","));
        let shared = format!("{{a: name == 'q'}} | {list} | {list}");
        let answer = serde_json::json!({"name": "p"});
        for expression in [shared.clone(), format!("any_in({shared}, `[1]`)")] {
            let query = query(expression);
            for budget in [SHORT_BUDGET, Budget::default()] {
                let error = evaluate(&query, &answer, budget).unwrap_err();
                assert!(matches!(error, FactError::BudgetExceeded { .. }), "{error}");
            }
        }
    }

    #[tokio::test]
    async fn a_beneficiary_leaves_a_thread_to_the_evaluations_of_others() {
        let evaluations = Evaluations::default();
        let [of_a, of_b] = ["a", "b"].map(|namespace| ReadClaim {
            beneficiary: Beneficiary::Requests(namespace.to_owned()),
            deadline: Instant::now(),
        });
        let held: Vec<_> =
            std::iter::from_fn(|| evaluations.all.try_take(of_a.beneficiary.clone(), 1).ok())
                .collect();
        assert_eq!(held.len(), 1);
        let held_request = held_request(query("a".to_owned()));
        let answer = Arc::new(serde_json::json!({"a": 1}));
        let evaluate = |claim| {
            let answer = Arc::clone(&answer);
            evaluations.evaluate(&held_request, answer, INLINE_BYTES_MAX + 1, claim)
        };
        assert!(evaluate(&of_b).await.is_ok());
        let error = evaluate(&of_a).await.unwrap_err();
        assert!(matches!(error, FactError::LiveReadBusy { .. }), "{error}");
        assert!(error.is_over_part(), "it has the part of its namespace");
        drop(held);
        assert!(evaluate(&of_a).await.is_ok());

        let [of_c, of_d] = ["c", "d"].map(|namespace| ReadClaim {
            beneficiary: Beneficiary::Policies(namespace.to_owned()),
            deadline: Instant::now(),
        });
        let held = evaluations.permit(&of_c).await;
        let error = evaluate(&of_d).await.unwrap_err();
        assert!(held.is_ok() && !error.is_over_part());
        assert!(evaluate(&of_b).await.is_ok(), "policies of the cluster");
    }
}
