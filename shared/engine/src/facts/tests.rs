//! Facts on the in-process bus, from replicas and watchers that say what a test wants them to say.

mod large_facts;
mod local;
mod together;
mod world;

use std::{sync::Arc, time::Duration};

use anteroom_bus::Address;
use anteroom_model::{EntryKind, FactError, ObjectKey, Revision, Shape, ViewId};
use anteroom_policy::{
    CollectionReference, FactRequest, FactSubject, NamedObject, Reference, ResolvedApiCall,
    ViewBackedRead,
};
use anteroom_seal::AskedOf;
use anteroom_wire::{live::LiveCall, query};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::world::{QueryResult, World, outcome};
use super::*;
use crate::rule::RuleRef;

impl FactAnswer {
    /// The value or the error; `None` where the request was declined.
    fn got(&self) -> Option<Result<Value, FactError>> {
        match &self.answer {
            FactResult::Got(answer) => Some(answer.clone()),
            FactResult::Declined | FactResult::LeftOut => None,
        }
    }
}

const PODS: &str = "/api/v1/pods";

pub(super) fn pods(declared: bool) -> CollectionReference {
    CollectionReference {
        version: Some("v1".into()),
        resource: "pods".into(),
        declared,
        ..CollectionReference::default()
    }
}

fn pod_list(declared: bool) -> FactSubject {
    FactSubject::Api(ResolvedApiCall {
        path: PODS.into(),
        data: None,
        by_view: Some(ViewBackedRead {
            reference: Reference::Collection(pods(declared)),
            object: None,
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            limit: None,
        }),
    })
}

fn pod(declared: bool) -> FactSubject {
    let key = ObjectKey::new("a", "b");
    FactSubject::Api(ResolvedApiCall {
        path: "/api/v1/namespaces/a/pods/b".into(),
        data: None,
        by_view: Some(ViewBackedRead {
            reference: Reference::Object(NamedObject {
                version: "v1".into(),
                resource: "pods".into(),
                namespace: "a".into(),
                name: "b".into(),
                declared,
                ..NamedObject::default()
            }),
            object: Some(key),
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            limit: None,
        }),
    })
}

fn entry(name: &str) -> FactSubject {
    FactSubject::Entry {
        kind: EntryKind::Cached,
        name: name.into(),
        projection: String::new(),
    }
}

fn config_map(literal: bool) -> FactSubject {
    FactSubject::ConfigMap {
        object: ObjectKey::new("a", "c"),
        literal,
    }
}

fn view(name: &str) -> Address {
    Address::View(ViewId::new(name))
}

fn fallback(name: &str) -> Address {
    Address::Fallback(ViewId::new(name))
}

fn not_synced() -> FactError {
    FactError::NotSynced {
        view: "pods.v1".into(),
        state: "syncing".into(),
    }
}

fn evicted() -> FactError {
    FactError::Evicted {
        view: "services.v1".into(),
        message: "no room".into(),
    }
}

fn stale() -> FactError {
    FactError::Stale {
        view: "services.v1".into(),
        age_ms: 2,
        age_max_ms: 1,
        silent_ms: None,
    }
}

/// The error of an answer from a log that was left, or from before what was read at last.
fn behind() -> FactError {
    FactError::RevisionNotReached {
        view: "services.v1".into(),
        have: Revision(1),
        want: Revision(2),
    }
}

fn absent(resource: &str) -> FactError {
    FactError::ObjectNotFound {
        resource: resource.into(),
        namespace: "a".into(),
        name: "c".into(),
    }
}

fn code(fact: &FactAnswer) -> &'static str {
    match fact.got().as_ref().unwrap() {
        Ok(_) => "ok",
        Err(error) => error.code().as_str(),
    }
}

fn from(fact: &FactAnswer) -> Value {
    match &fact.origin {
        Some(origin) => serde_json::to_value(&**origin).unwrap(),
        None => json!({}),
    }
}

/// A replica that knows a view and does not serve it gives the reason; a view that no replica knows
/// has an error that says so.
#[tokio::test(start_paused = true)]
async fn an_unserved_view_is_an_error_with_its_reason() {
    let failed = FactError::Failed {
        view: "services.v1".into(),
        failure: anteroom_model::Failure::new("Forbidden", "no"),
    };
    for (reason, expected) in [
        (evicted(), "AR108"),
        (not_synced(), "AR103"),
        (failed, "AR105"),
        (stale(), "AR104"),
    ] {
        let world = World::new(0.0);
        let _knows = world
            .replica(fallback("services.v1"), move |_, _| {
                Some(Err(reason.clone()))
            })
            .await;
        let fact = world.answer(entry("services")).await;
        assert_eq!(code(&fact), expected);
    }
    let nobody = World::new(0.0).answer(entry("services")).await;
    assert_eq!(code(&nobody), "AR106");
}

