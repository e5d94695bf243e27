//! A view that keeps only what policies read is never asked for more: what was left out is not absent.

use anteroom_mirror::testing::collection;
use anteroom_model::{FactError, RetainedFields, Source};
use serde_json::json;

use crate::harness::{Harness, args, ingress, key, request, request_with};

#[tokio::test(start_paused = true)]
async fn a_field_that_is_not_retained_is_an_error_and_never_null() {
    let mut harness = Harness::started(args()).await;
    let mut kept = RetainedFields::identity();
    kept.keep(&["spec", "rules", "host"]);
    let mut info = collection("ingresses", "Ingress");
    if let Source::Collection(collection) = &mut info.source {
        collection.retained = Some(kept.clone());
    }
    harness.view = harness.writer.open(info);
    let view = harness.view.clone();
    let pruned = |n| (key(n), anteroom_plan::pruned(&ingress(n), &kept));
    harness
        .writer
        .put_all(&view, (0..300).map(pruned).collect())
        .await;
    harness.writer.synced(&view).await;
    harness.until_ready().await;

    assert_eq!(harness.value("length(items)").await, json!(300));
    let hosts = "items[?metadata.name == 'ing-00007'].spec.rules[].host | []";
    assert_eq!(harness.value(hosts).await, json!(["host-7.example.com"]));
    for (expression, lacking) in [
        ("items[].spec.tls", "spec.tls"),
        ("items[].metadata.annotations", "metadata.annotations"),
        (
            "items[?spec.ingressClassName == $host] | length(@)",
            "spec.ingressClassName",
        ),
        ("items[].spec", "spec"),
        ("items[0]", "@"),
        ("", "@"),
    ] {
        let asked = request_with(expression, json!({"host": "x"}));
        for _ in 0..2 {
            match harness.error(&asked).await {
                FactError::NotRetained { path, .. } => assert_eq!(path, lacking, "{expression}"),
                error => panic!("{expression}: {error}"),
            }
        }
    }
    // A refused query does not affect the remaining queries of its request.
    let mut both = request("length(items)");
    both.queries.extend(request("items[].spec.tls").queries);
    let reply = harness.ask(&both).await.unwrap().unwrap();
    assert!(reply.results[0].is_ok() && reply.results[1].is_err());
}
