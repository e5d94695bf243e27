//! Bad days that both buses know.

use std::time::Duration;

use anteroom_bus::{
    AppendError, BusError, BusExt as _, Connection, LogScope, RequestError, RestartCause,
};
use anteroom_model::ViewState;
use anteroom_wire::beat::Beat;

use crate::{
    calls::{answer, at, beat, call, heard},
    harness::{Harness, until},
    support::{Reader, Writer, answered, control, delete, put, within},
};

const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn the_connection_is_watched(mut harness: impl Harness) {
    let bus = harness.client().await;
    for _ in 0..2 {
        harness.stop().await;
        until(&*bus, Connection::Down).await;
        harness.restart().await;
        until(&*bus, Connection::Up).await;
    }
}

pub(crate) async fn while_away_everything_fails_at_once(mut harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let bus = &writer.bus;
    writer.append(vec![put("a", "x", 1)]).await;
    harness.stop().await;
    until(&**bus, Connection::Down).await;

    let forever = Duration::from_secs(3600);
    let refused = within(bus.request(&at("a"), call(b""), forever)).await;
    assert!(
        matches!(
            refused,
            Err(RequestError::NotSent(BusError::Unavailable { .. }))
        ),
        "{refused:?}"
    );
    for batch in [
        vec![put("a", "x", 2)],
        vec![put("a", "x", 2), put("a", "y", 2)],
    ] {
        let refused = within(bus.append(writer.fence, batch)).await;
        assert!(
            matches!(refused, Err(AppendError::Bus(BusError::Unavailable { .. }))),
            "{refused:?}"
        );
    }
    for refused in [
        within(bus.head()).await.map(drop),
        within(bus.ensure_log()).await.map(drop),
        within(bus.index()).await.map(drop),
        within(bus.send(&beat(1))).await,
    ] {
        assert!(
            matches!(refused, Err(BusError::Unavailable { .. })),
            "{refused:?}"
        );
    }

    harness.restart().await;
    until(&**bus, Connection::Up).await;
    // The lease outlives the outage, and nothing was queued behind the writer's back.
    let index = answered(|| bus.index()).await.unwrap();
    let objects = index.objects.values().next().unwrap();
    assert_eq!(objects.len(), 1);
    assert_eq!(objects.values().next().unwrap().1.as_str(), "1");
    writer.append(vec![put("a", "x", 2)]).await;
}

pub(crate) async fn a_follower_goes_on_after_an_outage(mut harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let last = writer
        .append(vec![put("a", "x", 1), put("a", "y", 1)])
        .await;
    let bus = harness.client().await;
    let mut reader = Reader::new(&*bus, LogScope::All);
    reader.caught_up_at(last).await;
    for version in 2..4_u64 {
        let away = reader.away;
        harness.stop().await;
        reader.until(|reader| reader.away > away).await;
        harness.restart().await;
        until(&*writer.bus, Connection::Up).await;
        let update = vec![
            put("a", "x", version),
            delete("a", "y", version),
            control("a", ViewState::Synced),
        ];
        // Whether it was written may be unknown while the server comes up; again is harmless.
        let last = loop {
            match within(writer.bus.append(writer.fence, update.clone())).await {
                Ok(revision) => break revision,
                Err(AppendError::Fenced) => panic!("fenced"),
                Err(_) => tokio::task::yield_now().await,
            }
        };
        reader.caught_up_at(last).await;
        assert_eq!(reader.version("a", "x"), Some(version.to_string().as_str()));
        assert_eq!(reader.objects.len(), 1);
    }
    assert_eq!(
        reader.restarts,
        [RestartCause::Start],
        "it goes on, it does not begin again"
    );
}

