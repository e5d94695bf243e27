use std::{
    collections::{BTreeMap, HashMap},
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
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};

use super::{
    super::{
        held_events::HeldEvents, plan::ViewFilter, running_watch::RunningWatch,
        shared_hub::SharedHub,
    },
    *,
};
use crate::{
    log_writer::publish::Publisher,
    source::{
        metrics::SourceMetrics,
        reflect::{Note, Sink as _},
    },
};

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
/// follows the list.
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
    let handle = publisher.with(|queue| queue.open(info, HashMap::new()));
    let list = publisher.with(|queue| queue.begin_list(&handle));
    let mut hub = Hub::default();
    hub.insert(Member {
        handle: handle.clone(),
        filter: ViewFilter::new(&collection),
        sealed: false,
        retained: None,
        since: ResourceVersion::default(),
        watches: BTreeMap::from([(WatchScope::all(), joins(list))]),
        is_refused: false,
    });
    let (relist, _asked) = watch::channel(0);
    let stop = tokio::spawn(std::future::pending::<()>()).abort_handle();
    hub.watches
        .insert(WatchScope::all(), RunningWatch::new(relist, stop));
    let hub = SharedHub::new(hub, publisher.clone());
    let metrics = SourceMetrics::register(&Service::new("test").metrics);
    let sink = WatchSink {
        scope: WatchScope::all(),
        hub: hub.clone(),
        keys: Keys::none(),
        metrics: metrics.of_watch(&handle.view),
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
        let event = |name, app, version| Note::Put {
            object: raw(name, app, version),
            origin: Origin::Event(tracing::info_span!("event")),
        };
        let gone = |name, version| Note::Gone {
            key: ObjectKey::new("n", name),
            version: ResourceVersion::new(version),
            span: tracing::info_span!("event"),
        };
        let events = [
            event("late", "a", "9"),
            gone("late", "10"),
            gone("deleted", "11"),
            event("relabelled", "b", "12"),
            event("changed", "a", "13"),
            event("new", "a", "14"),
            event("short", "a", "15"),
            gone("short", "16"),
        ];
        let mut watched = watched.clone();
        let body = Full::new(Bytes::from(page.to_string()));
        async move {
            for event in events {
                watched.note(event).await;
            }
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let join = Join {
        api: ApiServer::new(Client::new(service, "default")),
        gvr,
        sink,
    };
    let own = vec![WatchScope {
        labels: "app=a".into(),
        ..WatchScope::all()
    }];
    let joining = Joining::View {
        handle: handle.clone(),
        list,
        own,
    };
    join.run(joining).await;
    assert!(asked.borrow().contains("labelSelector=app%3Da"));
    for (name, held) in [
        ("stays", Some("5")),
        ("deleted", None),
        ("relabelled", None),
        ("changed", Some("13")),
        ("new", Some("14")),
        ("late", None),
        ("short", None),
    ] {
        let key = ObjectKey::new("n", name);
        let holds = publisher.with(|queue| queue.touch(&handle, &key));
        assert_eq!(holds, held.is_some(), "{name}");
        if let Some(version) = held.map(ResourceVersion::new) {
            let known = publisher.with(|queue| queue.is_known(&handle, &key, &version));
            assert!(known, "{name}");
        }
    }
    let hub = hub.lock();
    assert!(hub.members[&handle.view].is_complete());
}

fn joins(list: u32) -> Progress {
    Progress::Joins {
        list,
        held: HeldEvents::default(),
    }
}
