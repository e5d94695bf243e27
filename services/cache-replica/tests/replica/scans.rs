//! Large views that have to be looked through: slice by slice, with the result of an evaluation over
//! the whole list, and without holding up anybody else.

use std::time::Duration;

use anteroom_bus::{Bus as _, Call};
use anteroom_cache_replica::Args;
use anteroom_model::{FactError, Shape};
use anteroom_wire::{
    body,
    query::{self, Query, QueryRequest, Selection},
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::harness::{Harness, args, ingress, key, request, request_with};

/// Several slices.
const OBJECTS: usize = 3_000;

fn verifying() -> Args {
    Args {
        verify_plans: 1,
        ..args()
    }
}

async fn answer(harness: &Harness, request: &QueryRequest) -> Value {
    let reply = harness.ask(request).await.unwrap().unwrap();
    body::to_json(reply.results[0].as_ref().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn slices_come_to_what_the_whole_list_does_whatever_changed_since() {
    let mut harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let view = harness.view.clone();
    let questions = [
        request("items[].spec.rules[].host"),
        request_with("items[?metadata.name > $n].metadata.name", json!({"n": 1})),
        request_with(
            "items[?ends_with(metadata.name, $end)] | length(@) > `3`",
            json!({"end": "99"}),
        ),
        request("items[].spec.rules[] | [?ends_with(host, '1.example.com')].host | sort(@)"),
        request("items | sort_by(@, &spec.rules[0].host)[0].metadata.name"),
    ];
    for n in 0..6 {
        let of = key(n * 499);
        let written = match n % 2 {
            0 => harness.writer.delete(&view, &of.namespace, &of.name).await,
            _ => {
                let mut object = ingress(n * 499);
                object["spec"]["rules"][0]["host"] = format!("new-{n}1.example.com").into();
                let written = harness.writer.put(&view, &of.namespace, &of.name, object);
                written.await
            }
        };
        for question in &questions {
            let question = QueryRequest {
                revision_min: Some(written),
                ..question.clone()
            };
            let first = answer(&harness, &question).await;
            assert_ne!(first, Value::Null);
        }
        let hosts = answer(&harness, &questions[0]).await;
        assert_eq!(hosts.as_array().map(Vec::len), Some(OBJECTS - 1 - n / 2));
    }
    assert!(harness.count("anteroom_query_scans_by_slices") >= 15);
    assert_eq!(harness.count("anteroom_query_plan_mismatches"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_fails_fails_the_query_with_the_first_error_of_the_list() {
    let mut harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let view = harness.view.clone();
    for (n, host) in [(2_500, json!(7)), (100, json!(null))] {
        let of = key(n);
        let mut object = ingress(n);
        object["spec"]["rules"][0]["host"] = host;
        harness
            .writer
            .put(&view, &of.namespace, &of.name, object)
            .await;
    }
    let error = harness
        .error(&request("items[?starts_with(spec.rules[0].host, 'x')]"))
        .await;
    // By name within namespaces: 2,500 is in the first, 100 in the third.
    assert!(
        matches!(&error, FactError::EvaluationFailed { message } if message.contains("number")),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn slices_share_one_budget() {
    let steps = |query_steps_max| Args {
        query_steps_max,
        ..args()
    };
    let question = request("items[].spec.rules[].host");
    let enough = Harness::with_ingresses(OBJECTS, steps(100_000)).await;
    assert!(answer(&enough, &question).await.is_array());
    // One slice takes less than this; all of them do not.
    let harness = Harness::with_ingresses(OBJECTS, steps(15_000)).await;
    let error = harness.error(&question).await;
    assert!(
        matches!(&error, FactError::BudgetExceeded { message } if message.contains("15000")),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_does_not_come_on_holds_up_neither_short_queries_nor_changes() {
    let held = Args {
        scan_lanes: Some(0),
        ..args()
    };
    let mut harness = Harness::with_ingresses(OBJECTS, held).await;
    let view = harness.view.clone();
    let short = |n: usize| {
        let name = key(n).name;
        request_with(
            "items[?metadata.name == $name].spec.rules[].host",
            json!({"name": name}),
        )
    };
    // The index is built beside scans, and these have no lane.
    while harness
        .ask_within(&short(1), Duration::from_millis(20))
        .await
        .is_ok_and(|outcome| outcome.is_err())
    {}
    let (asker, address) = (harness.bus.join(), harness.address());
    let call = Call {
        body: query::encode_request(&request("items[].spec")).unwrap(),
        deadline: Duration::from_secs(30),
        trace: None,
    };
    let scan = asker.request(&address, call, Duration::from_secs(60));
    let others = async {
        let of = key(OBJECTS);
        let written = harness
            .writer
            .put(&view, &of.namespace, &of.name, ingress(OBJECTS))
            .await;
        let request = QueryRequest {
            revision_min: Some(written),
            ..short(OBJECTS)
        };
        harness.ask(&request).await.unwrap().unwrap()
    };
    tokio::pin!(scan);
    let reply = tokio::select! {
        biased;
        _ = &mut scan => panic!("it has no lane"),
        reply = others => reply,
    };
    let hosts = body::to_json(reply.results[0].as_ref().unwrap()).unwrap();
    assert_eq!(hosts, json!([format!("host-{OBJECTS}.example.com")]));
    let outcome = query::decode_outcome(&scan.await.unwrap()).unwrap();
    assert!(matches!(outcome, Err(FactError::DeadlineExceeded { .. })));
}

#[tokio::test(start_paused = true)]
async fn scans_of_one_namespace_leave_room_for_everybody_else() {
    let held = Args {
        concurrency: 8,
        scan_lanes: Some(0),
        ..args()
    };
    let harness = Harness::with_ingresses(OBJECTS, held).await;
    let of = |namespace: &str, request: QueryRequest| QueryRequest {
        namespace: namespace.to_owned(),
        ..request
    };
    let scan = of("a", request("items[].spec"));
    let given = Duration::from_secs(5);
    // A quarter of the room.
    let waiting = join_all([0, 1].map(|_| harness.ask_within(&scan, given)));
    let others = async {
        let refused = harness.ask(&scan).await.unwrap().unwrap_err();
        let expected = FactError::Busy {
            limit: 2,
            over_part: false,
        };
        assert_eq!(refused, expected, "it did not say which review it is for");
        for namespace in ["", "b"] {
            let short = of(namespace, request("length(items)"));
            let reply = harness.ask(&short).await.unwrap().unwrap();
            let count = body::to_json(reply.results[0].as_ref().unwrap()).unwrap();
            assert_eq!(count, json!(OBJECTS));
        }
    };
    let (waited, ()) = tokio::join!(waiting, others);
    for outcome in waited {
        let error = outcome.unwrap().unwrap_err();
        assert!(
            matches!(error, FactError::DeadlineExceeded { .. }),
            "{error}"
        );
    }
}

/// Otherwise a flood of requests would get one past every policy that ignores errors.
#[tokio::test(start_paused = true)]
async fn an_error_says_whether_other_reviews_in_its_namespace_take_the_part_of_it() {
    let held = Args {
        concurrency: 8,
        scan_lanes: Some(0),
        ..args()
    };
    let harness = &Harness::with_ingresses(OBJECTS, held).await;
    let given = Duration::from_millis(200);
    let ask = |policy_namespace: &str, review_namespace: &str, review: u64| {
        let scan = QueryRequest {
            namespace: policy_namespace.to_owned(),
            review_namespace: review_namespace.to_owned(),
            review,
            ..request("items[].spec")
        };
        async move { harness.ask_within(&scan, given).await.unwrap().unwrap_err() }
    };
    for (policies, requests, reviews, expected) in [
        ("", "shop", [7, 8], true),
        ("shop", "shop", [7, 8], true),
        // One review that asks again.
        ("", "shop", [7, 7], false),
        ("", "shop", [0, 0], false),
        // The requests of all users.
        ("", "", [7, 8], false),
    ] {
        let [one, other] = reviews.map(|review| ask(policies, requests, review));
        let (one, other) = tokio::join!(one, other);
        for error in [one, other] {
            assert!(
                matches!(error, FactError::DeadlineExceeded { .. }),
                "{error}"
            );
            assert_eq!(error.is_over_part(), expected, "{requests} {reviews:?}");
        }
    }
    let [one, other] = [7, 8].map(|review| ask("shop", "shop", review));
    let third = async {
        let refused = ask("shop", "shop", 9).await;
        let expected = FactError::Busy {
            limit: 2,
            over_part: true,
        };
        assert_eq!(refused, expected);
    };
    tokio::join!(one, other, third);
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_runs_out_of_time_takes_nothing_from_the_queries_beside_it() {
    let held = Args {
        scan_lanes: Some(0),
        ..args()
    };
    let harness = Harness::with_ingresses(OBJECTS, held).await;
    let named = |n: usize| {
        request_with(
            "items[?metadata.name == $name].spec.rules[].host",
            json!({"name": key(n).name}),
        )
    };
    // The index is built beside scans, and these have no lane.
    while harness
        .ask_within(&named(1), Duration::from_millis(20))
        .await
        .is_ok_and(|outcome| outcome.is_err())
    {}
    let scan = request("items[].spec");
    let invalid = request("items[");
    let few = QueryRequest {
        queries: vec![Query {
            selection: Some(Selection {
                shape: Shape::Object,
                object: Some(key(7)),
                ..Selection::default()
            }),
            ..request("metadata.name").queries.remove(0)
        }],
        ..request("")
    };
    // The scan comes first, and all but it are answered.
    let queries = [&scan, &named(5), &few, &invalid, &scan, &named(6)];
    let together = QueryRequest {
        queries: queries.map(|request| request.queries[0].clone()).to_vec(),
        ..request("")
    };
    let given = Duration::from_millis(400);
    // The caller waits no longer than its own deadline.
    let outcome = tokio::time::timeout(given, harness.ask_within(&together, given)).await;
    let results = outcome.unwrap().unwrap().unwrap().results;
    let said: Vec<_> = results.iter().map(said).collect();
    let late = json!("AR204");
    let hosts = |n: usize| json!([format!("host-{n}.example.com")]);
    assert_eq!(
        said,
        [
            late.clone(),
            hosts(5),
            json!(key(7).name),
            json!("AR201"),
            late,
            hosts(6)
        ]
    );
}

/// The value, or the error's code.
fn said(result: &Result<bytes::Bytes, FactError>) -> Value {
    match result {
        Ok(body) => body::to_json(body).unwrap(),
        Err(error) => error.code().as_str().into(),
    }
}