pub(crate) async fn a_server_is_back_after_an_outage(mut harness: impl Harness) {
    let (caller, server) = (harness.client().await, harness.client().await);
    let serving = server.serve(&at("a")).await.unwrap();
    tokio::spawn(answer(serving, "one"));
    let asked = within(caller.request(&at("a"), call(b""), TIMEOUT)).await;
    assert_eq!(asked.unwrap(), "one");
    harness.stop().await;
    until(&*caller, Connection::Down).await;
    harness.restart().await;
    within(async {
        loop {
            match caller.request(&at("a"), call(b""), TIMEOUT).await {
                Ok(reply) => return assert_eq!(reply, "one"),
                Err(RequestError::TimedOut { .. }) => panic!("a call was lost"),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
}

pub(crate) async fn beats_are_back_after_an_outage(mut harness: impl Harness) {
    let (writer, reader) = (harness.client().await, harness.client().await);
    let mut beats = reader.signals::<Beat>().await.unwrap();
    heard(&*writer, &mut beats, 1).await;
    harness.stop().await;
    until(&*writer, Connection::Down).await;
    harness.restart().await;
    until(&*writer, Connection::Up).await;
    heard(&*writer, &mut beats, 2).await;
}

/// A writer writes one object to a log that was made anew, and the reader forgets what it has read before.
async fn reads_only_what_is_written_anew(harness: &impl Harness, reader: &mut Reader) {
    let writer = Writer::new(harness.client().await).await;
    let last = writer.append(vec![put("a", "new", 1)]).await;
    reader
        .until(|reader| reader.restarts.contains(&RestartCause::NewIncarnation))
        .await;
    reader.caught_up_at(last).await;
    assert_eq!(reader.objects.len(), 1);
    assert_eq!(reader.version("a", "new"), Some("1"));
}

pub(crate) async fn a_log_made_anew_is_noticed(mut harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let objects = (0..20).map(|n| put("a", &format!("old-{n}"), 1)).collect();
    let last = writer.append(objects).await;
    let mut reader = Reader::new(&*harness.client().await, LogScope::All);
    reader.caught_up_at(last).await;
    assert_eq!(reader.objects.len(), 20);

    harness.delete_log().await;
    reads_only_what_is_written_anew(&harness, &mut reader).await;
}

pub(crate) async fn a_log_is_made_anew_once_for_those_who_found_it_shortened(
    harness: impl Harness,
) {
    let writer = Writer::new(harness.client().await).await;
    let last = writer.append(vec![put("a", "old", 1)]).await;
    let mut reader = Reader::new(&*harness.client().await, LogScope::All);
    reader.caught_up_at(last).await;
    let before = writer.bus.head().await.unwrap().incarnation;
    let remade = answered(|| writer.bus.remake_log(&before));
    remade.await.unwrap();
    let head = async || answered(|| writer.bus.head()).await.unwrap();
    let after = head().await;
    assert_ne!(after.incarnation, before);
    // A second watcher found the log shortened too, and comes later.
    let second = harness.client().await;
    let remade = answered(|| second.remake_log(&before));
    remade.await.unwrap();
    assert_eq!(head().await, after);
    let batch = vec![put("a", "x", 2)];
    let refused = answered(|| writer.bus.append(writer.fence, batch.clone())).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
    let index = answered(|| writer.bus.index()).await.unwrap();
    assert!(index.objects.is_empty() && index.views.is_empty());

    reads_only_what_is_written_anew(&harness, &mut reader).await;
}

pub(crate) async fn a_deleted_log_is_noticed(mut harness: impl Harness) {
    let writer = Writer::new(harness.client().await).await;
    let last = writer.append(vec![put("a", "x", 1)]).await;
    let mut reader = Reader::new(&*harness.client().await, LogScope::All);
    reader.caught_up_at(last).await;
    let away = reader.away;
    harness.delete_log().await;
    reader.until(|reader| reader.away > away).await;
    let refused = within(writer.bus.append(writer.fence, vec![put("a", "x", 2)])).await;
    assert!(
        matches!(refused, Err(AppendError::Bus(BusError::NoLog))),
        "{refused:?}"
    );
    // What was delivered stays.
    assert_eq!(reader.version("a", "x"), Some("1"));
}

pub(crate) async fn closing_ends_everything(harness: impl Harness) {
    let bus = harness.client().await;
    bus.ensure_log().await.unwrap();
    let mut reader = Reader::new(&*bus, LogScope::All);
    reader.until(|reader| reader.caught_up.is_some()).await;
    let mut beats = bus.signals::<Beat>().await.unwrap();
    let mut serving = bus.serve(&at("a")).await.unwrap();
    bus.close().await;
    assert!(!reader.step().await);
    assert!(within(beats.next()).await.is_none());
    assert!(within(serving.next()).await.is_none());
    until(&*bus, Connection::Down).await;
    let refused = within(bus.head()).await;
    assert!(
        matches!(refused, Err(BusError::Unavailable { .. })),
        "{refused:?}"
    );
    let caller = harness.client().await;
    let nobody = within(caller.request(&at("a"), call(b""), TIMEOUT)).await;
    assert!(
        matches!(nobody, Err(RequestError::NoResponders)),
        "{nobody:?}"
    );
}
