//! The answers to queries, from one state of a view.

use std::time::Duration;

use anteroom_cache_replica::Args;
use anteroom_jmespath::{Environment, Expression};
use anteroom_model::{FactError, Incarnation, Revision};
use anteroom_wire::{
    body,
    query::{Query, QueryRequest},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::harness::{Harness, args, ingress, key, request, request_with};

#[tokio::test(start_paused = true)]
async fn results_are_those_of_a_plain_evaluation() {
    let harness = Harness::with_ingresses(300, args()).await;
    let items = harness.writer.model(&harness.view).items();
    let plain = json!({"items": items, "ingresses": {"items": items}});
    for expression in [
        "items[].spec.rules[].host",
        "ingresses | items[].spec.rules[].host",
        "items[?metadata.namespace=='ns-3'].metadata.name",
        "length(items)",
        "items[7]",
        "items[-1].metadata",
        "max_by(items, &metadata.name).metadata.name",
        "items[].spec.rules[].host | sort(@) | [0:5]",
        "nothing",
    ] {
        let expected = Expression::parse(expression)
            .unwrap()
            .evaluate_json(&plain, &Environment::default())
            .unwrap();
        assert_eq!(harness.value(expression).await, expected, "{expression}");
        assert_eq!(
            harness.value(expression).await,
            expected,
            "{expression}, remembered"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_says_what_it_was_read_from() {
    let mut harness = Harness::with_ingresses(3, args()).await;
    let view = harness.view.clone();
    let revision = harness.writer.synced(&view).await;
    let request = QueryRequest {
        revision_min: Some(revision),
        ..request("length(items)")
    };
    let reply = harness.ask(&request).await.unwrap().unwrap();
    assert_eq!(reply.replica, "r1");
    assert_eq!(reply.revision, revision);
    assert_eq!(reply.objects, 3);
    assert_eq!(reply.version.as_str(), "3");
    assert!(reply.age_ms <= 1_000, "{}", reply.age_ms);
}

#[tokio::test(start_paused = true)]
async fn a_position_of_another_log_demands_nothing() {
    let mut harness = Harness::with_ingresses(3, args()).await;
    let view = harness.view.clone();
    let revision = harness.writer.synced(&view).await;
    let reply = harness.ask(&request("length(items)")).await;
    let served = reply.unwrap().unwrap().incarnation;
    let beyond = QueryRequest {
        revision_min: Some(Revision(revision.0 + 1_000)),
        revision_min_of: Some(served),
        ..request("length(items)")
    };
    let short = Duration::from_millis(100);
    let answer = harness.ask_within(&beyond, short).await.unwrap();
    assert!(
        matches!(answer, Err(FactError::RevisionNotReached { .. })),
        "{answer:?}"
    );
    let elsewhere = QueryRequest {
        revision_min_of: Some(Incarnation("another".into())),
        ..beyond
    };
    let reply = harness
        .ask_within(&elsewhere, short)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reply.revision, revision);
}

#[tokio::test(start_paused = true)]
async fn parameters_are_bound_and_several_queries_are_answered_from_one_state() {
    let harness = Harness::with_ingresses(100, args()).await;
    let owners = "length(items[?spec.rules[?host == $host]])";
    let mut request = request_with(owners, json!({"host": "host-42.example.com"}));
    let free = request_with(owners, json!({"host": "free.example.com"}));
    request.queries.extend(free.queries);
    request
        .queries
        .extend(request_with("$host", json!({})).queries);
    let reply = harness.ask(&request).await.unwrap().unwrap();
    let value = |n: usize| body::to_json(reply.results[n].as_ref().unwrap()).unwrap();
    assert_eq!((value(0), value(1)), (json!(1), json!(0)));
    let unbound = reply.results[2].as_ref().unwrap_err();
    assert!(
        matches!(unbound, FactError::EvaluationFailed { .. }),
        "{unbound}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_missing_key_is_null_or_an_error_as_the_query_says() {
    let harness = Harness::with_ingresses(1, args()).await;
    assert_eq!(
        harness.value("items[0].spec.nothing.here").await,
        Value::Null
    );
    let mut strict = request("items[0].spec.nothing.here");
    strict.queries[0].missing_key_is_error = true;
    let error = harness.error(&strict).await;
    assert!(
        matches!(error, FactError::EvaluationFailed { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_the_revision_that_it_asks_for() {
    let mut harness = Harness::with_ingresses(10, args()).await;
    let view = harness.view.clone();
    let next = Revision(harness.writer.model(&view).revision.0 + 1);
    let request = QueryRequest {
        revision_min: Some(next),
        ..request("length(items)")
    };
    let short = Duration::from_millis(100);
    let refused = harness
        .ask_within(&request, short)
        .await
        .unwrap()
        .unwrap_err();
    assert!(matches!(refused, FactError::RevisionNotReached { want, .. } if want == next));

    let bus = harness.bus.join();
    let asking = tokio::spawn({
        let (to, request) = (harness.address(), request);
        async move {
            let body = anteroom_wire::query::encode_request(&request).unwrap();
            let deadline = Duration::from_secs(10);
            let call = anteroom_bus::Call {
                body,
                deadline,
                trace: None,
            };
            let reply = anteroom_bus::Bus::request(&bus, &to, call, deadline).await;
            anteroom_wire::query::decode_outcome(&reply.unwrap()).unwrap()
        }
    });
    let key = key(10);
    let written = harness
        .writer
        .put(&view, &key.namespace, &key.name, ingress(10))
        .await;
    assert_eq!(written, next);
    let reply = asking.await.unwrap().unwrap();
    assert!(reply.revision >= next);
    assert_eq!(reply.objects, 11);
}

/// An expression that no index answers, and no counter.
const SCANNED: &str = "items[?value >= $value && value <= $value] | length(@)";

/// More objects than are evaluated over inline.
const MANY: usize = 100;

#[tokio::test(start_paused = true)]
async fn a_result_is_remembered_unless_it_was_evaluated_inline() {
    for (objects, kept) in [(MANY, true), (10, false)] {
        let harness = Harness::with_ingresses(objects, args()).await;
        let names = "items[?ends_with(metadata.name, 'x')].metadata.name";
        for _ in 0..3 {
            assert_eq!(harness.value(names).await, json!([]));
        }
        let hits = harness.count("anteroom_query_memo_hits");
        assert_eq!(hits, if kept { 2 } else { 0 });
        assert_eq!(harness.count("anteroom_query_evaluations"), 3 - hits);
    }
}

/// An object is small, and what an expression makes of it is not.
#[tokio::test(start_paused = true)]
async fn a_query_that_takes_many_steps_is_evaluated_on_a_worker_however_few_its_objects_are() {
    let harness = Harness::with_ingresses(1, args()).await;
    let doubled = " | [@, @][]".repeat(14);
    let long = format!("items{doubled} | length(@)");
    for _ in 0..3 {
        assert_eq!(harness.value(&long).await, json!(1 << 14));
    }
    assert_eq!(harness.count("anteroom_query_evaluations"), 1);
    let hits = harness.count("anteroom_query_memo_hits");
    assert_eq!(hits, 2, "only results of workers are remembered");
}

/// One request has a limited time where it arrives, in whatever number of queries.
#[tokio::test(start_paused = true)]
async fn the_queries_of_a_request_have_few_steps_together_where_they_arrive() {
    let harness = Harness::with_ingresses(1, args()).await;
    let queries = (0..64).map(|n| {
        let doubled = " | [@, @][]".repeat(9);
        Query {
            expression: format!("items{doubled} | length(@) == `{n}`"),
            ..Query::default()
        }
    });
    let request = QueryRequest {
        queries: queries.collect(),
        ..QueryRequest::default()
    };
    for _ in 0..2 {
        let reply = harness.ask(&request).await.unwrap().unwrap();
        assert!(reply.results.iter().all(Result::is_ok));
    }
    let hits = harness.count("anteroom_query_memo_hits");
    assert!(
        (30..64).contains(&hits),
        "{hits}: some are inline, and most are not"
    );
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Control,
    Ask(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..4_u8, 0..3_u8).prop_map(|(key, value)| Step::Put(key, value)),
        1 => (0..4_u8).prop_map(Step::Delete),
        1 => Just(Step::Control),
        5 => (0..3_u8).prop_map(Step::Ask),
    ]
}

/// Changes and queries in any order: what is asked for with the last revision is always the state
/// at the last revision, remembered or not.
async fn no_old_result(expression: &str, args: Args, steps: Vec<Step>) {
    let mut harness = Harness::with_ingresses(MANY, args).await;
    let view = harness.view.clone();
    for step in steps {
        match step {
            Step::Put(key, value) => {
                let object = json!({"value": value});
                harness
                    .writer
                    .put(&view, "ns", &format!("k{key}"), object)
                    .await;
            }
            Step::Delete(key) => {
                harness.writer.delete(&view, "ns", &format!("k{key}")).await;
            }
            Step::Control => {
                harness.writer.synced(&view).await;
            }
            Step::Ask(value) => {
                let model = harness.writer.model(&view);
                let request = QueryRequest {
                    revision_min: Some(model.revision),
                    ..request_with(expression, json!({"value": value}))
                };
                let items = model.items();
                let expected = items
                    .iter()
                    .filter(|item| item["value"] == json!(value))
                    .count();
                let reply = harness.ask(&request).await.unwrap().unwrap();
                let got = body::to_json(reply.results[0].as_ref().unwrap()).unwrap();
                assert_eq!(got, json!(expected));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_memo_never_answers_with_an_older_state(
        steps in proptest::collection::vec(step(), 1..30),
    ) {
                tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(no_old_result(SCANNED, args(), steps));
    }

    #[test]
    fn an_index_never_answers_with_another_state(
        steps in proptest::collection::vec(step(), 1..30),
    ) {
        let args = Args { memo_bytes_max: 0, ..args() };
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(no_old_result("length(items[?value == $value])", args, steps));
    }
}
