//! Counts over a list are known from counters and indexes, and are those of a scan. Sums, extremes and
//! sorted lists are evaluated by a scan.

use anteroom_cache_replica::Args;
use anteroom_model::Revision;
use anteroom_wire::{
    body,
    query::{QueryRequest, Selection},
};
use serde_json::{Value, json};

use crate::harness::{Harness, args, ingress, key, request, request_with};

/// More than are evaluated over inline.
const OBJECTS: usize = 300;

/// No results are kept, so that each query is evaluated; and each is compared with a scan.
fn verifying() -> Args {
    Args {
        memo_bytes_max: 0,
        verify_plans: 1,
        ..args()
    }
}

async fn answer(harness: &Harness, request: &QueryRequest) -> Value {
    let reply = harness.ask(request).await.unwrap().unwrap();
    body::to_json(reply.results[0].as_ref().unwrap()).unwrap()
}

/// Asks until the counts of the query are known.
async fn until_counted(harness: &Harness, request: &QueryRequest) {
    let before = harness.count("anteroom_query_counts");
    while harness.count("anteroom_query_counts") == before {
        answer(harness, request).await;
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn after(written: Revision, request: &QueryRequest) -> QueryRequest {
    QueryRequest {
        revision_min: Some(written),
        ..request.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn counts_follow_the_view() {
    let mut harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let view = harness.view.clone();
    let questions = [
        request("items[].spec.rules[] | length(@) > `300`"),
        request("{two: length(items[?spec.rules[1]]), all: length(items)}"),
        request("items[?spec.rules[1]] && 'some have two' || 'none has'"),
        request_with(
            "length(items[?metadata.namespace != $n])",
            json!({"n": "ns-0"}),
        ),
    ];
    let expected = [
        (json!(false), json!(true)),
        (json!({"two": 0, "all": 300}), json!({"two": 1, "all": 301})),
        (json!("none has"), json!("some have two")),
        (json!(257), json!(258)),
    ];
    for (question, (before, _)) in questions.iter().zip(&expected) {
        until_counted(&harness, question).await;
        assert_eq!(answer(&harness, question).await, *before);
    }
    let kept = harness.count("anteroom_query_counts");
    let of = key(OBJECTS + 2);
    let mut object = ingress(OBJECTS + 2);
    object["spec"]["rules"] = json!([{"host": "a.example.com"}, {"host": "x.example.com"}]);
    let written = harness
        .writer
        .put(&view, &of.namespace, &of.name, object)
        .await;
    for (question, (_, now)) in questions.iter().zip(&expected) {
        assert_eq!(answer(&harness, &after(written, question)).await, *now);
    }
    let written = harness.writer.delete(&view, &of.namespace, &of.name).await;
    for (question, (before, _)) in questions.iter().zip(&expected) {
        assert_eq!(answer(&harness, &after(written, question)).await, *before);
    }
    assert_eq!(harness.count("anteroom_query_counts"), kept + 8);
    assert_eq!(harness.count("anteroom_query_plan_mismatches"), 0);
}

#[tokio::test(start_paused = true)]
async fn each_namespace_is_counted_by_itself() {
    let harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let of = |namespace: &str| {
        let mut request = request(
            "items[].spec.rules[].host | [length(@), length([?ends_with(@, '0.example.com')])]",
        );
        request.queries[0].selection = Some(Selection {
            namespace: namespace.to_owned(),
            ..Selection::default()
        });
        request
    };
    until_counted(&harness, &of("ns-3")).await;
    let kept = harness.count("anteroom_query_counts");
    for (namespace, expected) in [
        ("ns-3", json!([43, 5])),
        ("ns-6", json!([42, 4])),
        ("none", json!([0, 0])),
    ] {
        assert_eq!(answer(&harness, &of(namespace)).await, expected);
    }
    assert_eq!(harness.count("anteroom_query_counts"), kept + 3);
    assert_eq!(harness.count("anteroom_query_plan_mismatches"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_fails_fails_the_query_as_a_scan_does_until_it_is_gone() {
    let mut harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let view = harness.view.clone();
    let question = request("length(items[?starts_with(spec.rules[0].host, 'host-1')])");
    until_counted(&harness, &question).await;
    let of = key(OBJECTS);
    let object = json!({"metadata": {"name": of.name, "namespace": of.namespace},
        "spec": {"rules": [{"host": 7}]}});
    let written = harness
        .writer
        .put(&view, &of.namespace, &of.name, object)
        .await;
    let error = harness.error(&after(written, &question)).await;
    assert_eq!(error.code().as_str(), "AR202", "{error}");
    let written = harness.writer.delete(&view, &of.namespace, &of.name).await;
    let kept = harness.count("anteroom_query_counts");
    answer(&harness, &after(written, &question)).await;
    assert_eq!(harness.count("anteroom_query_counts"), kept + 1);
    assert_eq!(harness.count("anteroom_query_plan_mismatches"), 0);
}

#[tokio::test(start_paused = true)]
async fn sums_extremes_and_sorted_lists_are_those_of_a_scan_after_each_change() {
    let mut harness = Harness::with_ingresses(OBJECTS, verifying()).await;
    let view = harness.view.clone();
    let question = request(
        "items[].spec.rules[] | {last: max([].host), first: min([].host), \
         bytes: sum([].host.length(@)), mean: avg([?host == 'x.example.com'].host.length(@)), \
         sorted: sort([].host)[-2:]}",
    );
    let bytes = |of: std::ops::Range<usize>| -> usize {
        of.map(|n| format!("host-{n}.example.com").len()).sum()
    };
    let before = json!({
        "last": "host-99.example.com", "first": "host-0.example.com", "bytes": bytes(0..OBJECTS),
        "mean": null, "sorted": ["host-98.example.com", "host-99.example.com"],
    });
    assert_eq!(answer(&harness, &question).await, before);
    let of = key(OBJECTS);
    let mut object = ingress(OBJECTS);
    object["spec"]["rules"] = json!([{"host": "a.example.com"}, {"host": "x.example.com"}]);
    let written = harness
        .writer
        .put(&view, &of.namespace, &of.name, object)
        .await;
    let now = json!({
        "last": "x.example.com", "first": "a.example.com", "bytes": bytes(0..OBJECTS) + 26,
        "mean": 13, "sorted": ["host-99.example.com", "x.example.com"],
    });
    assert_eq!(answer(&harness, &after(written, &question)).await, now);
    let written = harness.writer.delete(&view, &of.namespace, &of.name).await;
    assert_eq!(answer(&harness, &after(written, &question)).await, before);
    assert_eq!(harness.count("anteroom_query_counts"), 0);
    assert_eq!(harness.count("anteroom_query_plan_mismatches"), 0);
}
