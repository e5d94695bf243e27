//! Facts from everywhere that a policy may name: each by its own way, and the record says which.

use anteroom_bus::Address;
use anteroom_model::{EntryKind, FactError, Projection, ViewId};
use serde_json::{Value, json};

use crate::{
    client::ingress,
    cluster::{Cluster, bound, unique_host},
    replicas::listed,
};

/// The policy with this context entry in the place of its own.
fn reading(name: &str, context: Value) -> Value {
    unique_host(name, |policy| {
        let mut context = context;
        context["name"] = "hosts".into();
        policy["spec"]["rules"][0]["context"] = json!([context]);
    })
}

fn view(name: &str) -> Address {
    Address::View(ViewId::new(name))
}

fn facts(answer: &Value) -> Value {
    let record = answer["auditAnnotations"]["decision"].as_str().unwrap();
    let record: Value = serde_json::from_str(record).unwrap();
    record["rules"][0]["facts"].clone()
}

/// A `GlobalContextEntry` with a projection, and an inline collection.
#[tokio::test]
async fn entries_of_either_kind_and_inline_collections_are_read() {
    let cluster = Cluster::new().await;
    let mut global = bound(EntryKind::Global, "g", ViewId::new("all"));
    global.projections = vec![Projection {
        name: "hosts".into(),
        expression: "[].host".into(),
    }];
    let inline = bound(
        EntryKind::Implicit,
        "networking.k8s.io/v1/Ingress/shop?&",
        ViewId::new("shop"),
    );
    cluster.write_all(&[]).await;
    cluster.entries(&[global, inline]).await;
    let inline = json!({ "resourceCache": {
        "group": "networking.k8s.io", "version": "v1", "kind": "Ingress", "namespace": "shop",
        "jmesPath": "items[].host",
    } });
    cluster
        .policies(&[
            reading(
                "a",
                json!({ "globalReference": { "name": "g.hosts", "jmesPath": "sort(@)" } }),
            ),
            reading("b", inline),
        ])
        .await;
    let _all = cluster
        .replica_at(view("all"), |_, query| {
            assert_eq!(query.expression, "([].host) | (any_in($key, sort(@)))");
            Some(Ok(listed(query, &["a.example"])))
        })
        .await;
    let _shop = cluster
        .replica_at(view("shop"), |_, query| {
            assert_eq!(query.expression, "any_in($key, items[].host)");
            Some(Ok(listed(query, &["b.example"])))
        })
        .await;
    let (_webhook, client) = cluster.webhook_at_once(&[]).await;
    // Not before both views are served.
    let _one = cluster.beats(&["all"]);
    let waits = |view: &str| {
        let report = cluster.service.readiness.report();
        let check = report
            .checks
            .into_iter()
            .find(|check| check.name == "views");
        check
            .unwrap()
            .waiting_for
            .is_some_and(|text| text.contains(view))
    };
    while !waits("view shop for policy b: no replica holds it") {
        tokio::task::yield_now().await;
    }
    drop(_one);
    let _both = cluster.beats(&["all", "shop"]);
    cluster.service.readiness.wait_ready().await;

    for (host, allowed) in [
        ("a.example", false),
        ("b.example", false),
        ("c.example", true),
    ] {
        let answer = client
            .review("/validate", &ingress("CREATE", "s", host))
            .await;
        assert_eq!(answer["allowed"], allowed, "{answer}");
    }
}

/// An unchanged `apiCall` is answered from a view, the record tells that it was, and where no
/// view answers it is read live.
#[tokio::test]
async fn an_unchanged_api_call_is_answered_from_a_view_or_live() {
    let path = "/apis/networking.k8s.io/v1/ingresses";
    let call = json!({ "apiCall": { "urlPath": path, "jmesPath": "items[].host" } });
    let cluster = Cluster::with(&[reading("p", call)]).await;
    let watcher = cluster
        .watcher(|request| {
            assert_eq!(&*request.policy.name, "p");
            assert_eq!(
                (&*request.rule, &*request.variable),
                ("unique-host", "hosts")
            );
            Ok(json!(["a.example"]))
        })
        .await;
    // It may be kept and is not declared: it holds readiness back for nobody.
    let (_webhook, client) = cluster.webhook().await;
    let review = ingress("CREATE", "s", "a.example");
    let denied = client.review("/validate", &review).await;
    assert_eq!(denied["status"]["code"], 403);
    let live = json!([{ "entry": path, "from": "live", "watcher": "watcher-0", "ageMs": 3 }]);
    assert_eq!(facts(&denied), live);

    let kept = bound(
        EntryKind::Implicit,
        "networking.k8s.io/v1/ingresses/?&",
        ViewId::new("kept"),
    );
    cluster.entries(&[kept]).await;
    let _replica = cluster
        .replica_at(view("kept"), |_, _| Some(Ok(json!(["a.example"]))))
        .await;
    // Ends as soon as the entry has come by the log: each request waits for an answer.
    let answer = loop {
        let answer = client.review("/validate", &review).await;
        if facts(&answer)[0]["from"] == "view" {
            break answer;
        }
    };
    let asked = watcher.calls();
    assert_eq!(answer["status"]["code"], 403);
    assert_eq!(facts(&answer)[0]["entry"], path);
    assert_eq!(facts(&answer)[0]["view"], "kept");
    client.review("/validate", &review).await;
    assert_eq!(watcher.calls(), asked);
}

/// From the referenced ones, and what is absent there is absent.
#[tokio::test]
async fn a_config_map_that_is_not_there_is_an_error_in_the_api_servers_words() {
    let context = json!({ "configMap": { "name": "c", "namespace": "shop" } });
    let cluster = Cluster::with(&[reading("p", context)]).await;
    let _replica = cluster
        .replica_at(view("configmaps.v1~objects"), |_, _| {
            Some(Err(FactError::ObjectNotFound {
                resource: "configmaps".into(),
                namespace: "shop".into(),
                name: "c".into(),
            }))
        })
        .await;
    let (_webhook, client) = cluster.webhook().await;
    let answer = client
        .review("/validate", &ingress("CREATE", "s", "a.example"))
        .await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.contains("configmaps \"c\" not found"), "{message}");
}
