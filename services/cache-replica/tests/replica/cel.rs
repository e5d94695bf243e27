//! Queries in CEL: what they come to, by an index or by slices, and their errors.

use std::{collections::BTreeMap, time::Duration};

use anteroom_cache_replica::Args;
use anteroom_model::{FactError, ObjectKey, Shape};
use anteroom_wire::query::{self, CelOutcome, CelQuery, Query, QueryRequest, Selection};
use serde_json::{Value, json};

use crate::harness::{Harness, args, ingress, key};

/// More than are looked through as fast.
const OBJECTS: usize = 300;

const BY_HOST: &str = "view.items.exists(x, x.spec.rules.exists(r, r.host == p0))";

fn verifying() -> Args {
    Args {
        memo_bytes_max: 0,
        verify_plans: 1,
        ..args()
    }
}

fn cel(expression: &str) -> CelQuery {
    CelQuery {
        expression: expression.to_owned(),
        ..CelQuery::default()
    }
}

fn asking(query: CelQuery, parameters: Value, selection: Selection) -> QueryRequest {
    let parameters = serde_json::from_value(parameters).unwrap();
    QueryRequest {
        queries: vec![Query::cel(query, parameters, Some(selection))],
        ..QueryRequest::default()
    }
}

fn list() -> Selection {
    Selection {
        shape: Shape::List,
        ..Selection::default()
    }
}

async fn outcome(harness: &Harness, request: &QueryRequest) -> Result<CelOutcome, FactError> {
    let reply = harness.ask(request).await.unwrap().unwrap();
    let result = reply.results[0].clone();
    result.map(|body| query::decode_cel(&body).unwrap())
}

