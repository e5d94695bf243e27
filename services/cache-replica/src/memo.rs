//! Results, kept for the next query that is the same in all that matters.

use std::{sync::Arc, time::Duration};

use anteroom_mirror::ContentStamp;
use anteroom_model::{FactError, ViewId};
use anteroom_wire::query::{Query, Selection};
use bytes::Bytes;
use moka::sync::Cache;

/// The time after which an unused result is dropped: the view has mostly changed by then.
const IDLE: Duration = Duration::from_secs(30);

/// The size of an entry beside its texts and its result.
const ENTRY_BYTES: usize = 256;

/// Everything that a result depends on. The content's stamp is part of it, so a changed view never
/// answers with an older result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MemoKey {
    view: ViewId,
    content: ContentStamp,
    query: QueryKey,
}

/// The parts of a query that its result depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueryKey {
    expression: Arc<str>,
    /// A JSON object, in order of name; empty without any parameters.
    parameters: Arc<str>,
    missing_key_is_error: bool,
    /// The query in CEL as JSON; `None`: it is JMESPath.
    cel: Option<Arc<str>>,
    /// `None`: the view whole.
    selection: Option<Arc<Selection>>,
}

impl QueryKey {
    pub(crate) fn of(query: &Query) -> Self {
        let parameters = if query.parameters.is_empty() {
            String::new()
        } else {
            // A map with texts as keys, of JSON values: there is nothing in it that JSON cannot say.
            serde_json::to_string(&query.parameters).unwrap_or_default()
        };
        Self {
            expression: query.expression.as_str().into(),
            parameters: parameters.into(),
            missing_key_is_error: query.missing_key_is_error,
            cel: query.cel.as_deref().map(|cel| {
                // Texts and selections: there is nothing in it that JSON cannot say.
                serde_json::to_string(cel).unwrap_or_default().into()
            }),
            selection: query
                .selection
                .as_ref()
                .filter(|selection| **selection != Selection::default())
                .map(|selection| Arc::new(selection.clone())),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let selection = self.selection.as_ref().map_or(0, |selection| {
            let object = selection.object.as_ref().map_or(0, |key| key.name_bytes());
            let texts = [
                &selection.namespace,
                &selection.label_selector,
                &selection.field_selector,
            ];
            size_of::<Selection>() + object + texts.map(String::len).iter().sum::<usize>()
        });
        let cel = self.cel.as_ref().map_or(0, |cel| cel.len());
        self.expression.len() + self.parameters.len() + cel + selection
    }
}

/// Results, bounded by bytes.
#[derive(Debug)]
pub(crate) struct Memo {
    results: Cache<MemoKey, Result<Bytes, FactError>>,
}

impl Memo {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let weigh = |key: &MemoKey, result: &Result<Bytes, FactError>| {
            let result_bytes = match result {
                Ok(result) => result.len(),
                Err(error) => error.to_string().len(),
            };
            u32::try_from(ENTRY_BYTES + key.query.bytes() + result_bytes).unwrap_or(u32::MAX)
        };
        Self {
            results: Cache::builder()
                .max_capacity(bytes_max)
                .weigher(weigh)
                .time_to_idle(IDLE)
                .build(),
        }
    }

    /// The size of all results in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.results.weighted_size()
    }

    #[cfg(test)]
    pub(crate) fn bytes_max(&self) -> u64 {
        self.results.policy().max_capacity().unwrap_or(u64::MAX)
    }

    pub(crate) fn get(
        &self,
        view: &ViewId,
        content: ContentStamp,
        query: &QueryKey,
    ) -> Option<Result<Bytes, FactError>> {
        self.results.get(&key(view, content, query))
    }

    /// Keeps the result of an evaluation over this content, errors included. Results that depend on the moment, such
    /// as a missed deadline, are not kept.
    pub(crate) fn put(
        &self,
        view: &ViewId,
        content: ContentStamp,
        query: &QueryKey,
        result: Result<Bytes, FactError>,
    ) {
        self.results.insert(key(view, content, query), result);
    }
}

fn key(view: &ViewId, content: ContentStamp, query: &QueryKey) -> MemoKey {
    MemoKey {
        view: view.clone(),
        content,
        query: query.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(expression: &str, parameters: serde_json::Value, strict: bool) -> QueryKey {
        QueryKey::of(&Query {
            expression: expression.into(),
            parameters: serde_json::from_value(parameters).unwrap(),
            missing_key_is_error: strict,
            selection: None,
            cel: None,
        })
    }

    #[test]
    fn a_memo_key_holds_everything_that_a_result_depends_on() {
        let base = query("a", serde_json::json!({"x": 1}), false);
        assert_eq!(base, query("a", serde_json::json!({"x": 1}), false));
        assert_ne!(base, query("b", serde_json::json!({"x": 1}), false));
        assert_ne!(base, query("a", serde_json::json!({"x": "1"}), false));
        assert_ne!(base, query("a", serde_json::json!({"y": 1}), false));
        assert_ne!(base, query("a", serde_json::json!({}), false));
        assert_ne!(base, query("a", serde_json::json!({"x": 1}), true));
        let selecting = |selection: Selection| {
            QueryKey::of(&Query {
                expression: "a".into(),
                parameters: serde_json::from_value(serde_json::json!({"x": 1})).unwrap(),
                missing_key_is_error: false,
                selection: Some(selection),
                cel: None,
            })
        };
        assert_eq!(base, selecting(Selection::default()), "the view whole");
        let of = |namespace: &str| Selection {
            namespace: namespace.into(),
            ..Selection::default()
        };
        assert_ne!(base, selecting(of("a")));
        assert_ne!(selecting(of("b")), selecting(of("a")));
    }

    #[test]
    fn results_are_bounded_by_bytes() {
        let memo = Memo::new(100_000);
        let view = ViewId::new("v");
        for n in 0..1_000 {
            let query = query(&n.to_string(), serde_json::json!({}), false);
            memo.put(
                &view,
                ContentStamp::default(),
                &query,
                Ok(vec![0; 1_000].into()),
            );
        }
        memo.results.run_pending_tasks();
        assert!(memo.results.weighted_size() <= 100_000);
    }

    #[test]
    fn a_memo_of_no_bytes_keeps_nothing() {
        let memo = Memo::new(0);
        let (view, query) = (ViewId::new("v"), query("a", serde_json::json!({}), false));
        memo.put(&view, ContentStamp::default(), &query, Ok(Bytes::new()));
        memo.results.run_pending_tasks();
        assert_eq!(memo.get(&view, ContentStamp::default(), &query), None);
    }

    #[test]
    fn an_error_weighs_as_much_as_its_message() {
        let memo = Memo::new(u64::MAX);
        let (view, query) = (ViewId::new("v"), query("a", serde_json::json!({}), false));
        let message = "m".repeat(10_000);
        let error = FactError::RequestInvalid { message };
        memo.put(&view, ContentStamp::default(), &query, Err(error));
        memo.results.run_pending_tasks();
        assert!(memo.bytes() >= 10_000, "{}", memo.bytes());
    }
}
