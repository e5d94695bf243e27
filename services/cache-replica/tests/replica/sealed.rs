//! Secrets: what is read of them leaves sealed to whoever asked, or not at all.

use anteroom_model::{Collection, GroupVersionResource, Source, SourceInfo};
use anteroom_seal::reply::ReplyKey;
use anteroom_wire::{body, query::QueryRequest};
use serde_json::json;

use crate::harness::{Harness, args, request};

/// The bus never carries a Secret in the clear.
#[tokio::test(start_paused = true)]
async fn results_of_secrets_leave_sealed_or_not_at_all() {
    let mut harness = Harness::started(args()).await;
    let gvr = GroupVersionResource::new("", "v1", "secrets");
    harness.view = harness.writer.open(SourceInfo {
        source: Source::Collection(Collection::all(gvr)),
        kind: "Secret".into(),
        namespaced: true,
    });
    let view = harness.view.clone();
    let secret = json!({"data": {"key": "c2VjcmV0"}});
    harness.writer.put(&view, "a", "s", secret).await;
    harness.writer.synced(&view).await;
    harness.until_ready().await;

    let plain = request("items[0].data.key");
    let refused = harness.ask(&plain).await.unwrap().unwrap_err();
    assert_eq!(refused.code().as_str(), "AR206", "{refused}");

    let key = ReplyKey::generate().unwrap();
    let sealed = QueryRequest {
        reply_key: Some(key.public()),
        ..plain.clone()
    };
    let reply = harness.ask(&sealed).await.unwrap().unwrap();
    assert!(reply.sealed);
    let result = reply.results[0].as_ref().unwrap();
    assert!(!result.windows(8).any(|part| part == b"c2VjcmV0"));
    let opened = key.open(result).unwrap();
    assert_eq!(body::to_json(&opened).unwrap(), json!("c2VjcmV0"));

    // Functions quote what they were given: none of that leaves either.
    let failing = QueryRequest {
        reply_key: Some(key.public()),
        ..request("add(items[0].data.key, '1')")
    };
    let reply = harness.ask(&failing).await.unwrap().unwrap();
    let error = reply.results[0].as_ref().unwrap_err();
    assert_eq!(error.code().as_str(), "AR202", "{error}");
    assert!(!error.to_string().contains("c2VjcmV0"), "{error}");

    let bad = QueryRequest {
        reply_key: Some(bytes::Bytes::from_static(b"no key")),
        ..plain
    };
    let refused = harness.ask(&bad).await.unwrap().unwrap_err();
    assert_eq!(refused.code().as_str(), "AR206", "{refused}");
}
