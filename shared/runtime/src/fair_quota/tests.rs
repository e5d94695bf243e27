use std::time::Duration;

use super::*;

type Permits = Vec<FairPermit<char>>;

fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

/// Takes so many units for as often as the key gets them now.
fn take_all(quota: &Arc<FairQuota<char>>, key: char, units: u64) -> Permits {
    std::iter::from_fn(|| quota.try_take(key, units).ok()).collect()
}

fn is_untouched(quota: &FairQuota<char>) -> bool {
    let ledger = quota.ledger.lock();
    ledger.by_key.is_empty() && ledger.waiting == 0 && ledger.free == quota.units_max
}

/// Polls a request once.
fn poll<F: Future>(request: &mut std::pin::Pin<Box<F>>) -> std::task::Poll<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    request.as_mut().poll(&mut context)
}

/// Returns whether a request has to wait.
fn waits<F: Future>(request: &mut std::pin::Pin<Box<F>>) -> bool {
    poll(request).is_pending()
}

#[test]
fn busy_keys_leave_some_units_to_a_later_key() {
    for (units_max, key_units_max, units, expected) in [
        (16, 16, 1, vec![10, 4, 1, 1, 0]),
        (48, 16, 1, vec![16, 16, 10, 4, 1, 1, 0]),
        (4, 1, 1, vec![1, 1, 1, 1, 0]),
        (1, 1, 1, vec![1, 0]),
        (0, 0, 1, vec![1, 0]),
        (1_000, 1_000, 10, vec![66, 22, 8, 2, 1, 1, 0]),
    ] {
        let quota = FairQuota::new(units_max, key_units_max);
        let held: Vec<Permits> = ('a'..='g')
            .map(|key| take_all(&quota, key, units))
            .collect();
        let counts: Vec<_> = held.iter().map(Vec::len).take(expected.len()).collect();
        assert_eq!(counts, expected, "{units_max} {key_units_max}");
        drop(held);
        assert!(is_untouched(&quota));
    }
}

#[test]
fn keys_that_go_on_asking_come_to_equal_parts() {
    for (units_max, units, expected) in [(16, 1, 4..=6), (1_000, 10, 26..=30)] {
        let quota = FairQuota::new(units_max, units_max);
        let keys = ['a', 'b', 'c'];
        let mut held = keys.map(|key| take_all(&quota, key, units));
        for _ in 0..100 {
            for (permits, key) in held.iter_mut().zip(keys) {
                permits.pop();
                permits.extend(take_all(&quota, key, units));
            }
        }
        let counts = held.each_ref().map(Vec::len);
        let equal = counts.iter().all(|count| expected.contains(count));
        assert!(equal, "{counts:?}");
        assert!(quota.try_take('d', units).is_ok(), "{counts:?}");
    }
}

#[test]
fn a_key_without_units_gets_all_free_units_up_to_its_limit() {
    let quota = FairQuota::new(100, 90);
    let most = quota.try_take('a', 90).unwrap();
    assert!(quota.try_take('a', 1).is_err());
    assert!(quota.try_take('b', 11).is_err());
    assert!(quota.try_take('b', 10).is_ok());
    drop(most);
    assert!(quota.try_take('b', 90).is_ok());
}

#[test]
fn a_request_for_more_than_one_key_may_have_gets_that_and_one_for_more_than_all_nothing() {
    let quota = FairQuota::new(100, 50);
    let most = quota.try_take('a', 100).unwrap();
    assert_eq!((most.units, quota.ledger.lock().free), (50, 50));
    assert!(quota.try_take('b', 50).is_ok(), "half is left");
    drop(most);
    assert!(quota.try_take('a', 101).is_err());
    assert!(is_untouched(&quota));
    assert_eq!(FairQuota::<char>::new(4, 9).key_units_max(), 4);
}

#[test]
fn a_namespace_has_a_quarter_and_all_namespaces_three_quarters() {
    for (limit, together, one) in [
        (64, 48, 16),
        (8, 6, 2),
        (3, 2, 1),
        (1, 1, 1),
        (u32::MAX, 3_221_225_471, 1_073_741_823),
    ] {
        let quota = FairQuota::of_namespaces(limit);
        assert_eq!(
            (quota.units_max, quota.key_units_max),
            (together, one),
            "{limit}"
        );
    }
}

