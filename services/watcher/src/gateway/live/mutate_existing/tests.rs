use anteroom_bus::Address;
use anteroom_model::{GroupVersionResource, ObjectKey, system};
use anteroom_wire::{
    live::{LiveCall, LiveOutcome},
    query::Query,
};
use http::Response;

use super::{super::tests::Rig, *};
use crate::gateway::{
    calls::testing::{api_server, caller_of},
    live::LiveArgs,
};

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "7", "labels": {"app": "web"}}})
}

/// An API server with three Pods, and Secrets. One Pod has changed since it was listed.
fn answer(method: &str, uri: &str) -> (u16, Value) {
    const EXPIRED: &str = "/api/v1/namespaces/shop/pods?limit=100&continue=old";
    let listed = |name: &str| json!({"metadata": pod(name)["metadata"]});
    match (method, uri) {
        ("GET", "/api/v1/namespaces/shop/pods/web-1") => (200, pod("web-1")),
        ("GET", "/api/v1/namespaces/shop/pods/web-2") => {
            let mut changed = pod("web-2");
            changed["metadata"]["resourceVersion"] = "8".into();
            (200, changed)
        }
        ("GET", "/api/v1/namespaces/shop/pods/web-3") => (200, pod("web-3")),
        ("GET", "/api/v1/namespaces/shop/pods/web-4") => (200, pod("web-4")),
        ("GET", "/api/v1/namespaces/shop/pods?limit=100") => (
            200,
            json!({"items": [listed("api")], "metadata": {"continue": "more"}}),
        ),
        ("GET", "/api/v1/namespaces/shop/pods?limit=200&continue=more") => (
            200,
            json!({"items": [listed("web-1"), listed("web-2")], "metadata": {"continue": "end"}}),
        ),
        // Too old, and said to be so: it goes on from another place, or from none.
        ("GET", EXPIRED) => (410, json!({"metadata": {"continue": "more"}})),
        ("GET", "/api/v1/namespaces/shop/pods?limit=100&continue=gone") => (410, json!({})),
        ("GET", "/api/v1/namespaces/shop/pods?limit=100&continue=more") => (
            200,
            json!({"items": [listed("web-1")], "metadata": {"continue": "end"}}),
        ),
        ("GET", "/api/v1/namespaces/shop/pods?limit=100&continue=end") => {
            (200, json!({"items": [listed("api-2")], "metadata": {}}))
        }
        ("GET", "/api/v1/namespaces/shop/pods?limit=100&fieldSelector=metadata.name%3Dgone") => {
            (200, json!({"items": [], "metadata": {}}))
        }
        ("PUT", "/api/v1/namespaces/shop/pods/web-1?fieldManager=anteroom") => (200, pod("web-1")),
        ("PUT", "/api/v1/namespaces/shop/pods/web-4?fieldManager=anteroom") => {
            (409, json!({"message": "changed"}))
        }
        ("PUT", _) => (403, json!({"message": "no"})),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews") => {
            (201, json!({"status": {"allowed": false}}))
        }
        _ => (404, json!({"message": "not found"})),
    }
}

async fn rig() -> Rig {
    let answers = |method: &str, uri: &str, _: bool| answer(method, uri);
    rig_of(LiveArgs::default(), answers).await
}