/// A reader who accepts the age reads last-good data, and the record says so.
#[tokio::test]
async fn last_good_data_of_a_replica_answers_a_fact() {
    let world = World::new(0.0);
    let _knows = world
        .replica(fallback("services.v1"), |_, _| Some(Ok(json!(["old"]))))
        .await;
    let fact = world.answer(entry("services")).await;
    assert_eq!(fact.got().unwrap(), Ok(json!(["old"])));
    assert_eq!(from(&fact)["from"], "fallback");
}

/// Being asked brings a view back, and the one who asked has an answer.
#[tokio::test(start_paused = true)]
async fn a_view_that_is_on_its_way_is_asked_again() {
    for reason in [evicted(), not_synced(), behind(), stale()] {
        let world = World::new(0.0);
        // Being asked for the sixth time, it has come back.
        let _knows = world
            .replica(fallback("services.v1"), move |call, _| {
                Some(if call < 5 {
                    Err(reason.clone())
                } else {
                    Ok(json!(1))
                })
            })
            .await;
        let begun = Instant::now();
        let fact = world.answer(entry("services")).await;
        assert_eq!(fact.got().unwrap(), Ok(json!(1)));
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
}

/// A call that is not declared is read live where the view cannot answer; a declared one has
/// the view's error. What the view says of the data is the answer in both.
#[tokio::test(start_paused = true)]
async fn an_undeclared_call_falls_back_to_a_live_read() {
    let bad = || FactError::EvaluationFailed {
        message: "m".into(),
    };
    // What the view says, of an undeclared call and of a declared one.
    let cases: [(Option<QueryResult>, &str, &str); 5] = [
        (Some(Ok(json!("view"))), "view", "view"),
        (Some(Err(not_synced())), "live", "AR103"),
        (Some(Err(bad())), "AR202", "AR202"),
        (Some(Err(absent("pods"))), "AR110", "AR110"),
        // It hangs: half of the time is left for the live read.
        (None, "live", "AR204"),
    ];
    for (said, undeclared, declared) in cases {
        let world = World::new(0.0);
        let name = format!("{said:?}");
        let _replica = world
            .replica(view("pods.v1"), move |_, _| said.clone())
            .await;
        let _watcher = world.watcher(|_, _| Ok(json!("live"))).await;
        for (subject, expected) in [(pod_list(false), undeclared), (pod_list(true), declared)] {
            let fact = world.answer(subject).await;
            let got = fact.got().unwrap();
            let found = match &got {
                Ok(value) => value.as_str().unwrap(),
                Err(error) => error.code().as_str(),
            };
            assert_eq!(found, expected, "{name}");
            if got.is_ok() {
                assert_eq!(
                    from(&fact)["from"],
                    expected,
                    "the record says by which way: {name}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_record_of_a_live_read_holds_the_views_error() {
    let world = World::new(0.0);
    let _watcher = world.watcher(|_, _| Ok(json!(1))).await;
    let fact = world.answer(pod_list(false)).await;
    let expected = json!({ "from": "live", "watcher": "w", "ageMs": 3, "viewError": "AR106" });
    assert_eq!(from(&fact), expected);
}

#[tokio::test]
async fn an_object_by_name_is_asked_of_the_objects_of_its_type() {
    let world = World::new(0.0);
    let unregistered = FactError::ObjectNotRegistered {
        resource: "pods".into(),
        object: "a/b".into(),
    };
    let _replica = world
        .replica(view("pods.v1~objects"), move |call, query| {
            let selection = query.selection.clone().unwrap();
            assert_eq!(selection.shape, Shape::Object);
            assert_eq!(selection.object, Some(ObjectKey::new("a", "b")));
            Some(match call {
                0 => Ok(json!("view")),
                _ => Err(unregistered.clone()),
            })
        })
        .await;
    let _watcher = world.watcher(|_, _| Ok(json!("live"))).await;
    assert_eq!(
        world.answer(pod(false)).await.got(),
        Some(Ok(json!("view")))
    );
    assert_eq!(
        world.answer(pod(false)).await.got(),
        Some(Ok(json!("live")))
    );
    assert_eq!(code(&world.answer(pod(true)).await), "AR109");
}

/// The mark tells a watcher or a replica that no user waits for the answer.
#[tokio::test]
async fn live_reads_and_queries_of_a_scan_are_marked_as_such() {
    for of_scan in [false, true] {
        let mut world = World::new(0.0);
        if of_scan {
            world.facts = world.facts.clone().for_scans();
        }
        let _watcher = world.watcher(|_, request| Ok(json!(request.of_scan))).await;
        let service = FactSubject::Service {
            url: "https://s".into(),
            data: None,
        };
        assert_eq!(world.answer(service).await.got(), Some(Ok(json!(of_scan))));
        let _replica = world
            .serve(view("services.v1"), |_, body| {
                let request = query::decode_request(body).unwrap();
                let outcome = outcome(vec![Ok(json!(request.of_scan))]);
                Some(query::encode_outcome(&outcome).unwrap())
            })
            .await;
        let fact = world.answer(entry("services")).await;
        assert_eq!(fact.got(), Some(Ok(json!(of_scan))));
    }
}

#[tokio::test]
async fn a_live_read_carries_its_policy_and_returns_the_watchers_answer() {
    let world = World::new(0.0);
    let service = FactSubject::Service {
        url: "https://s".into(),
        data: Some(json!({ "a": 1 })),
    };
    assert_eq!(
        code(&world.answer(service.clone()).await),
        "AR113",
        "no watcher"
    );
    let _watcher = world
        .watcher(|call, request| {
            assert_eq!(request.policy, ObjectKey::new("", "p"));
            assert_eq!((&*request.rule, &*request.variable), ("r", "v"));
            assert_eq!(request.review_namespace, "n");
            assert_ne!(request.review, 0);
            let expected = LiveCall::Service {
                url: "https://s".into(),
                data: Some(json!({ "a": 1 })),
            };
            assert_eq!(request.call, expected);
            match call {
                0 => Ok(json!("live")),
                _ => Err(FactError::LiveReadFailed {
                    code: 503,
                    message: "down".into(),
                }),
            }
        })
        .await;
    assert_eq!(
        world.answer(service.clone()).await.got(),
        Some(Ok(json!("live")))
    );
    assert_eq!(
        world
            .answer(service)
            .await
            .got()
            .unwrap()
            .unwrap_err()
            .to_string(),
        "down"
    );
}

/// A call that would be done twice if it arrived twice is sent again only if it never left.
#[tokio::test(start_paused = true)]
async fn a_post_that_never_left_is_sent_once_the_bus_is_back() {
    let world = World::new(0.0);
    let watcher = world.watcher(|_, _| Ok(json!("done"))).await;
    let service = FactSubject::Service {
        url: "https://s".into(),
        data: Some(json!({ "a": 1 })),
    };
    world.bus.faults().stop();
    let back = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.bus.faults().start();
    };
    let (fact, ()) = tokio::join!(world.answer(service), back);
    assert_eq!(fact.got(), Some(Ok(json!("done"))));
    assert_eq!(watcher.calls(), 1);
}

/// The chain, and where it ends.
#[tokio::test(start_paused = true)]
async fn a_config_map_is_looked_for_from_the_nearest_place_on() {
    let unregistered = || FactError::ObjectNotRegistered {
        resource: "configmaps".into(),
        object: "a/c".into(),
    };
    let value = || Ok(json!({ "data": { "k": "v" } }));
    // The answers of the labelled view, the referenced view and the API server; the expected outcome, and the live
    // reads.
    let cases: [(QueryResult, QueryResult, QueryResult, &str, usize); 6] = [
        (value(), Err(not_synced()), Err(not_synced()), "ok", 0),
        (
            Err(absent("configmaps")),
            value(),
            Err(not_synced()),
            "ok",
            0,
        ),
        (Err(not_synced()), value(), Err(not_synced()), "ok", 0),
        // Absent by the word of the API server.
        (
            Err(absent("configmaps")),
            Err(absent("configmaps")),
            value(),
            "AR110",
            0,
        ),
        (
            Err(absent("configmaps")),
            Err(unregistered()),
            value(),
            "ok",
            1,
        ),
        // The last error is the one.
        (
            Err(not_synced()),
            Err(unregistered()),
            Err(absent("configmaps")),
            "AR110",
            1,
        ),
    ];
    for (labelled, referenced, live, expected, live_reads) in cases {
        let world = World::new(0.0);
        let name = format!("{labelled:?} {referenced:?} {live:?}");
        let _labelled = world
            .replica(view("labelled"), move |_, _| Some(labelled.clone()))
            .await;
        let _referenced = world
            .replica(view("configmaps.v1~objects"), move |_, _| {
                Some(referenced.clone())
            })
            .await;
        let watcher = world.watcher(move |_, _| live.clone()).await;
        let fact = world.answer(config_map(true)).await;
        assert_eq!(
            (code(&fact), watcher.calls()),
            (expected, live_reads),
            "{name}"
        );
    }
    // The name is no literal, so the object is not referenced and not looked for among referenced objects.
    let world = World::new(0.0);
    let referenced = world
        .replica(view("configmaps.v1~objects"), |_, _| Some(Ok(json!(1))))
        .await;
    assert_eq!(code(&world.answer(config_map(false)).await), "AR113");
    assert_eq!(referenced.calls(), 0);
}

#[tokio::test]
async fn queries_of_one_view_share_a_request_and_have_their_own_answers() {
    let world = World::new(0.0);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&seen);
    let services = world
        .replica(view("services.v1"), move |call, _| {
            asked.lock().push(call);
            Some(match asked.lock().len() {
                1 => Ok(json!(1)),
                _ => Err(absent("services")),
            })
        })
        .await;
    let pods = world
        .replica(view("pods.v1"), |_, _| Some(Ok(json!(2))))
        .await;
    let facts = world
        .answers(vec![
            entry("services"),
            pod_list(true),
            entry("services"),
            entry("none"),
        ])
        .await;
    let codes: Vec<_> = facts.iter().map(code).collect();
    assert_eq!(codes, ["ok", "ok", "AR110", "AR101"]);
    assert_eq!((services.calls(), pods.calls()), (1, 1));
    assert_eq!(*seen.lock(), [0, 0]);
}

/// Questions about Secrets and their answers are never in the clear on a bus, and nobody else can answer.
#[tokio::test]
async fn a_secrets_results_travel_sealed() {
    let world = World::new(0.0);
    let keys = world.asker_keys.clone();
    let _replica = world
        .serve(view("secrets.v1"), move |call, body| {
            let of = ViewId::new("secrets.v1");
            let (_, answering) = keys.open_question(AskedOf::View(&of), body).unwrap();
            let reply = query::encode_outcome(&outcome(vec![Ok(json!("hidden"))])).unwrap();
            Some(match call {
                0 => answering.seal(&reply).unwrap(),
                1 => reply,
                _ => {
                    let absent = Err(FactError::ObjectNotFound {
                        resource: "secrets".into(),
                        namespace: "a".into(),
                        name: "x".into(),
                    });
                    query::encode_outcome(&absent).unwrap()
                }
            })
        })
        .await;
    let secrets = || world.answer(entry("secrets"));
    assert_eq!(secrets().await.got(), Some(Ok(json!("hidden"))));
    for forged in ["a result", "an absence"] {
        assert_eq!(code(&secrets().await), "AR123", "{forged} in the clear");
    }
}

/// A rule may write what it has read in a Secret.
#[tokio::test(start_paused = true)]
async fn a_write_travels_sealed() {
    let world = World::new(0.0);
    let keys = world.asker_keys.clone();
    let are_sealed = Arc::<Mutex<Vec<bool>>>::default();
    let noted = Arc::clone(&are_sealed);
    let _watcher = world
        .serve(Address::Write, move |_, body| {
            let opened = keys.open_question(AskedOf::Live, body);
            noted.lock().push(opened.is_ok());
            None
        })
        .await;
    let reader = RuleRef {
        policy: ObjectKey::new("", "p"),
        rule: "r".into(),
    };
    let soon = Instant::now() + Duration::from_secs(1);
    let object = json!({"data": {"key": "hidden"}});
    let error = world.facts.write(&reader, 0, object, soon).await;
    assert_eq!(error.unwrap_err().code().as_str(), "AR204");
    assert_eq!(*are_sealed.lock(), [true]);
}

/// An audit counts what differs, and not what is merely newer.
#[tokio::test(start_paused = true)]
async fn an_audit_does_not_count_newer_data_as_a_difference() {
    // What the view says first and then; what is read live; what is counted.
    for (first, then, live, counted) in [
        (1, 1, 1, "same"),
        (1, 2, 2, "same"),
        (1, 1, 2, "different"),
        (1, 1, -1, "error"),
    ] {
        let world = World::new(1.0);
        let _replica = world
            .replica(view("pods.v1"), move |call, _| {
                Some(Ok(json!(if call == 0 { first } else { then })))
            })
            .await;
        let _watcher = world
            .watcher(move |_, _| match live {
                -1 => Err(FactError::NoWatcher),
                live => Ok(json!(live)),
            })
            .await;
        assert_eq!(
            world.answer(pod_list(false)).await.got(),
            Some(Ok(json!(first)))
        );
        // Ends: the audit is bounded in time, which passes as fast as it can here.
        while world.audits.0.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let labels: Vec<_> = world
            .audits
            .0
            .lock()
            .iter()
            .map(|one| one.as_str())
            .collect();
        assert_eq!(labels, [counted]);
    }
}
