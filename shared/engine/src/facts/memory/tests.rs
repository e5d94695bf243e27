use std::time::Duration;

use futures::{
    FutureExt as _,
    future::{join, join_all},
};

use super::*;

const MIB: u64 = 1024 * 1024;

/// The time that facts have to find memory.
const GIVEN: Duration = Duration::from_secs(10);

/// Memory of which 18 MiB are for the turn, 4 MiB are room for all others, and 2 MiB are for answers that wait.
fn memory() -> FactMemory {
    FactMemory::new(24 * MIB)
}

fn review(owner: &str) -> FactHolder {
    FactHolder::review(ReviewOwner::of(owner, ""))
}

/// Takes memory for a fact of so many MiB, from now on.
async fn take(memory: &FactMemory, mib: u64, holder: &FactHolder) -> Result<FactPermit, FactError> {
    let deadline = Instant::now() + GIVEN;
    let taken = memory.take(1_000, mib * MIB, holder, deadline).await;
    taken.map(|taken| taken.expect("a large fact takes memory"))
}

fn late(deadline_ms: u64, over_part: bool) -> FactError {
    FactError::DeadlineExceeded {
        deadline_ms,
        over_part,
    }
}

#[test]
fn the_largest_fact_finds_room_in_a_turn() {
    let memory = FactMemory::default();
    assert_eq!(memory.0.turn_bytes, RESULT_MEMORY_BYTES_MAX as u64);
}

#[tokio::test(start_paused = true)]
async fn small_facts_of_a_review_take_little_memory_together_and_all_others_are_counted() {
    let (memory, review) = (memory(), review("a"));
    let deadline = Instant::now() + GIVEN;
    let mut held = Vec::new();
    let bytes = SMALL_BYTES_MAX / 5 * 2;
    for (bytes, is_small) in [
        (2 * MIB, false),
        (bytes, true),
        (bytes, true),
        (bytes, false),
        (SMALL_BYTES_MAX / 5, true),
    ] {
        let taken = memory.take(1_000, bytes, &review, deadline).await;
        let taken = taken.unwrap();
        assert_eq!(taken.is_none(), is_small, "{bytes}");
        held.extend(taken);
    }
    assert!(!memory.is_free());
    drop(held);
    assert!(memory.is_free());
}

/// Each holds a fact while it waits for another: if there were no turns, none would go on.
#[tokio::test(start_paused = true)]
async fn reviews_that_hold_facts_and_wait_for_more_go_on_one_after_another() {
    let (memory, begun) = (memory(), Instant::now());
    let reviews = (0..8).map(|at| {
        let (memory, holder) = (memory.clone(), review(["a", "b"][at % 2]));
        async move {
            let first = take(&memory, 2, &holder).await.unwrap();
            // The others take theirs.
            tokio::task::yield_now().await;
            let second = take(&memory, 9, &holder).await.unwrap();
            drop((first, second));
        }
    });
    join_all(reviews).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(memory.is_free());
}

#[tokio::test(start_paused = true)]
async fn facts_of_a_review_that_wait_share_its_turn() {
    let (memory, holder) = (memory(), review("b"));
    let of_other = take(&memory, 9, &review("a")).await.unwrap();
    let both = join(take(&memory, 9, &holder), take(&memory, 9, &holder));
    let mut both = Box::pin(both);
    assert!((&mut both).now_or_never().is_none());
    drop(of_other);
    let (first, second) = both.await;
    let (first, second) = (first.unwrap(), second.unwrap());
    // The review waits for itself: a rule that ends gives memory back.
    let mut third = Box::pin(take(&memory, 9, &holder));
    assert!((&mut third).now_or_never().is_none());
    drop(first);
    let third = third.await.unwrap();
    let error = take(&memory, 9, &holder).await.unwrap_err();
    assert_eq!(error, late(10_000, true));
    drop((second, third));
    assert!(memory.is_free());
}

/// Otherwise many large facts would get the next request past a policy whose failures are ignored.
#[tokio::test(start_paused = true)]
async fn a_fact_that_finds_no_memory_says_whether_reviews_of_its_owner_hold_the_memory() {
    let memory = memory();
    let in_room = take(&memory, 3, &review("a")).await.unwrap();
    let in_turn = take(&memory, 9, &review("b")).await.unwrap();
    for (owner, mib, over_part) in [
        ("a", 3, true),
        ("a", 9, false),
        ("b", 3, true),
        ("b", 9, true),
        ("c", 3, false),
        ("c", 9, false),
    ] {
        let error = take(&memory, mib, &review(owner)).await.unwrap_err();
        assert_eq!(error, late(10_000, over_part), "{owner} {mib}");
    }
    drop((in_room, in_turn));
    assert!(memory.is_free());
}

#[tokio::test(start_paused = true)]
async fn a_fact_that_never_finds_room_is_over_its_budget_at_once() {
    let memory = memory();
    let trigger = FactHolder::trigger(ReviewOwner::of("a", ""));
    for (holder, mib) in [(&review("a"), 19), (&trigger, 5)] {
        let taken = take(&memory, mib, holder).now_or_never().unwrap();
        let is_over = matches!(taken, Err(FactError::BudgetExceeded { .. }));
        assert!(is_over, "{mib}");
    }
    assert!(memory.is_free());
}

/// The former hold facts while they go through long lists, and the latter are written by tenants.
#[tokio::test(start_paused = true)]
async fn triggers_and_policies_of_namespaces_take_room_and_never_the_turn() {
    let memory = memory();
    let trigger = FactHolder::trigger(ReviewOwner::of("b", ""));
    for without_turns in [trigger, review("b").for_policies_of("b")] {
        let held = take(&memory, 3, &review("a")).await.unwrap();
        let error = take(&memory, 3, &without_turns).await.unwrap_err();
        assert_eq!(error, late(10_000, false));
        let of_review = take(&memory, 3, &review("b")).await;
        assert!(of_review.is_ok());
        drop(held);
        assert!(take(&memory, 3, &without_turns).await.is_ok());
    }
}

/// A tenant writes a policy that reads much, so that an administrator's policy gets no fact and its failure is ignored.
#[tokio::test(start_paused = true)]
async fn facts_for_policies_of_namespaces_leave_memory_to_those_for_policies_of_the_cluster() {
    let (memory, review) = (memory(), review("a"));
    let of_namespace = review.for_policies_of("a");
    let deadline = Instant::now() + GIVEN;
    let _in_room = take(&memory, 4, &of_namespace).await.unwrap();
    let mut waiting = Box::pin(take(&memory, 4, &of_namespace));
    assert!((&mut waiting).now_or_never().is_none());
    for holder in [&of_namespace, &review] {
        let small = memory.take(1_000, SMALL_BYTES_MAX, holder, deadline).await;
        assert!(small.unwrap().is_none());
    }
    assert!(take(&memory, 9, &review).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_bytes_of_answers_that_wait_are_limited_and_owners_share_them() {
    let memory = memory();
    let in_turn = take(&memory, 9, &review("a")).await.unwrap();
    let holders = ["b", "b", "c", "d"].map(review);
    let deadline = Instant::now() + GIVEN;
    let mut waiting = holders
        .each_ref()
        .map(|holder| Box::pin(memory.take(1024 * 1024, 9 * MIB, holder, deadline)));
    for (waiting, expected) in
        waiting
            .iter_mut()
            .zip([None, Some(late(0, true)), None, Some(late(0, false))])
    {
        let done = waiting.now_or_never();
        assert_eq!(done.map(Result::unwrap_err), expected);
    }
    drop((waiting, in_turn));
    assert!(memory.is_free());
}
