//! Secrets: what is read of them leaves sealed to whoever asked, or not at all.

use anteroom_cache_replica::Args;
use anteroom_model::{Collection, GroupVersionResource, Source, SourceInfo, ViewId};
use anteroom_seal::{AskedOf, Keys};
use anteroom_wire::{
    body,
    query::{self, QueryRequest},
};
use serde_json::json;

use crate::harness::{Harness, PATIENCE, args, request};

/// The bus never carries a Secret in the clear.
#[tokio::test(start_paused = true)]
async fn results_of_secrets_leave_sealed_or_not_at_all() {
    let keys = Keys::ephemeral().unwrap();
    let args = Args {
        asker_keys: keys.clone(),
        ..args()
    };
    let mut harness = Harness::started(args).await;
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
    assert_eq!(refused.code().as_str(), "AR123", "{refused}");

    let sealed = async |keys: &Keys, view: &ViewId, request: &QueryRequest| {
        let request = query::encode_request(request).unwrap();
        let (question, asked) = keys.ask(AskedOf::View(view), &request).unwrap();
        let answer = harness
            .send_raw(&harness.address(), question, PATIENCE)
            .await;
        let answer = answer.unwrap();
        assert!(!answer.windows(8).any(|part| part == b"c2VjcmV0"));
        // What was not heard is answered in the clear.
        let outcome = asked.open(&answer).unwrap_or(answer);
        query::decode_outcome(&outcome).unwrap()
    };
    let reply = sealed(&keys, &view, &plain).await.unwrap();
    let result = reply.results[0].as_ref().unwrap();
    assert_eq!(body::to_json(result).unwrap(), json!("c2VjcmV0"));

    // Functions quote what they were given, and errors are told to more people than results.
    let reply = sealed(&keys, &view, &request("add(items[0].data.key, '1')")).await;
    let reply = reply.unwrap();
    let error = reply.results[0].as_ref().unwrap_err();
    assert_eq!(error.code().as_str(), "AR202", "{error}");
    assert!(!error.to_string().contains("c2VjcmV0"), "{error}");

    // Keys of a stranger are refused, and so is a question sealed for another view.
    let strange = Keys::ephemeral().unwrap();
    let other = ViewId::new("secrets.v1~0123456789abcdef");
    for (keys, of) in [(&strange, &view), (&keys, &other)] {
        let refused = sealed(keys, of, &plain).await.unwrap_err();
        assert_eq!(refused.code().as_str(), "AR123", "{refused}");
    }
}
