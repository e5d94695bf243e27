//! Queries that ask for a few objects look at those alone, and answer what a scan would.

use anteroom_cache_replica::Args;
use anteroom_model::ViewState;
use anteroom_wire::{body, query::QueryRequest};
use serde_json::{Value, json};

use crate::harness::{Harness, args, ingress, key, request_with};

/// More than are looked through as fast.
const OBJECTS: usize = 300;

const BY_HOST: &str = "items[?contains(spec.rules[].host, $host)].metadata.name";

/// No results are kept, so that each query is evaluated; and each is held against a scan.
fn verifying() -> Args {
    Args {
        memo_bytes_max: 0,
        verify_plans: 1,
        ..args()
    }
}

fn by_host(n: usize) -> QueryRequest {
    request_with(BY_HOST, json!({"host": format!("host-{n}.example.com")}))
}

async fn answer(harness: &Harness, request: &QueryRequest) -> Value {
    let reply = harness.ask(request).await.unwrap().unwrap();
    body::to_json(reply.results[0].as_ref().unwrap()).unwrap()
}

fn count(harness: &Harness, metric: &str) -> u64 {
    harness.count(metric)
}

/// Asks until an index answers.
async fn until_looked_up(harness: &Harness, request: &QueryRequest) {
    let before = count(harness, "anteroom_query_lookups");
    while count(harness, "anteroom_query_lookups") == before {
        answer(harness, request).await;
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_is_built_beside_queries_and_follows_the_view() {
    let mut harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let view = harness.view.clone();
    assert_eq!(answer(&harness, &by_host(7)).await, json!(["ing-00007"]));
    until_looked_up(&harness, &by_host(7)).await;
    let looked_up = count(&harness, "anteroom_query_lookups");

    for n in 0..40 {
        let twin = OBJECTS + n;
        let mut object = ingress(n);
        object["metadata"] = ingress(twin)["metadata"].clone();
        let of = key(twin);
        harness
            .writer
            .put(&view, &of.namespace, &of.name, object)
            .await;
        let written = harness
            .writer
            .delete(&view, &key(n).namespace, &key(n).name)
            .await;
        let request = QueryRequest {
            revision_min: Some(written),
            ..by_host(n)
        };
        let now = answer(&harness, &request).await;
        assert_eq!(now, json!([format!("ing-{twin:05}")]), "{n}");
    }
    assert!(count(&harness, "anteroom_query_lookups") >= looked_up + 40);
    assert_eq!(count(&harness, "anteroom_query_plan_mismatches"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_index_is_of_the_view_that_is_there_and_of_no_other_of_its_name() {
    let mut harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let view = harness.view.clone();
    until_looked_up(&harness, &by_host(7)).await;

    harness.writer.control(&view, ViewState::Dropped).await;
    harness.until_unserved().await;
    let view = harness
        .writer
        .open(anteroom_mirror::testing::collection("ingresses", "Ingress"));
    let ingresses = (100..100 + OBJECTS).map(|n| (key(n), ingress(n)));
    harness.writer.put_all(&view, ingresses.collect()).await;
    harness.writer.synced(&view).await;
    harness.until_served().await;
    until_looked_up(&harness, &by_host(107)).await;
    assert_eq!(answer(&harness, &by_host(7)).await, json!([]));
    assert_eq!(answer(&harness, &by_host(107)).await, json!(["ing-00107"]));
    assert_eq!(count(&harness, "anteroom_query_plan_mismatches"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_key_cannot_be_computed_fails_every_query_as_a_scan_does() {
    let mut harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let view = harness.view.clone();
    until_looked_up(&harness, &by_host(7)).await;
    // `contains()` takes no null.
    let of = key(OBJECTS);
    let object = json!({"metadata": {"name": of.name, "namespace": of.namespace}});
    let written = harness
        .writer
        .put(&view, &of.namespace, &of.name, object)
        .await;
    let request = QueryRequest {
        revision_min: Some(written),
        ..by_host(7)
    };
    let error = harness.error(&request).await;
    assert_eq!(error.code().as_str(), "AR202", "{error}");
    assert_eq!(count(&harness, "anteroom_query_plan_mismatches"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_index_that_finds_most_objects_is_left_aside() {
    let args = Args {
        memo_bytes_max: 0,
        ..args()
    };
    let harness = Harness::with_ingresses(OBJECTS, args).await;
    until_looked_up(&harness, &by_host(7)).await;
    let few = "items[?metadata.namespace == $value].metadata.name | [0]";
    let of_one = request_with(few, json!({"value": "ns-3"}));
    until_looked_up(&harness, &of_one).await;
    assert_eq!(answer(&harness, &of_one).await, json!("ing-00003"));

    let most = "items[?spec.none == $value].metadata.name | [-1]";
    let of_all = request_with(most, json!({"value": null}));
    let of_none = request_with(most, json!({"value": 1}));
    until_looked_up(&harness, &of_none).await;
    let before = count(&harness, "anteroom_query_lookups");
    assert_eq!(answer(&harness, &of_all).await, json!("ing-00293"));
    assert_eq!(count(&harness, "anteroom_query_lookups"), before);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_all_objects_have_is_found_after_looking_at_one() {
    let harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    for (expression, expected) in [
        ("any_in($kinds, (items[].type(spec)))", true),
        (
            "any_in($kinds, (items[?metadata.name != $name].type(spec)))",
            true,
        ),
        ("all_not_in($kinds, (items[].type(spec)))", false),
        (
            "contains((items[?metadata.name != $name].type(spec)), $kind)",
            true,
        ),
    ] {
        let parameters = json!({"kinds": ["obj*", "x"], "kind": "object", "name": "ing-00000"});
        let request = request_with(expression, parameters);
        // It would be looked through, if it took half of them.
        until_looked_up(&harness, &request).await;
        assert_eq!(
            answer(&harness, &request).await,
            json!(expected),
            "{expression}"
        );
    }
    assert_eq!(count(&harness, "anteroom_query_plan_mismatches"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_index_that_finds_fewer_objects_is_used() {
    let harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let request = request_with(
        "items[?type(spec) == $kind && metadata.name == $name].metadata.name",
        json!({"kind": "object", "name": "ing-00007"}),
    );
    until_looked_up(&harness, &request).await;
    assert_eq!(answer(&harness, &request).await, json!(["ing-00007"]));
    assert_eq!(count(&harness, "anteroom_query_plan_mismatches"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_count_may_be_the_value_that_is_looked_up() {
    let mut harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let view = harness.view.clone();
    let of = key(OBJECTS);
    let mut object = ingress(OBJECTS);
    object["spec"]["count"] = json!(OBJECTS + 1);
    let written = harness
        .writer
        .put(&view, &of.namespace, &of.name, object)
        .await;
    let request = QueryRequest {
        revision_min: Some(written),
        ..request_with("contains((items[].spec.count), length(items))", json!({}))
    };
    let before = count(&harness, "anteroom_query_counts");
    while count(&harness, "anteroom_query_counts") == before {
        assert_eq!(answer(&harness, &request).await, json!(true));
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(answer(&harness, &request).await, json!(true));
    assert_eq!(count(&harness, "anteroom_query_plan_mismatches"), 0);
}
