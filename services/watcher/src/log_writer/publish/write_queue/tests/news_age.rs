//! The age of a view's news, as heartbeats tell it.

use anteroom_model::limits::SUSPEND_SETTLE_MS;

use super::*;

#[test]
fn the_news_age_counts_changes_that_wait_to_be_written() {
    let start = Instant::now();
    let later = |ms| start + Duration::from_millis(ms);
    let mut queue = WriteQueue::new(1);
    let handle = queue.open(info("a"), HashMap::new());
    assert_eq!(
        queue.beats(start)[0].news_age_ms,
        u64::MAX,
        "never heard from"
    );
    queue.mark_fresh(&handle, None, start);
    assert_eq!(queue.beats(later(100))[0].news_age_ms, 100);
    queue.put(
        &handle,
        key("x"),
        rv(1),
        body(1),
        later(40),
        ChangeOrigin::List,
    );
    assert_eq!(queue.beats(later(100))[0].news_age_ms, 160);
    let Some(Work::Append(batch)) = queue.next_work(later(100)) else {
        panic!()
    };
    assert_eq!(
        queue.beats(later(100))[0].news_age_ms,
        160,
        "on its way is not there"
    );
    queue.written(&batch, Revision(2));
    let beat = queue.beats(later(100)).remove(0);
    assert_eq!((beat.news_age_ms, beat.revision), (100, Revision(2)));
}

/// Whatever a list brings may have happened since the source was last heard from.
#[test]
fn only_changes_of_a_list_that_runs_are_as_old_as_the_last_word_before_it() {
    let start = Instant::now();
    let later = |seconds| start + Duration::from_secs(seconds);
    let age = |queue: &WriteQueue, seconds| queue.beats(later(seconds))[0].news_age_ms;
    let (mut queue, mut log) = (WriteQueue::new(1), Reader::default());
    let handle = queue.open(info("a"), HashMap::new());
    queue.mark_fresh(&handle, None, start);
    queue.begin_list(&handle);
    for (origin, expected) in [(ChangeOrigin::Own, 40), (ChangeOrigin::List, 80)] {
        queue.put(&handle, key("x"), rv(1), body(1), later(40), origin);
        queue.delete(&handle, &key("x"), rv(2), later(40), ChangeOrigin::Own);
        assert_eq!(age(&queue, 40), expected * 1_000, "a list runs");
        write_all(&mut queue, &mut log);
    }
    queue.listed(&handle, &rv(9), later(40));
    write_all(&mut queue, &mut log);

    let hours = 2 * 60 * 60;
    queue.mark_fresh(&handle, None, later(hours));
    for origin in [ChangeOrigin::Own, ChangeOrigin::List] {
        queue.put(&handle, key("y"), rv(11), body(1), later(hours), origin);
        assert_eq!(age(&queue, hours), 0, "no list runs");
        queue.delete(&handle, &key("y"), rv(12), later(hours), ChangeOrigin::Own);
        write_all(&mut queue, &mut log);
    }
}

/// A watch that stood still brings an event late. While the event waits to be written, the log is without it.
#[test]
fn an_event_that_waits_is_as_old_as_the_last_word_before_it() {
    let start = Instant::now();
    let later = |ms| start + Duration::from_millis(ms);
    let age = |queue: &WriteQueue, ms| queue.beats(later(ms))[0].news_age_ms;
    let (mut queue, mut log) = (WriteQueue::new(1), Reader::default());
    let handle = queue.open(info("a"), HashMap::new());
    queue.mark_fresh(&handle, None, start);
    for at in [3_000, 3_010] {
        let event = ChangeOrigin::Event(tracing::Span::none());
        queue.put(&handle, key("x"), rv(at), body(1), later(at), event);
        queue.mark_fresh(&handle, None, later(at));
    }
    assert_eq!(age(&queue, 3_010), 3_010);
    assert_eq!(age(&queue, 3_110), 100 + 3_110);
    write_all(&mut queue, &mut log);
    assert_eq!(age(&queue, 3_110), 100);
}

/// The writer's machine was suspended. News that arrives at once may have been sent before.
#[test]
fn news_of_before_a_suspend_is_as_much_older() {
    let start = Instant::now();
    let later = |ms| start + Duration::from_millis(ms);
    let age = |queue: &WriteQueue, ms| queue.beats(later(ms))[0].news_age_ms;
    let mut queue = WriteQueue::new(1);
    let handle = queue.open(info("a"), HashMap::new());
    let hour_ms = 3_600_000;
    queue.note_suspended(Duration::ZERO, start);
    queue.mark_fresh(&handle, None, later(10));
    assert_eq!(age(&queue, 100), 90);
    queue.note_suspended(Duration::from_millis(hour_ms), later(100));
    assert_eq!(age(&queue, 100), 90 + hour_ms);
    assert_eq!(queue.stats(later(100))[0].news_age_ms, 90 + hour_ms);
    queue.mark_fresh(&handle, None, later(300));
    assert_eq!(age(&queue, 400), 100 + hour_ms);
    let settled_ms = 100 + SUSPEND_SETTLE_MS + 1;
    queue.mark_fresh(&handle, None, later(settled_ms));
    assert_eq!(age(&queue, settled_ms), 0);
}