/// Builds a rig whose API server also sees whether only metadata is requested.
async fn rig_of(
    args: LiveArgs,
    answer: impl Fn(&str, &str, bool) -> (u16, Value) + Send + Sync + 'static,
) -> Rig {
    let api = api_server(move |request| {
        let uri = request.uri().to_string();
        let accept = request.headers()["accept"].to_str().unwrap();
        let are_names = accept.contains("PartialObjectMetadataList");
        let (code, body) = answer(request.method().as_str(), &uri, are_names);
        Response::builder()
            .status(code)
            .body(body.to_string())
            .unwrap()
    });
    let mut rig = Rig::with(args, caller_of(api, 1_000), Default::default()).await;
    for (kind, resource) in [("Pod", "pods"), ("Secret", "secrets")] {
        let record = KindRecord {
            gvr: GroupVersionResource::new("", "v1", resource),
            kind: kind.into(),
            namespaced: true,
            subresources: Vec::new(),
            preferred: true,
            watchable: true,
        };
        let record = serde_json::to_value(&record).unwrap();
        let name = format!("{kind}.v1");
        rig.writer.put(&system::kinds(), "", &name, record).await;
    }
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [{
            "name": "r", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "mutate": {
                "targets": [{"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-*"}],
                "patchStrategicMerge": {"spec": {"a": "b"}},
            },
        }, {
            "name": "one", "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "mutate": {
                "targets": [{"apiVersion": "v1", "kind": "Pod", "namespace": "shop",
                    "name": "{{ request.object.data.pod }}"}],
                "patchStrategicMerge": {"spec": {"a": "b"}},
            },
        }]},
    });
    rig.writer.put(&system::policies(), "", "p", manifest).await;
    let pods = json!({"resourceRules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]});
    let in_cel = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "MutatingPolicy", "metadata": {"name": "p"},
        "spec": {
            "evaluation": {"mutateExisting": {"enabled": true}}, "matchConstraints": pods,
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}],
        },
    });
    let views = system::policies();
    rig.writer.put(&views, "", IN_CEL, in_cel).await;
    rig.writer.beat().await;
    rig
}

fn request(call: LiveCall) -> LiveRequest {
    LiveRequest {
        policy: ObjectKey::new("", "p"),
        rule: "r".into(),
        variable: "mutate.targets[0]".into(),
        call,
        query: Query {
            expression: String::new(),
            ..Query::default()
        },
        review_namespace: String::new(),
        review: 0,
        of_scan: false,
    }
}

async fn asked(rig: &Rig, call: LiveCall) -> LiveOutcome {
    rig.ask(&request(call)).await
}

/// The key of a policy that changes Pods, by their plural.
const IN_CEL: &str = "MutatingPolicy/p";

async fn asked_in_cel(rig: &Rig, call: LiveCall) -> LiveOutcome {
    let mut request = request(call);
    request.policy = ObjectKey::new("", IN_CEL);
    request.rule = String::new();
    rig.ask(&request).await
}

