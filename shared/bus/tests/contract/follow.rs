//! Following the log.

use anteroom_bus::{Follower, LogEvent, LogScope, RestartCause};
use anteroom_model::{Op, Revision, ViewState};
use anteroom_wire::envelope::Record;

use crate::{
    harness::Harness,
    support::{Reader, Writer, control, delete, put, put_of, view, within},
};

/// Returns the next event of `follower` but [`LogEvent::Away`]: servers that elect a leader may be out of reach.
async fn next_event(follower: &mut Follower) -> Option<LogEvent> {
    loop {
        match within(follower.next()).await {
            Some(LogEvent::Away { .. }) => {}
            event => return event,
        }
    }
}

/// Returns the next event of a follower that is caught up, without those of a moment out of reach.
async fn next_record(follower: &mut Follower) -> Option<LogEvent> {
    loop {
        match next_event(follower).await {
            Some(LogEvent::CaughtUp { .. }) => {}
            event => return event,
        }
    }
}

pub(crate) async fn it_sees_records_as_they_were_written(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let mut follower = harness.client().await.follow(LogScope::All);
    let start = next_event(&mut follower).await;
    let head = writer.bus.head().await.unwrap();
    assert!(
        matches!(&start, Some(LogEvent::Restart { incarnation, cause: RestartCause::Start })
            if *incarnation == head.incarnation),
        "{start:?}"
    );
    let caught_up = next_event(&mut follower).await;
    assert!(
        matches!(caught_up, Some(LogEvent::CaughtUp { .. })),
        "{caught_up:?}"
    );

    let written = vec![
        put("a", "with.dots:and spaces", 1),
        control("a", ViewState::Synced),
        put_of("a", "large", 2, 1_500_000),
        delete("a", "large", 3),
    ];
    for envelope in &written {
        let at = writer.append(vec![envelope.clone()]).await;
        match next_record(&mut follower).await {
            Some(LogEvent::Record {
                revision,
                envelope: Ok(read),
            }) => {
                assert_eq!(revision, at);
                assert_eq!(*read, *envelope);
            }
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn it_sees_tombstones(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    writer
        .append(vec![put("a", "x", 1), put("a", "y", 1)])
        .await;
    let last = writer.append(vec![delete("a", "x", 2)]).await;
    let mut late = Reader::new(&*writer.bus, LogScope::All);
    late.caught_up_at(last).await;
    assert_eq!((late.tombstones, late.objects.len()), (1, 1));
    let last = writer
        .append(vec![delete("a", "y", 3), put("a", "z", 3)])
        .await;
    late.until(|reader| reader.last >= last).await;
    assert_eq!((late.tombstones, late.objects.len()), (2, 1));
}

pub(crate) async fn a_follower_sees_only_its_scope(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let batch = |version| {
        vec![
            put("a", "x", version),
            put("b", "x", version),
            control("a", ViewState::Synced),
            control("b", ViewState::Synced),
            put("c", "x", version),
        ]
    };
    let last = writer.append(batch(1)).await;
    let scope = LogScope::Views(vec![view("b"), view("c")]);
    let mut reader = Reader::new(&*writer.bus, scope);
    reader.caught_up_at(last).await;
    assert_eq!(reader.objects.len(), 2);
    let last = writer.append(batch(2)).await;
    reader.until(|reader| reader.last >= last).await;
    assert_eq!(reader.objects.len(), 2);
    assert_eq!(reader.version("c", "x"), Some("2"));
    assert!(
        reader
            .controls
            .iter()
            .all(|record| record.view == view("b"))
    );
    assert_eq!(reader.controls.len(), 2);
    let mut reader = Reader::new(&*writer.bus, LogScope::Controls);
    reader.caught_up_at(last).await;
    assert!(reader.objects.is_empty());
    assert_eq!(reader.controls.len(), 2);
}

pub(crate) async fn a_scope_of_nothing_is_caught_up(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let last = writer.append(vec![put("a", "x", 1)]).await;
    for views in [vec![], vec![view("nobody-writes-this")]] {
        let mut reader = Reader::new(&*writer.bus, LogScope::Views(views));
        reader.caught_up_at(last).await;
        assert!(reader.objects.is_empty() && reader.controls.is_empty());
    }
}

/// Objects move to the log's end while they are read for the first time: one that has moved behind
/// the first look must not be missing when the reader is told that it has everything.
pub(crate) async fn caught_up_means_that_nothing_is_missing(harness: impl Harness) {
    const OBJECTS: usize = 400;
    let writer = Writer::new(harness.client().await).await;
    for chunk in (0..OBJECTS).collect::<Vec<_>>().chunks(100) {
        let put = |n: &usize| put("a", &format!("object-{n}"), 1);
        writer.append(chunk.iter().map(put).collect()).await;
    }
    let updates = tokio::spawn({
        let writer = writer.clone();
        async move {
            let mut last = Revision(0);
            for n in (0..OBJECTS).step_by(4) {
                let update = |n: usize| put("a", &format!("object-{n}"), 2);
                last = writer.append((n..n + 4).map(update).collect()).await;
            }
            last
        }
    });
    let bus = harness.client().await;
    while !updates.is_finished() {
        let mut reader = Reader::new(&*bus, LogScope::All);
        reader.until(|reader| reader.caught_up.is_some()).await;
        assert_eq!(reader.objects.len(), OBJECTS);
    }
    let last = within(updates).await.unwrap();
    let mut reader = Reader::new(&*bus, LogScope::All);
    reader.caught_up_at(last).await;
    assert!(reader.objects.values().all(|version| version == "2"));
}

pub(crate) async fn a_slow_reader_loses_nothing(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let mut reader = Reader::new(&*harness.client().await, LogScope::All);
    reader.until(|reader| reader.caught_up.is_some()).await;
    // Far more than any queue between the two holds, and every object twice.
    let mut last = Revision(0);
    for version in 1..=2 {
        for chunk in (0..6_000).collect::<Vec<_>>().chunks(250) {
            let put = |n: &usize| put("a", &format!("object-{n}"), version);
            last = writer.append(chunk.iter().map(put).collect()).await;
        }
    }
    reader.until(|reader| reader.last >= last).await;
    assert_eq!(reader.objects.len(), 6_000);
    assert!(reader.objects.values().all(|version| version == "2"));
    assert_eq!(reader.restarts, [RestartCause::Start]);
}

/// Until then it has some objects as they were before records that it has passed.
pub(crate) async fn a_slow_reader_is_told_when_it_has_what_superseded_records(
    harness: impl Harness,
) {
    const VERSIONS: u64 = 40;
    let writer = Writer::new(harness.client().await).await;
    let mut reader = Reader::new(&*harness.client().await, LogScope::All);
    reader.until(|reader| reader.caught_up.is_some()).await;
    for version in 1..=VERSIONS {
        let put = |n| put("a", &format!("object-{n}"), version);
        writer.append((0..250).map(put).collect()).await;
    }
    reader.until(|reader| reader.superseded > 0).await;
    reader.until(|reader| reader.caught_up.is_some()).await;
    assert_eq!(reader.objects.len(), 250);
    let last = VERSIONS.to_string();
    assert!(reader.objects.values().all(|version| *version == last));
    assert_eq!(reader.restarts, [RestartCause::Start]);
}

pub(crate) async fn a_follower_that_is_asked_to_restart_reads_the_log_again(harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let last = writer
        .append(vec![put("a", "x", 1), put("a", "y", 1)])
        .await;
    let mut reader = Reader::new(&*writer.bus, LogScope::All);
    reader.caught_up_at(last).await;
    // As if it had missed the news of one and the end of another.
    reader.objects.clear();
    reader
        .objects
        .insert((view("a"), crate::support::key("stray")), "1".into());
    reader.restart();
    reader.until(|reader| reader.restarts.len() == 2).await;
    reader.caught_up_at(last).await;
    assert_eq!(reader.restarts, [RestartCause::Start, RestartCause::Asked]);
    assert_eq!(reader.objects.len(), 2);
    let last = writer.append(vec![put("a", "z", 1)]).await;
    reader.until(|reader| reader.last >= last).await;
    assert_eq!(reader.objects.len(), 3);
}

pub(crate) async fn it_waits_for_the_log_to_be_made(harness: impl Harness) {
    let bus = harness.client().await;
    let mut follower = bus.follow(LogScope::All);
    let first = within(follower.next()).await;
    assert!(matches!(first, Some(LogEvent::Away { .. })), "{first:?}");
    let writer = Writer::new(harness.client().await).await;
    writer.append(vec![put("a", "x", 1)]).await;
    // The log may be found before it has its first record, or after.
    let (mut put_seen, mut caught_up) = (false, false);
    while !(put_seen && caught_up) {
        match within(follower.next()).await {
            Some(LogEvent::Record { envelope, .. }) => {
                let record = envelope.unwrap().record;
                put_seen =
                    matches!(record, Record::Delta { delta, .. } if matches!(delta.op, Op::Put(_)));
            }
            Some(LogEvent::CaughtUp { .. }) => caught_up = true,
            Some(_) => {}
            None => panic!("the events ended"),
        }
    }
}
