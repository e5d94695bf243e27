use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
    sync::Arc,
};

use anteroom_model::{Collection, Source, SourceInfo};
use anteroom_runtime::Service;
use anteroom_seal::Keys;
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::{super::plan::Lens, *};
use crate::{metrics::WatcherMetrics, publish::Publisher};

fn object(name: &str, app: &str, version: &str) -> Value {
    let metadata = json!({"name": name, "namespace": "n", "resourceVersion": version,
        "labels": {"app": app}});
    json!({"metadata": metadata})
}

fn raw(name: &str, app: &str, version: &str) -> RawObject {
    RawObject {
        key: ObjectKey::new("n", name),
        version: ResourceVersion::new(version),
        json: object(name, app, version).to_string().into(),
    }
}

/// Whatever the watch brings after the API server made the list up, and before the list is read,
/// stays.
#[tokio::test]
async fn nothing_is_lost_or_comes_back_between_a_list_and_the_events_of_the_watch() {
    let gvr = GroupVersionResource::new("", "v1", "things");
    let collection = Collection {
        label_selector: "app=a".into(),
        ..Collection::all(gvr.clone())
    };
    let publisher = Publisher::new(1);
    let info = SourceInfo {
        source: Source::Collection(collection.clone()),
        kind: "Thing".into(),
        namespaced: true,
    };
    let mut tenure = publisher.with(|book| book.open(info, HashMap::new()));
    let begun = publisher.with(|book| {
        book.set_overlap(&tenure, true);
        book.begin_list(&mut tenure, false)
    });
    let hub = Arc::new(Mutex::new(Hub::default()));
    let member = Member {
        tenure: tenure.clone(),
        lens: Lens::new(&collection),
        sealed: false,
        kept: None,
        feeds: BTreeSet::from([Scope::all()]),
        old: BTreeSet::new(),
        done: BTreeSet::new(),
        refused: BTreeMap::new(),
        joins: BTreeMap::from([(Scope::all(), begun)]),
    };
    hub.lock().insert(member);
    let metrics = WatcherMetrics::register(&Service::new("test").metrics);
    let sink = FeedSink {
        scope: Scope::all(),
        hub: Arc::clone(&hub),
        publisher: publisher.clone(),
        keys: Keys::none(),
        metrics: metrics.of_watch(&tenure.view),
        api_version: "v1".into(),
        kind: "Thing".into(),
        planned: Arc::new(Notify::new()),
    };
    let asked = watch::Sender::new(String::new());
    let (watched, told) = (sink.clone(), asked.clone());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        told.send_replace(request.uri().query().unwrap_or_default().to_owned());
        let items = ["stays", "deleted", "relabelled", "changed"];
        let items: Vec<Value> = items.iter().map(|name| object(name, "a", "5")).collect();
        let page = json!({"metadata": {"resourceVersion": "10"}, "items": items});
        // The list is made up; now come the events, and then it is read.
        let mut hub = watched.hub.lock();
        let (all, none, of) = (Scope::all(), Span::none(), &watched.publisher);
        let gone = ObjectKey::new("n", "deleted");
        hub.gone(&all, &gone, &ResourceVersion::new("11"), &none, of);
        assert!(
            hub.put(&all, &raw("relabelled", "b", "12"), &none, of)
                .is_empty()
        );
        for (name, version) in [("changed", "13"), ("new", "14"), ("late", "9")] {
            let event = raw(name, "a", version);
            let outlets = hub.put(&all, &event, &none, of);
            for outlet in outlets {
                let body = watched.read(&event.json).body(None);
                watched.write(&outlet, &event.key, &event.version, body, &none);
            }
        }
        let late = ObjectKey::new("n", "late");
        hub.gone(&all, &late, &ResourceVersion::new("10"), &none, of);
        let body = Full::new(Bytes::from(page.to_string()));
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let join = Join {
        api: ApiServer::new(Client::new(service, "default")),
        gvr,
        sink,
    };
    let lists = vec![Scope {
        labels: "app=a".into(),
        ..Scope::all()
    }];
    let joins = Joins::View {
        tenure: tenure.clone(),
        begun,
        lists,
    };
    join.run(joins).await;
    assert!(asked.borrow().contains("labelSelector=app%3Da"));
    let holds = |name: &str| publisher.with(|book| book.holds(&tenure, &ObjectKey::new("n", name)));
    for (name, held) in [
        ("stays", true),
        ("deleted", false),
        ("relabelled", false),
        ("changed", true),
        ("new", true),
        ("late", false),
    ] {
        assert_eq!(holds(name), held, "{name}");
    }
    let known = ObjectKey::new("n", "changed");
    let newer = ResourceVersion::new("13");
    assert!(publisher.with(|book| book.is_known(&tenure, &known, &newer)));
    let hub = hub.lock();
    let member = hub.members.values().next().unwrap();
    assert!(member.joins.is_empty() && member.done.contains(&Scope::all()));
}