#[tokio::test]
async fn a_mutating_policy_reads_and_writes_objects_of_the_resources_that_it_names() {
    const PERMIT: &str = "policy `MutatingPolicy/p`: ";
    let rig = rig().await;
    let of = |kind: &str, resource: &str, name: &str| ExistingObjects {
        resource: resource.into(),
        ..objects(kind, name)
    };
    let read =
        async |objects: ExistingObjects| asked_in_cel(&rig, LiveCall::Existing { objects }).await;
    let names = |read: LiveOutcome| {
        let items = result(read)["items"].as_array().cloned().unwrap();
        let names = items.iter().map(|item| item["metadata"]["name"].clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(read(of("", "pods", "")).await), ["api"]);
    assert_eq!(names(read(of("Pod", "pods", "web-1")).await), ["web-1"]);
    for (refused, reason) in [
        (of("", "secrets", ""), PERMIT),
        (of("Pod", "", "web-1"), PERMIT),
        (of("", "pods", "web-*"), PERMIT),
        // The permit is for one type, and the read would be of a different type.
        (of("Secret", "pods", "web-1"), "Secret is not the kind"),
        (of("Deployment", "pods", "web-1"), "serves no kind"),
    ] {
        assert_read_refused(read(refused).await, reason);
    }
    let put = async |target: usize, object: Value| {
        asked_in_cel(&rig, LiveCall::Write { target, object }).await
    };
    let mut changed = pod("web-1");
    changed["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(result(put(0, changed.clone()).await), Value::Null);
    assert_read_refused(put(1, changed.clone()).await, PERMIT);
    for (field, value, reason) in [
        ("kind", "Secret", "Secrets that exist are not changed"),
        ("kind", "Node", "serves no kind `Node`"),
        ("apiVersion", "v2", "in version `v2`"),
    ] {
        let mut other = changed.clone();
        other[field] = value.into();
        assert_read_refused(put(0, other).await, reason);
    }
}

fn objects(kind: &str, name: &str) -> ExistingObjects {
    ExistingObjects {
        target: Some(0),
        version: "v1".into(),
        kind: kind.into(),
        namespace: "shop".into(),
        name: name.into(),
        ..ExistingObjects::default()
    }
}

fn result(outcome: LiveOutcome) -> Value {
    anteroom_wire::body::to_json(&outcome.unwrap().result).unwrap()
}

/// Asserts that the watcher itself refused the read for this reason, before it called the API server.
fn assert_read_refused(outcome: LiveOutcome, reason: &str) {
    let refused = outcome.unwrap_err();
    assert!(
        matches!(refused, FactError::LiveReadFailed { code: 0, .. }),
        "{refused:?}"
    );
    let told = refused.to_string();
    assert!(told.contains(reason), "{told}");
}

fn write_code(outcome: LiveOutcome) -> u16 {
    match outcome.unwrap_err() {
        FactError::WriteFailed { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn existing_targets_are_read_page_by_page() {
    let rig = rig().await;
    let ask = |objects| asked(&rig, LiveCall::Existing { objects });
    let found = result(ask(objects("Pod", "web-*")).await);
    let names = found["items"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, ["web-1", "web-2"]);
    assert_eq!(
        (&found["items"][0]["kind"], &found["continue"]),
        (&json!("Pod"), &json!("end"))
    );
    let mut rest = objects("Pod", "web-*");
    rest.continues = "end".into();
    let rest = result(ask(rest).await);
    assert_eq!(
        (&rest["items"], &rest["continue"]),
        (&json!([]), &json!(""))
    );
    // No other kind, and no other name.
    for objects in [
        objects("Secret", "web-*"),
        objects("Pod", "*"),
        objects("Pod", "web-1"),
    ] {
        assert_read_refused(ask(objects).await, "policy `p`: ");
    }
}

/// A trigger is looked up by name. A Secret's answer has its identity only, without its annotations.
#[tokio::test]
async fn a_secret_that_triggers_a_rule_is_looked_up_without_its_content() {
    let metadata = json!({"name": "token", "namespace": "shop", "uid": "u", "resourceVersion": "7",
        "annotations": {"last": "hunter2"}, "labels": {"l": "hunter2"}});
    let secret = metadata.clone();
    let answer = move |method: &str, uri: &str, _: bool| match (method, uri) {
        ("GET", "/api/v1/namespaces/shop/secrets/token") => (
            200,
            json!({"kind": "PartialObjectMetadata", "metadata": secret}),
        ),
        ("GET", "/api/v1/namespaces/shop/secrets/gone") => (404, json!({"message": "not found"})),
        (method, uri) => panic!("{method} {uri}"),
    };
    let mut rig = rig_of(LiveArgs::default(), answer).await;
    let manifest = json!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
        "spec": {"rules": [{
            "name": "r", "match": {"any": [{"resources": {"kinds": ["Secret"]}}]},
            "mutate": {
                "targets": [{"apiVersion": "v1", "kind": "Pod", "namespace": "shop"}],
                "patchStrategicMerge": {"spec": {"a": "b"}},
            },
        }]},
    });
    rig.writer.put(&system::policies(), "", "p", manifest).await;
    let look_up = async |name| {
        let mut objects = objects("Secret", name);
        objects.target = None;
        asked(&rig, LiveCall::Existing { objects }).await
    };
    let found = result(look_up("token").await);
    assert_eq!(found["items"][0]["metadata"]["uid"], "u");
    assert!(!found.to_string().contains("hunter2"), "{found}");
    assert_eq!(result(look_up("gone").await), json!({"items": []}));
    // Not all of them.
    assert_read_refused(look_up("").await, "policy `p`: ");
}

/// The API server forgets the state of a list after some minutes: it goes on in the one that is now.
#[tokio::test]
async fn a_list_that_has_become_too_old_goes_on_where_the_api_server_says() {
    let rig = rig().await;
    let at = |place: &str| {
        let mut objects = objects("Pod", "web-*");
        objects.continues = place.into();
        asked(&rig, LiveCall::Existing { objects })
    };
    let part = result(at("old").await);
    assert_eq!(
        (&part["items"][0]["metadata"]["name"], &part["continue"]),
        (&json!("web-1"), &json!("end"))
    );
    let failed = at("gone").await.unwrap_err();
    assert!(
        matches!(failed, FactError::LiveReadFailed { code: 410, .. }),
        "{failed:?}"
    );
}

/// A named object needs no list, and no right to list.
#[tokio::test]
async fn a_named_target_is_read_alone_and_its_labels_are_matched_here() {
    let rig = rig().await;
    for (selector, count) in [
        ("app=web", Some(1)),
        ("app!=web", Some(0)),
        ("app in (", None),
    ] {
        let mut objects = objects("Pod", "web-1");
        objects.label_selector = selector.into();
        let mut request = request(LiveCall::Existing { objects });
        request.rule = "one".into();
        let found = rig.ask(&request).await.ok();
        let found = found.map(|found| result(Ok(found))["items"].as_array().map_or(9, Vec::len));
        assert_eq!(found, count, "{selector}");
    }
}

/// A 404 of one object may mean that the kind is missing. Only a list tells.
#[tokio::test]
async fn a_target_not_found_counts_as_absent_only_if_a_list_confirms_it() {
    let rig = rig().await;
    let ask = async |name: &str| {
        let objects = objects("Pod", name);
        let mut request = request(LiveCall::Existing { objects });
        request.rule = "one".into();
        rig.ask(&request).await
    };
    let found = result(ask("web-1").await);
    assert_eq!(found["items"][0]["metadata"]["name"], "web-1");
    assert_eq!(result(ask("gone").await)["items"], json!([]));
    let failed = ask("unknown").await.unwrap_err();
    assert!(
        matches!(failed, FactError::LiveReadFailed { code: 404, .. }),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_changed_target_is_written_only_over_the_version_it_was_read_at() {
    let rig = rig().await;
    let put = |object: Value| asked(&rig, LiveCall::Write { target: 0, object });
    assert_eq!(result(put(pod("web-1")).await), Value::Null);
    // Changed before it is read again, or after.
    for name in ["web-2", "web-4"] {
        let changed = put(pod(name));
        assert_eq!(write_code(changed.await), 409);
    }
    let forbidden = put(pod("web-3")).await.unwrap_err().to_string();
    assert!(
        forbidden.contains("anteroom.dev/aggregate-to-watcher-writes"),
        "{forbidden}"
    );
    let mut blind = pod("web-1");
    blind["metadata"]["resourceVersion"].take();
    assert_eq!(write_code(put(blind).await), 0);
    let mut large = pod("web-1");
    large["spec"] = "x".repeat(WRITE_BYTES_MAX).into();
    assert_eq!(write_code(put(large).await), 0);
    // No target of the policy.
    let mut secret = pod("web-1");
    secret["kind"] = "Secret".into();
    for object in [secret, pod("api")] {
        let refused = put(object).await.unwrap_err();
        assert!(
            matches!(refused, FactError::LiveReadFailed { .. }),
            "{refused:?}"
        );
    }
}

/// The watcher does not trust the requester: it compares the write with the existing object.
#[tokio::test]
async fn a_write_of_what_the_rule_does_not_change_is_refused() {
    let rig = rig().await;
    let put = |object: Value| asked(&rig, LiveCall::Write { target: 0, object });
    let mut of_the_rule = pod("web-1");
    of_the_rule["spec"] = json!({"a": "b"});
    assert_eq!(result(put(of_the_rule.clone()).await), Value::Null);
    for (pointer, path) in [
        ("/spec", "spec.a"),
        ("/metadata/labels", "metadata.labels.a"),
    ] {
        let mut other = of_the_rule.clone();
        *other.pointer_mut(pointer).unwrap() = json!({"a": "c", "app": "web"});
        let refused = put(other).await.unwrap_err();
        let told = refused.to_string();
        assert!(
            told.contains(&format!("does not change `{path}`")),
            "{told}"
        );
        assert!(matches!(refused, FactError::WriteFailed { code: 0, .. }));
    }
}

/// A policy of a namespace changes nothing that nobody allowed to.
#[tokio::test]
async fn a_policy_that_is_not_allowed_to_write_neither_reads_targets_nor_writes() {
    let rig = rig().await;
    let ask = async |call: LiveCall| {
        let mut request = request(call);
        request.policy = ObjectKey::new("shop", "p");
        rig.ask(&request).await
    };
    let write = LiveCall::Write {
        target: 0,
        object: pod("web-1"),
    };
    assert_eq!(write_code(ask(write).await), 403);
    let objects = objects("Pod", "web-*");
    let read = ask(LiveCall::Existing {
        objects: objects.clone(),
    });
    let told = read.await.unwrap_err().to_string();
    assert!(told.contains("`--allow-writes`"), "{told}");
    let told = result(ask(LiveCall::MayWrite { objects }).await);
    assert!(
        told.as_str().unwrap().contains("`--allow-writes`"),
        "{told}"
    );
}

/// NATS limits the senders to this address.
#[tokio::test]
async fn a_write_is_taken_at_its_own_address_alone() {
    let rig = rig().await;
    let object = pod("web-1");
    let write = LiveCall::Write { target: 0, object };
    let read = LiveCall::Existing {
        objects: objects("Pod", "web-*"),
    };
    for (at, call) in [(Address::Live, write), (Address::Write, read)] {
        let refused = rig.ask_at(&at, &request(call)).await.unwrap_err();
        assert!(
            matches!(refused, FactError::RequestInvalid { .. }),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn the_rights_that_a_write_lacks_are_named() {
    let rig = rig().await;
    let call = LiveCall::MayWrite {
        objects: objects("Pod", "web-*"),
    };
    let lacks = result(asked(&rig, call).await);
    let lacks = lacks.as_str().unwrap();
    assert!(
        lacks.starts_with("the watcher may not get, list, update Pod"),
        "{lacks}"
    );
    let call = LiveCall::MayWrite {
        objects: objects("Secret", ""),
    };
    assert_read_refused(asked(&rig, call).await, "Secrets that exist");
}

/// The second of three Pods exceeds the limit of a read, and so does each page with it.
#[tokio::test]
async fn a_page_that_is_too_large_is_read_in_smaller_ones() {
    const BYTES_MAX: usize = 2_000;
    let args = LiveArgs {
        live_read_bytes_max: BYTES_MAX,
        ..LiveArgs::default()
    };
    let rig = rig_of(args, |method, uri, are_names| {
        let whole = |name: &str, bytes: usize, next: &str| {
            let item = json!({"metadata": pod(name)["metadata"], "spec": "x".repeat(bytes)});
            (
                200,
                json!({"items": [item], "metadata": {"continue": next}}),
            )
        };
        let pods = uri.strip_prefix("/api/v1/namespaces/shop/pods?limit=");
        match (pods, are_names) {
            (Some("1"), false) => whole("web-1", 1, "two"),
            (Some("1&continue=two"), true) => whole("web-2", 1, "three"),
            (Some("100&continue=three"), false) => whole("web-3", 1, ""),
            (Some(_), false) => whole("web-1", BYTES_MAX, "never"),
            _ => panic!("{method} {uri}"),
        }
    })
    .await;
    let (mut objects, mut found) = (objects("Pod", "web-*"), Vec::new());
    loop {
        let call = LiveCall::Existing {
            objects: objects.clone(),
        };
        let part = result(asked(&rig, call).await);
        let names = |field: &str, name: fn(&Value) -> &Value| -> Vec<_> {
            let all = part[field].as_array().into_iter().flatten();
            all.map(|one| name(one).clone()).collect()
        };
        found.push((
            names("items", |item| &item["metadata"]["name"]),
            names("unread", |item| &item["name"]),
        ));
        match part["continue"].as_str() {
            Some(next) if !next.is_empty() => next.clone_into(&mut objects.continues),
            _ => break,
        }
    }
    let name = |name: &str| vec![json!(name)];
    assert_eq!(
        found,
        [
            (name("web-1"), vec![]),
            (vec![], name("web-2")),
            (name("web-3"), vec![]),
        ]
    );
}
