//! Requests that take much memory once they are decoded.

use super::*;

/// Returns a request of a review in this namespace, for the service of the policy `p`.
fn in_namespace(url: &str, namespace: &str) -> LiveRequest {
    LiveRequest {
        review_namespace: namespace.into(),
        ..service("p", url)
    }
}

/// Gives a request a parameter of some 30 MiB, in 150 KiB of text.
fn with_large_parameter(mut request: LiveRequest) -> LiveRequest {
    let list = Value::from(vec![json!({"a": 0}); 38_000]);
    Arc::make_mut(&mut request.query.parameters).insert("p".into(), list);
    request
}

async fn arrived(endpoint: &Endpoint, count: usize) {
    while endpoint.served() < count {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// All of them together would take some 450 MiB.
#[tokio::test]
async fn large_requests_of_one_namespace_are_decoded_one_at_a_time_and_others_go_on() {
    let (endpoint, gate, url) = gated().await;
    let rig = service_rig(LiveArgs::default(), &url).await;
    let large = with_large_parameter(in_namespace(&url, "flood"));
    let first = rig.ask(&large);
    let later = async {
        arrived(&endpoint, 1).await;
        let soon = Duration::from_millis(300);
        let asked = (0..14).map(|_| rig.ask_within(&large, soon));
        for outcome in futures::future::join_all(asked).await {
            let error = outcome.unwrap_err();
            assert!(matches!(error, FactError::LiveReadBusy { .. }), "{error}");
            assert!(error.to_string().contains("large requests"), "{error}");
        }
        let small_request = in_namespace(&url, "shop");
        let small = rig.ask(&small_request);
        let opened = async {
            arrived(&endpoint, 2).await;
            gate.add_permits(1_000);
        };
        futures::future::join(small, opened).await.0
    };
    let (first, small) = futures::future::join(first, later).await;
    assert_eq!([result(first), result(small)], [json!([1]), json!([1])]);
    assert_eq!(endpoint.served(), 2);
    // Its memory is back.
    let again = rig.ask(&large).await;
    assert_eq!(result(again), json!([1]));
}