async fn value(harness: &Harness, expression: &str, parameters: Value) -> Value {
    match outcome(harness, &asking(cel(expression), parameters, list())).await {
        Ok(CelOutcome::Value(value)) => value,
        other => panic!("{expression}: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_expression_of_cel_sees_a_list_as_policies_do() {
    let harness = Harness::with_ingresses(3, args()).await;
    for (expression, expected) in [
        ("view.items.size()", json!(3)),
        (
            "view.kind + ' ' + view.apiVersion",
            json!("IngressList networking.k8s.io/v1"),
        ),
        ("has(view.metadata.resourceVersion)", json!(true)),
        ("has(view.ingresses)", json!(false)),
        ("view.items[1].metadata.name", json!("ing-00001")),
        (
            "view.items.map(x, x.metadata.name)",
            json!(["ing-00000", "ing-00001", "ing-00002"]),
        ),
        (
            "view.items.filter(x, x.metadata.name == p0)",
            json!([ingress(2)]),
        ),
        (
            "{'a': [1, 1.5, p0, null]}",
            json!({"a": [1, 1.5, "ing-00002", null]}),
        ),
    ] {
        let found = value(&harness, expression, json!({"p0": "ing-00002"})).await;
        assert_eq!(found, expected, "{expression}");
    }
}

#[tokio::test(start_paused = true)]
async fn documents_are_selected_each_by_itself_and_an_absent_object_is_null() {
    let harness = Harness::with_ingresses(21, args()).await;
    let one = |object| Selection {
        shape: Shape::Object,
        object: Some(object),
        ..Selection::default()
    };
    let query = CelQuery {
        expression: "[view.metadata.name, none, own.size(), whole.items.size(), variables.n]"
            .into(),
        variables: vec![(
            "n".into(),
            "own.map(x, x.metadata.namespace).distinct()".into(),
        )],
        documents: BTreeMap::from([
            ("none".to_owned(), one(ObjectKey::new("ns-0", "none"))),
            (
                "own".to_owned(),
                Selection {
                    shape: Shape::Array,
                    namespace: "ns-3".into(),
                    ..Selection::default()
                },
            ),
            ("whole".to_owned(), Selection::default()),
        ]),
        ..CelQuery::default()
    };
    let found = outcome(&harness, &asking(query, json!({}), one(key(5)))).await;
    let expected = json!(["ing-00005", null, 3, 21, ["ns-3"]]);
    assert_eq!(found, Ok(CelOutcome::Value(expected)));
}

#[tokio::test(start_paused = true)]
async fn errors_of_cel_say_whose_they_are() {
    let harness = Harness::with_ingresses(3, args()).await;
    let failed = |expression: &str| CelQuery {
        failed: BTreeMap::from([("p1".to_owned(), "no such key: b".to_owned())]),
        ..cel(expression)
    };
    let message = |message: &str| CelOutcome::Failed {
        message: message.into(),
    };
    for (expression, expected) in [
        ("view.items[0].spec.none", message("no such key: none")),
        ("view.items[7]", message("index out of bounds: 7")),
        ("p1", CelOutcome::Parameter { name: "p1".into() }),
        ("true || p1", CelOutcome::Value(json!(true))),
        (
            "view.items.exists(x, x.metadata.name == p1)",
            CelOutcome::Parameter { name: "p1".into() },
        ),
        (
            "1u",
            CelOutcome::NoJson {
                kind: "uint".into(),
            },
        ),
        (
            "view.?none",
            CelOutcome::NoJson {
                kind: "optional_type".into(),
            },
        ),
    ] {
        let found = outcome(&harness, &asking(failed(expression), json!({}), list())).await;
        assert_eq!(found, Ok(expected), "{expression}");
    }
    for expression in ["view.", "object.metadata", "no_such_function(1)", "p7"] {
        let found = outcome(&harness, &asking(cel(expression), json!({}), list())).await;
        assert!(
            matches!(found, Err(FactError::ExpressionInvalid { .. })),
            "{expression}"
        );
    }
    let limited = Selection {
        limit: Some(1),
        ..list()
    };
    let found = outcome(&harness, &asking(cel("view.items"), json!({}), limited)).await;
    assert!(
        matches!(found, Err(FactError::RequestInvalid { .. })),
        "{found:?}"
    );
    let steps = Args {
        query_steps_max: 50,
        ..args()
    };
    let harness = Harness::with_ingresses(30, steps).await;
    let found = outcome(
        &harness,
        // No index can answer that, and take fewer steps.
        &asking(
            cel("view.items.all(x, x.metadata.name.size() > 0)"),
            json!({}),
            list(),
        ),
    )
    .await;
    assert!(
        matches!(found, Err(FactError::BudgetExceeded { .. })),
        "{found:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_index_answers_cel_as_a_scan_does_while_the_view_changes() {
    let mut harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let view = harness.view.clone();
    while harness.count("anteroom_query_lookups") == 0 {
        let host = json!({"p0": "host-7.example.com"});
        assert_eq!(value(&harness, BY_HOST, host).await, json!(true));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let looked_up = harness.count("anteroom_query_lookups");
    for n in 0..40 {
        let of = key(n);
        let written = match n % 2 {
            0 => harness.writer.delete(&view, &of.namespace, &of.name).await,
            _ => {
                let mut object = ingress(n);
                object["spec"]["rules"] = json!([{}]);
                harness
                    .writer
                    .put(&view, &of.namespace, &of.name, object)
                    .await
            }
        };
        let parameters = json!({"p0": format!("host-{n}.example.com")});
        let request = QueryRequest {
            revision_min: Some(written),
            ..asking(cel(BY_HOST), parameters, list())
        };
        let expected = match n {
            0 => CelOutcome::Value(json!(false)),
            _ => CelOutcome::Failed {
                message: "no such key: host".into(),
            },
        };
        assert_eq!(outcome(&harness, &request).await, Ok(expected), "{n}");
    }
    assert!(harness.count("anteroom_query_lookups") >= looked_up + 40);
    assert_eq!(harness.count("anteroom_query_plan_mismatches"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_indexed_query_of_cel_looks_at_few_objects() {
    let harness = Harness::with_ingresses(OBJECTS, args()).await;
    let request = |n: usize| {
        let parameters = json!({"p0": format!("host-{n}.example.com")});
        asking(cel(BY_HOST), parameters, list())
    };
    let mut n = 0;
    loop {
        n += 1;
        let reply = harness.ask(&request(n)).await.unwrap().unwrap();
        if reply.examined == 1 {
            break;
        }
        assert!(n < 250, "no index came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_that_goes_on_elsewhere_is_counted_once() {
    let harness = Harness::with_ingresses(50, args()).await;
    // More steps than are taken where a query arrives.
    let long = "view.items.filter(x, lists.range(40).exists(n, x.metadata.name.endsWith('y' + string(n)))).size()";
    let reply = harness.ask(&asking(cel(long), json!({}), list())).await;
    assert_eq!(reply.unwrap().unwrap().examined, 50);
    assert_eq!(harness.count("anteroom_query_evaluations"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_looked_through_in_turns() {
    let harness = Harness::with_ingresses(1_300, args()).await;
    let scan = "view.items.filter(x, x.metadata.name.endsWith('99')).size()";
    assert_eq!(value(&harness, scan, json!({})).await, json!(13));
    assert_eq!(harness.count("anteroom_query_scans_by_slices"), 1);
    // The same again is remembered.
    assert_eq!(value(&harness, scan, json!({})).await, json!(13));
    assert_eq!(harness.count("anteroom_query_scans_by_slices"), 1);
}
