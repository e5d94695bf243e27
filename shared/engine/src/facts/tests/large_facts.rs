//! Large facts, and the memory that they hold.

use super::*;
use crate::{incoming::ReviewOwner, recorder::AuditResult};

/// A list of maps, each of which takes four bytes in an answer, and hundreds in memory.
fn maps(count: usize) -> Value {
    vec![json!({ "a": 0 }); count].into()
}

fn review(owner: &str) -> FactHolder {
    FactHolder::review(ReviewOwner::of(owner, ""))
}

/// A world whose large facts have 18 MiB in the turn, and 4 MiB beside it.
fn world() -> World {
    let mut world = World::new(0.0);
    world.facts = world.facts.clone().with_memory(24 * 1024 * 1024);
    world
}

#[tokio::test(start_paused = true)]
async fn large_answers_of_replicas_and_of_watchers_hold_memory_and_small_answers_hold_none() {
    let world = world();
    let count = |call: usize| [10, 4_000][call];
    let _replica = world
        .replica(view("services.v1"), move |call, _| {
            Some(Ok(maps(count(call))))
        })
        .await;
    let _watcher = world.watcher(move |call, _| Ok(maps(count(call)))).await;
    let service = FactSubject::Service {
        url: "https://s".into(),
        data: None,
    };
    for subject in [entry("services"), service] {
        let small = world.answer(subject.clone()).await;
        assert!(small.memory.is_none());
        let large = world.answer(subject).await;
        assert_eq!(large.got(), Some(Ok(maps(4_000))));
        assert!(large.memory.is_some());
    }
}

/// A live read would cost the API server, and its answer would take the memory too.
#[tokio::test(start_paused = true)]
async fn a_view_whose_answer_finds_no_memory_is_not_read_live_instead() {
    let world = world();
    let _replica = world
        .replica(view("pods.v1"), |_, _| Some(Ok(maps(12_000))))
        .await;
    let watcher = world.watcher(|_, _| Ok(json!("live"))).await;
    let first = review("a");
    let held = world.answers_for(&first, vec![pod_list(false)]).await;
    assert!(held[0].memory.is_some());
    for (owner, over_part) in [("a", true), ("b", false)] {
        let next = review(owner);
        let late = world.answers_for(&next, vec![pod_list(false)]).await;
        let error = late[0].got().unwrap().unwrap_err();
        assert_eq!(error.code().as_str(), "AR204");
        assert_eq!(error.is_over_part(), over_part, "{owner}");
    }
    drop(held);
    let next = review("b");
    let facts = world.answers_for(&next, vec![pod_list(false)]).await;
    assert_eq!((code(&facts[0]), watcher.calls()), ("ok", 0));
}

/// A copy would take as much memory as the answer.
#[tokio::test]
async fn an_audit_skips_large_answers() {
    let mut world = World::new(1.0);
    world.facts = world.facts.clone().with_memory(24 * 1024 * 1024);
    let _replica = world
        .replica(view("pods.v1"), |_, _| Some(Ok(maps(4_000))))
        .await;
    let watcher = world.watcher(|_, _| Ok(json!("live"))).await;
    let fact = world.answer(pod_list(false)).await;
    assert!(fact.memory.is_some());
    let counted = world.audits.0.lock().clone();
    assert_eq!((counted, watcher.calls()), (vec![AuditResult::Skipped], 0));
}
