use serde_json::json;

use super::*;

fn spec(call: serde_json::Value) -> CallSpec {
    let source: ApiCallSource = serde_json::from_value(call).unwrap();
    CallSpec::new(&source, OnFailure::Error).unwrap()
}

/// Intervals and retries, in the form of the proposal and in the shipped one.
#[test]
fn the_interval_and_retries_of_a_call_are_read_in_both_forms() {
    for (call, seconds, retries) in [
        (json!({"url": "https://x"}), 600, 3),
        (
            json!({"url": "https://x", "refreshIntervalSeconds": 30}),
            30,
            3,
        ),
        (
            json!({"urlPath": "/x", "refreshInterval": "1m30s", "retryLimit": 1}),
            90,
            1,
        ),
        (
            json!({"urlPath": "/x", "refreshInterval": "1ms", "retryLimit": 0}),
            1,
            1,
        ),
        (
            json!({"urlPath": "/x", "refreshInterval": "100000h", "retryLimit": 1_000_000}),
            2_592_000,
            100,
        ),
    ] {
        let spec = spec(call);
        assert_eq!(spec.interval, Duration::from_secs(seconds));
        assert_eq!(spec.retries, retries);
    }
}

/// Entries share a view exactly if they make the same call in the same way.
#[test]
fn every_part_of_a_call_is_in_its_identity() {
    let service = |key: &str, value: &str| json!({"service": {"url": "https://x/a", "headers": [{"key": key, "value": value}]}});
    let calls = [
        json!({"url": "https://x/a"}),
        json!({"url": "https://x/b"}),
        json!({"url": "https://x/a?b"}),
        json!({"url": "https://u:p@x/a"}),
        json!({"url": "https://x/a", "caBundle": "pem"}),
        json!({"url": "https://x/a", "refreshIntervalSeconds": 5}),
        json!({"url": "https://x/a", "retryLimit": 5}),
        json!({"url": "https://x/a", "method": "POST"}),
        json!({"url": "https://x/a", "method": "POST", "data": [{"key": "a", "value": 1}]}),
        service("a", "b"),
        service("ab", ""),
        json!({"urlPath": "/x"}),
    ];
    let ids: Vec<_> = calls.iter().map(|call| spec(call.clone()).id()).collect();
    for (at, id) in ids.iter().enumerate() {
        assert_eq!(
            ids.iter().position(|other| other == id),
            Some(at),
            "{}",
            calls[at]
        );
        assert_eq!(*id, spec(calls[at].clone()).id());
    }
    let bare_service = json!({"service": {"url": "https://x/a"}});
    assert_eq!(spec(bare_service).id(), ids[0]);
}

/// Nothing that may be a secret is shown.
#[test]
fn secrets_of_a_call_are_shown_nowhere() {
    let spec = spec(json!({"service": {
        "url": "https://user:hidden@x:1/a?token=hidden#hidden",
        "headers": [{"key": "Authorization", "value": "Bearer hidden"}],
    }, "method": "POST", "data": [{"key": "password", "value": "hidden"}]}));
    assert_eq!(spec.shown(), "https://x:1/a");
    let CallTarget::Service(Service { headers, url, .. }) = &spec.target else {
        panic!("{spec:?}");
    };
    assert_eq!(url.to_string(), "https://x:1/a?token=hidden");
    assert!(headers[header::AUTHORIZATION].is_sensitive());
    let said = format!("{spec:?} {:?} {headers:?}", spec.source());
    assert!(!said.contains("hidden"), "{said}");
}

#[test]
fn user_information_is_sent_as_a_header() {
    let CallTarget::Service(Service { headers, .. }) =
        spec(json!({"url": "http://user:word@x/"})).target
    else {
        panic!("a service");
    };
    assert_eq!(headers[header::AUTHORIZATION], "Basic dXNlcjp3b3Jk");
}

#[test]
fn a_path_that_is_ambiguous_is_refused() {
    for path in ["/", "/version", "/api/v1/pods?labelSelector=a%3Db", "/a/b/"] {
        assert_eq!(check_path(path), Ok(()), "{path}");
    }
    for path in [
        "", "a", "//a", "/a//b", "/a/../b", "/a/./b", "/%61", "/a#b", "/a b", "/a\\b", "/ä",
    ] {
        assert!(check_path(path).is_err(), "{path}");
    }
}

#[test]
fn paths_that_lead_to_secrets_are_known() {
    for path in [
        "/api/v1/secrets",
        "/api/v1/secrets?limit=1",
        "/api/v1/watch/secrets",
        "/api/v1/namespaces/a/secrets/b",
        "/api/v1/watch/namespaces/a/secrets/b",
    ] {
        assert!(is_of_secrets(path), "{path}");
    }
    for path in [
        "/api/v1/namespaces/secrets",
        "/api/v1/configmaps/secrets",
        "/apis/a/v1/secrets",
    ] {
        assert!(!is_of_secrets(path), "{path}");
    }
}