#[test]
fn the_error_names_the_limit_that_was_met() {
    let quota = FairQuota::new(4, 2);
    let of_a = take_all(&quota, 'a', 1);
    let full = |key| quota.try_take(key, 1).unwrap_err();
    assert_eq!(full('a').held_max, 2);
    let others: Vec<_> = ['b', 'c'].map(|key| take_all(&quota, key, 1)).into();
    assert_eq!(full('d').held_max, 4);
    drop((of_a, others));
    assert!(is_untouched(&quota));
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_for_units_until_its_deadline() {
    let quota = FairQuota::new(1, 1);
    let permit = quota.take('a', 1, in_seconds(1)).await.unwrap();
    let full = quota.take('b', 1, in_seconds(1)).await.map(drop);
    let expected = QuotaFull {
        held_max: 1,
        over_part: false,
    };
    assert_eq!(full, Err(expected));
    let mut later = Box::pin(quota.take('b', 1, in_seconds(1)));
    assert!(waits(&mut later));
    drop(permit);
    assert!(later.await.is_ok());
    assert!(is_untouched(&quota));
}

/// Starts requests that hold their units for a second. Returns them in the order in which they got the units.
async fn order(
    quota: &Arc<FairQuota<char>>,
    before: FairPermit<char>,
    requests: &[(char, u64)],
) -> Vec<(char, u64)> {
    let (got, mut order) = tokio::sync::mpsc::unbounded_channel();
    for (key, units) in requests.iter().copied() {
        let (quota, got) = (Arc::clone(quota), got.clone());
        tokio::spawn(async move {
            let permit = quota.take(key, units, in_seconds(60)).await;
            got.send((key, units)).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(permit.unwrap());
        });
        tokio::task::yield_now().await;
    }
    drop((before, got));
    let mut seen = Vec::new();
    while let Some(request) = order.recv().await {
        seen.push(request);
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_request_for_more_than_all_units_keeps_nobody_waiting() {
    let quota = FairQuota::new(10, 10);
    let begun = Instant::now();
    assert!(quota.take('a', 11, in_seconds(60)).await.is_err());
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert!(quota.try_take('b', 10).is_ok());
}

#[tokio::test(start_paused = true)]
async fn keys_take_turns_and_each_goes_in_its_own_order() {
    for (units_max, requests, expected) in [
        (
            1,
            vec![('a', 1), ('a', 1), ('a', 1), ('b', 1), ('b', 1), ('c', 1)],
            vec![('a', 1), ('b', 1), ('c', 1), ('a', 1), ('b', 1), ('a', 1)],
        ),
        (
            100,
            vec![('a', 90), ('b', 80), ('a', 10), ('c', 70), ('a', 20)],
            vec![('a', 90), ('b', 80), ('a', 10), ('c', 70), ('a', 20)],
        ),
    ] {
        let quota = FairQuota::new(units_max, units_max);
        let all = quota.try_take('x', units_max).unwrap();
        assert_eq!(order(&quota, all, &requests).await, expected);
        assert!(is_untouched(&quota));
    }
}

/// Its next request would otherwise follow the first one, and the other would wait for both.
#[tokio::test(start_paused = true)]
async fn a_key_that_held_units_goes_behind_those_that_waited_meanwhile() {
    let quota = FairQuota::new(100, 100);
    let first = quota.try_take('a', 100).unwrap();
    let mut second = Box::pin(quota.take('a', 100, in_seconds(60)));
    assert!(waits(&mut second));
    let mut other = Box::pin(quota.take('b', 10, in_seconds(60)));
    assert!(waits(&mut other));
    drop(first);
    let of_other = other.await.unwrap();
    // The key keeps this place, whoever comes.
    let mut later = Box::pin(quota.take('c', 100, in_seconds(60)));
    assert!(waits(&mut second) && waits(&mut later));
    drop(of_other);
    let of_second = second.await.unwrap();
    assert!(waits(&mut later));
    drop(of_second);
    assert!(later.await.is_ok());
    assert!(is_untouched(&quota));
}

#[tokio::test(start_paused = true)]
async fn small_requests_of_a_busy_key_do_not_starve_a_large_one() {
    let quota = FairQuota::new(120, 120);
    let mut held = take_all(&quota, 'a', 2);
    let mut large = Box::pin(quota.take('b', 100, in_seconds(60)));
    let granted = (0..held.len()).find_map(|_| match poll(&mut large) {
        std::task::Poll::Ready(granted) => granted.ok(),
        std::task::Poll::Pending => {
            held.pop();
            held.extend(take_all(&quota, 'a', 2));
            None
        }
    });
    assert!(granted.is_some(), "the other key yields");
    drop((granted, held));
    assert!(is_untouched(&quota));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gives_up_lets_the_next_one_go() {
    let quota = FairQuota::new(100, 100);
    let held = quota.try_take('a', 40).unwrap();
    let mut large = Box::pin(quota.take('a', 60, in_seconds(5)));
    assert!(waits(&mut large));
    let mut small = Box::pin(quota.take('a', 10, in_seconds(5)));
    assert!(waits(&mut small));
    drop(large);
    assert!(small.await.is_ok());
    drop(held);
    assert!(is_untouched(&quota));
}

#[tokio::test(start_paused = true)]
async fn units_that_are_granted_to_a_request_that_gave_up_come_back() {
    let quota = FairQuota::new(100, 100);
    let held = quota.try_take('a', 100).unwrap();
    let mut request = Box::pin(quota.take('b', 100, in_seconds(5)));
    assert!(waits(&mut request));
    drop(held);
    assert_eq!(quota.ledger.lock().free, 0, "they are granted");
    drop(request);
    assert!(is_untouched(&quota));
}

#[test]
fn the_error_says_whether_the_key_itself_uses_up_its_part() {
    for (units_max, key_units_max) in [(16, 16), (16, 4), (1, 1)] {
        let quota = FairQuota::new(units_max, key_units_max);
        let flood = take_all(&quota, 'a', 1);
        assert!(quota.try_take('a', 1).unwrap_err().over_part);
        let rest: Vec<_> = ('b'..='z').map(|key| take_all(&quota, key, 1)).collect();
        let full = quota.try_take('A', 1).unwrap_err();
        assert!(!full.over_part, "others have all");
        drop((flood, rest));
    }
    // Many keys leave little: one that holds a single unit is not at fault.
    let quota = FairQuota::new(16, 16);
    let one = quota.try_take('a', 1).unwrap();
    let rest = ['b', 'c', 'd'].map(|key| take_all(&quota, key, 1));
    assert!(!quota.try_take('a', 1).unwrap_err().over_part);
    drop((one, rest));
}

#[test]
fn a_permit_is_over_its_part_with_the_other_units_of_its_key() {
    let quota = FairQuota::new(12, 12);
    let large = quota.try_take('a', 8).unwrap();
    assert!(!large.is_over_part(), "there are no others");
    drop(large);
    let mut of_a = take_all(&quota, 'a', 1);
    assert_eq!(of_a.len(), 8);
    assert!(of_a[0].is_over_part());
    of_a.truncate(6);
    assert!(!of_a[0].is_over_part());
    let of_b = quota.try_take('b', 1).unwrap();
    assert!(of_a[0].is_over_part() && !of_b.is_over_part());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_had_no_turn_while_a_request_waited_is_not_at_fault() {
    let quota = FairQuota::new(1, 1);
    let of_other = quota.try_take('a', 1).unwrap();
    let mut before = Box::pin(quota.take('b', 1, in_seconds(60)));
    assert!(waits(&mut before));
    // However many wait, all of them wait for the other key.
    let late = quota.take('b', 1, in_seconds(1)).await;
    assert!(!late.unwrap_err().over_part);
    let mut after = Box::pin(quota.take('b', 1, in_seconds(1)));
    assert!(waits(&mut after));
    drop(of_other);
    let turn = before.await.unwrap();
    let late = after.await;
    assert!(late.unwrap_err().over_part, "its own requests go on");
    drop(turn);
    assert!(is_untouched(&quota));
}

#[tokio::test(start_paused = true)]
async fn a_key_exceeds_its_part_by_what_it_holds_and_waits_for() {
    let quota = FairQuota::new(120, 120);
    assert!(!quota.would_exceed_part(&'a', 120), "it has nothing yet");
    let held = quota.try_take('a', 60).unwrap();
    assert!(quota.would_exceed_part(&'a', 1));
    assert!(!quota.would_exceed_part(&'b', 100));
    let other = quota.try_take('b', 20).unwrap();
    assert!(!quota.would_exceed_part(&'b', 20));
    assert!(quota.would_exceed_part(&'b', 21));
    let mut request = Box::pin(quota.take('b', 50, in_seconds(5)));
    assert!(waits(&mut request));
    assert!(quota.would_exceed_part(&'b', 1));
    drop((request, held, other));
    assert!(is_untouched(&quota));
}
