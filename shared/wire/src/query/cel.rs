//! Queries in CEL, and what they come to.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_model::limits::{CEL_DOCUMENTS_MAX, EXPRESSION_BYTES_MAX};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Query, Selection};
use crate::{
    WireError,
    body::{self, within},
};

/// The version of the CEL of this release: its functions and their meaning. A query is sent only to replicas whose
/// [beat](crate::replica_beat::ReplicaBeat) names this one or a later one.
pub const CEL_VERSION: u32 = 1;

/// The JMESPath of a query in CEL. It is none: a replica that knows no CEL answers
/// [`FactError::ExpressionInvalid`](anteroom_model::FactError) and nothing else.
pub const CEL_EXPRESSION: &str = "<cel>";

/// The name of the document that the query's selection selects.
pub const VIEW: &str = "view";

/// An expression of CEL over a view.
///
/// It is about the document `view`, which [`Query::selection`] selects, and about further ones of the same view.
/// Lists are `{apiVersion, kind, items}`, whose items have an `apiVersion` and a `kind`; with
/// [`Shape::List`](anteroom_model::Shape) they have `metadata`, too. An array is the items. One object is itself, or
/// null where the API server has no such object. The query's parameters are names without a `$`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CelQuery {
    /// The expression.
    pub expression: String,
    /// The variables before it, by name: each sees those before it, and is evaluated where it is first read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<(String, String)>,
    /// Parameters whose value is an error, with the message. The error counts only if the evaluation reaches the
    /// parameter.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, String>,
    /// Further documents of the view, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub documents: BTreeMap<String, Selection>,
}

impl Query {
    /// A query in CEL.
    pub fn cel(
        query: CelQuery,
        parameters: Arc<BTreeMap<String, Value>>,
        selection: Option<Selection>,
    ) -> Self {
        Self {
            expression: CEL_EXPRESSION.to_owned(),
            parameters,
            missing_key_is_error: false,
            selection,
            cel: Some(Box::new(query)),
        }
    }
}

/// The outcome of a query in CEL that the view could answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CelOutcome {
    /// A value.
    Value(Value),
    /// An error of the evaluation.
    Failed {
        /// The error.
        message: String,
    },
    /// The error of a parameter.
    Parameter {
        /// The name of the parameter.
        name: String,
    },
    /// A value of this type, which JSON lacks or represents by a different type.
    NoJson {
        /// The name of the type, as in `uint`.
        kind: String,
    },
}

/// An outcome as the body of a result.
///
/// # Errors
/// As [`body::encode_value`].
pub fn encode_cel(outcome: &CelOutcome) -> Result<Bytes, WireError> {
    body::encode_value(outcome)
}

/// The body of a result as an outcome.
///
/// # Errors
/// As [`body::decode`].
pub fn decode_cel(bytes: &[u8]) -> Result<CelOutcome, WireError> {
    body::decode(bytes)
}

pub(super) fn check(query: &CelQuery) -> Result<(), WireError> {
    let variables = query.variables.iter().map(|(_, text)| text.len());
    within(
        "bytes of an expression",
        query.expression.len() + variables.sum::<usize>(),
        EXPRESSION_BYTES_MAX,
    )?;
    within(
        "documents of a query",
        query.documents.len(),
        CEL_DOCUMENTS_MAX,
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outcomes_of_cel_come_back_as_they_were() {
        for outcome in [
            CelOutcome::Value(json!({"a": [1, 1.5, null]})),
            CelOutcome::Value(Value::Null),
            CelOutcome::Failed {
                message: "no such key: a".into(),
            },
            CelOutcome::Parameter { name: "p0".into() },
            CelOutcome::NoJson {
                kind: "uint".into(),
            },
        ] {
            let bytes = encode_cel(&outcome).unwrap();
            assert_eq!(decode_cel(&bytes), Ok(outcome));
        }
    }

    #[test]
    fn an_expression_of_cel_counts_with_its_variables() {
        let query = |bytes: usize| CelQuery {
            expression: "a".repeat(bytes),
            variables: vec![("v".into(), "1".into())],
            ..CelQuery::default()
        };
        assert!(check(&query(EXPRESSION_BYTES_MAX - 1)).is_ok());
        assert!(check(&query(EXPRESSION_BYTES_MAX)).is_err());
    }

    #[test]
    fn a_query_with_more_documents_than_the_limit_is_refused() {
        let query = |documents: usize| CelQuery {
            documents: (0..documents)
                .map(|at| (at.to_string(), Selection::default()))
                .collect(),
            ..CelQuery::default()
        };
        assert!(check(&query(CEL_DOCUMENTS_MAX)).is_ok());
        assert!(check(&query(CEL_DOCUMENTS_MAX + 1)).is_err());
    }
}
